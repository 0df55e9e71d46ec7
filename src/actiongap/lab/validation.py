"""Validation of run files: strict JSON of bounded size, or a ValueError of one sentence.

Folders come from other machines, other versions and other people. A record is one small JSON object. Rows are lines of JSON objects of
finite numbers and nulls. They are parsed a block of lines at a time, so memory holds little more than the numbers.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import operator
from pathlib import Path
from typing import Any

import numpy as np

from actiongap._files import open_regular, printable, reason
from actiongap.lab.experiment import Experiment, check_format, from_config

RECORD_BYTES = 2**20
"""Maximum size of a configuration, status or list of attempts."""
BLOCK_BYTES = 2**20
"""Bytes of rows parsed at once, and the longest line."""
CELLS = 2**26
"""Maximum number of values in one run: half a gigabyte."""
NESTING = 8
"""Maximum nesting of lists and objects in a record."""
NUMBER_TYPES: set[type] = {float, int, type(None)}


def read_record(file: Path) -> dict[str, Any]:
    """Read one of the small JSON files of a run. Raises ValueError if it is missing or not valid."""
    try:
        with open_regular(file) as stream:
            data = stream.read(RECORD_BYTES + 1)
        if len(data) > RECORD_BYTES:
            raise ValueError(f"it is larger than {RECORD_BYTES} bytes, so it is not a run's record")
        found = STRICT.decode(data.decode())
        check_format(found)
        if not _nested_at_most(found, NESTING):
            raise ValueError("it is nested too deeply for a run's record")
        # JSON can escape half of a surrogate pair, which cannot be written anywhere else.
        return json.loads(json.dumps(found, ensure_ascii=False).encode(errors="replace")) if b"\\u" in data else found
    except OSError as error:
        raise ValueError(f"{printable(file)}: {reason(error)}") from None
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError):
        raise ValueError(f"{printable(file)}: it is not JSON: the file is truncated or changed") from None
    except ValueError as error:
        raise ValueError(f"{printable(file)}: {error}") from None


def read_experiment(file: Path, *, trust: bool = False) -> Experiment:
    """Read the experiment of a `config.json`. Raises ValueError if it is missing or not valid."""
    return experiment_of(read_record(file), file, trust=trust)


def experiment_of(config: dict[str, Any], file: Path, *, trust: bool = False) -> Experiment:
    """Return the experiment of a configuration that was read from a file."""
    try:
        return from_config(config, trust=trust)
    except ValueError as error:
        raise ValueError(f"{printable(file)}: {error}") from None


def _nested_at_most(value: Any, levels: int) -> bool:
    inside = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return not inside or (levels > 0 and all(_nested_at_most(item, levels - 1) for item in inside))


def read_rows(file: Path, columns: tuple[str, ...], digest: str | None) -> dict[str, np.ndarray]:
    """Read `step` and the columns of the rows of a run. Raises ValueError if they are not valid.

    Parameters
    ----------
    file
        Lines of JSON; the last may be incomplete.
    columns
        The columns of each row besides `step`.
    digest
        The SHA-256 of all rows if the run is done; None if more rows may follow.
    """
    names = ("step", *columns)
    blocks: list[np.ndarray] = [np.empty((0, len(names)))]
    sha, rest, lines = hashlib.sha256(), b"", 0
    try:
        with open_regular(file) as stream:
            while data := stream.read(BLOCK_BYTES):
                sha.update(data)
                whole, newline, rest = (rest + data).rpartition(b"\n")
                if newline:
                    blocks.append(_parse(whole, names, lines))
                    lines += len(blocks[-1])
                if len(rest) > BLOCK_BYTES or lines * len(names) > CELLS:
                    raise ValueError("its rows are too many or too long: report fewer rows or columns")
    except FileNotFoundError:
        if digest not in (None, sha.hexdigest()):
            raise ValueError(f"{printable(file)}: it is missing, although the run is done") from None
    except OSError as error:
        raise ValueError(f"{printable(file)}: {reason(error)}") from None
    except ValueError as error:
        raise ValueError(f"{printable(file)}: {error}") from None
    if digest is not None and (rest or sha.hexdigest() != digest):
        raise ValueError(f"{printable(file)}: its rows were changed after the run was done")
    table = np.concatenate(blocks).T.copy()
    if (np.diff(table[0]) <= 0).any():
        raise ValueError(f"{printable(file)}: its steps do not increase from row to row")
    return dict(zip(names, table, strict=True))


def _parse(data: bytes, names: tuple[str, ...], before: int) -> np.ndarray:
    """Parse lines of rows into an array of rows x names; `before` is the number of lines before them."""
    rows = _parse_as_array(data)
    if rows is None:
        rows = [_parse_line(line, before + number) for number, line in enumerate(data.split(b"\n"), 1)]
    try:
        flat = list(itertools.chain.from_iterable(map(operator.itemgetter(*names), rows)))
    except KeyError:
        flat = [row.get(name) for row in rows for name in names]
    try:
        # NumPy would convert strings and booleans to numbers.
        table = np.array(flat if set(map(type, flat)) <= NUMBER_TYPES else list(map(_number, flat)), dtype=np.float64)
    except OverflowError:
        table = np.array(list(map(_number, flat)))
    table = table.reshape(len(rows), len(names))
    bad = np.isinf(table)
    bad[:, 0] |= np.isnan(table[:, 0])
    if bad.any():
        line, column = np.argwhere(bad)[0]
        raise ValueError(f"line {before + line + 1} has no finite number at {names[column]!r}")
    return table


def _number(value: Any) -> float:
    """Return a JSON number or null as float64; infinity if it is neither, or too large."""
    if value is None:
        return math.nan
    try:
        return float(value) if type(value) in NUMBER_TYPES else math.inf
    except OverflowError:
        return math.inf


def _parse_as_array(data: bytes) -> list[dict[str, Any]] | None:
    """Parse lines as one JSON array, which is twice as fast; None unless the result is certain to be the same as line by line.

    It is certain if there are as many objects as lines and as opening braces, one brace at the start of each line, and two quotes for each
    key of the result: then no key is repeated and no value is a string.
    """
    try:
        rows = STRICT_ARRAY.decode("[" + data.decode().replace("\n", ",") + "]")
    except (ValueError, RecursionError):
        return None
    letters = np.frombuffer(data, np.uint8)
    newlines, braces, quotes = (np.count_nonzero(letters == ord(letter)) for letter in '\n{"')
    one_each = data.startswith(b"{") and data.count(b"\n{") == newlines == braces - 1 == len(rows) - 1
    return rows if one_each and set(map(type, rows)) == {dict} and quotes == 2 * sum(map(len, rows)) else None


def _parse_line(line: bytes, number: int) -> dict[str, Any]:
    try:
        row = STRICT.decode(line.decode())
    except (ValueError, RecursionError):
        row = None
    if not isinstance(row, dict):
        raise ValueError(f"line {number} is not a JSON object: the file is truncated or changed")
    return row


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice: the file was changed")
    return found


def _raise_not_finite(name: str) -> Any:
    raise ValueError(f"it holds {name[:40]}, which is not a finite number: the file was changed")


def _parse_float(text: str) -> float:
    return number if math.isfinite(number := float(text)) else _raise_not_finite(text)


STRICT = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_float=_parse_float, parse_constant=_raise_not_finite)
"""JSON with finite float64 numbers and without repeated keys."""
STRICT_ARRAY = json.JSONDecoder(parse_constant=_raise_not_finite)
"""The same, except that the last of repeated keys is kept and numbers that are too large become infinite."""
