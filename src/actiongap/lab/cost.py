"""Cost of a study: time, disk and accelerator hours, estimated from measured rates.

The rate of a run is that of the most similar finished runs, in the same folder or in those of other studies: equal except for the seed;
then the same kind on the same task; then the same kind on tasks of the same family (`atari/pong` is in `atari/`), or the same kind if the
task has no family. If there are none, a few runs are executed in memory for about a second and timed. If that is impossible, as on a
machine without the accelerator that a study needs, rates that come with the package are used, and the estimate says so. Costs are
proportional to steps. Startup is not counted.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from actiongap._files import format_bytes
from actiongap.lab.experiment import Experiment, as_config, is_registered, short_kind
from actiongap.lab.processes import Worker, accelerators, worker_variables
from actiongap.lab.runner import run_folder, unfinished_runs
from actiongap.lab.store import KEPT_CHECKPOINTS, read_status
from actiongap.lab.study import Study
from actiongap.lab.validation import read_record

PROBES = 6
"""Maximum number of tasks per kind that are timed; others are assumed to have the same cost per step."""
STARTUP_SECONDS = 0.2
"""Seconds to open, save and close a run."""
SMALL_FILES = 16_384
"""Bytes of the small files of a run; each takes at least one disk block."""


class Rate(NamedTuple):
    """Measured cost of one run."""

    seconds: float
    """Seconds per step."""
    rows: float
    """Bytes of rows per step."""
    disk: float
    """Bytes of all other files."""


NOTHING = "nothing measured: give --rates"


@dataclass(frozen=True)
class Plan:
    """Remaining runs of a study, and their estimated cost."""

    runs: int
    done: int
    """Number of finished runs."""
    workers: int
    work: float
    """Remaining seconds of work, over all runs."""
    wall: float
    """Estimated wall-clock seconds, if all workers are busy."""
    disk: int
    """Bytes that will be written."""
    free: int
    """Free bytes on that disk."""
    gpu_hours: float
    basis: str
    """Source of the rates, as a sentence."""

    @property
    def measured(self) -> bool:
        """Whether any rate is known."""
        return not self.basis.startswith(NOTHING)


def total_plan(plans: Iterable[Plan]) -> Plan:
    """Return the cost of several studies, run one after the other.

    Examples
    --------
    >>> one = Plan(runs=3, done=1, workers=2, work=8.0, wall=4.0, disk=100, free=10**9, gpu_hours=0.0, basis="rates of 1 run")
    >>> total_plan([one, one]).wall
    8.0
    """
    plans = list(plans)
    sums = {name: sum(getattr(plan, name) for plan in plans) for name in ("runs", "done", "work", "wall", "disk", "gpu_hours")}
    return replace(plans[0], **sums)


def plan(study: Study, out: str | Path, *, workers: int, rates: Sequence[str | Path] = (), probe_seconds: float = 1.0) -> Plan:
    """Return the remaining runs of a study, and their estimated cost.

    `rates` are folders of other studies with measured rates. Trial runs of `probe_seconds` time runs without a rate; 0 disables them.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.lab.study import grid
    >>> study = Study("cakes", grid("q-learning", env="cake", steps=100, rows=2, seed=range(4)))
    >>> plan(study, tempfile.mkdtemp(), workers=2, probe_seconds=0.01).runs
    4
    """
    for folder in rates:
        if not os.path.isdir(Path(folder) / "runs"):
            raise ValueError(f"{folder}: no runs to take rates from; give the folder of a study")
    todo = unfinished_runs(study, out)
    known = _Rates(_read_rates([out, *rates]))
    unknown = [run for run in todo.values() if not known.has(run)]
    probed = known.probe(study, unknown, probe_seconds) if probe_seconds else 0
    # These rates are of accelerators, and do not apply to studies without one.
    machines = known.add_packaged(run for run in unknown if not known.has(run)) if study.gpus else []
    costs = [_cost(known.of(run), run, run_folder(out, name)) for name, run in todo.items()]
    work, disk = sum(seconds for seconds, _ in costs), sum(size for _, size in costs)
    wall = max([work / workers, *(seconds for seconds, _ in costs)])
    basis = "; ".join(
        filter(
            None,
            (
                f"rates of {known.runs} runs" * bool(known.runs),
                f"{probed} short trial run{'s' * (probed != 1)}" * bool(probed),
                *(f"rates included with actiongap, from {machine}" for machine in machines),
            ),
        )
    )
    free = shutil.disk_usage(_nearest_folder(Path(out))).free
    return Plan(
        len(study.runs),
        len(study.runs) - len(todo),
        workers,
        work,
        wall,
        round(disk),
        free,
        work * study.gpus / 3600,
        basis or "; a trial run failed: ".join(filter(None, (NOTHING, known.probe_error))),
    )


def check_disk_space(plan: Plan, out: str | Path) -> None:
    """Raise ValueError if the disk has too little space."""
    if plan.disk > plan.free:
        needs, has = format_bytes(plan.disk), format_bytes(plan.free)
        raise ValueError(f"the study needs about {needs}, and {has} are free in {out}: free some disk space or choose another --out")


def _nearest_folder(path: Path) -> Path:
    """Return the path, or its nearest parent that exists."""
    path = path.resolve()
    return path if os.path.exists(path) else _nearest_folder(path.parent)


def _cost(rate: Rate, run: Experiment, folder: Path) -> tuple[float, float]:
    """Return the remaining seconds of work and bytes of disk of a run."""
    try:
        fraction = 1 - read_status(folder).chunk / run.chunks
    except ValueError:
        fraction = 1.0
    steps = _steps(run)
    return STARTUP_SECONDS + fraction * rate.seconds * steps, fraction * (rate.rows * steps + rate.disk)


def _steps(run: Experiment) -> int:
    return max(1, run.total_steps)


def _read_rates(places: Iterable[str | Path]) -> Iterator[tuple[str, str, dict[str, Any], Rate]]:
    for place in places:
        runs = Path(place) / "runs"
        for folder in sorted(runs.iterdir()) if os.path.isdir(runs) else ():
            try:
                config, status = read_record(folder / "config.json"), read_status(folder)
            except ValueError:
                continue
            if status.steps and status.seconds and isinstance(config.get("spec"), dict):
                rate = Rate(status.seconds / status.steps, status.rows / status.steps, status.disk + SMALL_FILES)
                yield str(config.get("kind")), str(config.get("task")), config["spec"], rate


class _Rates:
    """Measured rates, looked up by similarity of runs."""

    def __init__(self, measured: Iterable[tuple[str, str, dict[str, Any], Rate]]):
        self.rates: dict[Any, list[Rate]] = {}
        self.runs, self.probe_error = 0, ""
        for kind, task, spec, rate in measured:
            self.add(kind, task, spec, rate)
            self.runs += 1

    def add(self, kind: str, task: str, spec: dict[str, Any], rate: Rate) -> None:
        for key in _keys(kind, task, spec):
            self.rates.setdefault(key, []).append(rate)

    def has(self, run: Experiment) -> bool:
        """Return whether there is a rate for this kind and task, or family of tasks."""
        _, *keys = _keys_of(run)
        return any(key in self.rates for key in keys if isinstance(key, tuple))

    def of(self, run: Experiment) -> Rate:
        """Return the mean rate of the most similar runs."""
        rates = next((self.rates[key] for key in _keys_of(run) if key in self.rates), [Rate(0.0, 0.0, SMALL_FILES)])
        return Rate(*(sum(numbers) / len(rates) for numbers in zip(*rates, strict=True)))

    def add_packaged(self, runs: Iterable[Experiment]) -> list[str]:
        """Add the rates that come with the package for runs without one; return the machines on which they were measured."""
        packaged = json.loads((files("actiongap") / "data" / "rates.json").read_text(encoding="utf-8"))
        wanted = {_keys_of(run)[2] for run in runs}
        found = [entry for entry in packaged if (entry["kind"], entry["family"]) in wanted]
        for entry in found:
            self.rates[entry["kind"], entry["family"]] = [Rate(entry["seconds"], entry["rows"], entry["disk"])]
        return [entry["where"] for entry in found]

    def probe(self, study: Study, runs: Sequence[Experiment], seconds: float) -> int:
        """Time a trial run of some tasks of each kind, in a separate process that can be killed and that can find their operators."""
        tasks = {}
        for run in runs:
            if is_registered(run):
                continue
            tasks.setdefault(run.kind, {}).setdefault(run.task, run)
        chosen = [run for of_kind in tasks.values() for run in _spread(list(of_kind.values()), PROBES)]
        if not chosen or (study.gpus and not accelerators()):
            return 0
        messages: queue.Queue[tuple[Worker, dict[str, Any]]] = queue.Queue()
        worker, probed = Worker(messages, Path(os.devnull), worker_variables(study, 0)), 0
        try:
            for run in chosen:
                worker.send({"probe": as_config(run), "seconds": seconds})
                _, answer = messages.get()
                if answer["event"] == "exited":
                    break
                if answer["event"] != "probed":
                    self.probe_error = self.probe_error or answer["text"]
                    continue
                steps = _steps(run) * answer["chunks"] / run.chunks
                rows = answer["rows"] * run.chunks / _steps(run)
                rate = Rate(answer["seconds"] / steps, rows, KEPT_CHECKPOINTS * answer["state"] + SMALL_FILES)
                self.add(run.kind, run.task, as_config(run)["spec"], rate)
                probed += 1
        finally:
            # It has nothing to save.
            worker.process.kill()
            worker.close_input()
            worker.process.wait()
        return probed


def _keys_of(run: Experiment) -> list[Any]:
    return _keys(run.kind, run.task, as_config(run)["spec"])


def _keys(kind: str, task: str, spec: dict[str, Any]) -> list[Any]:
    """Return the keys of a rate, the most specific first."""
    others = json.dumps({name: value for name, value in spec.items() if name != "seed"}, sort_keys=True)
    family, slash, _ = task.partition("/")
    return [(short_kind(kind), others), (short_kind(kind), task), (short_kind(kind), family + slash) if slash else short_kind(kind)]


def _spread(items: list[Experiment], count: int) -> list[Experiment]:
    """Return at most `count` items, evenly spaced."""
    return items if len(items) <= count else [items[i * len(items) // count] for i in range(count)]
