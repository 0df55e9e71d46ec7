"""`sweep`: run a study on this machine or on a cluster, or estimate its cost."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_origin

from tyro.conf import Positional, arg

from actiongap._files import format_bytes, one_line, printable
from actiongap.cli.common import Flag, Integer, command_line, print_json

if TYPE_CHECKING:
    from actiongap.lab.cost import Plan
    from actiongap.lab.runner import StudyOutcome
    from actiongap.lab.study import Study


@dataclasses.dataclass(frozen=True)
class SweepOptions:
    """How to run a study."""

    out: Annotated[Path, arg(metavar="DIR")]
    """A folder to write to. Run the same command again to resume."""
    workers: Integer = None
    """Number of worker processes; by default as many as cores and accelerators allow, and at most one per run."""
    ray: Annotated[str | None, arg(metavar="ADDRESS", help_behavior_hint="")] = None
    """Run on the Ray cluster at this address (auto finds one on this machine) instead of in local processes."""
    dry_run: Flag = False
    """Only print the estimated cost: runs, time, disk and accelerator hours, from measured rates."""
    rates: Annotated[tuple[Path, ...], arg(metavar="DIR ...", help_behavior_hint="")] = ()
    """Folders of earlier studies. The estimate uses their measured speed."""
    save_every: Annotated[float, arg(metavar="SECONDS")] = 10.0
    """Minimum seconds between checkpoints of a run. They are written between chunks only."""
    max_batch_size: Annotated[int | None, arg(metavar="N", help_behavior_hint="")] = None
    """Maximum number of runs that a process trains as a batch (deep agents only); by default 160, or 1 with --workers or --ray."""
    json: Flag = False
    """Print one JSON object at the end."""


def sweep(study: Annotated[Positional[Path], arg(metavar="STUDY")], run: SweepOptions, trust: Flag = False) -> int:
    """Run a study: every combination of its environments, operators, seeds and other values. Finished runs are not repeated.

    STUDY is a file or a kind of experiment: q-learning, fitted-q, noisy-values, noisy-backups, plan or train. The fields of a kind are
    options that take one or more values: see `actiongap sweep q-learning --help`.

    Args:
        study: A .toml file, a .py file that defines study, the config.json of a run, or a kind of experiment.
        run: How to run it.
        trust: Allow a .toml or .json file to load Python code: the experiments, operators and environments that it names.
    """
    from actiongap.api.studies import load_study

    return _sweep(load_study(study, trust=trust), run)


def sweep_command(kind: str) -> Callable[..., int]:
    """Return `sweep` for one kind of experiment, with its fields as options. Options with several values, and the seeds, are the axes."""
    from actiongap.lab.experiment import field_docs, field_types, find
    from actiongap.lab.study import Study

    cls = find(kind)
    taken = {"seeds", *(field.name for field in dataclasses.fields(SweepOptions))}
    for field in dataclasses.fields(cls):  # pyright: ignore[reportArgumentType]
        if field.name in taken:
            raise ValueError(f"{kind}: the field {field.name!r} has the name of an option of sweep: rename it, or write a study file")
    docs, types_of = field_docs(cls), field_types(cls)
    axes: list[tuple[str, Any, Any]] = []
    if cls.presets:
        taken, help = tuple[Literal[tuple(cls.presets)], ...], "Preset that provides the default values; by default that of env."
        axes.append(("preset", Annotated[taken, arg(help=help, help_behavior_hint="")], ()))
    for field in dataclasses.fields(cls):  # pyright: ignore[reportArgumentType]
        if field.name == "seed":
            axes.append(
                (
                    "seed",
                    Annotated[int | None, arg(help="The first seed.", metavar="N", help_behavior_hint=f"(default: {field.default})")],
                    None,
                )
            )
            axes.append(("seeds", Annotated[int, arg(help="Number of seeds.", metavar="N")], 1))
            continue
        is_tuple = get_origin(types_of[field.name]) is tuple
        taken = types_of[field.name] if is_tuple else tuple[types_of[field.name], ...]
        values: Any = field.default if is_tuple else (field.default,)
        hint = "" if cls.presets else f"(default: {' '.join(map(str, values))})"
        axes.append((field.name, Annotated[taken, arg(help=" ".join(docs.get(field.name, "").split()), help_behavior_hint=hint)], ()))
    fields_type = dataclasses.make_dataclass("Config", axes, frozen=True)
    fields_type.__doc__ = "Configuration of the runs. Every combination of the values is one run."

    def command(config: Any, run: SweepOptions) -> int:
        # Omitted options are left to the experiment, which may take them from a preset.
        chosen = {name: values for name, values in vars(config).items() if values not in ((), None)}
        return _sweep(Study(kind, kind, **chosen), run)

    command.__doc__ = (cls.__doc__ or "").partition("Examples\n")[0]
    command.__annotations__["config"] = fields_type
    return command


def is_kind(text: str) -> bool:
    """Whether a string names a kind of experiment rather than a file."""
    from actiongap.lab.experiment import KINDS

    return text in KINDS or (text.rpartition(":")[0].endswith(".py") and not os.path.isfile(text))


def _sweep(study: Study, options: SweepOptions) -> int:
    if options.dry_run:
        show_plans({study.name: estimate(study, options)}, options.json)
        return 0
    outcome = run_study(study, options)
    done = len(study.runs) - len(outcome.failed) - len(outcome.busy)
    if options.json:
        print_json({"study": study.name, "out": str(options.out), "runs": len(study.runs), "done": done, "failed": outcome.failed})
    else:
        _show_end(study, done, outcome, options.out)
    return 1 if outcome.failed else 0


def estimate(study: Study, options: SweepOptions) -> Plan:
    """Estimate the cost of a study with these options, for `--dry-run`."""
    from actiongap.api.studies import estimate_cost

    return estimate_cost(study, options.out, workers=options.workers, ray=options.ray, rates=options.rates, progress=True)


def run_study(study: Study, options: SweepOptions, measure: bool = True) -> StudyOutcome:
    """Run the unfinished runs of a study with these options."""
    from actiongap.api.studies import run_with_progress

    chosen = {name: getattr(options, name) for name in ("workers", "ray", "max_batch_size", "save_every", "rates")}
    return run_with_progress(study, options.out, **chosen, measure=measure, command=command_line(), progress=True)


def show_plans(plans: Mapping[str, Plan], json: bool) -> None:
    """Print the estimated cost of studies."""
    if json:
        print_json([{"study": name, **dataclasses.asdict(plan)} for name, plan in plans.items()])
        return
    if not plans:
        print("There are no studies to run: this takes seconds.")
        return
    from rich.table import Table
    from rich.text import Text

    from actiongap.lab.cost import total_plan
    from actiongap.reporting.terminal import duration, output_console

    table = Table(box=None, pad_edge=False)
    for heading in ("study", "runs", "done", "work left", "time", "at once", "disk", "GPU hours"):
        table.add_column(heading, justify="left" if heading == "study" else "right", no_wrap=heading != "study", overflow="fold")
    shown = dict(plans)
    if len(plans) > 1:
        shown["total"] = total_plan(plans.values())
    for name, plan in shown.items():
        numbers = (duration(plan.work), duration(plan.wall), str(plan.workers), format_bytes(plan.disk), _in_hours(plan.gpu_hours))
        known = numbers if plan.measured or plan.done == plan.runs else ("?", "?", str(plan.workers), "?", "?")
        table.add_row(Text(name), str(plan.runs), str(plan.done), *known)
    console = output_console()
    console.print(table)
    for basis in dict.fromkeys(plan.basis for plan in plans.values()):
        console.print(f"Measured by: {basis}.", soft_wrap=True, markup=False)
    console.print(f"{format_bytes(next(iter(plans.values())).free)} of disk are free.")


def _show_end(study: Study, done: int, outcome: StudyOutcome, out: Path) -> None:
    from rich.console import Console

    from actiongap.reporting.groups import several

    console, failed = Console(highlight=False, soft_wrap=True, markup=False), outcome.failed
    console.print(f"{done} of {several(len(study.runs), 'run')} are done, in {printable(out)}.")
    for name, text in failed.items():
        console.print(f"failed: {name}: {one_line(text)}")
    if failed:
        console.print("Run the same command again to retry the failed runs.")
    console.print(f"See the results with: actiongap report {printable(shlex.quote(str(out)))} -o page.html")


def _in_hours(hours: float) -> str:
    return f"{hours:,.0f}" if hours >= 1000 else f"{hours:.3g}"
