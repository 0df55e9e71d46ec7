"""`sweep`: run a study on this machine or on a cluster, or say what it would take."""

from __future__ import annotations

import dataclasses
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin

from tyro.conf import Positional, arg

from actiongap.cli.common import Flag, Whole, print_json

if TYPE_CHECKING:
    from actiongap.lab.estimate import Plan
    from actiongap.lab.study import Study


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """How to run a study."""

    out: Annotated[Path, arg(metavar="DIR")]
    """The folder to write to; give the same one again to go on."""
    workers: Whole = None
    """Processes to run at once; as many as there are cores if not given."""
    ray: Annotated[str | None, arg(metavar="ADDRESS", help_behavior_hint="")] = None
    """Run on the Ray cluster at this address (auto finds one on this machine) instead of in processes here."""
    dry_run: Flag = False
    """Only print what it would take: runs, time, disk and accelerator hours, from measured rates."""
    rates: Annotated[tuple[Path, ...], arg(metavar="DIR ...", help_behavior_hint="")] = ()
    """Folders of other studies to take measured rates from."""
    save_every: Annotated[float, arg(metavar="SECONDS")] = 10.0
    """Seconds between checkpoints of a run."""
    json: Flag = False
    """Print one JSON object at the end."""


def sweep(study: Annotated[Positional[Path], arg(metavar="STUDY")], launch: SweepOptions) -> int:
    """Run a study: every combination of its problems, operators, seeds and settings. What is done already is not done again.

    STUDY is a file of a few lines, or a kind of experiment whose settings are given here, one or more values each: see `actiongap
    sweep q-learning --help`, and likewise fitted-q, noisy-values and noisy-backups.

    Args:
        study: A .toml file, a .py file that defines study, the config.json of a run, or a kind of experiment.
        launch: How to run it.
    """
    from actiongap.lab.study import load_study

    return _run(load_study(study), launch)


def sweep_of(kind: str) -> Callable[..., int]:
    """`sweep` for one kind of experiment, with its fields as options: what is given several values is an axis."""
    from actiongap.lab.spec import field_docs, field_types, find
    from actiongap.lab.study import Study, grid

    cls = find(kind)
    docs, types_of = field_docs(cls), field_types(cls)
    axes: list[tuple[str, Any, Any]] = []
    for field in dataclasses.fields(cls):  # pyright: ignore[reportArgumentType]
        itself = get_origin(types_of[field.name]) is tuple
        taken = types_of[field.name] if itself else tuple[types_of[field.name], ...]
        axes.append((field.name, Annotated[taken, arg(help=docs.get(field.name, ""))], field.default if itself else (field.default,)))
    fields_type = dataclasses.make_dataclass("Settings", axes, frozen=True)
    fields_type.__doc__ = "The settings of each run; several values are several runs."

    def command(run: Any, launch: SweepOptions) -> int:
        return _run(Study(kind, grid(kind, **vars(run))), launch)

    command.__doc__ = (cls.__doc__ or "").partition("Examples\n")[0]
    command.__annotations__["run"] = fields_type
    return command


def is_kind(text: str) -> bool:
    """Whether a text names a kind of experiment rather than a file."""
    from actiongap.lab.spec import KINDS

    return text in KINDS or text.rpartition(":")[0].endswith(".py")


def _run(study: Study, options: SweepOptions) -> int:
    from rich.console import Console

    from actiongap.lab.estimate import check_room, plan
    from actiongap.lab.launch import left
    from actiongap.lab.local import default_workers
    from actiongap.report.live import LiveTable

    if options.workers is not None and options.workers < 1:
        raise ValueError(f"--workers is {options.workers}: it must be at least 1")
    if not options.save_every >= 0:
        raise ValueError(f"--save-every is {options.save_every}: it must be a number of seconds, 0 or more")
    console = Console(stderr=True)
    workers = options.workers or default_workers(study)
    with console.status("measuring what it takes"):
        expected = plan(study, options.out, workers=workers, rates=options.rates, probe_seconds=1.0 if options.dry_run else 0.2)
    if options.dry_run:
        print_json(dataclasses.asdict(expected) | {"study": study.name}) if options.json else _show_plan(study, expected)
        return 0
    check_room(expected, options.out)
    for line in _lines(study, expected):
        console.print(line, highlight=False, markup=False)
    try:
        with LiveTable(left(study, options.out), expected.done, console) as table:
            outcome = _launcher(options, workers)(study, options.out, command=_command(), save_every=options.save_every, on_event=table)
    except KeyboardInterrupt:
        rest = len(left(study, options.out))
        console.print(f"Stopped and saved: {rest} of {len(study.runs)} runs are left; the same command goes on.", highlight=False)
        return 130
    if outcome.stopped:
        raise ValueError(f"stopped, and everything so far is intact: {outcome.stopped}")
    if options.json:
        done = expected.runs - len(outcome.failed)
        print_json({"study": study.name, "out": str(options.out), "runs": expected.runs, "done": done, "failed": outcome.failed})
    else:
        _show_end(expected, outcome.failed, options.out)
    return 1 if outcome.failed else 0


def _launcher(options: SweepOptions, workers: int) -> Callable[..., Any]:
    from functools import partial

    if options.ray is not None:
        from actiongap.lab import cluster

        return partial(cluster.launch, address=options.ray)
    from actiongap.lab import local

    return partial(local.launch, workers=workers)


def _command() -> str:
    """The command as it was given."""
    return shlex.join(["actiongap", *sys.argv[1:]])


def _lines(study: Study, expected: Plan) -> list[str]:
    todo = expected.runs - expected.done
    if not todo:
        return [f"{study.name}: all {expected.runs} runs are done already."]
    return [
        f"{study.name}: {todo} runs to do" + (f", {expected.done} done already" if expected.done else "") + f", {expected.workers} at once",
        f"about {_duration(expected.wall)}, about {_size(expected.disk)} of disk ({_size(expected.free)} free)",
    ]


def _show_plan(study: Study, expected: Plan) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=study.name, title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_row("runs", f"{expected.runs}, of which {expected.done} are done")
    table.add_row("work left", _duration(expected.work))
    table.add_row("time", f"{_duration(expected.wall)} with {expected.workers} at once")
    table.add_row("disk", f"{_size(expected.disk)}, {_size(expected.free)} are free")
    table.add_row("accelerators", f"{expected.gpu_hours:.3g} GPU hours" if expected.gpu_hours else "none")
    table.add_row("from", expected.basis)
    Console(highlight=False).print(table)


def _show_end(expected: Plan, failed: dict[str, str], out: Path) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True, markup=False)
    console.print(f"{expected.runs - len(failed)} of {expected.runs} runs are done, in {out}.")
    for name, text in failed.items():
        console.print(f"failed: {name}: {text}")
    if failed:
        console.print("The same command tries the failed ones again.")
    console.print(f"See them with: actiongap report {shlex.quote(str(out))} -o page.html")


def _duration(seconds: float) -> str:
    for size, unit in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.2g} seconds"


def _size(size: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} TB"
