"""Small MDPs on which iterating an operator is seen to go wrong.

The theorem's conditions are sufficient, not necessary, so breaking one proves nothing. A witness does: an MDP with one or two states, two
actions and deterministic moves, and a Q from which the iterates never come to V*. Three kinds are looked for, the first and last by z3
with the rewards and Q left to choose, so that they hold exactly:

- a resting point: T'Q = Q although V is not V*, or a suboptimal action is worth V*, or a gap is smaller than that of Q*;
- divergence: V grows beyond any bound that the theorem would allow;
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

from actiongap.maths import maximum
from actiongap.mdp.engines import make_engine
from actiongap.mdp.exact import policy_iteration
from actiongap.mdp.model import FiniteMDP
from actiongap.operators import AnyOperator, Operator, OperatorError, backup
from actiongap.proof.conditions import Claim, Verdict, Witness, decide
from actiongap.proof.symbols import Symbol, Truth, UndecidedError, find, number, rational, symbol, term

ACTIONS = 2
CLEAR = Fraction(1, 10)
"""How large a fault must be, so that it is plain to see."""
LARGEST = 10
"""How large rewards may be."""
DIVERGED = 1e12
"""A V beyond this has diverged: rewards are at most one and starts at most ten."""


def prove(operator: AnyOperator, gamma: float | None = None) -> Verdict:
    """Decide both conditions of Theorem 1 for every MDP, or for every MDP with the discount `gamma`.

    Where a condition is violated, the verdict carries small MDPs that refute the theorem's conclusions, if any are found.

    Examples
    --------
    >>> prove("consistent").alpha
    'gamma'
    >>> prove("al:0.9").optimality_preserving
    True
    >>> prove(lambda b: b.bellman + 1.0).optimality_preserving
    False
    """
    return decide(operator, gamma, find_witnesses)


def find_witnesses(operator: Operator, discounts: Iterable[float] = (0.5, 0.9)) -> dict[Claim, Witness]:
    """Witnesses by the claim that they refute; empty where none was found.

    Examples
    --------
    >>> from actiongap.operators import Operator
    >>> find_witnesses(Operator("too much", lambda b: b.bellman + 1.0))["optimality_preserving"].kind
    'resting point'
    """
    found: dict[Claim, Witness] = {}
    for search in (_resting_points, _divergences, _cycles):
        for gamma in dict.fromkeys(map(rational, discounts)):
            # An operator that cannot be run on some of these MDPs has no witness among them.
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


class _World:
    """A deterministic MDP whose rewards are symbols, with the constraints that make `best` its V*."""

    def __init__(self, moves: list[list[int]], gamma: Fraction):
        self.moves, self.gamma, self.states = moves, gamma, range(len(moves))
        self.discount = Symbol(term(gamma))
        self.rewards = self.unknowns("r")
        self.best = [symbol(f"best{x}") for x in self.states]
        self.worth = [[self.rewards[x][a] + gamma * self.best[moves[x][a]] for a in range(ACTIONS)] for x in self.states]
        small = [abs(reward) <= LARGEST for row in self.rewards for reward in row]
        self.constraints: list[Truth] = [*small, *[self.best[x] == reduce(maximum, self.worth[x]) for x in self.states]]

    def unknowns(self, name: str) -> list[list[Symbol]]:
        return [[symbol(f"{name}{x}{a}") for a in range(ACTIONS)] for x in self.states]

    def values(self, q: list[list[Symbol]]) -> list[Any]:
        return [reduce(maximum, row) for row in q]

    def step(self, operator: Operator, q: list[list[Symbol]], after: list[list[Symbol]]) -> list[Truth]:
        """The constraints that say T'Q is `after`."""
        v = self.values(q)
        steps = []
        for x, a in product(self.states, range(ACTIONS)):
            y = self.moves[x][a]
            b = backup(self.discount, self.rewards[x][a], q[x][a], v[x], v[y], q[y][a], Fraction(int(x == y)))
            steps.append(after[x][a] == operator(b))
        return steps

    def wrong_value(self, q: list[list[Symbol]]) -> Truth:
        """V is clearly not V* somewhere."""
        v = self.values(q)
        return reduce(or_, [abs(v[x] - self.best[x]) >= CLEAR for x in self.states])

    def wrong_action(self, q: list[list[Symbol]]) -> Truth:
        """A clearly suboptimal action is worth V*."""
        pairs = product(self.states, range(ACTIONS))
        return reduce(or_, [(self.worth[x][a] <= self.best[x] - CLEAR) & (q[x][a] >= self.best[x]) for x, a in pairs])

    def narrow_gap(self, q: list[list[Symbol]]) -> Truth:
        """A gap is clearly smaller than that of Q*."""
        v = self.values(q)
        gaps = [v[x] - q[x][a] <= self.best[x] - self.worth[x][a] - CLEAR for x, a in product(self.states, range(ACTIONS))]
        return reduce(or_, gaps)

    def witness(self, model: z3.ModelRef, kind: Literal["resting point", "cycle"], q: list[list[Symbol]], what: str) -> Witness:
        def table(rows: list[list[Symbol]]) -> list[list[float]]:
            return [[number(model, cell) for cell in row] for row in rows]

        v, best = [number(model, value) for value in self.values(q)], [number(model, value) for value in self.best]
        sentence = f"{_where(self.moves, self.gamma)}, {what}: V = {_show(v)}, V* = {_show(best)}."
        return Witness(kind, float(self.gamma), table(self.rewards), self.moves, table(q), v, best, sentence)


def _resting_points(operator: Operator, gamma: Fraction) -> Iterator[tuple[Claim, Witness]]:
    for moves in _moves():
        world = _World(moves, gamma)
        q = world.unknowns("q")
        rests = [*world.constraints, *world.step(operator, q, q)]
        if model := _find([*rests, world.narrow_gap(q)]):
            what = "a Q is left as it is though its gaps are narrower than those of Q*"
            yield "gap_increasing", world.witness(model, "resting point", q, what)
        if model := _find([*rests, world.wrong_value(q)]):
            yield "optimality_preserving", world.witness(model, "resting point", q, "a Q is left as it is though its V is wrong")
        if model := _find([*rests, world.wrong_action(q)]):
            what = (
                f"Q = {_show(number(model, value) for row in q for value in row)} is left as it is though a suboptimal action is worth V*"
            )
            yield "optimality_preserving", world.witness(model, "resting point", q, what)


def _cycles(operator: Operator, gamma: Fraction) -> Iterator[tuple[Claim, Witness]]:
    for moves in _moves():
        world = _World(moves, gamma)
        q, between = world.unknowns("q"), world.unknowns("p")
        cycle = [*world.step(operator, q, between), *world.step(operator, between, q)]
        if model := _find([*world.constraints, *cycle, world.wrong_value(q)]):
            yield "optimality_preserving", world.witness(model, "cycle", q, "two applications bring back a Q whose V is wrong")


def _divergences(operator: Operator, gamma: Fraction) -> Iterator[tuple[Claim, Witness]]:
    """Iterate on every structure with several rewards and starts at once: side by side, they are one MDP."""
    rng = np.random.default_rng(0)
    worlds = _moves() * 8
    offsets = np.cumsum([0] + [len(moves) for moves in worlds])
    successors = np.concatenate([np.array(moves) + first for moves, first in zip(worlds, offsets, strict=False)])
    rewards = rng.integers(-1, 2, successors.shape).astype(float)
    q0 = rng.integers(-10, 11, successors.shape).astype(float)
    together = FiniteMDP.from_successors(rewards, successors[..., None], np.ones((*successors.shape, 1)), float(gamma))
    engine = make_engine(together, operator, "arrays")
    now = engine.start(q0.copy())
    for sweeps in range(1, 1001):
        with np.errstate(all="ignore"):
            now, _ = engine.sweep(now)
        beyond = ~(np.abs(now.v) < DIVERGED)
        if beyond.any():
            which = int(np.searchsorted(offsets, np.argmax(beyond), side="right")) - 1
            rows = slice(offsets[which], offsets[which + 1])
            best = policy_iteration(together)[1][rows].tolist()
            sentence = f"{_where(worlds[which], gamma)}, V diverges: {_show(now.v[rows])} after {sweeps} sweeps, V* = {_show(best)}."
            witness = Witness(
                "divergence", float(gamma), rewards[rows].tolist(), worlds[which], q0[rows].tolist(), now.v[rows].tolist(), best, sentence
            )
            yield "optimality_preserving", witness
            return


def _find(constraints: list[Truth]) -> z3.ModelRef | None:
    """A model if one is found soon: a witness that takes long is as good as none."""
    try:
        return find(constraints, milliseconds=500)
    except UndecidedError:
        return None


def _where(moves: list[list[int]], gamma: Fraction) -> str:
    return f"on an MDP with {'one state' if len(moves) == 1 else 'two states'}, two actions and gamma = {float(gamma):g}"


def _show(values) -> str:
    return "(" + ", ".join(f"{value:.4g}" for value in values) + ")"
