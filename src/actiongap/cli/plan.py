"""`plan`: plan on a grid with a simulator and save the policy. A plan is a run of `actiongap.lab`, so the same command resumes it."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tyro.conf import Positional, arg

from actiongap._files import one_line, printable
from actiongap.cli.common import File, Flag, Integer, Number, command_line, print_json

if TYPE_CHECKING:
    from numpy import ndarray

    from actiongap.api.policies import Policy

MAX_ROWS_SHOWN = 20
"""Number of evaluations printed at the end."""
HEADINGS = {
    "step": "iterations",
    "goal_frequency": "goal",
    "fall_frequency": "fall",
    "mean_steps": "mean steps",
    "mean_return": "mean return",
    "gap": "gap",
    "value": "V",
    "residual": "residual",
}
"""Columns that are printed, with their headings."""


def plan(
    env: Annotated[Positional[str], arg(metavar="ENV")],
    operator: str = "bellman",
    grid: int = 8,
    iterations: int = 1000,
    eval_every: int = 100,
    episodes: int = 100,
    max_episode_steps: Integer = None,
    gamma: Number = None,
    eta: float = 0.1,
    samples: int = 1,
    noise: Literal["independent", "shared"] = "independent",
    interpolate: Literal["q", "v"] = "q",
    engine: Literal["auto", "numpy", "numba", "jax"] = "auto",
    seed: int = 0,
    seeds: int = 1,
    check: Flag = False,
    out: Annotated[Path | None, arg(metavar="DIR", help_behavior_hint="")] = None,
    save: File = None,
    json: Flag = False,
) -> int:
    """Plan on a grid with a simulator, evaluate the greedy policy, and save it. Run the same command again to resume.

    Args:
        env: bicycle, mountain-car, pendulum, cart-pole, acrobot, any of them with parameters (bicycle:fall=once), or path/to/file.py:name.
        operator: bellman, consistent, al:ALPHA, pal:ALPHA, pal-dqn:ALPHA, lazy:ALPHA, baird:K, or path/to/file.py:name.
        grid: Grid points per axis.
        iterations: Number of sweeps.
        eval_every: Sweeps between evaluations. The policy is also evaluated after the last sweep.
        episodes: Episodes per evaluation; 0 plays none.
        max_episode_steps: Steps after which an episode is truncated; by default the simulator's own limit.
        gamma: Discount factor, in [0, 1); by default the simulator's own.
        eta: Step size of a sweep, in (0, 1]: Q <- (1 - eta) Q + eta T'Q.
        samples: Next states sampled per state-action pair and sweep, if the simulator has noise.
        noise: independent: each state-action pair has its own noise samples. shared: pairs that differ only in coordinates that no
            stochastic factor depends on use the same samples.
        interpolate: Whether Q or V is interpolated between grid points.
        engine: Library that computes sweeps and episodes: numpy (small plans), numba (CPU), jax, or auto, which chooses by the size of the
            plan and takes jax for large ones if JAX has an accelerator.
        seed: The first seed.
        seeds: Number of seeds. Each is a plan of its own, made one after another.
        check: Only try the simulator on the grid, and say whether it works.
        out: Folder of the run, or with several seeds of all runs; by default out/plan/NAME for each.
        save: Policy file to write; by default policy.npz in the folder of the run.
        json: Print one JSON object per line, one for each plan.
    """
    from actiongap.api.policies import plan as make_plan
    from actiongap.api.policies import plan_folder
    from actiongap.api.simulators import load_simulator

    if check:
        sentence = load_simulator(env).check(grid)
        print_json({"env": env, "grid": grid, "check": sentence}) if json else print(sentence)
        return 0
    if seeds < 1:
        raise ValueError(f"--seeds is {seeds}: it must be at least 1")
    if seeds > 1 and save is not None:
        raise ValueError("--save writes one policy, and --seeds asks for several: leave out --save; every run saves a policy.npz")
    config: dict[str, Any] = {
        "operator": operator,
        "grid": grid,
        "iterations": iterations,
        "eval_every": eval_every,
        "episodes": episodes,
        "max_episode_steps": max_episode_steps,
        "gamma": gamma,
        "eta": eta,
        "samples": samples,
        "noise": noise,
        "interpolate": interpolate,
        "engine": engine,
    }
    failed = False
    for number in range(seed, seed + seeds):
        folder = plan_folder(env, seed=number, out=out if seeds > 1 else None, **config) if out is None or seeds > 1 else out
        try:
            policy = make_plan(env, **config, seed=number, out=folder, save=save, progress=True, command=command_line())
        except RuntimeError as error:
            if not json:
                _show_rows(getattr(error, "rows", {}))
            print(f"actiongap: {one_line(error)}", file=sys.stderr)
            failed = True
            continue
        file = save or folder / "policy.npz"
        if json:
            print_json({**policy.summary(), "policy": str(file)})
        else:
            _show(policy, file, with_reason=engine == "auto")
    return 1 if failed else 0


def _show(policy: Policy, file: Path, with_reason: bool) -> None:
    """Print the last evaluations of a policy, how it was computed, and where it is."""
    from rich.console import Console

    _show_rows(policy.rows)
    console = Console(highlight=False, soft_wrap=True, markup=False)
    if with_reason and policy.engine is not None:
        console.print(policy.engine.reason)
    if policy.seconds_per_sweep is not None:
        console.print(f"{1e3 * policy.seconds_per_sweep:.3g} ms per sweep.")
    console.print(f"Wrote the policy to {printable(file)}. Watch it with: actiongap watch {printable(shlex.quote(str(file)))}")


def _show_rows(rows: Mapping[str, ndarray]) -> None:
    """Print the last evaluations as a table."""
    from rich.table import Table

    from actiongap.reporting.terminal import output_console

    names = [name for name in HEADINGS if name in rows and any(math.isfinite(value) for value in rows[name])]
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(HEADINGS[name], justify="right")
    for numbers in list(zip(*(rows[name] for name in names), strict=True))[-MAX_ROWS_SHOWN:]:
        table.add_row(*(f"{number:.4g}" if name != "step" else str(round(number)) for name, number in zip(names, numbers, strict=True)))
    if table.row_count:
        output_console().print(table)
