"""TensorBoard event files, decoded here, and by TensorBoard if it is installed."""

from __future__ import annotations

import math
import struct
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actiongap.lab.records import RunRecord
from actiongap.reporting.tensorboard import crc32c, frame, write_events

SCORES = [0.5, math.nan, -3.25, 1e300]


def run(name: str = "a run", kind: str = "q-learning", steps: Any = (1, 200, 70_000, 2**40)) -> RunRecord:
    rows = {"step": np.array(steps, dtype=float), "score": np.array(SCORES), "gap": np.array([1.0, math.nan, 2.0, 3.0])}
    columns = {"score": "how good", "gap": "how wide"}
    return RunRecord(name, Path(name), kind, "cake", "bellman", 0, {"seed": 0}, "steps", columns, None, {}, rows)


def bitwise_crc32c(data: bytes) -> int:
    """Return the CRC by its definition: polynomial division, bit by bit."""
    remainder = 0xFFFFFFFF
    for byte in data:
        remainder ^= byte
        for _ in range(8):
            remainder = remainder >> 1 ^ (0x82F63B78 if remainder & 1 else 0)
    return remainder ^ 0xFFFFFFFF


def unframe(data: bytes) -> list[bytes]:
    """Return the records of a file and check their checksums."""
    records = []
    while data:
        (length,) = struct.unpack("<Q", data[:8])
        record = data[12 : 12 + length]
        for part, stored in ((data[:8], data[8:12]), (record, data[12 + length : 16 + length])):
            crc = bitwise_crc32c(part)
            assert struct.unpack("<I", stored)[0] == ((crc >> 15 | crc << 17) + 0xA282EAD8) % 2**32
        records.append(record)
        data = data[16 + length :]
    return records


def varint(data: bytes) -> tuple[int, bytes]:
    value = 0
    for place, byte in enumerate(data):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, data[place + 1 :]
    raise AssertionError("a varint without an end")


def fields(data: bytes) -> list[tuple[int, Any]]:
    """Return the fields of a protocol buffer message."""
    found = []
    while data:
        key, data = varint(data)
        if key & 7 == 0:
            value, data = varint(data)
        elif key & 7 == 2:
            length, data = varint(data)
            value, data = data[:length], data[length:]
        else:
            size = {1: 8, 5: 4}[key & 7]
            value, data = struct.unpack({8: "<d", 4: "<f"}[size], data[:size])[0], data[size:]
        found.append((key >> 3, value))
    return found


def scalars(file: Path) -> list[tuple[float, int, dict[str, float]]]:
    first, *events = map(fields, unframe(file.read_bytes()))
    assert first == [(1, events[0][0][1]), (3, b"brain.Event:2")]
    found = []
    for event in events:
        values = [dict(fields(value)) for number, value in fields(dict(event)[5]) if number == 1]
        found.append((dict(event)[1], dict(event)[2], {value[1].decode(): value[2] for value in values}))
    return found


EXPECTED = [
    (0.0, 1, {"q-learning/score": 0.5, "q-learning/gap": 1.0}),
    (0.0, 200, {}),
    (0.0, 70_000, {"q-learning/score": -3.25, "q-learning/gap": 2.0}),
    (0.0, 2**40, {"q-learning/score": math.inf, "q-learning/gap": 3.0}),
]


def test_checksums_are_castagnolis():
    assert crc32c(np.frombuffer(b"123456789", np.uint8)[None]).tolist() == [0xE3069283]
    data = np.random.default_rng(0).integers(256, size=(20, 33), dtype=np.uint8)
    assert crc32c(data).tolist() == [bitwise_crc32c(row.tobytes()) for row in data]
    assert crc32c(np.empty((1, 0), np.uint8)).tolist() == [0]


def test_records_of_all_lengths_are_framed_in_order():
    records = [b"", b"b", b"aa", b"c", b"dd" * 1000]
    assert unframe(frame(records)) == records


def test_rows_become_scalars_at_their_steps(tmp_path):
    [file] = write_events([run()], tmp_path)
    assert file.parent.name == "a-run"
    assert "tfevents" in file.name
    assert scalars(file) == EXPECTED


def test_steps_that_are_not_integers_become_row_numbers(tmp_path):
    [file] = write_events([run(steps=[0.1, 0.2, 0.5, 1])], tmp_path)
    assert [step for _, step, _ in scalars(file)] == [1, 2, 3, 4]


def test_equal_runs_give_equal_bytes_with_the_given_time(tmp_path):
    [one], [other] = write_events([run()], tmp_path / "1"), write_events([run()], tmp_path / "2")
    assert one.read_bytes() == other.read_bytes()
    [later] = write_events([run()], tmp_path / "3", wall_time=1.5e9)
    assert {time for time, _, _ in scalars(later)} == {1.5e9}


def test_folder_names_are_safe_and_unique(tmp_path):
    names = ["../../up", "/etc/passwd", "a/b", "a b", "A-B", "..", "", "\ud800", "x" * 5000, "a-b-2"]
    files = write_events([run(name, kind="\ud800</b>") for name in names], tmp_path / "out")
    assert len({file.parent.name.lower() for file in files}) == len(names)
    assert all(file.parent.parent == tmp_path / "out" for file in files)
    assert [file.name for file in tmp_path.iterdir()] == ["out"]
    assert list(scalars(files[0])[0][2]) == ["?</b>/score", "?</b>/gap"]


def test_events_are_not_written_through_links(tmp_path):
    [file] = write_events([run("one")], tmp_path / "out")
    file.unlink()
    file.parent.rmdir()
    (tmp_path / "elsewhere").mkdir()
    file.parent.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="is a symbolic link, and events are not written through links"):
        write_events([run("one")], tmp_path / "out")
    assert not list((tmp_path / "elsewhere").iterdir())


def test_tensorboard_reads_it(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        accumulator = pytest.importorskip(
            "tensorboard.backend.event_processing.event_accumulator", reason="the tensorboard package is not installed"
        )
        write_events([run()], tmp_path)
        found = accumulator.EventAccumulator(str(tmp_path / "a-run"))
        found.Reload()
    assert sorted(found.Tags()["scalars"]) == ["q-learning/gap", "q-learning/score"]
    assert [(event.step, event.value) for event in found.Scalars("q-learning/score")] == [(1, 0.5), (70_000, -3.25), (2**40, math.inf)]
