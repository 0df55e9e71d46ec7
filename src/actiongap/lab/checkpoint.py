"""Checkpoints: the state of a run after some chunk, as one file of plain arrays, and the rows that precede it.

Nothing is pickled or compressed. The header comes first: which run it is, where in the run, the SHA-256 of every array, and the SHA-256 of
the rest of the header. A file that is truncated or changed anywhere, or that declares sizes it does not have, is rejected as a whole.
"""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import re
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from actiongap._files import check_archive, open_regular, reason, writing
from actiongap.lab.experiment import FORMAT, VERSION, State, check_format

HEADER_BYTES = 512
"""The format and the run are within the first bytes of a checkpoint, after the headers of the archive and of its first array."""
LARGEST = 2**63
"""Counts in a header are smaller."""


class UnreadableError(ValueError):
    """A file cannot be read now. It may be valid, so nothing is removed or begun again."""


TRANSIENT = (errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of a read that say nothing of the file."""


class Checkpoint(NamedTuple):
    """A state, its position in the run, and its run."""

    chunk: int
    """Number of finished chunks."""
    state: State
    rows: int
    """Bytes of rows up to here."""
    digest: str
    """Their SHA-256."""
    seconds: float
    """Seconds of work, over all attempts."""
    run: str = ""
    """The fingerprint of the run's configuration (`actiongap.lab.experiment.fingerprint_of`). Empty if unknown, as in old checkpoints."""


def write_checkpoint(file: str | Path, checkpoint: Checkpoint) -> None:
    """Write a checkpoint as a .npz file: plain arrays, each with a checksum.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "1.npz"
    >>> write_checkpoint(file, Checkpoint(1, {"q": np.zeros(2)}, 0, "", 0.5))
    >>> read_checkpoint(file).state["q"].tolist()
    [0.0, 0.0]
    """
    arrays = [np.asarray(value) for value in checkpoint.state.values()]
    for name, array in zip(checkpoint.state, arrays, strict=True):
        if array.dtype.hasobject or (array.dtype.kind == "V" and not array.dtype.names):
            raise ValueError(f"the state {name!r} holds {array.dtype}: the state of an experiment must hold plain arrays of numbers")
    # The run is found by `is_checkpoint` at the beginning of the file.
    header: dict[str, Any] = {"format": FORMAT, "version": VERSION, "run": checkpoint.run}
    header |= {name: getattr(checkpoint, name) for name in ("chunk", "rows", "digest", "seconds")}
    header |= {"names": list(checkpoint.state), "arrays": list(map(_digest, arrays))}
    header["header"] = _header_digest(header)
    with writing(file, sweep=False) as stream:
        np.savez(stream, np.frombuffer(json.dumps(header).encode(), np.uint8), *arrays, allow_pickle=False)


def is_checkpoint(file: str | Path, run: str = "") -> bool:
    """Whether a file begins with the header of a checkpoint, of this run if it is given. The rest may be truncated or changed.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "1.npz"
    >>> np.savez(file, weights=np.zeros(2))
    >>> is_checkpoint(file)
    False
    >>> write_checkpoint(file, Checkpoint(1, {"q": np.zeros(2)}, 0, "", 0.5, run="ab12"))
    >>> is_checkpoint(file), is_checkpoint(file, run="ab12"), is_checkpoint(file, run="cd34")
    (True, True, False)
    """
    try:
        with open_regular(file) as stream:
            begin = stream.read(HEADER_BYTES)
    except OSError as error:
        raise_if_transient(file, error)
        return False
    except ValueError:
        return False
    # The header is the first array. It is read as bytes, because an archive that is truncated cannot be opened.
    found = re.search(rb'"run": "([0-9a-f]+)"', begin)
    other = bool(run and found and found[1].decode() != run)
    return begin.startswith(b"PK") and json.dumps({"format": FORMAT}).rstrip("}").encode() in begin and not other


def read_checkpoint(file: str | Path, wanted: Callable[[str], bool] = lambda name: True) -> Checkpoint:
    """Read a checkpoint, with the arrays of its state that are wanted, or raise ValueError if anything is missing or changed."""
    try:
        with open_regular(file) as stream:
            # NumPy stops reading at the end of an array, possibly before it checks the checksum.
            with zipfile.ZipFile(stream) as archive:
                check_archive(archive, compressed=False)
                if (damaged := archive.testzip()) is not None:
                    raise ValueError(f"{damaged} does not match its checksum")
            stream.seek(0)
            found = np.load(stream, allow_pickle=False)
            header = json.loads(found["arr_0"].tobytes())
            check_format(header)
            _check_header(header)
            files = [f"arr_{i}" for i in range(1, len(found.files))]
            state: State = {}
            # Older checkpoints have no digests.
            digests = header.get("arrays", [None] * len(files))
            for name, member, digest in zip(header["names"], files, digests, strict=True):
                if wanted(name):
                    state[name] = found[member]
                    if digest not in (None, _digest(state[name])):
                        raise ValueError(f"{name} does not match its digest")
        return Checkpoint(header["chunk"], state, header["rows"], header["digest"], float(header["seconds"]), header.get("run", ""))
    except MemoryError:
        raise UnreadableError(f"{file}: the checkpoint cannot be read: out of memory; run it on a machine with more memory") from None
    except OSError as error:
        raise_if_transient(file, error)
        raise ValueError(f"{file}: the checkpoint cannot be read: {reason(error)}") from None
    except Exception as error:  # a damaged archive can raise almost any exception
        why = " ".join(str(error).split())[:200]
        raise ValueError(f"{file}: the checkpoint is truncated or changed: {why}") from None


def raise_if_transient(file: str | Path, error: OSError) -> None:
    """Raise `UnreadableError` if a read failed for a reason that says nothing of the file, such as a lost network disk.

    Examples
    --------
    >>> raise_if_transient("1.npz", OSError(errno.EIO, "Input/output error"))
    Traceback (most recent call last):
    actiongap.lab.checkpoint.UnreadableError: 1.npz: it cannot be read now: Input/output error; run the same command again
    """
    if error.errno in TRANSIENT:
        raise UnreadableError(f"{file}: it cannot be read now: {os.strerror(error.errno)}; run the same command again") from None


def _check_header(header: dict[str, Any]) -> None:
    """Raise ValueError unless the values of a header can be those of a checkpoint."""
    if "header" in header and header["header"] != _header_digest({name: header[name] for name in header if name != "header"}):
        raise ValueError("its header does not match its digest")
    if ("header" in header) != ("arrays" in header):
        raise ValueError("a field of its header is missing")
    for name in ("chunk", "rows"):
        if type(header[name]) is not int or not 0 <= header[name] < LARGEST:
            raise ValueError(f"{name} in its header is not a count")
    names, seconds = header["names"], header["seconds"]
    if type(seconds) not in (int, float) or not (math.isfinite(seconds) and 0 <= seconds < LARGEST):
        raise ValueError("seconds in its header is not a duration")
    texts = isinstance(names, list) and all(isinstance(text, str) for text in (header["digest"], header.get("run", ""), *names))
    if not texts or len(set(names)) < len(names):
        raise ValueError("a field of its header has the wrong type")


def _header_digest(header: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()


def _digest(array: np.ndarray) -> str:
    """Return the SHA-256 of the type, the shape and the values of an array."""
    found = hashlib.sha256(repr((np.lib.format.dtype_to_descr(array.dtype), array.shape)).encode())
    flat = np.ascontiguousarray(array).reshape(-1)
    if flat.nbytes:
        found.update(flat.view(np.uint8).data)
    return found.hexdigest()
