"""Each file of a run, damaged in each way: one sentence, no traceback, no hang, no flood of memory, and no other run is hidden."""

from __future__ import annotations

import json
import os
import random
import socket
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from faults import archives, samples
from faults.commands import assert_told, give_to_all

Change = Callable[[Path], object]
"""Damages a file or a folder."""
MEMORY = 700 * 2**20
"""Bytes that no command needs for files as small as these."""
BOMB = 2**30
"""Bytes that a small archive inflates to."""


def size_to(fraction: float) -> Change:
    return lambda file: os.truncate(file, int(fraction * file.stat().st_size))


def drop_last(file: Path) -> None:
    os.truncate(file, max(0, file.stat().st_size - 1))


def flip(fraction: float, mask: int) -> Change:
    def change(file: Path) -> None:
        data = bytearray(file.read_bytes())
        if data:
            data[min(int(fraction * len(data)), len(data) - 1)] ^= mask
        file.write_bytes(data)

    return change


def folder(file: Path) -> None:
    file.unlink()
    file.mkdir()
    (file / "theirs.txt").write_text("kept")


def fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file, 0o666)
    file.chmod(0o666)


def socket_file(file: Path) -> None:
    file.unlink()
    with socket.socket(socket.AF_UNIX) as bound:
        # The name of a socket must be short.
        before = os.getcwd()
        os.chdir(file.parent)
        try:
            bound.bind(file.name)
        finally:
            os.chdir(before)


def link_to(target: str) -> Change:
    def change(file: Path) -> None:
        file.unlink()
        file.symlink_to(target.format(name=file.name))

    return change


def unreadable(file: Path) -> None:
    file.chmod(0)


def gone(file: Path) -> None:
    file.unlink()


def content(data: bytes) -> Change:
    return lambda file: file.write_bytes(data)


def more(data: bytes) -> Change:
    def change(file: Path) -> None:
        with open(file, "ab") as stream:
            stream.write(data)

    return change


ANY: dict[str, Change] = {
    "empty": size_to(0),
    "half": size_to(0.5),
    "begin": size_to(0.1),
    "without its end": drop_last,
    **{f"bit {number}": flip(number / 8, 1 << number) for number in range(8)},
    "folder": folder,
    "pipe": fifo,
    "socket": socket_file,
    "loop": link_to("{name}"),
    "dangling": link_to("nowhere"),
    "device": link_to("/dev/zero"),
    "endless": link_to("/dev/random"),
    "unreadable": unreadable,
    "gone": gone,
    "zeros": content(b"\0" * 5000),
    "noise": content(random.Random(3).randbytes(5000)),
    "more": more(b"\xff" * 100),
    "one byte": content(b"{"),
}
"""What can happen to any file."""


def value(where: Callable[[Any], list[tuple[Any, ...]]], what: Any) -> Change:
    """Put a value into some places of the JSON in a file."""

    def change(file: Path) -> None:
        read = archives.text_of(next(iter(archives.members(file).values()))) if file.suffix == ".npz" else None
        if read is None:
            read = json.loads(file.read_text().splitlines()[0] if file.suffix == ".jsonl" else file.read_text())
        edit = archives.edit_header if file.suffix == ".npz" else archives.edit_json
        for place in where(read):
            edit(file, place, lambda old: what)

    return change


def every(step: int, first: int) -> Callable[[Any], list[tuple[Any, ...]]]:
    return lambda read: list(archives.leaves(read))[first::step]


def whole(read: Any) -> list[tuple[Any, ...]]:
    return [()]


STRANGE: dict[str, Any] = {
    "null": None,
    "true": True,
    "text": "text",
    "markup": "[/x] [bold]",
    "escapes": "\x1b]0;title\x07\x1b[2J\u202e",
    "list": [],
    "object": {},
    "nested": [[[[[[[[[[[[]]]]]]]]]]]],
    "minus": -1,
    "huge": 10**30,
    "digits": 10**4000,
    "million": 10**12,
    "nan": float("nan"),
    "infinity": float("inf"),
    "float": 1e308,
    "surrogate": "\ud800",
    "long": "x" * 200_000,
}
"""Values that no field of ours has."""
JSON: dict[str, Change] = {
    **{f"{name} in every field": value(every(1, 0), what) for name, what in STRANGE.items()},
    # The first strange field might hide the others.
    **{f"{name} in some fields": value(every(4, number % 4), what) for number, (name, what) in enumerate(STRANGE.items())},
    **{f"{name} as a whole": value(whole, STRANGE[name]) for name in ("null", "text", "list", "digits", "nested")},
}
TEXT: dict[str, Change] = {
    "deep": content(b"[" * 200_000),
    "deep objects": content(b'{"a":' * 100_000),
    "two": lambda file: file.write_bytes(file.read_bytes() * 2),
    "long line": lambda file: file.write_bytes(b'{"step": ' + b"1" * 3_000_000 + b"}\n"),
    "latin": content('{"format": "é"}'.encode("latin-1")),
    "utf-16": lambda file: file.write_bytes(file.read_text().encode("utf-16")),
    "twice a key": lambda file: file.write_text(file.read_text().replace("{", '{"version": 2, ', 1)),
    "large": lambda file: file.write_bytes(file.read_bytes() + b" " * 3_000_000),
}
SHAPES = {"10^30": (10**30,), "10^12": (10**12,), "negative": (-1,), "zero": (0,), "many": (1,) * 40, "product": (2**33, 2**33)}


TYPES = ("|O", "<U9999999", "|V8", "<M8[s]")


def member(number: int, data: bytes) -> Change:
    """Replace a file in an archive."""

    def change(file: Path) -> None:
        contents = archives.members(file)
        name = sorted(contents)[number % len(contents)]
        archives.write_members(file, {**contents, name: data}, sealed=file.name == "policy.npz")

    return change


def cast(kind: str) -> Change:
    """Give all arrays of an archive another type."""

    def change(file: Path) -> None:
        contents = {}
        for name, array in samples.arrays_of(file).items():
            header = name in ("arr_0", "actiongap-policy")
            contents[f"{name}.npy"] = archives.array(array if header else array.astype(kind))
        archives.write_members(file, contents, sealed=file.name == "policy.npz")

    return change


def filled(number: float) -> Change:
    """Fill all arrays of numbers with one number."""

    def change(file: Path) -> None:
        contents = {}
        for name, array in samples.arrays_of(file).items():
            header = name in ("arr_0", "actiongap-policy")
            with np.errstate(all="ignore"):
                contents[f"{name}.npy"] = archives.array(array if header or array.dtype.kind not in "f" else np.full_like(array, number))
        archives.write_members(file, contents, sealed=file.name == "policy.npz")

    return change


def bomb(number: int) -> Change:
    """Let a member inflate to a gigabyte. Its data are an array of zeros, whole and with the right checksum."""

    def change(file: Path) -> None:
        contents = archives.members(file)
        name = sorted(contents)[number % len(contents)]
        head = archives.header_of("<f4", (BOMB // 4,))
        packer, checksum, parts, block = zlib.compressobj(1, wbits=-15), zlib.crc32(head), [], b"\0" * 2**22
        parts.append(packer.compress(head))
        for _ in range(BOMB // len(block)):
            checksum = zlib.crc32(block, checksum)
            parts.append(packer.compress(block))
        parts.append(packer.flush())
        archives.write_compressed(file, contents, name, b"".join(parts), len(head) + BOMB, checksum, sealed=file.name == "policy.npz")

    return change


ARCHIVE: dict[str, Change] = {
    **{f"{name} in member {k}": member(k, archives.header_of("<f4", shape, b"\0" * 64)) for name, shape in SHAPES.items() for k in (0, 1)},
    **{f"type {kind[1:]} in member {k}": member(k, archives.header_of(kind, (1,), b"\0" * 64)) for kind in TYPES for k in (0, 1)},
    **{f"raw in member {k}": member(k, b"not an array") for k in (0, 1)},
    **{f"nothing in member {k}": member(k, b"") for k in (0, 1)},
    **{f"half a header in member {k}": member(k, b"\x93NUMPY\x01\x00\xff\xff{") for k in (0, 1)},
    "as float64": cast("f8"),
    "as int8": cast("i1"),
    "as complex": cast("c16"),
    "as text": cast("U8"),
    "nan": filled(float("nan")),
    "infinite": filled(float("inf")),
    "bomb 0": bomb(0),
    "bomb 1": bomb(1),
    "no member": lambda file: archives.write_members(file, {}),
    "others": lambda file: np.savez(file, weights=np.ones(3)),
    "an array": lambda file: file.write_bytes(archives.array(np.ones(3))),
}
RUN_FILES = ("config.json", "meta.json", "status.json", "metrics.jsonl", "lock", "checkpoint/0*.npz")
FILES: dict[str, tuple[str, ...]] = {
    "study": ("study.json", *(f"runs/*/{name}" for name in RUN_FILES)),
    "plan": (*RUN_FILES, "times.json", "policy.npz"),
    "mdp.npz": ("mdp.npz",),
    "study.toml": ("study.toml",),
}
"""Files of the samples."""


def ways(name: str) -> dict[str, Change]:
    """How a file can be damaged."""
    found = dict(ANY)
    if name.endswith(".npz"):
        found |= ARCHIVE
    elif name != "lock":
        found |= TEXT
    if name.endswith((".json", ".jsonl")) or (name.endswith(".npz") and name != "mdp.npz"):
        found |= JSON
    return found


WHERE = [pytest.param(sample, name, id=f"{sample}-{name.replace('*', '')}") for sample, names in FILES.items() for name in names]
READERS: dict[str, tuple[tuple[str, ...], ...]] = {
    "study": (("report", "study", "--json"),),
    "plan": (("report", "plan", "--json"),),
    "policy.npz": (("watch", "plan/policy.npz", "-o", "video.gif", "--seconds", "2", "--json"),),
    "mdp.npz": (("solve", "mdp.npz"),),
    "study.toml": (("sweep", "study.toml", "--out", "swept", "--dry-run"),),
}
RESUME = {
    "study": samples.STUDY.format(out="begun", seeds=1, chunks=10**9),
    "plan": f"from actiongap.cli import main\nmain({['plan', *samples.PLAN, '--out', 'plan']!r})",
}
"""How a run is continued."""


def damaged(originals: Path, place: Path, sample: str, name: str, way: str) -> Path:
    """A copy of a sample with one file damaged; the file."""
    copied = samples.copy(originals, sample, place)
    file = copied if copied.is_file() else min(copied.glob(name))
    ways(name)[way](file)
    return file


@pytest.mark.every(2)
@pytest.mark.parametrize(("sample", "name"), WHERE)
def test_a_damaged_file_is_told_in_a_sentence(server, originals, cases, sample, name):
    for way in cases.chosen(ways(name)):
        with cases.case(way) as place:
            damaged(originals, place, sample, name, way)
            for words in READERS["policy.npz" if name == "policy.npz" else sample]:
                ended = server.run(*words, cwd=place)
                assert_told(ended)
                assert ended.peak < MEMORY, f"{ended.peak >> 20} MB"
                if sample == "study":
                    # The other run is reported.
                    assert ended.code == 0, ended
                    assert json.loads(ended.out), ended


@pytest.mark.every(2)
@pytest.mark.parametrize(("sample", "name"), [where for where in WHERE if where.values[0] in RESUME])
def test_a_damaged_run_is_continued_or_refused(server, originals, cases, sample, name):
    reference = samples.one_run(originals / "study") if sample == "study" else originals / "plan"
    wanted = samples.outcome(reference)
    for way in cases.chosen([way for way in ways(name) if "some fields" not in way]):
        with cases.case(way) as place:
            file = damaged(originals, place, "begun" if sample == "study" else sample, name, way)
            run = samples.one_run(place / "begun") if sample == "study" else place / "plan"
            if sample == "plan" and file.name != "status.json":
                # As if it had been killed before its end.
                (run / "status.json").unlink()
            ended = server.run(cwd=place, code=RESUME[sample])
            assert_told(ended)
            assert ended.peak < MEMORY, f"{ended.peak >> 20} MB"
            if ended.code == 0:
                # A description that changed is left as it is, if the experiment is the same.
                unlike = {"config": None} if name.endswith("config.json") else {}
                assert {**samples.outcome(run), **unlike} == {**wanted, **unlike}


def closed(folder: Path) -> None:
    folder.chmod(0)


def replaced(make: Change) -> Change:
    def change(folder: Path) -> None:
        folder.rename(folder.with_name("elsewhere"))
        make(folder)

    return change


FOLDERS: dict[str, Change] = {
    "closed": closed,
    "a file": replaced(lambda folder: folder.write_text("text")),
    "a pipe": replaced(os.mkfifo),
    "a loop": replaced(lambda folder: folder.symlink_to(folder.name)),
    "dangling": replaced(lambda folder: folder.symlink_to("nowhere")),
    "itself again": lambda folder: (folder / "again").symlink_to("."),
}


@pytest.mark.parametrize("which", ["runs/*", "runs/*/checkpoint", "runs"])
def test_a_damaged_folder_is_told_and_hides_no_other(server, originals, cases, which):
    for way, change in cases.items(FOLDERS):
        with cases.case(way) as place:
            copied = samples.copy(originals, "study", place)
            change(min(copied.glob(which)))
            ended = server.run("report", "study", "--json", cwd=place)
            assert_told(ended)
            if which != "runs":
                assert ended.code == 0, ended
                assert json.loads(ended.out)


OWN = ("config.json", "metrics.jsonl", "checkpoint/0*.npz", "status.json", "meta.json")


def test_files_of_another_run_are_not_taken_for_its_own(server, originals, cases):
    """The files of another run of the same kind, one at a time. What is wrong afterwards is said, or computed again."""
    other = samples.STUDY.format(out="other", seeds=1, chunks=2).replace("steps=200", "steps=400")
    wanted = samples.outcome(samples.one_run(originals / "study"))
    for name in cases.chosen(OWN):
        for rows in (True, False):
            with cases.case(f"{name}, {'with' if rows else 'without'} rows") as place:
                samples.copy(originals, "begun", place)
                assert server.run(cwd=place, code=other, privileged=True).code == 0
                run, stranger = samples.one_run(place / "begun"), samples.one_run(place / "other")
                if name.startswith("checkpoint"):
                    for file in run.glob(name):
                        file.unlink()
                for file in stranger.glob(name):
                    (run / file.relative_to(stranger)).write_bytes(file.read_bytes())
                if not rows:
                    # Then a checkpoint is all that is known of the run.
                    (run / "metrics.jsonl").unlink()
                give_to_all(place)
                ended = server.run(cwd=place, code=RESUME["study"])
                assert_told(ended)
                if ended.code == 0:
                    assert samples.outcome(run) == wanted
                else:
                    assert name == "config.json", ended
