"""A process that works on the runs it is told to: `python -m actiongap.lab.worker`.

It reads orders from its standard input, a JSON object a line, and answers on its standard output in the same way; what experiments print
goes to the error stream. When its input ends, because whoever gave the orders closed it or died, it saves what it is doing and leaves.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import queue
import signal
import threading
import time
from typing import Any, BinaryIO

import numpy as np

from actiongap._files import WriteError
from actiongap.lab.experiment import from_config
from actiongap.lab.lock import BusyError
from actiongap.lab.runner import ChunkResult, error_message, run_chunks, run_experiment

TELL_EVERY = 0.2
"""Seconds between two messages about the same run: people cannot read faster."""


def main() -> None:
    """Serve until the input ends."""
    # A terminal's Ctrl-C goes to everybody; what to do about it is decided by whoever gives the orders.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Experiments that print or ask for input must not meddle with the orders.
    orders_from, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    orders: queue.Queue[dict[str, Any] | None] = queue.Queue()
    stop = threading.Event()
    threading.Thread(target=_listen, args=(orders_from, orders, stop), daemon=True).start()
    while (order := orders.get()) is not None:
        _tell(answers, probe(order["probe"], order["seconds"]) if "probe" in order else _serve(order, stop, answers))


def _listen(stream: BinaryIO, orders: queue.Queue[dict[str, Any] | None], stop: threading.Event) -> None:
    for line in stream:
        orders.put(json.loads(line))
    stop.set()
    orders.put(None)


def _serve(order: dict[str, Any], stop: threading.Event, answers: BinaryIO) -> dict[str, Any]:
    name, told = order["run"], -math.inf

    def on_chunk(step: ChunkResult) -> None:
        nonlocal told
        if time.monotonic() - told >= TELL_EVERY:
            told = time.monotonic()
            _tell(answers, {"event": "step", "run": name, "chunk": step.chunk, "row": step.last})

    try:
        # Orders are the launcher's, which has loaded the experiment itself.
        experiment = from_config(order["config"], trust=True)
        outcome = run_experiment(
            order["folder"], experiment, command=order["command"], save_every=order["save_every"], stop=stop.is_set, on_chunk=on_chunk
        )
    except BusyError:
        return {"event": "busy", "run": name}
    except WriteError as error:
        return {"event": "unwritable", "run": name, "text": error_message(error)}
    except Exception as error:
        return {"event": "failed", "run": name, "text": error_message(error)}
    return {"event": outcome, "run": name}


def _tell(answers: BinaryIO, message: dict[str, Any]) -> None:
    # Where nobody listens any more, the input has ended or is about to.
    with contextlib.suppress(BrokenPipeError):
        answers.write(json.dumps(message).encode() + b"\n")


def probe(config: dict[str, Any], seconds: float) -> dict[str, Any]:
    """Work on an experiment for about so long, in memory, to learn what it costs.

    Examples
    --------
    >>> from actiongap.lab.experiment import as_config, make
    >>> sorted(probe(as_config(make("q-learning", {"env": "cake", "steps": 100, "rows": 2})), 0.1))
    ['chunks', 'event', 'rows', 'seconds', 'state']
    """
    taken, size, state, chunks = 0.0, 0, 0, 0
    try:
        for step in run_chunks(from_config(config, trust=True), None, 0):
            # The first chunk of several pays for loading and compiling, which the others do not.
            first = chunks == 0
            taken, size, chunks = step.seconds if chunks == 1 else taken + step.seconds, size + len(step.lines), step.chunk
            state = sum(np.asarray(array).nbytes for array in step.state().values())
            if not first and taken >= seconds:
                break
    except Exception as error:
        return {"event": "failed", "text": error_message(error)}
    return {"event": "probed", "chunks": max(chunks - 1, 1), "seconds": taken, "rows": size / chunks, "state": state}


if __name__ == "__main__":
    main()
