"""Checkpoints: the state of a run after some chunk, as one file of plain arrays, and the rows that precede it.

Nothing is pickled. Each array has a checksum, and a truncated or changed file is rejected as a whole.
"""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from actiongap._files import writing
from actiongap.lab.experiment import FORMAT, VERSION, State, check_format

HEADER_BYTES = 512
"""The format is within the first bytes of a checkpoint, after the headers of the archive and of its first array."""


class Checkpoint(NamedTuple):
    """A state, and its position in the run."""

    chunk: int
    """Number of finished chunks."""
    state: State
    rows: int
    """Bytes of rows up to here."""
    digest: str
    """Their SHA-256."""
    seconds: float
    """Seconds of work, over all attempts."""


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
    counts = {name: getattr(checkpoint, name) for name in ("chunk", "rows", "digest", "seconds")}
    header = json.dumps({"format": FORMAT, "version": VERSION, **counts, "names": list(checkpoint.state)})
    with writing(file) as stream:
        np.savez(stream, np.frombuffer(header.encode(), np.uint8), *arrays, allow_pickle=False)


def is_checkpoint(file: str | Path) -> bool:
    """Whether a file begins with the header of a checkpoint. The rest may be truncated or changed.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "1.npz"
    >>> np.savez(file, weights=np.zeros(2))
    >>> is_checkpoint(file)
    False
    >>> write_checkpoint(file, Checkpoint(1, {"q": np.zeros(2)}, 0, "", 0.5))
    >>> is_checkpoint(file)
    True
    """
    try:
        with open(file, "rb") as stream:
            begin = stream.read(HEADER_BYTES)
    except OSError:
        return False
    # The header is the first array. It is read as bytes, because an archive that is truncated cannot be opened.
    return begin.startswith(b"PK") and json.dumps({"format": FORMAT}).rstrip("}").encode() in begin


def read_checkpoint(file: str | Path, wanted: Callable[[str], bool] = lambda name: True) -> Checkpoint:
    """Read a checkpoint, with the arrays of its state that are wanted, or raise ValueError if anything is missing or changed."""
    try:
        with open(file, "rb") as stream:
            # NumPy stops reading at the end of an array, possibly before it checks the checksum.
            if (damaged := zipfile.ZipFile(stream).testzip()) is not None:
                raise ValueError(f"{damaged} does not match its checksum")
            stream.seek(0)
            found = np.load(stream, allow_pickle=False)
            header = json.loads(found["arr_0"].tobytes())
            check_format(header)
            files = [f"arr_{i}" for i in range(1, len(found.files))]
            state = {name: found[file] for name, file in zip(header["names"], files, strict=True) if wanted(name)}
        return Checkpoint(int(header["chunk"]), state, int(header["rows"]), str(header["digest"]), float(header["seconds"]))
    except Exception as error:  # a damaged archive can raise almost any exception
        raise ValueError(f"{file}: the checkpoint is truncated or changed: {error}") from None
