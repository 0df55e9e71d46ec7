"""A file layer that fails on purpose, for the files below one folder: an error, a signal or a pause at the n-th call of some kind.

Python imports this module at its start if its folder is on PYTHONPATH, so every process of a command has the layer, workers included.
`FAULTS` holds the plan as JSON; without it nothing happens.

    under    the folder
    call     one of CALLS; empty to count only
    at       the calls that fail: the n-th of this process, from 1
    forever  all later ones fail too
    match    a regular expression that is in the paths that count
    how      the name of an error number (ENOSPC), of a signal that the process sends itself (SIGKILL), "pause", or "power": the process
             ends, and files have the content that they had when they were last synced
    names    after a loss of power: "new" if all names are as they were at its time, "old" if as when their folders were last synced
    at_end   the power is lost when the process ends
    after    do the call first; a write is done half otherwise, if the error is that a disk is full
    note     a file that is created when the fault happens, which it does once; a pause ends when the file is removed
    counts   a file to which the counts are written at the end
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import errno
import io
import json
import os
import re
import shutil
import signal
import time
from collections import Counter
from typing import Any

CALLS = ("open", "create", "read", "write", "fsync", "replace", "unlink", "mkdir", "scandir", "stat", "truncate")
FULL = (errno.ENOSPC, errno.EDQUOT)


class Disk:
    """What a loss of power leaves of a folder: by number, the synced content of each file; by folder, the synced names."""

    def __init__(self, folder: str):
        self.folder = folder.rstrip(os.sep)
        self.contents: dict[int, bytes] = {}
        self.names: dict[str, dict[str, int]] = {}
        for parent, _, files in os.walk(self.folder):
            self.sync(parent)
            for name in files:
                self.sync(os.path.join(parent, name))

    def sync(self, path: str) -> None:
        """A file or a folder is synced."""
        with contextlib.suppress(OSError):
            if os.path.isdir(path):
                self.names[path] = {name: REAL["lstat"](os.path.join(path, name)).st_ino for name in os.listdir(path)}
            else:
                with REAL_OPEN(path, "rb") as file:
                    self.contents[os.fstat(file.fileno()).st_ino] = file.read()

    def lose(self, names: str) -> None:
        """Lose all that is not synced."""
        for parent, folders, files in os.walk(self.folder, topdown=False):
            known = self.names.get(parent, {})
            for name in (*files, *folders):
                path = os.path.join(parent, name)
                number = REAL["lstat"](path).st_ino
                if names == "old" and known.get(name) != number:
                    shutil.rmtree(path) if os.path.isdir(path) else REAL["unlink"](path)
                elif not os.path.isdir(path):
                    with REAL_OPEN(path, "wb") as file:
                        file.write(self.contents.get(number, b""))
        for parent, known in self.names.items() if names == "old" else ():
            if os.path.isdir(parent):
                # Files that were replaced or removed since are still there.
                for name, number in known.items():
                    if number in self.contents and not os.path.lexists(os.path.join(parent, name)):
                        with REAL_OPEN(os.path.join(parent, name), "wb") as file:
                            file.write(self.contents[number])


class Layer:
    """The functions of `os` and `open`, replaced by ones that may fail."""

    def __init__(self, plan: dict[str, Any]):
        self.plan = plan
        self.under = os.path.join(os.path.realpath(plan["under"]), "")
        self.match = re.compile(plan.get("match", ""))
        self.counts: Counter[str] = Counter()
        self.disk = Disk(self.under)

    def concerns(self, path: Any) -> bool:
        """Whether a path or a file descriptor is in the folder, and matches."""
        with contextlib.suppress(TypeError, ValueError, OSError):
            found = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.path.abspath(os.fsdecode(path))
            return (found + os.sep).startswith(self.under) and self.match.search(found) is not None
        return False

    def due(self, call: str) -> bool:
        """Count a call, and say whether it fails."""
        self.counts[call] += 1
        if call != self.plan.get("call"):
            return False
        return self.counts[call] == self.plan["at"] or (bool(self.plan.get("forever")) and self.counts[call] > self.plan["at"])

    def happen(self) -> None:
        """Raise the error, send the signal, or wait until the note is removed."""
        how, note = self.plan["how"], self.plan.get("note")
        if note:
            # A process that replaces a killed one has no fault.
            try:
                os.close(os.open(f"{note}.once", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            with REAL_OPEN(note, "w") as file:
                file.write(str(os.getpid()))
        if how == "pause":
            while os.path.exists(str(note)):
                time.sleep(0.01)
        elif how == "power":
            self.disk.lose(self.plan["names"])
            os.kill(os.getpid(), signal.SIGKILL)
        elif how.startswith("SIG"):
            os.kill(os.getpid(), getattr(signal, how))
        else:
            code = getattr(errno, how)
            raise OSError(code, os.strerror(code))

    def wrap(self, call: str, function: Any) -> Any:
        def wrapped(path: Any = ".", *arguments: Any, **options: Any) -> Any:
            if not self.concerns(path) or not self.due(call):
                return function(path, *arguments, **options)
            if not self.plan.get("after"):
                self.happen()
                return function(path, *arguments, **options)
            try:
                return function(path, *arguments, **options)
            finally:
                self.happen()

        return wrapped

    def fsync(self, descriptor: int) -> None:
        """Sync a file or a folder, and note what is on the disk from then on."""
        due = self.concerns(descriptor) and self.due("fsync")
        if due and not self.plan.get("after"):
            self.happen()
            due = False
        REAL["fsync"](descriptor)
        self.disk.sync(os.readlink(f"/proc/self/fd/{descriptor}"))
        if due:
            self.happen()

    def open(self, file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        """Open a file. Binary files for writing count each write that reaches the system."""
        if isinstance(file, int) or not self.concerns(file):
            return REAL_OPEN(file, mode, *arguments, **options)
        writes = any(letter in mode for letter in "wxa+")
        if self.due("create" if writes else "open"):
            self.happen()
        if "b" not in mode or arguments or options:
            return REAL_OPEN(file, mode, *arguments, **options)
        layer = self

        class Raw(io.FileIO):
            def write(self, data: Any) -> int | None:
                if layer.due("write"):
                    full = layer.plan["how"] in ("ENOSPC", "EDQUOT")
                    if full or layer.plan.get("after"):
                        super().write(bytes(data)[: len(data) // 2] if full else data)
                    layer.happen()
                return super().write(data)

            def readinto(self, buffer: Any) -> int | None:
                if layer.due("read"):
                    layer.happen()
                return super().readinto(buffer)

            def readall(self) -> bytes:
                if layer.due("read"):
                    layer.happen()
                return super().readall()

            def truncate(self, size: int | None = None) -> int:
                if layer.due("truncate"):
                    layer.happen()
                return super().truncate(size)

        raw = Raw(file, mode.replace("b", ""))
        kind: Any = io.BufferedRandom if "+" in mode else io.BufferedWriter if writes else io.BufferedReader
        return kind(raw)

    def install(self) -> None:
        os.fsync = self.fsync
        for name in ("replace", "unlink", "mkdir", "scandir", "stat", "lstat", "remove", "rename", "truncate"):
            call = {"lstat": "stat", "remove": "unlink", "rename": "replace"}.get(name, name)
            setattr(os, name, self.wrap(call, getattr(os, name)))
        builtins.open = io.open = self.open

    def report(self) -> None:
        """Write the counts."""
        if "counts" in self.plan:
            with REAL_OPEN(self.plan["counts"], "w") as file:
                json.dump(self.counts, file)
        if self.plan.get("at_end"):
            self.disk.lose(self.plan["names"])


REAL_OPEN = builtins.open
REAL = {name: getattr(os, name) for name in ("fsync", "lstat", "unlink")}


def install(plan: dict[str, Any]) -> Layer:
    """Install a layer in this process."""
    layer = Layer(plan)
    layer.install()
    return layer


if "FAULTS" in os.environ:
    installed = install(json.loads(os.environ["FAULTS"]))
    if {"counts", "at_end"} & installed.plan.keys():
        atexit.register(installed.report)
