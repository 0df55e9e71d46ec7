"""TensorBoard event files of runs, one per run, written without TensorBoard or protobuf.

A file is a sequence of records, each framed by its length and two checksums (TFRecord):

    uint64 length | uint32 masked CRC-32C of the length | the bytes | uint32 masked CRC-32C of the bytes

all little-endian. The bytes of a record are an `Event` protocol buffer with these fields:

    Event    1: wall_time (double)   2: step (varint)   3: file_version (text)   5: summary (Summary)
    Summary  1: value (Value, repeated)
    Value    1: tag (text)   2: simple_value (float)

A field is one varint of its number and wire type, then its value. Texts and messages are preceded by their length.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from actiongap._files import make_directory, write_bytes
from actiongap.lab.records import RunRecord

VARINT, DOUBLE, BYTES, FLOAT = 0, 1, 2, 5
"""Wire types."""


def write_events(runs: Iterable[RunRecord], folder: str | Path, wall_time: float = 0.0) -> list[Path]:
    """Write the rows of each run into its own folder, under the tags kind/column. Return the files.

    Every event has the time `wall_time`, in seconds since 1970, so that equal rows give equal bytes. If steps are not integers, which
    TensorBoard requires, the number of the row is used. Missing values are left out.

    Examples
    --------
    >>> import tempfile
    >>> write_events([], tempfile.mkdtemp())
    []
    """
    taken: set[str] = set()
    files = []
    for run in runs:
        name = safe = re.sub(r"[^A-Za-z0-9._+-]+", "-", run.name)[:120].strip("-.") or "run"
        number = 1
        while name.lower() in taken:
            number += 1
            name = f"{safe}-{number}"
        taken.add(name.lower())
        if (Path(folder) / name).is_symlink():
            raise ValueError(f"{Path(folder) / name} is a symbolic link, and events are not written through links: choose another folder")
        files.append(make_directory(Path(folder) / name) / "events.out.tfevents.0000000000.actiongap")
        write_bytes(files[-1], frame([_file_version(wall_time), *_events(run, wall_time)]))
    return files


def _file_version(wall_time: float) -> bytes:
    return _field(1, DOUBLE, struct.pack("<d", wall_time)) + _field(3, BYTES, b"brain.Event:2")


def _events(run: RunRecord, wall_time: float) -> list[bytes]:
    steps = run.rows["step"]
    if (steps != np.floor(steps)).any() or (np.abs(steps) >= 2.0**63).any():
        steps = np.arange(1, len(steps) + 1)
    start = _field(1, DOUBLE, struct.pack("<d", wall_time))
    tags = {name: _field(1, BYTES, f"{run.kind}/{name}".encode(errors="replace")) for name in run.columns}
    columns = []
    for name, tag in tags.items():
        # Values beyond float32 become infinite; TensorBoard shows them as such.
        with np.errstate(over="ignore"):
            numbers = run.rows[name].astype("<f4")
        columns.append([None if np.isnan(x) else _field(1, BYTES, tag + _field(2, FLOAT, x.tobytes())) for x in numbers])
    rows = zip(*columns, strict=True)
    return [
        start + _field(2, VARINT, _varint(int(step) % 2**64)) + _field(5, BYTES, b"".join(value for value in row if value))
        for step, row in zip(steps, rows, strict=True)
    ]


def _field(number: int, wire_type: int, data: bytes) -> bytes:
    return bytes([number << 3 | wire_type]) + (_varint(len(data)) if wire_type == BYTES else b"") + data


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def frame(records: list[bytes]) -> bytes:
    r"""Frame records with lengths and checksums, as in a TFRecord file.

    Examples
    --------
    >>> frame([b"cake"]).hex(" ", 4)
    '04000000 00000000 42455204 63616b65 d53c74f5'
    """
    lengths = [struct.pack("<Q", len(record)) for record in records]
    parts = zip(lengths, _masked(lengths), records, _masked(records), strict=True)
    return b"".join(length + first + record + second for length, first, record, second in parts)


def _masked(records: list[bytes]) -> list[bytes]:
    """Return the masked checksum of each record. TFRecord masks them because the CRC of data that contains CRCs is weak."""
    # Checksums of records of equal length are computed together, one byte position at a time.
    by_length: dict[int, list[int]] = {}
    for place, record in enumerate(records):
        by_length.setdefault(len(record), []).append(place)
    masked = [b""] * len(records)
    for length, places in by_length.items():
        block = np.frombuffer(b"".join(records[place] for place in places), np.uint8).reshape(len(places), length)
        sums = crc32c(block).astype(np.uint64)
        rotated = ((sums >> 15 | sums << 17) + 0xA282EAD8).astype("<u4")
        for place, value in zip(places, rotated, strict=True):
            masked[place] = value.tobytes()
    return masked


def crc32c(records: np.ndarray) -> np.ndarray:
    """Return the CRC-32C (Castagnoli) of each row of an array of bytes.

    Examples
    --------
    >>> hex(crc32c(np.frombuffer(b"123456789", np.uint8)[None])[0])
    '0xe3069283'
    """
    sums = np.full(len(records), 0xFFFFFFFF, np.uint32)
    for column in records.T:
        sums = TABLE[(sums ^ column) & 0xFF] ^ sums >> 8
    return ~sums


def _table() -> np.ndarray:
    entries = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        entries = np.where(entries & 1, entries >> 1 ^ 0x82F63B78, entries >> 1).astype(np.uint32)
    return entries


TABLE = _table()
"""CRC-32C of each byte value."""
