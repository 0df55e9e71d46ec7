"""`solve` and `prove`: planning on finite MDPs, and what is known of an operator."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, arg

from actiongap._system import install
from actiongap.cli.common import Bar, File, Flag, Number, Whole, print_json

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
        operator: bellman, consistent, al:ALPHA, pal:ALPHA, pal-dqn:ALPHA, lazy:ALPHA, baird:K, clipped-al:ALPHA,C,
            sal:ALPHA,OMEGA, or path/to/file.py:name.
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

    from actiongap._files import writing
    from actiongap.mdp.generators import load_mdp
    from actiongap.mdp.solve import solve as solve_mdp

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
        print_json({"problem": problem, **{name: getattr(solution, name) for name in scalars}, **shown})
    else:
        from actiongap.report.terminal import show_solution

        show_solution(mdp, solution, out)
    return 0 if solution.converged else 1


def prove(operator: Annotated[Positional[str], arg(metavar="OPERATOR")], gamma: Number = None, json: Flag = False) -> int:
    """Decide whether an operator satisfies Theorem 1 for every MDP, or show why not.

    Exits with 0 where both conditions are proved, 1 where one is violated, 3 where undecided.

    Args:
        operator: bellman, consistent, al:ALPHA, pal:ALPHA, pal-dqn:ALPHA, lazy:ALPHA, baird:K, clipped-al:ALPHA,C, rso:LOW,HIGH,
            sal:ALPHA,OMEGA, or path/to/file.py:name.
        gamma: Ask about this discount only.
        json: Print one JSON object.
    """
    try:
        from actiongap.mdp.witness import prove as prove_operator
    except ImportError:
        raise ValueError(f"proving needs z3: {install('proof')}") from None
    verdict = prove_operator(operator, gamma)
    if json:
        from dataclasses import asdict

        print_json(asdict(verdict))
    else:
        from actiongap.report.terminal import show_verdict

        show_verdict(verdict)
    return verdict.exit_code


def _check_out(out: Path | None) -> None:
    if out is not None and (out.suffix != ".npz" or not out.parent.is_dir()):
        raise ValueError(f"{out}: --out takes the name of a .npz file in a folder that exists")


class _SolveProgress(Bar):
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
