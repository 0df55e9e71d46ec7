"""Studies: run them with progress, estimate what they cost, and read their runs.

study = Study("lake", "q-learning", env="gym/FrozenLake-v1", operator=["bellman", "al:0.9"], seeds=10)
runs = study.run("runs/lake")
runs.table()
"""

from __future__ import annotations

import html
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from rich.console import Console

from actiongap._files import as_path, as_paths, format_bytes
from actiongap._suggest import did_you_mean, with_suggestions
from actiongap._system import needing_extras
from actiongap.lab import study as lab_study
from actiongap.lab.batches import batch_runs
from actiongap.lab.cost import Plan, check_disk_space
from actiongap.lab.cost import plan as plan_study
from actiongap.lab.executors import BATCH_SIZE, Executor, check_study, choose_executor, is_vectorized, run_study
from actiongap.lab.experiment import Experiment, try_operators
from actiongap.lab.processes import default_workers, worker_variables
from actiongap.lab.records import Records, RunRecord
from actiongap.lab.records import read_runs as read_records
from actiongap.lab.runner import SAVE_EVERY, Event, StudyOutcome, unfinished_runs
from actiongap.lab.source import text_of
from actiongap.reporting.groups import column_of, group_runs, listed, several
from actiongap.reporting.progress import StepProgress
from actiongap.reporting.summary import summary
from actiongap.reporting.terminal import LiveTable, duration

if TYPE_CHECKING:
    from pandas import DataFrame

PROBE_SECONDS = 0.2
"""Seconds of a trial run before a study starts, to estimate its cost."""

Callback = Callable[[dict[str, Any]], object]
"""Receives every row of a study: `run`, `env`, `operator`, `seed`, `step` and the columns of its kind."""


class Runs(Sequence[RunRecord]):
    """Runs that were read from their folders: an immutable sequence of `actiongap.lab.records.RunRecord`.

    Examples
    --------
    >>> import tempfile
    >>> study = Study("cakes", "q-learning", env="cake", operator=["bellman", "al:0.5"], seeds=2, steps=100, rows=2)
    >>> runs = study.run(tempfile.mkdtemp())
    >>> runs
    Runs(4 runs of q-learning: 4 done; tasks cake; agents bellman, al:0.5)
    >>> runs[0].agent, runs[0].seed, runs[0].rows["step"].tolist()
    ('bellman', 0, [50.0, 100.0])
    """

    def __init__(self, records: Records):
        self.records: Records = records
        """The runs, the problems and the folders, as `actiongap.lab.records.read_runs` returns them."""

    def __len__(self) -> int:
        return len(self.records.runs)

    @overload
    def __getitem__(self, index: int) -> RunRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Runs: ...
    def __getitem__(self, index: int | slice) -> RunRecord | Runs:
        return self._of(self.records.runs[index]) if isinstance(index, slice) else self.records.runs[index]

    def _of(self, runs: Iterable[RunRecord]) -> Runs:
        return Runs(Records(tuple(runs), self.records.problems, self.records.places))

    @property
    def problems(self) -> tuple[str, ...]:
        """A sentence for each file that could not be read, and for each study with runs that have not started."""
        return self.records.problems

    @property
    def failed(self) -> dict[str, str]:
        """The runs that failed, by name, each with its error. Running the study again retries them."""
        return {run.name: run.status.error or "" for run in self if run.status is not None and run.status.state == "failed"}

    def select(self, **fields: Any) -> Runs:
        """Return the runs whose fields have these values; a list, tuple or range stands for any of its values.

        Fields are those of the experiments, and `kind`, `task`, `agent` and `state`.

        Examples
        --------
        >>> import tempfile
        >>> runs = Study("cakes", "q-learning", env="cake", seeds=3, steps=100, rows=2).run(tempfile.mkdtemp())
        >>> [run.seed for run in runs.select(env="cake", seed=[0, 2])]
        [0, 2]
        """
        values = [{**run.spec, **{name: getattr(run, name) for name in ("kind", "task", "agent", "state")}} for run in self]
        known = dict.fromkeys(name for of_run in values for name in of_run)
        for name in fields:
            if self and name not in known:
                remedy = did_you_mean(name, known, f"they have {', '.join(known)}")
                raise ValueError(f"the runs have no field {name!r}: {remedy}")
        wanted = {name: [_recorded(item) for item in _choices(value)] for name, value in fields.items()}
        return self._of(
            run for run, of_run in zip(self, values, strict=True) if all(of_run.get(name) in chosen for name, chosen in wanted.items())
        )

    def table(self) -> list[dict[str, Any]]:
        """Return the statistics of runs that differ only in the seed, one row per group and number, as `report --json` prints them.

        A row has the group (`kind`, `task`, `agent`, and a `label` with the other fields that differ), the `number`, its `value` as a mean
        over `n` runs, and its interval from `low` to `high` at `level`. `pandas.DataFrame(runs.table())` makes a data frame of it.

        Examples
        --------
        >>> import tempfile
        >>> runs = Study("cakes", "q-learning", env="cake", seeds=3, steps=100, rows=2).run(tempfile.mkdtemp())
        >>> row = runs.table()[0]
        >>> row["agent"], row["number"], row["n"]
        ('bellman', 'score, average of last tenth', 3)
        """
        return [
            {**{name: group[name] for name in ("kind", "task", "agent", "label")}, "number": name, **estimate}
            for group in self.as_json()["groups"]
            for name, estimate in group["numbers"].items()
            if estimate is not None
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the results as plain values for JSON, as `actiongap report --json` prints them.

        Examples
        --------
        >>> import tempfile
        >>> runs = Study("cakes", "q-learning", env="cake", seeds=3, steps=100, rows=2).run(tempfile.mkdtemp())
        >>> [group["agent"] for group in runs.as_json()["groups"]]
        ['bellman']
        """
        return summary(self.records)

    def to_pandas(self) -> DataFrame:
        """Return all rows as a pandas data frame: one row per run and step.

        Its columns are `run`, `kind`, `state`, `env`, `operator`, `seed`, the other fields that differ between the runs, `step`, and the
        columns that the runs recorded.

        Examples
        --------
        >>> import tempfile
        >>> runs = Study("cakes", "q-learning", env="cake", seeds=2, steps=100, rows=2).run(tempfile.mkdtemp())
        >>> frame = runs.to_pandas()
        >>> frame.groupby("seed").step.max().tolist()
        [100, 100]
        """
        with needing_extras("a data frame"):
            import pandas
        lengths = [len(run.rows["step"]) for run in self]
        columns = list(dict.fromkeys(name for run in self for name in run.columns))
        fields = [name for name in dict.fromkeys(name for run in self for name in run.spec) if name not in columns]
        leading = [name for name in ("env", "operator", "seed") if name in fields]
        differing = [name for name in fields if len({repr(run.spec.get(name)) for run in self}) > 1]
        of_runs = {name: [getattr(run, {"run": "name"}.get(name, name)) for run in self] for name in ("run", "kind", "state")}
        of_runs |= {name: [run.spec.get(name) for run in self] for name in dict.fromkeys([*leading, *differing])}
        of_rows = {name: np.concatenate([np.empty(0), *(column_of(run, name) for run in self)]) for name in ("step", *columns)}
        repeated = {name: pandas.Series(values).repeat(lengths).reset_index(drop=True) for name, values in of_runs.items()}
        frame = pandas.DataFrame(repeated | of_rows)
        return frame.astype({"step": int}) if (of_rows["step"] % 1 == 0).all() else frame

    def __repr__(self) -> str:
        if not self:
            return "Runs(0 runs)"
        states = ", ".join(f"{count} {state}" for state, count in Counter(run.state for run in self).most_common())
        kinds, tasks, agents = (list(dict.fromkeys(getattr(run, name) for run in self)) for name in ("kind", "task", "agent"))
        return f"Runs({several(len(self), 'run')} of {listed(kinds)}: {states}; tasks {listed(tasks)}; agents {listed(agents)})"

    def _repr_html_(self) -> str:
        rows = []
        for group in group_runs(self):
            name, estimate = next(iter(group.numbers.items()))
            cells = (group.task, group.label, f"{name}: {estimate}" if estimate else "", f"{group.states['done']} of {len(group.runs)}")
            rows.append("".join(f"<td>{html.escape(cell)}</td>" for cell in cells))
        heads = "".join(f"<th>{name}</th>" for name in ("task", "agent", "mean over runs", "done"))
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<p>{html.escape(repr(self))}</p><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>"


def _choices(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple, range)) else [value]


def _recorded(value: Any) -> Any:
    """Return a value as a run records it: functions and operators by their texts."""
    return text_of(value) if callable(value) else value


@with_suggestions
def read_runs(folders: str | Path | Iterable[str | Path], *, trust: bool = False, progress: bool | None = None) -> Runs:
    """Read all runs in one folder or several, finished or not. Each experiment counts once.

    Parameters
    ----------
    folders
        Folders of studies or of runs.
    trust
        Accepted as by the other functions that read files. Reading runs never runs code that they name, so it changes nothing.
    progress
        Whether to show progress. By default, only if it takes longer than two seconds.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> runs = Study("cakes", "q-learning", env="cake", seeds=2, steps=100, rows=2).run(folder)
    >>> read_runs(folder)
    Runs(2 runs of q-learning: 2 done; tasks cake; agents bellman)
    """
    with StepProgress("reading", progress) as bar:
        return Runs(read_records(as_paths(folders, "folders"), bar))


class Study(lab_study.Study):
    """Experiments with a name: every combination of environments, operators, seeds and other fields of a kind of experiment.

    The kinds are `q-learning`, `fitted-q`, `noisy-values`, `noisy-backups`, `plan` and `train`, and your own class of experiments. A list
    is an axis. `seeds` is the number of seeds and `seed` the first one. An operator is a string, an `Operator`, or any function of a
    `Backup`. Several grids make one study if they are added together: `Study(name, grid(...) + grid(...))`.

    Examples
    --------
    >>> from actiongap import maximum
    >>> def mine(b):
    ...     return maximum(b.bellman - 0.5 * b.gap, b.repeat)
    >>> study = Study("cakes", "q-learning", env=["cake", "chain:5"], operator=["bellman", "al:0.9", mine], seeds=10)
    >>> len(study.runs)
    60
    """

    @with_suggestions
    def run(
        self,
        out: str | Path,
        *,
        executor: Executor | None = None,
        workers: int | None = None,
        ray: str | None = None,
        max_batch_size: int | None = None,
        save_every: float = SAVE_EVERY,
        rates: Sequence[str | Path] = (),
        callback: Callback | None = None,
        progress: bool | None = None,
        command: str = "",
    ) -> Runs:
        """Run the unfinished runs, show progress in a live table, and return all runs of the study.

        Finished runs are not repeated, and interrupted runs continue from their last checkpoint. Ctrl-C saves all runs. If some runs fail,
        a RuntimeWarning says so and `failed` of the result lists them; running the study again retries them.

        Parameters
        ----------
        out
            The folder to write to.
        executor
            `inline` (this process), `processes` or `ray`. By default Ray if `ray` is given, and otherwise the one that suits the study:
            inline for deep agents, which train as one batch, and for operators that other processes cannot find, else processes.
        workers
            Number of worker processes; by default as many as cores and accelerators allow, and at most one per run.
        ray
            Address of a Ray cluster: `auto`, or HOST:PORT of its head.
        max_batch_size
            Maximum number of runs that are advanced as one batch (deep agents only); by default 160, or 1 in processes and on Ray.
        save_every
            Minimum seconds between checkpoints of a run. They are written between chunks only.
        rates
            Folders of earlier studies. The estimate of the time uses their measured speed.
        callback
            Called in this process with every row, as a dictionary: `run` (its name), `env`, `operator`, `seed`, `step` and the columns of
            the kind. Rows of a run come in order. After a worker died, and when an interrupted study continues, rows since the last
            checkpoint come again. If it raises an exception, all runs are saved, the study stops, and the exception is raised here.
        progress
            Whether to show progress. By default, only if it takes longer than two seconds.
        command
            Recorded as the command that ran the study.

        Raises
        ------
        ValueError
            If the study cannot be run like this, or its folder holds something else. Nothing is written.
        RuntimeError
            If runs failed and no run of the study is done.
        KeyboardInterrupt
            After Ctrl-C, with a sentence that counts the unfinished runs.

        Examples
        --------
        >>> import tempfile
        >>> study = Study("cakes", "q-learning", env="cake", operator=["bellman", "al:0.5"], seeds=2, steps=100, rows=2)
        >>> show = lambda row: print(row["operator"], row["step"]) if row["seed"] == 1 else None
        >>> runs = study.run(tempfile.mkdtemp(), executor="inline", callback=show)
        bellman 50
        bellman 100
        al:0.5 50
        al:0.5 100
        """
        out = as_path(out, "out")
        outcome = run_with_progress(
            self,
            out,
            executor=executor,
            workers=workers,
            ray=ray,
            max_batch_size=max_batch_size,
            save_every=save_every,
            rates=rates,
            command=command,
            callback=callback,
            progress=progress,
        )
        found, names = read_runs(out, progress=progress), self.named()
        order = {name: place for place, name in enumerate(names)}
        runs = found._of(sorted((run for run in found if run.name in names), key=lambda run: order[run.name]))
        if outcome.failed:
            name, text = next(iter(outcome.failed.items()))
            sentence = f"{len(outcome.failed)} of {several(len(self.runs), 'run')} of the study {self.name!r} failed: {name}: {text}"
            if all(run.state != "done" for run in runs):
                raise RuntimeError(f"{sentence}; fix it and run the study again to retry")
            warnings.warn(f"{sentence}; see failed of the runs, and run the study again to retry", RuntimeWarning, stacklevel=3)
        return runs

    @with_suggestions
    def estimate(
        self,
        out: str | Path,
        *,
        workers: int | None = None,
        ray: str | None = None,
        rates: Sequence[str | Path] = (),
        progress: bool | None = None,
    ) -> Plan:
        """Estimate what the unfinished runs cost: time, disk and accelerator hours, as `sweep --dry-run` prints them.

        The parameters are those of `estimate_cost`.

        Examples
        --------
        >>> import tempfile
        >>> Study("cakes", "q-learning", env="cake", steps=100, rows=2, seeds=4).estimate(tempfile.mkdtemp(), workers=2).runs
        4
        """
        return estimate_cost(self, out, workers=workers, ray=ray, rates=rates, progress=progress)


@with_suggestions
def load_study(path: str | Path, *, trust: bool = False) -> Study:
    r"""Read a study from a .toml file, from a .py file that defines `study`, or from the config.json of a run.

    Parameters
    ----------
    path
        The file. A Python file is run.
    trust
        Whether a file of another type may load Python code: the experiments, operators and environments that it names.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "cakes.toml"
    >>> written = file.write_text('kind = "q-learning"\nenv = "cake"\nseeds = 4\nsteps = 100\nrows = 2')
    >>> load_study(file).run(tempfile.mkdtemp())
    Runs(4 runs of q-learning: 4 done; tasks cake; agents bellman)
    """
    found = lab_study.load_study(path, trust=trust)
    return Study(found.name, found.runs, cpus=found.cpus, gpus=found.gpus)


def estimate_cost(
    study: lab_study.Study,
    out: str | Path,
    *,
    workers: int | None = None,
    ray: str | None = None,
    rates: Sequence[str | Path] = (),
    probe_seconds: float = 1.0,
    progress: bool | None = None,
) -> Plan:
    """Estimate the cost of the unfinished runs of a study from measured rates. Runs of unknown speed are timed by a short trial run.

    Parameters
    ----------
    study
        The runs.
    out
        The folder of the study; its finished runs cost nothing.
    workers
        Number of worker processes; by default as many as this machine allows.
    ray
        Address of the Ray cluster, if the study is to run on one. Only the cluster knows how many runs fit at once, so the time is that of
        one worker unless `workers` is given. So it is for studies with accelerators, because an estimate may be for another machine.
    rates
        Folders of earlier studies whose speed is known.
    probe_seconds
        Seconds of the trial run of a run of unknown speed; 0 disables trial runs.
    progress
        Whether to show progress. By default, only if it takes longer than two seconds.

    Examples
    --------
    >>> import tempfile
    >>> study = Study("cakes", "q-learning", env="cake", steps=100, rows=2, seeds=4)
    >>> estimate_cost(study, tempfile.mkdtemp(), workers=2, probe_seconds=0.01).runs
    4
    """
    return _estimate(study, out, workers, ray is not None or study.gpus > 0, rates, probe_seconds, progress)


def _estimate(
    study: lab_study.Study,
    out: str | Path,
    workers: int | None,
    elsewhere: bool,
    rates: Sequence[str | Path],
    probe_seconds: float,
    progress: bool | None,
) -> Plan:
    """Estimate the cost of a study. If `elsewhere`, local cores and accelerators do not limit it."""
    if workers is not None and workers < 1:
        raise ValueError(f"workers is {workers}: it must be at least 1")
    count = workers or (1 if elsewhere else default_workers(study))
    if not elsewhere:
        worker_variables(study, count - 1)  # raises if there are more workers than accelerators allow
    with StepProgress("estimating the cost", progress) as bar:
        bar("trial runs", 0.0)
        return plan_study(study, out, workers=count, rates=rates, probe_seconds=probe_seconds)


def run_with_progress(
    study: lab_study.Study,
    out: str | Path,
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    ray: str | None = None,
    max_batch_size: int | None = None,
    save_every: float = SAVE_EVERY,
    rates: Sequence[str | Path] = (),
    measure: bool = True,
    command: str = "",
    callback: Callback | None = None,
    progress: bool | None = None,
) -> StudyOutcome:
    """Run the unfinished runs of a study, and show progress in a live table. Ctrl-C saves all runs.

    Parameters
    ----------
    study
        The runs.
    out
        The folder to write to.
    executor, workers, ray, save_every, command
        As for `actiongap.lab.executors.run_study`.
    max_batch_size
        Maximum number of runs that are advanced as one batch.
    rates
        Folders of earlier studies, from which the time is estimated.
    measure
        Whether to time runs of unknown speed with a short trial run.
    callback
        Called with every row, as for `Study.run`.
    progress
        Whether to show progress. By default, only if it takes longer than two seconds.

    Examples
    --------
    >>> import tempfile
    >>> study = Study("cakes", "q-learning", env="cake", steps=100, rows=2, seeds=2)
    >>> len(run_with_progress(study, tempfile.mkdtemp(), workers=1, measure=False).done)
    2
    """
    if max_batch_size is not None and max_batch_size < 1:
        raise ValueError(f"max_batch_size is {max_batch_size}: it must be at least 1")
    if not isinstance(save_every, (int, float)) or not save_every >= 0:
        raise ValueError(f"save_every is {save_every!r}: it must be a number of seconds, 0 or more")
    if callback is not None and not callable(callback):
        raise ValueError(f"callback is {callback!r}: it must be a function of a row")
    check_study(study, out)
    executor = choose_executor(study, executor, workers, ray)
    todo = unfinished_runs(study, out)
    try_operators(todo.values())
    # Finished runs, possibly from a machine with accelerators, need no resources of this one.
    if not todo:
        if progress:
            say = Console(stderr=True).print
            say(f"{study.name}: all {len(study.runs)} runs are done already.", highlight=False, markup=False, soft_wrap=True)
        return run_study(study, out, command=command)
    elsewhere, one_by_one = executor == "ray", executor == "inline" and not is_vectorized(study)
    plan = _estimate(study, out, 1 if one_by_one else workers, elsewhere, rates, PROBE_SECONDS if measure else 0.0, progress)
    check_disk_space(plan, out)
    at_once = plan.workers if executor != "inline" or one_by_one else _largest_batch(todo, max_batch_size)
    options = {"ray": ray, "batch_size": max_batch_size, "command": command, "save_every": save_every}
    if executor == "processes":
        options["workers"] = plan.workers
    try:
        with LiveTable(todo, plan.done, title=_announcement(study, plan, at_once, elsewhere), progress=progress) as table:
            follower = _Follower(todo, table, callback)
            outcome = run_study(study, out, executor=executor, **options, stop=follower.has_failed, on_event=follower)
            if outcome.busy:
                busy, remedy = several(len(outcome.busy), "run"), "run the same command again when they have finished"
                table.say(f"note: other processes are working on {busy} of this study: {remedy}")
    except KeyboardInterrupt:
        rest = len(unfinished_runs(study, out))
        again = "run the same command again" if command else "make the same call again"
        raise KeyboardInterrupt(f"stopped: {rest} of {len(study.runs)} runs are unfinished; {again} to resume") from None
    if follower.error is not None:
        raise follower.error
    if outcome.stopped:
        raise ValueError(f"stopped, with all finished work saved: {outcome.stopped}")
    return outcome


class _Follower:
    """Shows the events of a study in a table, and passes its rows to a callback until that raises an exception."""

    def __init__(self, runs: dict[str, Experiment], table: LiveTable, callback: Callback | None):
        self.runs, self.table, self.callback = runs, table, callback
        self.error: BaseException | None = None

    def has_failed(self) -> bool:
        """Whether the callback has raised an exception."""
        return self.error is not None

    def __call__(self, event: Event) -> None:
        self.table(event)
        if self.callback is None or self.error is not None:
            return
        for row in event.rows:
            run = self.runs[event.run]
            try:
                self.callback({"run": event.run, "env": run.task, "operator": run.agent, "seed": run.seed, **row})
            except BaseException as error:  # KeyboardInterrupt too: the runs are saved first
                self.error = error
                return


def _largest_batch(todo: dict[str, Experiment], max_batch_size: int | None) -> int:
    return max(len(batch) for batch in batch_runs(todo, max_batch_size or BATCH_SIZE))


def _announcement(study: lab_study.Study, plan: Plan, at_once: int, cluster: bool) -> str:
    todo = plan.runs - plan.done
    done = f" ({plan.done} done already)" if plan.done else ""
    parallel = "" if cluster else f"{at_once} at once"
    if not plan.measured:
        return f"{study.name}: {several(todo, 'run')} to do{done}{', ' * bool(parallel)}{parallel}"
    time = f"{_about(plan.work)} of work" if cluster else f"{parallel}, {_about(plan.wall)}"
    disk = f"about {format_bytes(plan.disk)} of disk ({format_bytes(plan.free)} free)"
    return f"{study.name}: {several(todo, 'run')} to do{done}: {time}, {disk}"


def _about(seconds: float) -> str:
    return f"{'about ' * (seconds >= 1)}{duration(seconds)}"
