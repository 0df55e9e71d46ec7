"""`sweep`: run a study on this machine or on a cluster, or estimate its cost."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_origin

from tyro.conf import Positional, arg

from actiongap._files import in_bytes
from actiongap.cli.common import Flag, Whole, command_line, print_json

if TYPE_CHECKING:
    from actiongap.lab.cost import Plan
    from actiongap.lab.executors import Executor
    from actiongap.lab.runner import StudyOutcome
    from actiongap.lab.study import Study


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """How to run a study."""

    out: Annotated[Path, arg(metavar="DIR")]
    """Folder to write to; give the same one again to resume."""
    workers: Whole = None
    """Number of worker processes; one per core if not given."""
    ray: Annotated[str | None, arg(metavar="ADDRESS", help_behavior_hint="")] = None
    """Run on the Ray cluster at this address (auto finds one on this machine) instead of in local processes."""
    dry_run: Flag = False
    """Only print the estimated cost: runs, time, disk and accelerator hours, from measured rates."""
    rates: Annotated[tuple[Path, ...], arg(metavar="DIR ...", help_behavior_hint="")] = ()
    """Folders of other studies with measured rates."""
    save_every: Annotated[float, arg(metavar="SECONDS")] = 10.0
    """Seconds between checkpoints of a run."""
    together: Whole = None
    """Largest batch of runs that one process advances side by side, for kinds that allow it (deep agents). By default 160 in this process,
    and 1 with --workers or --ray."""
    json: Flag = False
    """Print one JSON object at the end."""


def sweep(study: Annotated[Positional[Path], arg(metavar="STUDY")], launch: SweepOptions, trust: Flag = False) -> int:
    """Run a study: every combination of its environments, operators, seeds and other values. Finished runs are not repeated.

    STUDY is a file, or a kind of experiment whose fields are options with one or more values each: see `actiongap sweep q-learning
    --help`, and likewise fitted-q, noisy-values, noisy-backups, plan and train.

    Args:
        study: A .toml file, a .py file that defines study, the config.json of a run, or a kind of experiment.
        launch: How to run it.
        trust: Run the Python code that a .toml or .json file names: experiments, operators and environments of its author.
    """
    from actiongap.lab.study import load_study

    return _sweep(load_study(study, trust=trust), launch)


def sweep_of(kind: str) -> Callable[..., int]:
    """`sweep` for one kind of experiment, with its fields as options; an option with several values is an axis."""
    from actiongap.lab.experiment import field_docs, field_types, find
    from actiongap.lab.study import Study, grid

    cls = find(kind)
    taken = {field.name for field in dataclasses.fields(SweepOptions)}
    for field in dataclasses.fields(cls):  # pyright: ignore[reportArgumentType]
        if field.name in taken:
            raise ValueError(f"{kind}: the field {field.name!r} has the name of an option of sweep: rename it, or write a study file")
    docs, types_of = field_docs(cls), field_types(cls)
    axes: list[tuple[str, Any, Any]] = []
    if cls.presets:
        taken, help = tuple[Literal[tuple(cls.presets)], ...], "Where the fields that are not given come from; chosen by env if not given."
        axes.append(("preset", Annotated[taken, arg(help=help, help_behavior_hint="")], ()))
    for field in dataclasses.fields(cls):  # pyright: ignore[reportArgumentType]
        itself = get_origin(types_of[field.name]) is tuple
        taken = types_of[field.name] if itself else tuple[types_of[field.name], ...]
        values: Any = field.default if itself else (field.default,)
        hint = "" if cls.presets else f"(default: {' '.join(map(str, values))})"
        axes.append((field.name, Annotated[taken, arg(help=docs.get(field.name, ""), help_behavior_hint=hint)], ()))
    fields_type = dataclasses.make_dataclass("Config", axes, frozen=True)
    fields_type.__doc__ = "The configuration of each run; several values are several runs."

    def command(run: Any, launch: SweepOptions) -> int:
        # Options that are not given are left to the experiment, which may have a preset for them.
        return _sweep(Study(kind, grid(kind, **{name: values for name, values in vars(run).items() if values})), launch)

    command.__doc__ = (cls.__doc__ or "").partition("Examples\n")[0]
    command.__annotations__["run"] = fields_type
    return command


def is_kind(text: str) -> bool:
    """Whether a string names a kind of experiment rather than a file."""
    from actiongap.lab.experiment import KINDS

    return text in KINDS or text.rpartition(":")[0].endswith(".py")


def _sweep(study: Study, options: SweepOptions) -> int:
    if options.dry_run:
        show_plans({study.name: expect(study, options)}, options.json)
        return 0
    outcome = carry_out(study, options)
    done = len(study.runs) - len(outcome.failed) - len(outcome.busy)
    if options.json:
        print_json({"study": study.name, "out": str(options.out), "runs": len(study.runs), "done": done, "failed": outcome.failed})
    else:
        _show_end(study, done, outcome, options.out)
    return 1 if outcome.failed else 0


def expect(study: Study, options: SweepOptions, measure: bool = True) -> Plan:
    """Estimate the cost of a study from known rates, and by trying runs for a moment if `measure`."""
    from rich.console import Console

    from actiongap.lab.cost import plan
    from actiongap.lab.processes import default_workers, worker_variables

    if options.workers is not None and options.workers < 1:
        raise ValueError(f"--workers is {options.workers}: it must be at least 1")
    if options.together is not None and options.together < 1:
        raise ValueError(f"--together is {options.together}: it must be at least 1")
    if not options.save_every >= 0:
        raise ValueError(f"--save-every is {options.save_every}: it must be a number of seconds, 0 or more")
    # Only the cluster knows how many runs it takes at once, and a dry run may be for another machine.
    elsewhere = options.ray is not None or (options.dry_run and study.gpus > 0)
    workers = options.workers or (1 if elsewhere else default_workers(study))
    if not elsewhere:
        worker_variables(study, workers - 1)  # raises if there are more workers than accelerators allow
    seconds = (1.0 if options.dry_run else 0.2) if measure else 0.0
    with Console(stderr=True).status("measuring what it takes"):
        return plan(study, options.out, workers=workers, rates=options.rates, probe_seconds=seconds)


def carry_out(study: Study, options: SweepOptions, measure: bool = True) -> StudyOutcome:
    """Run the unfinished runs of a study with a live table; estimate their cost first if `measure`."""
    from rich.console import Console

    from actiongap.lab.cost import check_room
    from actiongap.lab.executors import check_study, run_study
    from actiongap.lab.runner import unfinished_runs
    from actiongap.report.terminal import LiveTable

    console, shared = Console(stderr=True), {"command": command_line(), "save_every": options.save_every}
    check_study(study, options.out)
    # Finished runs, possibly made on an accelerator elsewhere, need nothing of this machine.
    if not unfinished_runs(study, options.out):
        console.print(f"{study.name}: all {len(study.runs)} runs are done already.", highlight=False, markup=False, soft_wrap=True)
        return run_study(study, options.out, **shared)
    expected = expect(study, options, measure)
    check_room(expected, options.out)
    console.print(_announcement(study, expected, options), highlight=False, markup=False, soft_wrap=True)
    try:
        with LiveTable(unfinished_runs(study, options.out), expected.done, console) as table:
            chosen = {"executor": _executor(study, options), "workers": expected.workers, "ray": options.ray}
            outcome = run_study(study, options.out, **chosen, batch_size=options.together, **shared, on_event=table)
    except KeyboardInterrupt:
        rest = len(unfinished_runs(study, options.out))
        raise KeyboardInterrupt(f"stopped: {rest} of {len(study.runs)} runs are left; the same command goes on") from None
    if outcome.stopped:
        raise ValueError(f"stopped, and everything so far is intact: {outcome.stopped}")
    if outcome.busy:
        one = len(outcome.busy) == 1
        held = "another process works on a run" if one else f"other processes work on {len(outcome.busy)} runs"
        end = "it ends" if one else "they end"
        console.print(f"note: {held} of this study: when {end}, the same command does what is left", highlight=False, soft_wrap=True)
    return outcome


def _executor(study: Study, options: SweepOptions) -> Executor:
    from actiongap.lab.executors import choose_executor

    return choose_executor(study, workers=options.workers, ray=options.ray)


def _announcement(study: Study, expected: Plan, options: SweepOptions) -> str:
    from actiongap.report.groups import several

    cluster = options.ray is not None
    todo = expected.runs - expected.done
    done = f" ({expected.done} done already)" if expected.done else ""
    many = "" if cluster else f"{_at_once(study, expected, options)} at once"
    if not expected.measured:
        return f"{study.name}: {several(todo, 'run')} to do{done}{', ' * bool(many)}{many}"
    time = f"{_about(expected.work)} of work" if cluster else f"{many}, {_about(expected.wall)}"
    disk = f"about {in_bytes(expected.disk)} of disk ({in_bytes(expected.free)} free)"
    return f"{study.name}: {several(todo, 'run')} to do{done}: {time}, {disk}"


def _at_once(study: Study, expected: Plan, options: SweepOptions) -> int:
    from actiongap.lab.batches import batch_runs
    from actiongap.lab.executors import BATCH_SIZE
    from actiongap.lab.runner import unfinished_runs

    if _executor(study, options) != "inline":
        return expected.workers
    return max(len(batch) for batch in batch_runs(unfinished_runs(study, options.out), options.together or BATCH_SIZE))


def show_plans(plans: Mapping[str, Plan], json: bool) -> None:
    """Print the estimated cost of studies."""
    if json:
        print_json([{"study": name, **dataclasses.asdict(plan)} for name, plan in plans.items()])
        return
    if not plans:
        print("There is nothing to train here: it takes seconds.")
        return
    from rich.table import Table
    from rich.text import Text

    from actiongap.report.terminal import output_console

    table = Table(box=None, pad_edge=False)
    for heading in ("study", "runs", "done", "work left", "time", "at once", "disk", "GPU hours"):
        table.add_column(heading, justify="left" if heading == "study" else "right", no_wrap=heading != "study", overflow="fold")
    shown = dict(plans)
    if len(plans) > 1:
        shown["together"] = _together(list(plans.values()))
    for name, plan in shown.items():
        numbers = (_duration(plan.work), _duration(plan.wall), str(plan.workers), in_bytes(plan.disk), _in_hours(plan.gpu_hours))
        known = numbers if plan.measured or plan.done == plan.runs else ("?", "?", str(plan.workers), "?", "?")
        table.add_row(Text(name), str(plan.runs), str(plan.done), *known)
    console = output_console()
    console.print(table)
    for basis in dict.fromkeys(plan.basis for plan in plans.values()):
        console.print(f"Measured by: {basis}.", soft_wrap=True, markup=False)
    console.print(f"{in_bytes(next(iter(plans.values())).free)} of disk are free.")


def _together(plans: Sequence[Plan]) -> Plan:
    """Several plans, one after the other."""
    sums = {name: sum(getattr(plan, name) for plan in plans) for name in ("runs", "done", "work", "wall", "disk", "gpu_hours")}
    return dataclasses.replace(plans[0], **sums)


def _show_end(study: Study, done: int, outcome: StudyOutcome, out: Path) -> None:
    from rich.console import Console

    from actiongap.report.groups import several

    console, failed = Console(highlight=False, soft_wrap=True, markup=False), outcome.failed
    console.print(f"{done} of {several(len(study.runs), 'run')} are done, in {out}.")
    for name, text in failed.items():
        console.print(f"failed: {name}: {text}")
    if failed:
        console.print("The same command tries the failed ones again.")
    console.print(f"See them with: actiongap report {shlex.quote(str(out))} -o page.html")


def _about(seconds: float) -> str:
    return f"{'about ' * (seconds >= 1)}{_duration(seconds)}"


def _in_hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 1000 else f"{hours:.3g}"


def _duration(seconds: float) -> str:
    for size, unit in ((86400.0, "days"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 else "under 1 s"
