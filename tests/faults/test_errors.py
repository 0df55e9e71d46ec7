"""Every operation on the files of a run fails once, and from then on; what was saved is not lost, and what happened is said.

Three layers do it: the functions of Python (`layer/sitecustomize.py`), the calls of the system (strace), and small file systems.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import actiongap
from faults import samples
from faults.commands import VARIABLES, assert_told, changes, need, remove, sandbox, snapshot

RUN = """
import actiongap.lab.kinds.plan, actiongap.lab.runner
actiongap.lab.kinds.plan.STEPS["numpy"] = 1
actiongap.lab.runner.SAVE_EVERY = 0.0
{more}
"""
CODE = {
    "q-learning": RUN.format(more=samples.STUDY.format(out="out", seeds=1, chunks=10**9)),
    "plan": RUN.format(more=f"from actiongap.cli import main\nmain({['plan', *samples.PLAN, '--out', 'out']!r})"),
    "report": f"from actiongap.cli import main\nmain({['report', 'study', '--json', '-o', 'out/page.html']!r})",
    "solve": f"from actiongap.cli import main\nmain({['solve', 'cake', '--out', 'out/solution.npz']!r})",
}
"""Programs that write to the folder `out`."""
ERRORS = ("ENOSPC", "EIO", "EACCES", "ESTALE", "EDQUOT")
WRITES = ("create", "write", "fsync", "replace", "mkdir", "unlink", "truncate")
READS = ("open", "read", "stat", "scandir")


def run_of(out: Path) -> Path:
    """The only run in a folder."""
    return next(iter(sorted(out.rglob("config.json")))).parent


@pytest.fixture(scope="module")
def undisturbed(server, originals):
    """What each program writes, and its numbers of operations, when nothing fails."""
    known: dict[str, tuple[Any, Counter[str]]] = {}
    folder = sandbox()

    def find(name: str) -> tuple[Any, Counter[str]]:
        if name not in known:
            place = folder / name
            place.mkdir(mode=0o777)
            place.chmod(0o777)
            prepare(originals, place, name)
            counts = place / "counts"
            ended = server.run(cwd=place, code=CODE[name], faults={"under": str(place / "out"), "counts": str(counts)})
            assert ended.code == 0, ended
            known[name] = result(place / "out", name), Counter(json.loads(counts.read_text()))
        return known[name]

    yield find
    remove(folder)


def prepare(originals: Path, place: Path, name: str) -> None:
    """What a program needs."""
    if name == "report":
        samples.copy(originals, "study", place)
    if name in ("report", "solve"):
        (place / "out").mkdir()
        (place / "out").chmod(0o777)


def result(out: Path, name: str) -> Any:
    """What must come out in the end."""
    if name in ("q-learning", "plan"):
        return samples.outcome(run_of(out))
    if name == "solve":
        return {key: array.tobytes() for key, array in samples.arrays_of(out / "solution.npz").items()}
    return sorted(file.name for file in out.iterdir())


def faults_of(counts: Counter[str], errors: tuple[str, ...], calls: tuple[str, ...], most: int) -> list[dict[str, Any]]:
    """Each operation, up to a number of each kind spread evenly, with each error, once and from then on."""
    found = []
    for call in calls:
        step = max(1, counts[call] // most)
        for at in range(1, counts[call] + 1, step):
            found += [{"call": call, "at": at, "how": error, "forever": (at // step) % 2 == 0} for error in errors]
    return found


def told_and_finished(server, place: Path, name: str, fault: dict[str, Any], wanted: Any) -> None:
    """Run a program with a fault, and then without."""
    out = place / "out"
    ended = server.run(cwd=place, code=CODE[name], faults={"under": str(out), **fault})
    assert_told(ended)
    if ended.code == 0:
        assert result(out, name) == wanted
    saved = [json.loads(file.read_text())["chunk"] for file in out.rglob("status.json")] if name in ("q-learning", "plan") else []
    again = server.run(cwd=place, code=CODE[name])
    assert again.code == 0, again
    assert result(out, name) == wanted
    if saved and ended.code != 0 and saved[0] and fault["call"] in WRITES:
        # It went on from where it was.
        assert attempts(out)[-1] > 0 or attempts(out) == [0], attempts(out)
    assert not list(out.rglob(".*")), list(out.rglob(".*"))


def attempts(out: Path) -> list[int]:
    return [attempt["from_chunk"] for attempt in json.loads((run_of(out) / "meta.json").read_text())["attempts"]]


@pytest.mark.every(4)
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("name", CODE)
def test_an_error_of_any_write_is_told_and_costs_nothing_saved(server, originals, undisturbed, cases, name, error):
    wanted, counts = undisturbed(name)
    assert counts["write"]
    assert counts["replace"]
    for fault in cases.chosen(faults_of(counts, (error,), WRITES, 12)):
        with cases.case(f"{fault['call']} {fault['at']}{' and all later ones' if fault['forever'] else ''}") as place:
            prepare(originals, place, name)
            told_and_finished(server, place, name, fault, wanted)


@pytest.mark.long
@pytest.mark.parametrize("error", ["EIO", "EACCES", "ESTALE"])
@pytest.mark.parametrize("name", ["q-learning", "plan"])
def test_an_error_of_any_read_is_told(server, undisturbed, cases, name, error):
    """A file that cannot be read is not taken for one that is damaged: nothing that was saved is thrown away."""
    wanted, _ = undisturbed(name)
    with cases.case("none") as place:
        begin = place / "begin"
        begin.mkdir()
        begin.chmod(0o777)
        stop = {"under": str(begin / "out"), "call": "replace", "match": r"checkpoint/\.?0", "at": 2, "how": "SIGKILL", "after": True}
        server.run(cwd=begin, code=CODE[name], faults=stop)
        counts = begin / "counts"
        probe = place / "probe"
        shutil.copytree(begin, probe)
        (probe / "out").chmod(0o777)
        server.run(cwd=probe, code=CODE[name], faults={"under": str(probe / "out"), "counts": str(counts)}, privileged=True)
        for fault in cases.chosen(faults_of(Counter(json.loads(counts.read_text())), (error,), READS, 25)):
            with cases.case(f"{fault['call']} {fault['at']}{' and all later ones' if fault['forever'] else ''}") as other:
                shutil.copytree(begin / "out", other / "out")
                shutil.copymode(place, other / "out")
                ended = server.run(cwd=other, code=CODE[name], faults={"under": str(other / "out"), **fault}, privileged=True)
                assert_told(ended)
                assert server.run(cwd=other, code=CODE[name], privileged=True).code == 0
                assert result(other / "out", name) == wanted


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("name", ["q-learning", "plan"])
def test_a_kill_at_any_operation_costs_nothing_saved(server, undisturbed, cases, name, after):
    wanted, counts = undisturbed(name)
    saved = 0
    found = [{"call": call, "at": at, "how": "SIGKILL", "after": after} for call in WRITES for at in range(1, counts[call] + 1)]
    for fault in cases.chosen(found):
        with cases.case(f"{fault['call']} {fault['at']}") as place:
            out = place / "out"
            ended = server.run(cwd=place, code=CODE[name], faults={"under": str(out), **fault})
            assert ended.code == -9, ended
            before = [int(file.stem) for file in out.rglob("checkpoint/0*.npz")]
            saved += bool(before)
            assert server.run(cwd=place, code=CODE[name]).code == 0
            assert result(out, name) == wanted
            if before and (out.rglob("meta.json")):
                # The newest checkpoint that is whole is where it went on.
                assert attempts(out)[-1] == max(before), attempts(out)
    # Most kills had something to lose.
    assert not cases.thorough or saved > len(found) / 2


@pytest.mark.parametrize("names", ["old", "new"])
@pytest.mark.parametrize("name", ["q-learning", "plan"])
def test_a_loss_of_power_costs_nothing_but_time(server, undisturbed, cases, name, names):
    """Only what was synced is on the disk, with the names of its time or with the newest."""
    wanted, counts = undisturbed(name)
    found = [{"call": call, "at": at} for call in WRITES for at in range(1, counts[call] + 1)]
    for fault in cases.chosen(found):
        with cases.case(f"{fault['call']} {fault['at']}") as place:
            out = place / "out"
            ended = server.run(cwd=place, code=CODE[name], faults={"under": str(out), **fault, "how": "power", "names": names})
            assert ended.code == -9, ended
            ended = server.run(cwd=place, code=CODE[name])
            assert ended.code == 0, ended
            assert result(out, name) == wanted


@pytest.mark.parametrize("names", ["old", "new"])
@pytest.mark.parametrize("name", ["q-learning", "plan"])
def test_what_is_done_stays_done_without_power(server, undisturbed, cases, name, names):
    """When a command has ended, its results are on the disk."""
    wanted, _ = undisturbed(name)
    with cases.case("at the end") as place:
        (place / "out").mkdir()
        (place / "out").chmod(0o777)
        ended = server.run(cwd=place, code=CODE[name], faults={"under": str(place / "out"), "at_end": True, "names": names})
        assert ended.code == 0, ended
        assert result(place / "out", name) == wanted


# Calls of the system


TRACED = f"""
code = {CODE["q-learning"]!r}
try:
    exec(code)
except (ValueError, OSError) as error:
    raise SystemExit(f"actiongap: {{error}}")
"""
"""A study whose errors are told as a command tells them."""
CALLS = ("openat", "write", "fsync", "rename", "mkdir", "unlink", "ftruncate", "close", "lseek")
INJECTED = {"error": ("ENOSPC", "EIO", "EACCES", "ESTALE", "EDQUOT"), "signal": ("SIGKILL",)}


def can_trace() -> bool:
    """Whether strace is there and may trace a process."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", os.devnull, "true"], capture_output=True, check=False).returncode == 0


def traced(place: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Run a study under strace."""
    command = [sys.executable, "-P", "-c", TRACED]
    variables = {**os.environ, **VARIABLES, "PYTHONPATH": str(Path(actiongap.__file__).parents[1]), "PYTHONHASHSEED": "0"}
    words = ["strace", "-f", "-y", "--seccomp-bpf", "-o", str(place / "trace"), *options, *command]
    return subprocess.run(words, cwd=place, env=variables, capture_output=True, text=True, errors="replace", timeout=600, check=False)


def numbers(trace: Path, call: str, out: Path) -> list[int]:
    """Which calls of a kind concern the folder, from 1."""
    lines = trace.read_text(errors="replace").splitlines()
    # Each thread has a count of its own. The first does the work.
    first = lines[0].split()[0]
    mine = [line for line in lines if re.match(rf"{first} +{call}\(", line)]
    return [number for number, line in enumerate(mine, 1) if str(out) in line or '"out/' in line]


@pytest.mark.long
@pytest.mark.parametrize("call", CALLS)
def test_a_call_of_the_system_fails_or_never_returns(server, undisturbed, cases, call):
    need(shutil.which("strace") is not None, "strace is not installed")
    need(can_trace(), "this system does not let strace trace processes", installable=False)
    wanted, _ = undisturbed("q-learning")
    with cases.case("count") as place:
        assert traced(place, "-e", f"trace={call}").returncode == 0
        places = numbers(place / "trace", call, place / "out")
        assert places
    chosen = places[:: max(1, len(places) // 3)][:4]
    faults = [f"error={error}" for error in INJECTED["error"] if call not in ("close", "lseek")] + ["signal=SIGKILL"]
    for k, number in enumerate(chosen):
        for fault in (faults[k % len(faults)], "signal=SIGKILL"):
            with cases.case(f"{fault} at {number}") as place:
                ended = traced(place, "-e", f"trace={call}", "-e", f"inject={call}:{fault}:when={number}")
                happened = "(INJECTED)" in (place / "trace").read_text(errors="replace") or "SIGKILL" in (place / "trace").read_text()
                assert happened
                assert "SIGKILL" in fault or (ended.returncode in (0, 1) and "Traceback" not in ended.stderr), ended
                assert server.run(cwd=place, code=CODE["q-learning"], privileged=True).code == 0
                assert result(place / "out", "q-learning") == wanted


# Small file systems


MOUNT = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"tmpfs", b"small", b"tmpfs", ctypes.c_ulong({flags}), b"{options}"):
    raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
"""
UNMOUNT = "import ctypes\nctypes.CDLL(None).umount2(b'small', 2)"
REMOUNT = 32


def mount(server, place: Path, options: str, flags: int = 0) -> bool:
    """Mount a file system in memory, or change its size, where the server sees it. Only root can."""
    return server.run(cwd=place, code=MOUNT.format(flags=flags, options=options), privileged=True).code == 0


LIMITS = {f"{size} kB": f"size={size}k" for size in (4, 8, 12, 16, 20, 24, 32, 40)} | {
    f"{inodes} files": f"nr_inodes={inodes}" for inodes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
}


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["q-learning", "plan", "report", "solve"])
def test_a_small_file_system_is_told_and_costs_nothing_saved(server, originals, undisturbed, cases, name):
    wanted, _ = undisturbed(name)
    full = 0
    for limit, options in cases.items(LIMITS):
        with cases.case(limit) as place:
            (place / "small").mkdir()
            need(mount(server, place, f"{options},mode=777"), "only root can mount a small file system", installable=False)
            # The server may have a view of the file system of its own.
            small = Path(f"/proc/{server.process.pid}/root{place}/small")
            try:
                prepare(originals, place, name)
                code = CODE[name].replace("'out", "'small/out")
                if name in ("report", "solve"):
                    code = code.replace("small/out/", "small/")
                before = snapshot(place)
                ended = server.run(cwd=place, code=code)
                assert_told(ended)
                full += ended.code == 2
                assert changes(before, snapshot(place)) == []
                assert mount(server, place, "size=50m,nr_inodes=1000", REMOUNT)
                again = server.run(cwd=place, code=code)
                assert again.code == 0, again
                assert result(small / "out" if name in ("q-learning", "plan") else small, name) == wanted
            finally:
                server.run(cwd=place, code=UNMOUNT, privileged=True)
    assert full or not cases.thorough


def test_the_layer_fails_where_it_is_told_to(server, place):
    """Otherwise all of the above would pass because nothing fails."""
    (place / "out").mkdir()
    (place / "out").chmod(0o777)
    code = "import os\nfor k in range(3):\n  with open(f'out/{k}', 'wb') as file:\n    file.write(b'x')\n  os.fsync(os.open('out', 0))"
    for call, at, left in (("create", 2, ["0"]), ("write", 1, ["0"]), ("write", 3, ["0", "1", "2"]), ("fsync", 2, ["0", "1"])):
        shutil.rmtree(place / "out")
        (place / "out").mkdir()
        (place / "out").chmod(0o777)
        ended = server.run(cwd=place, code=code, faults={"under": str(place / "out"), "call": call, "at": at, "how": "EIO"})
        assert (ended.code, "Input/output error" in ended.err) == (2, True), ended
        assert sorted(file.name for file in (place / "out").iterdir()) == left
