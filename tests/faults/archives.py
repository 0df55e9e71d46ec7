"""Archives of arrays, taken apart and put together again byte by byte: what the package itself would never write."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

DIGITS = 64
"""The comment of a policy is the digest of all that precedes it."""


def members(file: Path) -> dict[str, bytes]:
    """The files in an archive."""
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_members(file: Path, contents: dict[str, bytes], sealed: bool = False, **options: Any) -> None:
    """Write an archive, with the digest of a policy if it is to be sealed."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", **options) as archive:
        if sealed:
            archive.comment = b"0" * DIGITS
        for name, data in contents.items():
            archive.writestr(name, data)
    data = stream.getvalue()
    if sealed:
        data = data[:-DIGITS] + hashlib.sha256(data[:-DIGITS]).hexdigest().encode()
    file.write_bytes(data)


def write_compressed(
    file: Path, contents: dict[str, bytes], name: str, packed: bytes, size: int, checksum: int, sealed: bool = False
) -> None:
    """Write an archive of which one member is compressed already."""
    stream, directory = io.BytesIO(), b""
    entries = {other: (0, data, len(data), zlib.crc32(data)) for other, data in contents.items()} | {name: (8, packed, size, checksum)}
    for other, (method, data, length, digest) in entries.items():
        common = struct.pack("<HHHHHIIIHH", 20, 0, method, 0, 33, digest, len(data), length, len(other), 0)
        directory += b"PK\1\2" + struct.pack("<H", 20) + common + struct.pack("<HHHII", 0, 0, 0, 0, stream.tell()) + other.encode()
        stream.write(b"PK\3\4" + common + other.encode() + data)
    begin = stream.tell()
    stream.write(directory)
    comment = b"0" * DIGITS if sealed else b""
    stream.write(b"PK\5\6" + struct.pack("<HHHHIIH", 0, 0, len(entries), len(entries), len(directory), begin, len(comment)) + comment)
    data = stream.getvalue()
    if sealed:
        data = data[:-DIGITS] + hashlib.sha256(data[:-DIGITS]).hexdigest().encode()
    file.write_bytes(data)


def array(value: Any, pickled: bool = False) -> bytes:
    """An array as NumPy saves it."""
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.asarray(value), allow_pickle=pickled)
    return stream.getvalue()


def header_of(descr: str, shape: tuple[int, ...], data: bytes = b"") -> bytes:
    """An array that declares a type and a shape, whatever its data are."""
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape!r}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data


def text_of(data: bytes) -> Any:
    """The JSON in an array of bytes."""
    return json.loads(np.lib.format.read_array(io.BytesIO(data)).tobytes())


def as_array(value: Any) -> bytes:
    """JSON as an array of bytes."""
    return array(np.frombuffer(json.dumps(value).encode(), np.uint8))


def leaves(value: Any, where: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the values of nested lists and objects are."""
    if isinstance(value, (dict, list)) and value:
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from leaves(item, (*where, name))
    else:
        yield where


def changed(value: Any, where: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """A copy with one value changed."""
    if not where:
        return change(value)
    if isinstance(value, dict):
        return {name: changed(item, where[1:], change) if name == where[0] else item for name, item in value.items()}
    return [changed(item, where[1:], change) if place == where[0] else item for place, item in enumerate(value)]


def edit_json(file: Path, where: tuple[Any, ...], change: Callable[[Any], Any]) -> None:
    """Change a value in a file of JSON, one object or one in each line."""
    lines = file.read_text().splitlines() if file.suffix == ".jsonl" else [file.read_text()]
    file.write_text("\n".join(json.dumps(changed(json.loads(line), where, change)) for line in lines) + "\n")


def edit_header(file: Path, where: tuple[Any, ...], change: Callable[[Any], Any]) -> None:
    """Change a value in the header of a checkpoint or a policy: its first array."""
    contents = members(file)
    name = next(iter(contents))
    contents[name] = as_array(changed(text_of(contents[name]), where, change))
    write_members(file, contents, sealed=name.startswith("actiongap-policy"))


def edit_metadata(file: Path, where: tuple[Any, ...], change: Callable[[Any], Any]) -> None:
    """Change a value in the metadata of weights, which hold JSON in JSON."""
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    inside = {name: json.loads(text) for name, text in header["__metadata__"].items()}
    header["__metadata__"] = {name: json.dumps(value) for name, value in changed(inside, where, change).items()}
    text = json.dumps(header).encode()
    file.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])


def metadata(file: Path) -> Any:
    """The metadata of weights."""
    data = file.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return {name: json.loads(text) for name, text in json.loads(data[8 : 8 + length])["__metadata__"].items()}
