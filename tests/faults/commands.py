"""Commands as tests run them, and what is expected of every one: a sentence instead of a traceback, and no hang."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import actiongap
from faults import server

PATIENT = 180.0
"""Seconds after which a command hangs, on a machine with other work to do."""
VARIABLES = {"NUMBA_OPT": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MPLBACKEND": "agg", "COLUMNS": "200"}
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters that a terminal obeys, besides tabs and line ends."""
LONGEST = 2000
"""Characters of the longest sentence."""


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    """Its exit code; if a signal ended it, minus that signal."""
    out: str
    err: str
    peak: int
    """The largest number of bytes of memory that it had."""
    left: int
    """The number of processes that it left behind."""


class Server:
    """Runs commands and calls in forked processes."""

    def __init__(self, folder: Path):
        self.folder = folder
        path = [str(Path(__file__).parents[1]), str(Path(actiongap.__file__).parents[1])]
        (folder / "home").mkdir(mode=0o777)
        (folder / "home").chmod(0o777)
        home = {name: str(folder / "home") for name in ("HOME", "MPLCONFIGDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "NUMBA_CACHE_DIR")}
        self.variables = {**VARIABLES, **home, "PYTHONPATH": os.pathsep.join(path)}
        self.process = subprocess.Popen(
            [sys.executable, "-P", str(Path(server.__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.variables},
        )
        self.count = 0
        self.pid = 0
        self.running = False
        assert "ready" in self._answer(PATIENT)

    def _answer(self, seconds: float) -> dict[str, Any]:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], seconds)
        if not ready:
            raise TimeoutError
        line = self.process.stdout.readline()
        assert line, "the server of commands is gone"
        return json.loads(line)

    def start(
        self,
        *arguments: Any,
        cwd: Path,
        code: str | None = None,
        privileged: bool = False,
        faults: dict[str, Any] | None = None,
        limit: int = 0,
        path: tuple[str, ...] = (),
        **variables: str,
    ) -> None:
        """Start a command, or a call of the package if code is given."""
        assert self.process.stdin is not None
        if self.running:
            # A test failed before it waited.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.wait()
        self.count += 1
        for name in ("out", "err"):
            (self.folder / f"{self.count}.{name}").touch()
            (self.folder / f"{self.count}.{name}").chmod(0o666)
        request = {
            "arguments": [str(argument) for argument in arguments],
            "code": code,
            "cwd": str(cwd),
            "privileged": privileged,
            "faults": faults,
            "limit": limit,
            "path": list(path),
            "variables": variables,
            "out": str(self.folder / f"{self.count}.out"),
            "err": str(self.folder / f"{self.count}.err"),
        }
        print(json.dumps(request), file=self.process.stdin, flush=True)
        self.pid = self._answer(PATIENT)["pid"]
        self.running = True

    def ended(self) -> bool:
        """Whether the command that was started has ended."""
        assert self.process.stdout is not None
        return bool(select.select([self.process.stdout], [], [], 0)[0])

    def wait(self, seconds: float = PATIENT) -> Ended:
        """Wait for the command that was started. One that hangs is ended, and fails the test."""
        hangs = False
        try:
            found = self._answer(seconds)
        except TimeoutError:
            hangs = True
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            found = self._answer(PATIENT)
        self.running = False
        out, err = (self.folder / f"{self.count}.{name}" for name in ("out", "err"))
        ended = Ended(found["code"], out.read_text(errors="replace"), err.read_text(errors="replace"), found["peak"], found["left"])
        out.unlink()
        err.unlink()
        assert not hangs, f"it hangs: {ended.out[-500:]}{ended.err[-500:]}"
        return ended

    def run(self, *arguments: Any, **options: Any) -> Ended:
        """Run a command to its end."""
        self.start(*arguments, **options)
        return self.wait()

    def stop(self) -> None:
        """End the server."""
        with self.process:
            assert self.process.stdin is not None
            self.process.stdin.close()


def run_program(*arguments: Any, cwd: Path, **variables: str) -> Ended:
    """Run the program itself, as users do, without privileges."""
    code = (
        f"import runpy, sys; given = runpy.run_path({str(Path(server.__file__))!r}); given['prepare'](); given['without_privileges'](); "
        f"from actiongap.cli import main; sys.argv[0] = 'actiongap'; main()"
    )
    process = subprocess.run(
        [sys.executable, "-P", "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        errors="replace",
        cwd=cwd,
        timeout=PATIENT,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **VARIABLES, "PYTHONPATH": str(Path(actiongap.__file__).parents[1]), **variables},
        check=False,
    )
    return Ended(process.returncode, process.stdout, process.stderr, 0, 0)


def assert_sentence(ended: Ended, *words: str) -> None:
    """A refusal: exit code 2, and one line for the user that a terminal can show."""
    assert ended.code == 2, ended
    lines = ended.err.splitlines()
    assert len(lines) == 1, ended.err
    assert lines[0].startswith("actiongap: "), ended.err
    assert len(lines[0]) <= LONGEST, len(lines[0])
    assert_plain(ended)
    for word in words:
        assert word in ended.err, ended.err


def assert_plain(ended: Ended) -> None:
    """Whatever it did: no traceback, no control characters, no signal, and no process left behind."""
    said = ended.out + ended.err
    assert "Traceback (most recent call last)" not in said, said
    assert not CONTROL.search(ended.err), ended.err
    assert 0 <= ended.code < 128 or ended.code - 128 in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM), ended
    assert ended.left == 0, "it left processes behind"


def assert_told(ended: Ended) -> None:
    """It succeeded, or it said in sentences what is wrong."""
    assert_plain(ended)
    assert ended.code in (0, 1, 2), ended
    if ended.code == 2:
        assert_sentence(ended)
    assert all(len(line) <= LONGEST for line in ended.err.splitlines())


def snapshot(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Everything below a folder: kind, permissions and digest of each file, and where links lead. Links are not followed."""
    found: dict[str, tuple[Any, ...]] = {}
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            seen = path.lstat()
            content: Any = None
            if stat.S_ISLNK(seen.st_mode):
                content = os.readlink(path)
            elif stat.S_ISREG(seen.st_mode):
                content = (sha256(path.read_bytes()).hexdigest(), seen.st_mtime_ns)
            found[str(path.relative_to(folder))] = (stat.S_IFMT(seen.st_mode), stat.S_IMODE(seen.st_mode), content)
    return found


def changes(before: dict[str, tuple[Any, ...]], after: dict[str, tuple[Any, ...]]) -> list[str]:
    """What was changed or removed."""
    return sorted(name for name, what in before.items() if after.get(name) != what)


def sandbox() -> Path:
    """A new folder that every user can write to. Those of pytest belong to one user."""
    folder = Path(tempfile.mkdtemp(prefix="faults-"))
    folder.chmod(0o777)
    return folder


def give_to_all(folder: Path) -> None:
    """Let every user write to the files of a folder."""
    for parent, _, files in os.walk(folder):
        os.chmod(parent, 0o777)
        for name in files:
            if not os.path.islink(Path(parent, name)):
                os.chmod(Path(parent, name), 0o666)


def remove(folder: Path) -> None:
    """Remove a folder, with permissions that tests took from its parts."""
    for parent, _, _ in os.walk(folder):
        with contextlib.suppress(OSError):
            os.chmod(parent, 0o777)
    shutil.rmtree(folder, ignore_errors=True)


def wait_until(condition: Callable[[], Any]) -> Any:
    """Wait until a condition holds, and return it."""
    end = time.monotonic() + PATIENT
    while not (found := condition()):
        assert time.monotonic() < end, "still waiting"
        time.sleep(0.01)
    return found


def need(there: bool, reason: str, installable: bool = True) -> None:
    """Skip a test that needs a tool. Where CI is set, a tool that can be installed must be there."""
    if there:
        return
    if installable and os.environ.get("CI"):
        pytest.fail(f"{reason}: install it")
    pytest.skip(reason)
