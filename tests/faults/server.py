"""Run commands in forked processes, each with its own user, folder and file layer, in a few milliseconds.

As a program, this module imports the package once and forks a process for each line of JSON on its standard input. It answers with the
number of the process, and, when the process has ended, with how it ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import runpy
import select
import signal
import sys
import traceback
from pathlib import Path
from typing import Any

USER = 65534
"""The number of the user `nobody`."""
LOADED = (
    "asyncio",
    "actiongap.cli",
    "actiongap.api.agents",
    "actiongap.api.policies",
    "actiongap.api.reports",
    "actiongap.api.simulators",
    "actiongap.api.studies",
    "actiongap.api.trained",
    "actiongap.lab.cost",
    "actiongap.lab.executors",
    "actiongap.lab.kinds.finite",
    "actiongap.lab.kinds.plan",
    "actiongap.lab.kinds.train",
    "actiongap.mdp.generators",
    "actiongap.mdp.solve",
    "actiongap.paper.reproduce",
    "actiongap.planning._cpu_rollouts",
    "actiongap.planning._cpu_sweeps",
    "actiongap.reporting.html",
    "actiongap.reporting.summary",
    "actiongap.reporting.terminal",
    "matplotlib.figure",
    "rich._emoji_codes",
    "rich.console",
    "rich.progress",
    "rich.table",
    "scipy.stats",
    "typeguard",
    "unittest.mock",
)
"""Modules that most commands use. None starts a thread, which would not survive the fork."""


def unreachable(path: str | Path) -> Path | None:
    """The topmost folder on the way to a path that other users may not enter."""
    path = Path(path).resolve()
    return next((folder for folder in reversed((path, *path.parents)) if folder.is_dir() and folder.stat().st_mode & 0o5 != 0o5), None)


def check(failed: int, what: str) -> None:
    """Raise OSError if a call of the C library failed."""
    if failed:
        raise OSError(ctypes.get_errno(), f"{what}: {os.strerror(ctypes.get_errno())}")


def open_to_all(path: str | Path) -> None:
    """Let every user reach a folder, for this process and those that it starts: in its own view of the file system."""
    closed = unreachable(path)
    if closed is None:
        return
    path = Path(path).resolve()
    if not path.stat().st_mode & 0o5:
        raise PermissionError(f"{path} itself is closed")
    libc, clone_newns, ms_bind, ms_rec, ms_private = ctypes.CDLL(None, use_errno=True), 0x20000, 0x1000, 0x4000, 0x40000
    check(libc.unshare(clone_newns), "unshare")
    kept = os.open(path, os.O_PATH)
    check(libc.mount(b"none", b"/", None, ctypes.c_ulong(ms_rec | ms_private), None), "mount")
    check(libc.mount(b"tmpfs", os.fsencode(closed), b"tmpfs", ctypes.c_ulong(0), b"mode=755"), "mount")
    path.mkdir(parents=True)
    check(libc.mount(os.fsencode(f"/proc/self/fd/{kept}"), os.fsencode(path), None, ctypes.c_ulong(ms_bind | ms_rec), None), "mount")
    os.close(kept)


def prepare() -> None:
    """Make this Python reachable for the user that `without_privileges` becomes, where that needs the privileges of root."""
    if os.geteuid() == 0:
        with contextlib.suppress(OSError):
            open_to_all(sys.base_prefix)


def without_privileges() -> str:
    """Give up the privileges of root, if this process has them. Returns what it is now."""
    if os.geteuid() != 0:
        return "the user that runs the tests"
    package = Path(importlib.import_module("actiongap").__file__ or "").parent
    if not any(map(unreachable, (sys.base_prefix, sys.prefix, package))):
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)
        return "nobody"
    # Nobody else can read this Python: stay, without a single capability, which also programs that are started do not get back.
    libc = ctypes.CDLL(None, use_errno=True)
    pr_set_securebits, no_root_locked = 28, 0b11
    check(libc.prctl(pr_set_securebits, no_root_locked, 0, 0, 0), "prctl")
    check(libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()), "capset")
    return "root without capabilities"


def forked(request: dict[str, Any]) -> int:
    """Do what is asked, in a new process, and return its exit code."""
    os.setsid()
    for number, (path, flags) in enumerate(
        (
            (os.devnull, os.O_RDONLY),
            (request["out"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
            (request["err"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        )
    ):
        opened = os.open(path, flags, 0o666)
        os.dup2(opened, number)
        os.close(opened)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    os.environ.update(request["variables"])
    sys.path[:0] = request["path"]
    os.chdir(request["cwd"])
    if request["limit"]:
        resource.setrlimit(resource.RLIMIT_AS, (request["limit"], request["limit"]))
    layer = None
    try:
        if not request["privileged"]:
            without_privileges()
        if request["faults"]:
            loaded = runpy.run_path(str(Path(__file__).with_name("layer") / "sitecustomize.py"))
            layer = loaded["install"](request["faults"])
            os.environ["FAULTS"] = json.dumps(request["faults"])
            os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).with_name("layer")), os.environ.get("PYTHONPATH", "")])
        if request["code"] is not None:
            return call(request["code"])
        from actiongap.cli import main

        sys.argv = ["actiongap", *request["arguments"]]
        main(request["arguments"])
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else 0 if left.code is None else 1
    except BaseException:
        traceback.print_exc()
        return 1
    finally:
        if layer is not None:
            layer.report()
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
    return 0


def call(code: str) -> int:
    """Run code that calls the package. An error that the package describes in a sentence is printed as a command prints it."""
    from actiongap.lab.lock import BusyError

    try:
        exec(code, {"__name__": "__call__"})
    except (ValueError, OSError, BusyError) as error:
        print(f"actiongap: {error}", file=sys.stderr)
        return 2
    return 0


def descendants() -> list[int]:
    """The processes that this one started or inherited and that are still there."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int((entry / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(entry.name))
    return found


def wait(pid: int) -> tuple[int, int]:
    """Wait for a process; return how it ended and its largest memory in bytes."""
    process = os.pidfd_open(pid)
    try:
        select.select([process], [], [])
    finally:
        os.close(process)
    _, status, usage = os.wait4(pid, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_maxrss * 1024


def end_others() -> int:
    """End processes that a command left behind; return their number."""
    number = 0
    for pid in descendants():
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(pid, signal.SIGKILL)
            _, status = os.waitpid(pid, 0)
            # One that had ended already was only not waited for.
            number += os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    return number


def serve() -> None:
    """Answer requests until the input ends."""
    # What a command starts and leaves behind becomes a child of this process.
    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    prepare()
    for name in LOADED:
        importlib.import_module(name)
    print(json.dumps({"ready": os.getpid()}), file=answers, flush=True)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                answers.close()
                code = forked(json.loads(line))
            finally:
                os._exit(code)
        print(json.dumps({"pid": pid}), file=answers, flush=True)
        code, peak = wait(pid)
        print(json.dumps({"code": code, "peak": peak, "left": end_others()}), file=answers, flush=True)


if __name__ == "__main__":
    serve()
