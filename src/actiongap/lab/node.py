"""What a node of a cluster does: the chunks of one run, streamed to the launcher, with the user's own files at hand."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from actiongap import __version__
from actiongap.lab.environment import describe
from actiongap.lab.spec import Experiment, State, from_config, path_in
from actiongap.lab.work import sentence, steps
from actiongap.lab.worker import TELL_EVERY


def compute(order: dict[str, Any], state: State | None, files: dict[str, bytes]) -> Iterator[dict[str, Any]]:
    """Do what is left of a run on a node: messages about every chunk, of which some carry the state after it.

    Examples
    --------
    >>> from actiongap.lab.spec import as_config, make
    >>> config = as_config(make("q-learning", {"problem": "cake", "steps": 100, "rows": 2}))
    >>> order = {"version": __version__, "config": config, "chunk": 0, "save_every": 10.0}
    >>> [message.get("chunk") for message in compute(order, None, {})]
    [None, 1, 2]
    """
    if order["version"] != __version__:
        here = f"{socket.gethostname()} has actiongap {__version__}, and the launcher {order['version']}"
        yield {"refused": f"{here}: install the same version on every node, and run the same command again"}
        return
    yield {"node": describe()}
    try:
        with contextlib.ExitStack() as copies:
            # Orders are the launcher's, which has loaded the experiment itself.
            experiment = from_config(with_files(order["config"], files, copies), trust=True)
            yield from _messages(experiment, state, order["chunk"], order["save_every"])
    except Exception as error:
        yield {"error": sentence(error), "traceback": traceback.format_exc()}


def _messages(experiment: Experiment, state: State | None, chunk: int, save_every: float) -> Iterator[dict[str, Any]]:
    # Ray hands arrays out read-only, and a checkpoint does not.
    state = None if state is None else {name: array.copy() for name, array in state.items()}
    # Nothing was told yet. Clocks may start with the machine, so 0 would be a moment like any other.
    lines, seconds, told, saved = b"", 0.0, -math.inf, time.monotonic()
    for step in steps(experiment, state, chunk):
        lines, seconds, now = lines + step.lines, seconds + step.seconds, time.monotonic()
        due = now - saved >= save_every or step.chunk == experiment.chunks
        if not due and now - told < TELL_EVERY:
            continue
        message = {"chunk": step.chunk, "lines": lines, "last": step.last, "seconds": seconds, "state": None}
        if due:
            message["state"] = {name: np.asarray(array) for name, array in step.state().items()}
        if told == -math.inf:
            # By now it is known which device the experiment found.
            message["node"] = describe()
        yield message
        lines, seconds, told, saved = b"", 0.0, time.monotonic(), time.monotonic() if due else saved


def with_files(config: dict[str, Any], files: Mapping[str, bytes], copies: contextlib.ExitStack) -> dict[str, Any]:
    """A configuration that names copies of the files that are missing here, or not the same; closing `copies` removes them.

    Examples
    --------
    >>> with contextlib.ExitStack() as copies:
    ...     config = with_files({"kind": "q-learning", "spec": {"problem": "far/away.npz"}}, {"far/away.npz": b"..."}, copies)
    ...     Path(config["spec"]["problem"]).name, Path(config["spec"]["problem"]).read_bytes()
    ('away.npz', b'...')
    """

    def found(text: Any) -> Any:
        path = path_in(text)
        if path not in files or (os.path.isfile(path) and Path(path).read_bytes() == files[path]):
            return text
        copy = Path(copies.enter_context(tempfile.TemporaryDirectory(prefix="actiongap-"))) / Path(path).name
        copy.write_bytes(files[path])
        return f"{copy}{text[len(path) :]}"

    return {**config, "kind": found(config["kind"]), "spec": {name: found(value) for name, value in config["spec"].items()}}
