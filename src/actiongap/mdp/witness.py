"""Witnesses: small MDPs on which iterating an operator fails.

The conditions of Theorem 1 are sufficient, not necessary, so an operator that violates one may still work. A witness shows that it does
not: it is an MDP with one or two states, two actions and deterministic transitions, and a Q from which the iterates never reach V*. There
are three kinds. z3 finds the first and the last, with rewards and Q as unknowns, so these hold exactly:

- a fixed point: T'Q = Q although V is not V*, or a suboptimal action has the value V*, or a gap is smaller than that of Q*;
- divergence: V grows beyond every bound that the theorem allows;
- a cycle: T'T'Q = Q although V is not V*.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import reduce
from itertools import product
from operator import or_
from typing import Any, Literal

import numpy as np
import z3

from actiongap._progress import StepProgress
from actiongap._suggest import with_suggestions
from actiongap.maths import maximum
from actiongap.mdp.engines import make_engine
from actiongap.mdp.exact import policy_iteration
from actiongap.mdp.model import FiniteMDP
from actiongap.operators import AnyOperator, Operator, OperatorError, backup, parse
from actiongap.proof.conditions import Claim, Verdict, Witness, decide
from actiongap.proof.symbols import Symbol, Truth, UndecidedError, find, number, rational, symbol, term

ACTIONS = 2
CLEAR = Fraction(1, 10)
"""The smallest error of V or of a gap that counts."""
LARGEST = 10
"""The largest absolute reward."""
DIVERGED = 1e12
"""A larger |V| has diverged: rewards are at most 1 and initial values at most 10."""


@with_suggestions
def prove(operator: AnyOperator, gamma: float | None = None, *, progress: bool | None = None) -> Verdict:
    """Decide both conditions of Theorem 1, or those of its extensions, for every MDP, or for every MDP with the discount `gamma`.

    Averages, schedules and draws of alpha are decided too, and the verdict names the theorem it rests on. Where a condition is violated and
    no theorem applies, the verdict carries small MDPs that refute the theorem's conclusions, if any are found. Progress is
    shown if it takes longer than two seconds, at once with `progress=True`, and never with `progress=False`.

    Examples
    --------
    >>> prove("consistent").alpha
    'gamma'
    >>> prove("al:0.9").optimality_preserving
    True
    >>> prove(lambda b: b.bellman + 1.0).optimality_preserving
    False
    >>> prove("sal:0.5,0.9").theorem, prove("rso:0,2").theorem
    ('Theorem 3', 'Theorem 4')
    """
    operator = parse(operator)
    with StepProgress(f"prove {operator}", progress) as bar:
        return decide(operator, gamma, find_witnesses, bar)


def find_witnesses(operator: Operator, discounts: Iterable[float] = (0.5, 0.9)) -> dict[Claim, Witness]:
    """Find witnesses, by the claim that they refute; empty if none is found.

    Examples
    --------
    >>> from actiongap.operators import Operator
    >>> find_witnesses(Operator("too much", lambda b: b.bellman + 1.0))["optimality_preserving"].kind
    'fixed point'
    """
    found: dict[Claim, Witness] = {}
    for search in (_fixed_points, _divergences, _cycles):
        for gamma in dict.fromkeys(map(rational, discounts)):
            # An operator that fails on some of these MDPs has no witness among them.
            with contextlib.suppress(OperatorError, UndecidedError):
                for claim, witness in search(operator, gamma):
                    found.setdefault(claim, witness)
                    if "optimality_preserving" in found:
                        return found
    return found


def _moves() -> list[list[list[int]]]:
    """Every deterministic transition structure with one or two states."""
    one = [[[0] * ACTIONS]]
    two = [[list(row[:ACTIONS]), list(row[ACTIONS:])] for row in product(range(2), repeat=2 * ACTIONS)]
    return one + two


class _SymbolicMDP:
    """A deterministic MDP with symbolic rewards, and the constraints that define its V* (`v_star`) and Q* (`q_star`)."""

    def __init__(self, moves: list[list[int]], gamma: Fraction):
        self.moves, self.gamma, self.states = moves, gamma, range(len(moves))
        self.discount = Symbol(term(gamma))
        self.rewards = self.unknowns("r")
        self.v_star = [symbol(f"best{x}") for x in self.states]
        self.q_star = [[self.rewards[x][a] + gamma * self.v_star[moves[x][a]] for a in range(ACTIONS)] for x in self.states]
        small = [abs(reward) <= LARGEST for row in self.rewards for reward in row]
        self.constraints: list[Truth] = [*small, *[self.v_star[x] == reduce(maximum, self.q_star[x]) for x in self.states]]

    def unknowns(self, name: str) -> list[list[Symbol]]:
        return [[symbol(f"{name}{x}{a}") for a in range(ACTIONS)] for x in self.states]

    def values(self, q: list[list[Symbol]]) -> list[Any]:
        return [reduce(maximum, row) for row in q]

    def step(self, operator: Operator, q: list[list[Symbol]], after: list[list[Symbol]]) -> list[Truth]:
        """The constraints T'Q = `after`."""
        v = self.values(q)
        steps = []
        for x, a in product(self.states, range(ACTIONS)):
            y = self.moves[x][a]
            b = backup(self.discount, self.rewards[x][a], q[x][a], v[x], v[y], q[y][a], Fraction(int(x == y)))
            steps.append(after[x][a] == operator(b))
        return steps

    def wrong_value(self, q: list[list[Symbol]]) -> Truth:
        """V differs from V* in some state, by at least `CLEAR`."""
        v = self.values(q)
        return reduce(or_, [abs(v[x] - self.v_star[x]) >= CLEAR for x in self.states])

    def wrong_action(self, q: list[list[Symbol]]) -> Truth:
        """Q of an action that is suboptimal by at least `CLEAR` is V* or more."""
        pairs = product(self.states, range(ACTIONS))
        return reduce(or_, [(self.q_star[x][a] <= self.v_star[x] - CLEAR) & (q[x][a] >= self.v_star[x]) for x, a in pairs])

    def narrow_gap(self, q: list[list[Symbol]]) -> Truth:
        """Some gap is smaller than that of Q*, by at least `CLEAR`."""
        v = self.values(q)
        gaps = [v[x] - q[x][a] <= self.v_star[x] - self.q_star[x][a] - CLEAR for x, a in product(self.states, range(ACTIONS))]
        return reduce(or_, gaps)

    def witness(self, model: z3.ModelRef, kind: Literal["fixed point", "cycle"], q: list[list[Symbol]], what: str) -> Witness:
        def table(rows: list[list[Symbol]]) -> list[list[float]]:
            return [[number(model, cell) for cell in row] for row in rows]

        v, best = [number(model, value) for value in self.values(q)], [number(model, value) for value in self.v_star]
        sentence = f"{_where(self.moves, self.gamma)}, {what}: V = {_show(v)}, V* = {_show(best)}."
        return Witness(kind, float(self.gamma), table(self.rewards), self.moves, table(q), v, best, sentence)


def _fixed_points(operator: Operator, gamma: Fraction) -> Iterator[tuple[Claim, Witness]]:
    for moves in _moves():
        mdp = _SymbolicMDP(moves, gamma)
        q = mdp.unknowns("q")
        fixed = [*mdp.constraints, *mdp.step(operator, q, q)]
        if model := _find([*fixed, mdp.narrow_gap(q)]):
            what = "T'Q = Q although gaps are smaller than those of Q*"
            yield "gap_increasing", mdp.witness(model, "fixed point", q, what)
        if model := _find([*fixed, mdp.wrong_value(q)]):
            yield "optimality_preserving", mdp.witness(model, "fixed point", q, "T'Q = Q although V is not V*")
        if model := _find([*fixed, mdp.wrong_action(q)]):
            values = _show(number(model, value) for row in q for value in row)
            what = f"Q = {values} is a fixed point although a suboptimal action has the value V*"
            yield "optimality_preserving", mdp.witness(model, "fixed point", q, what)


def _cycles(operator: Operator, gamma: Fraction) -> Iterator[tuple[Claim, Witness]]:
    for moves in _moves():
        mdp = _SymbolicMDP(moves, gamma)
        q, between = mdp.unknowns("q"), mdp.unknowns("p")
        cycle = [*mdp.step(operator, q, between), *mdp.step(operator, between, q)]
        if model := _find([*mdp.constraints, *cycle, mdp.wrong_value(q)]):
            yield "optimality_preserving", mdp.witness(model, "cycle", q, "T'T'Q = Q although V is not V*")


def _divergences(operator: Operator, gamma: Fraction) -> Iterator[tuple[Claim, Witness]]:
    """Iterate on all transition structures with several rewards and initial Q at once, as the blocks of one MDP."""
    rng = np.random.default_rng(0)
    structures = _moves() * 8
    offsets = np.cumsum([0] + [len(moves) for moves in structures])
    successors = np.concatenate([np.array(moves) + first for moves, first in zip(structures, offsets, strict=False)])
    rewards = rng.integers(-1, 2, successors.shape).astype(float)
    q0 = rng.integers(-10, 11, successors.shape).astype(float)
    blocks = FiniteMDP.from_successors(rewards, successors[..., None], np.ones((*successors.shape, 1)), float(gamma))
    engine = make_engine(blocks, operator, "arrays")
    now = engine.start(q0.copy())
    for sweeps in range(1, 1001):
        with np.errstate(all="ignore"):
            now, _ = engine.sweep(now)
        beyond = ~(np.abs(now.v) < DIVERGED)
        if beyond.any():
            which = int(np.searchsorted(offsets, np.argmax(beyond), side="right")) - 1
            rows = slice(offsets[which], offsets[which + 1])
            best = policy_iteration(blocks)[1][rows].tolist()
            sentence = f"{_where(structures[which], gamma)}, V diverges: {_show(now.v[rows])} after {sweeps} sweeps, V* = {_show(best)}."
            witness = Witness(
                "divergence",
                float(gamma),
                rewards[rows].tolist(),
                structures[which],
                q0[rows].tolist(),
                now.v[rows].tolist(),
                best,
                sentence,
            )
            yield "optimality_preserving", witness
            return


def _find(constraints: list[Truth]) -> z3.ModelRef | None:
    """A solution of the constraints, or None if z3 finds none within half a second."""
    try:
        return find(constraints, milliseconds=500)
    except UndecidedError:
        return None


def _where(moves: list[list[int]], gamma: Fraction) -> str:
    return f"on an MDP with {'one state' if len(moves) == 1 else 'two states'}, two actions and gamma = {float(gamma):g}"


def _show(values) -> str:
    return "(" + ", ".join(f"{value:.4g}" for value in values) + ")"
