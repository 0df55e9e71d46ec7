"""Locks: exclusive, released when their holder ends, and refused where there is no regular file."""

import os
import signal
import stat
import subprocess
import sys

import pytest

from actiongap._files import WriteError
from actiongap.lab.lock import BusyError, locked

HOLD = """
import sys, time
from actiongap.lab.lock import locked
with locked(sys.argv[1]):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_lock_is_exclusive_within_a_process_and_can_be_taken_again(tmp_path):
    for _ in range(2):
        with locked(tmp_path / "lock"), pytest.raises(BusyError, match="lock is held by another process"), locked(tmp_path / "lock"):
            pass
    assert (tmp_path / "lock").read_bytes() == b""


def test_a_lock_is_released_when_its_holder_is_killed(tmp_path):
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "lock")], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    with holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BusyError), locked(tmp_path / "lock"):
            pass
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with locked(tmp_path / "lock"):
        pass


def test_a_child_process_does_not_keep_the_lock(tmp_path):
    with locked(tmp_path / "lock"):
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False)
    try:
        with locked(tmp_path / "lock"):
            pass
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (os.mkdir, "Is a directory"),
        (os.mkfifo, "it is not a regular file"),
        (lambda path: os.symlink(path.with_name("elsewhere"), path), "it is a symbolic link"),
        (lambda path: os.symlink(os.devnull, path), "it is a symbolic link"),
    ],
    ids=["directory", "fifo", "dangling link", "link"],
)
def test_files_that_are_not_regular_are_refused(tmp_path, make, reason):
    make(tmp_path / "lock")
    with pytest.raises(WriteError, match=reason), locked(tmp_path / "lock"):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_a_file_system_without_locks_is_refused(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.raises(WriteError, match="use a file system that has locks"), locked(tmp_path / "lock"):
        pass


def test_the_permissions_of_a_lock_follow_the_umask(tmp_path):
    before = os.umask(0o002)
    try:
        with locked(tmp_path / "lock"):
            pass
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "lock").stat().st_mode) == 0o664
