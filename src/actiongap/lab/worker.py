"""A worker process of the process pool: `python -m actiongap.lab.worker`.

It reads orders from standard input, one JSON object per line, and writes events to standard output in the same format. The output of
experiments goes to standard error. When its input ends, because the pool closed it or died, the worker saves its runs and exits.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from actiongap._files import WriteError
from actiongap._signals import LAUNCHER, end_with_parent, spare
from actiongap.lab.experiment import from_config
from actiongap.lab.runner import REPORT_EVERY, Event, Members, RunState, advance_batch, error_message, run_members


def main() -> None:
    """Serve orders until the input ends."""
    # Ctrl-C reaches the whole terminal session; the pool decides what to do about it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()
    if int(os.environ.get(LAUNCHER, os.getppid())) != os.getppid():
        # The launcher died before that: its orders must not be begun.
        return
    # Experiments that print or read must not interfere with orders and events.
    source, output = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    orders: queue.Queue[dict[str, Any] | None] = queue.Queue()
    stop, terminated = threading.Event(), threading.Event()

    def terminate(*_: Any) -> None:
        terminated.set()
        stop.set()

    # The pool takes a worker that exits in the middle of a batch for dead, and resumes its runs.
    signal.signal(signal.SIGTERM, terminate)
    threading.Thread(target=_listen, args=(source, orders, stop), daemon=True).start()
    while (order := _next(orders, terminated)) is not None:
        # At the end, these folders hide nothing that is installed.
        sys.path.extend(entry for entry in order["path"] if entry not in sys.path)
        _send(output, probe(order["probe"], order["seconds"]) if "probe" in order else _run_batch(order, stop, terminated, output))
        if terminated.is_set():
            break
    if terminated.is_set():
        sys.exit(128 + signal.SIGTERM)


def _next(orders: queue.Queue[dict[str, Any] | None], terminated: threading.Event) -> dict[str, Any] | None:
    """Return the next order; None at the end of the input or after SIGTERM."""
    while not terminated.is_set():
        with contextlib.suppress(queue.Empty):
            return orders.get(timeout=1.0)
    return None


def _listen(stream: BinaryIO, orders: queue.Queue[dict[str, Any] | None], stop: threading.Event) -> None:
    for line in stream:
        orders.put(json.loads(line))
    stop.set()
    orders.put(None)


def _run_batch(order: dict[str, Any], stop: threading.Event, terminated: threading.Event, output: BinaryIO) -> dict[str, Any] | None:
    """Run a batch of runs. Runs that were too far ahead of the others are not reported as done, failed, busy or stopped."""
    reported: dict[str, float] = {}
    waiting: dict[str, Event] = {}

    def send(event: Event) -> None:
        _send(output, {"event": event.kind, "run": event.run, "chunk": event.chunk, "rows": event.rows, "text": event.text})

    def on_event(event: Event) -> None:
        # The pool reports the start itself. After SIGTERM it resumes the runs that were not reported as stopped.
        if event.kind == "started" or (event.kind == "stopped" and terminated.is_set()):
            return
        if event.kind == "step":
            before = waiting.get(event.run)
            event = event._replace(rows=(before.rows if before else ()) + event.rows)
            if time.monotonic() - reported.get(event.run, -math.inf) < REPORT_EVERY:
                waiting[event.run] = event
                return
            waiting.pop(event.run, None)
            reported[event.run] = time.monotonic()
        elif (before := waiting.pop(event.run, None)) is not None:
            # Rows are sent before the event that ends their run.
            send(before)
        send(event)

    def stopping() -> bool:
        # Between chunks: saving takes as long as it takes.
        if stop.is_set():
            spare()
        return stop.is_set()

    members: Members = []
    for name, config in order["runs"].items():
        try:
            # Orders come from the pool, which has loaded the experiment itself.
            members.append((name, from_config(config, trust=True)))
        except Exception as error:
            on_event(Event("failed", name, text=error_message(error)))
    try:
        folder = Path(order["folder"])
        run_members(members, folder, command=order["command"], save_every=order["save_every"], stop=stopping, on_event=on_event)
    except WriteError as error:
        return {"event": "write_error", "text": error_message(error)}
    return None if terminated.is_set() else {"event": "idle"}


def _send(output: BinaryIO, message: dict[str, Any] | None) -> None:
    if message is None:
        return
    # If the pool is gone, the input has ended or is about to.
    with contextlib.suppress(BrokenPipeError):
        rest = memoryview(json.dumps(message).encode() + b"\n")
        while rest:
            # A signal may end a write to a pipe before all is written.
            rest = rest[output.write(rest) or 0 :]


def probe(config: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Run an experiment in memory for about `seconds`, to measure its cost.

    Examples
    --------
    >>> from actiongap.lab.experiment import as_config, make
    >>> sorted(probe(as_config(make("q-learning", {"env": "cake", "steps": 100, "rows": 2})), 0.1))
    ['chunks', 'event', 'rows', 'seconds', 'state']
    """
    elapsed, size, state, chunks = 0.0, 0, 0, 0
    try:
        for update in advance_batch([from_config(config, trust=True)], None, 0, save_every=0.0):
            if isinstance(update, RunState):
                state = sum(np.asarray(array).nbytes for array in update.state.values())
                if chunks > 1 and elapsed >= seconds:
                    break
                continue
            # The first of several chunks includes loading and compiling, so it is not counted.
            elapsed = update.seconds if chunks == 1 else elapsed + update.seconds
            size, chunks = size + len(update.lines[0]), update.chunk
    except Exception as error:
        return {"event": "failed", "text": error_message(error)}
    return {"event": "probed", "chunks": max(chunks - 1, 1), "seconds": elapsed, "rows": size / chunks, "state": state}


if __name__ == "__main__":
    main()
