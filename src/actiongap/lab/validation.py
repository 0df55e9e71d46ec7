"""Reading files that nobody vouches for: JSON without what it does not allow, of sizes that make sense, or one sentence.

Folders come from other machines, other versions and other people. A record is one small JSON object; rows are lines of them, which must
all be objects of finite numbers and nulls. Rows are parsed a block of lines at a time, so that memory holds the numbers and little else.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import operator
import stat
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from actiongap._files import reason
from actiongap.lab.experiment import Experiment, check_format, from_config

RECORD_BYTES = 2**20
"""No configuration, status or account of attempts is larger than this."""
BLOCK_BYTES = 2**20
"""Bytes of rows parsed at once, and the longest line."""
CELLS = 2**26
"""Numbers in one run, at most: half a gigabyte."""
NESTING = 8
"""Lists in lists, or objects in objects, in a run's record."""
NUMBERS = {float, int, type(None)}


def shown(path: str | Path) -> str:
    r"""A path as it can be put into a sentence: what cannot be printed becomes U+FFFD.

    Examples
    --------
    >>> shown("runs/two\nlines")
    'runs/two\ufffdlines'
    """
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in str(path))


def read_record(file: Path) -> dict[str, Any]:
    """One of a run's small JSON files, or one sentence about why it cannot be read."""
    try:
        with _open(file) as stream:
            data = stream.read(RECORD_BYTES + 1)
        if len(data) > RECORD_BYTES:
            raise ValueError(f"it is larger than {RECORD_BYTES} bytes, which no run's record is")
        found = STRICT.decode(data.decode())
        check_format(found)
        if not _is_flat(found, NESTING):
            raise ValueError("it is nested deeper than any run's record")
        # Half of a surrogate pair can be escaped in JSON and written nowhere else.
        return json.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace")) if b"\\u" in data else found
    except OSError as error:
        raise ValueError(f"{shown(file)}: {reason(error)}") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise ValueError(f"{shown(file)}: it is not JSON: it was cut short, or changed") from None
    except ValueError as error:
        raise ValueError(f"{shown(file)}: {error}") from None


def read_experiment(file: Path, *, trust: bool = False) -> Experiment:
    """The experiment of a run's `config.json`, or one sentence about why it cannot be known."""
    return experiment_of(read_record(file), file, trust=trust)


def experiment_of(config: dict[str, Any], file: Path, *, trust: bool = False) -> Experiment:
    """The experiment of a configuration that was read from a file."""
    try:
        return from_config(config, trust=trust)
    except ValueError as error:
        raise ValueError(f"{shown(file)}: {error}") from None


def _is_flat(value: Any, levels: int) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return not inside or (levels > 0 and all(_is_flat(item, levels - 1) for item in inside))


def _open(file: Path) -> BinaryIO:
    # Opening a pipe that nobody writes to would wait for ever.
    if not stat.S_ISREG(file.stat().st_mode):
        raise ValueError("it is not a file but a folder, a pipe or a device")
    return open(file, "rb")


def read_rows(file: Path, columns: tuple[str, ...], digest: str | None) -> dict[str, np.ndarray]:
    """`step` and the columns of a run's rows, or one sentence about why they cannot be believed.

    Parameters
    ----------
    file
        Lines of JSON; the last may be half written.
    columns
        What each row has besides `step`.
    digest
        The SHA-256 of all rows if they are complete, which they then must have; None if more may come.
    """
    names = ("step", *columns)
    blocks: list[np.ndarray] = [np.empty((0, len(names)))]
    seen, rest, lines = hashlib.sha256(), b"", 0
    try:
        with _open(file) as stream:
            while data := stream.read(BLOCK_BYTES):
                seen.update(data)
                whole, newline, rest = (rest + data).rpartition(b"\n")
                if newline:
                    blocks.append(_parse(whole, names, lines))
                    lines += len(blocks[-1])
                if len(rest) > BLOCK_BYTES or lines * len(names) > CELLS:
                    raise ValueError("it is larger than any run's rows: report fewer rows")
    except FileNotFoundError:
        if digest not in (None, seen.hexdigest()):
            raise ValueError(f"{shown(file)}: it is gone, and the run is done") from None
    except OSError as error:
        raise ValueError(f"{shown(file)}: {reason(error)}") from None
    except ValueError as error:
        raise ValueError(f"{shown(file)}: {error}") from None
    if digest is not None and (rest or seen.hexdigest() != digest):
        raise ValueError(f"{shown(file)}: its rows were changed after the run was done")
    table = np.concatenate(blocks).T.copy()
    if (np.diff(table[0]) <= 0).any():
        raise ValueError(f"{shown(file)}: its steps do not rise from row to row")
    return dict(zip(names, table, strict=True))


def _parse(data: bytes, names: tuple[str, ...], before: int) -> np.ndarray:
    """Lines of rows as an array of rows x names; `before` lines came before them."""
    rows = _all_at_once(data)
    if rows is None:
        rows = [_line(line, before + number) for number, line in enumerate(data.split(b"\n"), 1)]
    try:
        flat = list(itertools.chain.from_iterable(map(operator.itemgetter(*names), rows)))
    except KeyError:
        flat = [row.get(name) for row in rows for name in names]
    try:
        # NumPy would make numbers of texts and of truth values.
        table = np.array(flat if set(map(type, flat)) <= NUMBERS else list(map(_number, flat)), dtype=np.float64)
    except OverflowError:
        table = np.array(list(map(_number, flat)))
    table = table.reshape(len(rows), len(names))
    bad = np.isinf(table)
    bad[:, 0] |= np.isnan(table[:, 0])
    if bad.any():
        line, column = np.argwhere(bad)[0]
        raise ValueError(f"line {before + line + 1} has something else than a finite number at {names[column]!r}")
    return table


def _number(value: Any) -> float:
    """A number or null of JSON as float64; infinite where it is neither, or too large."""
    if value is None:
        return math.nan
    try:
        return float(value) if type(value) in NUMBERS else math.inf
    except OverflowError:
        return math.inf


def _all_at_once(data: bytes) -> list[dict[str, Any]] | None:
    """Lines as one JSON array, which is parsed twice as fast; None if that is in any doubt the same as parsing them one by one.

    It is the same if there are as many objects as lines and as opening braces, one at the beginning of each line, and if there are two
    quotes for each key that came out: then no key came twice and no value is a text.
    """
    try:
        rows = STRICT_ARRAY.decode("[" + data.decode().replace("\n", ",") + "]")
    except (ValueError, RecursionError):
        return None
    letters = np.frombuffer(data, np.uint8)
    newlines, braces, quotes = (np.count_nonzero(letters == ord(letter)) for letter in '\n{"')
    one_each = data.startswith(b"{") and data.count(b"\n{") == newlines == braces - 1 == len(rows) - 1
    return rows if one_each and set(map(type, rows)) == {dict} and quotes == 2 * sum(map(len, rows)) else None


def _line(line: bytes, number: int) -> dict[str, Any]:
    try:
        row = STRICT.decode(line.decode())
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise ValueError(f"line {number} is not an object of JSON: it was cut short, or changed")
    return row


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name in it comes twice: it was changed")
    return found


def _no_number(name: str) -> Any:
    raise ValueError(f"it holds {name[:40]}, which is not a finite number: it was changed")


def _finite(text: str) -> float:
    return number if math.isfinite(number := float(text)) else _no_number(text)


STRICT = json.JSONDecoder(object_pairs_hook=_each_once, parse_float=_finite, parse_constant=_no_number)
"""JSON with float64 for numbers: nothing that is not finite, and no key twice."""
STRICT_ARRAY = json.JSONDecoder(parse_constant=_no_number)
"""The same but for keys that come twice, of which it keeps the last, and for numbers too large, which become infinite."""
