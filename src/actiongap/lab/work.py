"""Working on a run: chunk after chunk, saving now and then, until it is done or told to stop."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from actiongap._files import WriteError
from actiongap.lab.environment import describe
from actiongap.lab.spec import Experiment, Row, State
from actiongap.lab.store import RunOutcome, encode_rows, holding, plain_row

SAVE_EVERY = 10.0
"""Seconds between checkpoints: at most so much work is lost when a process dies."""


class Step(NamedTuple):
    """What one chunk came to."""

    chunk: int
    """How many chunks are done."""
    lines: bytes
    """Its rows, as they are written."""
    last: Row | None
    """The last of them."""
    state: Callable[[], State]
    """Gives the state after it, until the next chunk is done."""
    seconds: float
    """How long it took."""


def steps(experiment: Experiment, state: State | None, chunk: int) -> Iterator[Step]:
    """Do what is left of an experiment, from the state after `chunk` chunks.

    Examples
    --------
    >>> from actiongap.lab.spec import make
    >>> [step.chunk for step in steps(make("q-learning", {"problem": "cake", "steps": 100, "rows": 2}), None, 0)]
    [1, 2]
    """
    begun, going_on = time.perf_counter(), experiment.go_on(state, chunk)
    # It may be as large as memory, and whoever goes on from it lets go of it.
    del state
    for done, (rows, after) in enumerate(going_on, chunk + 1):
        rows = checked(experiment, rows)
        yield Step(done, encode_rows(rows), rows[-1] if rows else None, after, time.perf_counter() - begun)
        begun = time.perf_counter()


def checked(experiment: Experiment, rows: Sequence[Row]) -> list[Row]:
    """The rows of an experiment as they are written, if they have what they should."""
    rows = [plain_row(row) for row in rows]
    for row in rows:
        if missing := sorted({"step", *experiment.columns} - row.keys()):
            raise ValueError(f"a row has no {missing[0]!r}, it has {', '.join(row)}: rows have step and what columns declares")
    return rows


def work(
    folder: str | Path,
    experiment: Experiment,
    *,
    command: str = "",
    save_every: float = SAVE_EVERY,
    stop: Callable[[], bool] = lambda: False,
    on_step: Callable[[Step], None] = lambda step: None,
) -> RunOutcome:
    """Work on the run in `folder` until it is done, fails, or `stop` says so after a chunk; what was done before is not done again.

    Failing is told in the run's status. BusyError and WriteError are raised: another process works on it, or there is no room.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.spec import make
    >>> work(tempfile.mkdtemp(), make("q-learning", {"problem": "cake", "steps": 100, "rows": 2}))
    'done'
    """
    with holding(folder, experiment, command) as run:
        saved, first = time.monotonic(), True
        try:
            for step in steps(experiment, run.state, run.chunk):
                run.append(step.chunk, step.lines, None, step.seconds)
                on_step(step)
                if first:
                    # Only now is it known what the experiment runs on.
                    run.record_attempt(describe())
                    first = False
                how = "done" if step.chunk == experiment.chunks else "stopped" if stop() else "running"
                if how != "running" or time.monotonic() - saved >= save_every:
                    run.state = step.state()
                    run.save(how)
                    saved = time.monotonic()
                if how != "running":
                    return how
            # Killed after its last checkpoint, before its status said so.
            run.save("done")
        except WriteError:
            raise
        except Exception as error:
            run.fail(sentence(error), traceback.format_exc())
            return "failed"
        return "done"


def sentence(error: BaseException) -> str:
    """What went wrong, in one line.

    Examples
    --------
    >>> sentence(KeyError("q"))
    "KeyError: 'q'"
    """
    text = " ".join(str(error).split())
    return text if text and isinstance(error, ValueError) else f"{type(error).__name__}: {text}".removesuffix(": ")
