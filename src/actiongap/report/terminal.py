"""Results as a person reads them in a terminal."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from actiongap.mdp.model import FiniteMDP
    from actiongap.mdp.solve import Solution
    from actiongap.proof import Verdict

SHOWN_STATES = 20
SHOWN_ACTIONS = 8
UNFOLDED = 1000
"""Columns of what is no terminal: more than any table has."""


def results() -> Console:
    """Where results are printed: a terminal is as wide as it is, and in a file or a pipe no table is folded.

    Examples
    --------
    >>> results().is_terminal
    False
    """
    console = Console(highlight=False)
    return console if console.is_terminal or "COLUMNS" in os.environ else Console(highlight=False, width=UNFOLDED)


def show_solution(mdp: FiniteMDP, solution: Solution, out: Path | None = None) -> None:
    """Print what solving came to, with a table of the first states."""
    console = results()
    console.print(f"[bold]{mdp.name}[/bold]: {mdp.states} states, {mdp.actions} actions, gamma = {mdp.gamma:g}")
    console.print(f"{solution.operator} on {solution.engine}: {solution.status}")
    if not math.isfinite(solution.error_bound):
        # Nothing is known of these values, and many have more digits than a terminal has columns.
        if out is not None:
            console.print(f"{out} was not written.")
        return
    console.print(f"The greedy policy loses at most {solution.policy_loss_bound:.1e} in any state.")
    digits = 6 if solution.error_bound <= 0 else math.floor(-math.log10(solution.error_bound)) - 1
    table = Table(box=None, pad_edge=False)

    def show(value: float) -> str:
        """A number without the digits that the error bound says nothing about."""
        known = round(float(value), digits) + 0.0
        return f"{known:.3g}" if abs(known) >= 1e6 else f"{known:.6g}"

    for heading in ("state", "V", "action", "gap to the next", *[f"Q(., {a})" for a in range(min(mdp.actions, SHOWN_ACTIONS))]):
        table.add_column(heading, justify="right")
    for x in range(min(mdp.states, SHOWN_STATES)):
        others = sorted(solution.gaps[x])[1:2]
        gap = show(others[0]) if others else "-"
        table.add_row(str(x), show(solution.v[x]), str(solution.policy[x]), gap, *map(show, solution.q[x, :SHOWN_ACTIONS]))
    console.print(table)
    if mdp.states > SHOWN_STATES:
        console.print(f"... and {mdp.states - SHOWN_STATES} more states: --out FILE.npz writes them all.")
    if out is not None:
        console.print(f"Wrote q, v, policy and gaps to {out}." if solution.converged else f"{out} was not written.")


def show_verdict(verdict: Verdict) -> None:
    """Print what is known of an operator."""
    console = results()
    about = "every discount" if verdict.gamma is None else f"gamma = {verdict.gamma:g}"
    console.print(f"[bold]{verdict.operator}[/bold], for {about}")
    table = Table(box=None, show_header=False, pad_edge=False)
    rows = (
        ("T'Q <= T Q", verdict.condition_1, ""),
        ("T'Q >= T Q - alpha (V - Q)", verdict.condition_2, "" if verdict.alpha is None else f"least alpha: {verdict.alpha}"),
        ("optimality-preserving", verdict.optimality_preserving, ""),
        ("gap-increasing", verdict.gap_increasing, ""),
        ("T'(Q + c) = T'Q + gamma c", verdict.commutes_with_constants, ""),
    )
    for question, answer, remark in rows:
        table.add_row(question, {True: "[green]yes[/green]", False: "[red]no[/red]", None: "[yellow]unknown[/yellow]"}[answer], remark)
    console.print(table)
    console.print(verdict.summary)
    if verdict.counterexample is not None:
        console.print(f"Counterexample: {verdict.counterexample['sentence']}")
    for claim, witness in (verdict.witness or {}).items():
        console.print(f"Witness against {claim.replace('_', '-')}: {witness['kind']}")
        console.print(f"  rewards {witness['rewards']}, successors {witness['successors']}, gamma {witness['gamma']:g}, Q0 {witness['q0']}")
