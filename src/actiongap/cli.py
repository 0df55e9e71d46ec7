"""The command line: parse, call, print.

Every command prints for people, takes `--json` for programs, and imports what it needs only when it runs, so that help is quick.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json as jsonlib
import math
import sys
import warnings
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro.conf import FlagCreatePairsOff, Positional, arg

from actiongap import __version__

Number = Annotated[float | None, arg(metavar="NUMBER", help_behavior_hint="")]
Whole = Annotated[int | None, arg(metavar="N", help_behavior_hint="")]
File = Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="")]
Flag = Annotated[bool, arg(help_behavior_hint="")]

LARGE_ARRAY = 10_000
"""Arrays of more numbers than this are left out of JSON unless asked for."""


def solve(
    problem: Annotated[Positional[str], arg(metavar="PROBLEM")],
    operator: str = "bellman",
    gamma: Number = None,
    epsilon: Number = None,
    slip: Number = None,
    seed: Whole = None,
    tol: Number = None,
    eta: float = 1.0,
    engine: Literal["auto", "arrays", "numba", "jax"] = "auto",
    max_sweeps: Whole = None,
    json: Flag = False,
    arrays: Flag = False,
    out: File = None,
) -> int:
    """Plan on a finite MDP with any operator, to a certified error.

    Args:
        problem: cake, single-state, chain:N, gridworld:ROWS,COLUMNS, garnet:STATES,ACTIONS,BRANCHING, gym/ID, or FILE.npz.
        operator: bellman, consistent, al:ALPHA, pal:ALPHA, pal-dqn:ALPHA, lazy:ALPHA, baird:K, or path/to/file.py:name.
        gamma: The discount, in [0, 1); the problem's own if not given.
        epsilon: The cake's epsilon.
        slip: The probability of slipping in a chain or gridworld.
        seed: The seed of a garnet.
        tol: The certified error |V - V*| to reach; 1e-10, or what float64 can certify, if not given.
        eta: The averaging step, in (0, 1].
        engine: Where to sweep; chosen by size if not given.
        max_sweeps: When to give up.
        json: Print one JSON object.
        arrays: Put arrays of more than 10,000 numbers into the JSON too.
        out: Write q, v, policy and gaps to this .npz file.
    """
    import numpy as np

    from actiongap.files import writing
    from actiongap.finite.problems import load_mdp
    from actiongap.finite.solve import solve as solve_mdp

    _check_out(out)
    mdp = load_mdp(problem, gamma=gamma, epsilon=epsilon, slip=slip, seed=seed)
    with _SolveProgress(tol) as progress:
        solution = solve_mdp(mdp, operator, tol=tol, eta=eta, engine=engine, max_sweeps=max_sweeps, throw=False, on_sweep=progress.on_sweep)
    found: dict[str, Any] = {"q": solution.q, "v": solution.v, "policy": solution.policy, "gaps": solution.gaps}
    if out is not None and solution.converged:
        with writing(out) as file:
            np.savez_compressed(file, **found)
    if json:
        scalars = ("operator", "gamma", "tol", "engine", "sweeps", "error_bound", "policy_loss_bound", "gap_residual", "status")
        shown = {name: array.tolist() for name, array in found.items() if arrays or array.size <= LARGE_ARRAY}
        _print_json({"problem": problem, **{name: getattr(solution, name) for name in scalars}, **shown})
    else:
        from actiongap.report.terminal import show_solution

        show_solution(mdp, solution, out)
    return 0 if solution.converged else 1


def prove(operator: Annotated[Positional[str], arg(metavar="OPERATOR")], gamma: Number = None, json: Flag = False) -> int:
    """Decide whether an operator satisfies Theorem 1 for every MDP, or show why not.

    Exits with 0 where both conditions are proved, 1 where one is violated, 3 where undecided.

    Args:
        operator: bellman, consistent, al:ALPHA, pal:ALPHA, pal-dqn:ALPHA, lazy:ALPHA, baird:K, or path/to/file.py:name.
        gamma: Ask about this discount only.
        json: Print one JSON object.
    """
    try:
        from actiongap.proof import prove as prove_operator
    except ImportError:
        raise ValueError("proving needs z3: pip install 'actiongap[proof]'") from None
    verdict = prove_operator(operator, gamma)
    if json:
        from dataclasses import asdict

        _print_json(asdict(verdict))
    else:
        from actiongap.report.terminal import show_verdict

        show_verdict(verdict)
    return verdict.exit_code


def doctor(json: Flag = False) -> int:
    """Try everything this installation should be able to do, and say how to mend what is missing.

    Args:
        json: Print one JSON object.
    """
    from rich.console import Console

    from actiongap.doctor import as_json, examine, healthy, render

    with _StepProgress("doctor") as progress:
        findings = examine(progress=progress)
    if json:
        _print_json(as_json(findings))
    else:
        render(findings, Console())
    return 0 if healthy(findings) else 1


def reproduce(
    what: Annotated[Positional[Literal["cake"]], arg(metavar="WHAT")] = "cake",
    scale: Literal["smoke", "laptop", "gpu", "paper"] = "laptop",
    out: Path = Path("out/cake"),
    json: Flag = False,
) -> int:
    """Regenerate a part of the paper, with its numbers beside ours.

    Args:
        what: cake, the two-state MDP of Figure 1.
        scale: How much of it: smoke takes seconds.
        out: The folder to write to.
        json: Print the results as one JSON object.
    """
    from rich.console import Console

    from actiongap.reproduce import cake

    with _StepProgress(f"reproduce {what}") as progress:
        result = cake.run(scale, out, progress=progress)
    if json:
        print((out / "cake.json").read_text(encoding="utf-8"), end="")
    else:
        console = Console()
        console.print(cake.table(result))
        console.print(cake.noise_table(result))
        console.print(f"Wrote {', '.join(file.name for file in result.files)} to {out}", highlight=False)
    return 0


def bench(
    what: Annotated[Positional[Literal["finite"]], arg(metavar="WHAT")] = "finite",
    scale: Literal["quick", "full"] = "full",
    json: Flag = False,
) -> int:
    """Measure speed as ratios, side by side in one run, with the floor that memory sets.

    Args:
        what: finite, sweeps and solutions of finite MDPs.
        scale: quick takes seconds and means little; full is what the targets are about.
        json: Print one JSON list.
    """
    from rich.console import Console

    from actiongap.bench import as_json, render
    from actiongap.bench.finite import bench_finite

    with _StepProgress(f"bench {what}") as progress:
        measurements = bench_finite(scale, progress=progress)
    if json:
        _print_json(as_json(measurements))
    else:
        render(measurements, Console())
    return 0


COMMANDS: dict[str, Callable[..., int]] = {"solve": solve, "prove": prove, "reproduce": reproduce, "bench": bench, "doctor": doctor}


def main(arguments: list[str] | None = None) -> None:
    """Run a command and leave with its exit code; bad input is one sentence and exit code 2."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:
        print(f"actiongap {__version__}")
        sys.exit(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = _show_warning
        sys.exit(_run(arguments))


def _run(arguments: list[str]) -> int:
    try:
        return _parse(arguments)()
    except (ValueError, OSError) as error:
        if isinstance(error, BrokenPipeError):
            sys.stderr.close()
            return 141
        print(f"actiongap: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except MemoryError:
        print("actiongap: this needs more memory than there is: ask for something smaller", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("actiongap: interrupted; run the same command again", file=sys.stderr)
        return 130


def _parse(arguments: list[str]) -> Callable[[], int]:
    """The command that the arguments name, ready to run; a ValueError where they name none."""
    deferred = {name: wraps(command)(partial(partial, command)) for name, command in COMMANDS.items()}
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.extras.subcommand_cli_from_dict(
                deferred,
                prog="actiongap",
                description="Gap-increasing operators in reinforcement learning: plan, learn, prove, reproduce.",
                args=arguments,
                config=(FlagCreatePairsOff,),
            )
    except SystemExit as left:
        if not complaint.getvalue():
            raise
        # The complaint comes in a box, its first paragraph saying what is wrong.
        lines = [line.strip("│╭╮╰╯─ ") for line in complaint.getvalue().splitlines()]
        paragraph = " ".join(itertools.takewhile(bool, itertools.dropwhile(lambda line: not line, lines[1:])))
        command = [argument for argument in arguments[:1] if argument in COMMANDS]
        raise ValueError(f"{paragraph or lines[0]} (see {' '.join(['actiongap', *command, '--help'])})") from left


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    print(f"warning: {message}", file=sys.stderr)


def _print_json(value: Any) -> None:
    print(jsonlib.dumps(_finite(value), allow_nan=False))


def _finite(value: Any) -> Any:
    """JSON has no infinity; what is not finite is null."""
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _check_out(out: Path | None) -> None:
    if out is not None and (out.suffix != ".npz" or not out.parent.is_dir()):
        raise ValueError(f"{out}: --out takes the name of a .npz file in a folder that exists")


class _Bar:
    """A progress bar on the error stream of a terminal; nothing elsewhere."""

    def __enter__(self):
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(stderr=True)
        columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self.progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.progress.start()
        self.task = self.progress.add_task("", total=1.0)
        return self

    def __exit__(self, *exception) -> None:
        self.progress.stop()


class _SolveProgress(_Bar):
    """How far the certified error has come on its way to the tolerance, on a logarithmic scale."""

    def __init__(self, tol: float | None):
        self.tol = tol if tol is not None and tol > 0 else 1e-10
        self.first = 0.0

    def on_sweep(self, sweep: int, error: float, gap_change: float) -> None:
        """Take note of a sweep."""
        self.first = max(self.first, error)
        whole = math.log(max(self.first, 2 * self.tol) / self.tol)
        come = math.log(self.first / error) / whole if 0 < error < self.first < math.inf else 0.0
        text = f"sweep {sweep}: |V - V*| <= {error:.1e}, gaps move by {gap_change:.1e}"
        self.progress.update(self.task, completed=min(come, 1.0), description=text)


class _StepProgress(_Bar):
    """Progress in steps that are counted."""

    def __init__(self, name: str):
        self.name = name

    def __call__(self, text: str, fraction: float) -> None:
        self.progress.update(self.task, completed=fraction, description=f"{self.name}: {text}")


if __name__ == "__main__":
    main()
