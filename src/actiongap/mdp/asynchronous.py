"""Iterate an operator on a finite MDP with updates of some pairs at a time.

The theorems about synchronous sweeps do not extend to every order of updates: on `ring`, advantage learning in the order `cycling_order`
swings between the best and the worst values for ever. Two theorems hold (docs/theory.md), for every operator between the bounds
T Q - (V - Q) and T Q:

- from a pessimistic start, Q_0 <= T Q_0, any order that updates every pair without end, with steps whose sum is infinite at every pair;
- updates with eta = 1 in a fixed cyclic order: the same sequence of pairs again and again, in which each pair occurs once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from actiongap.mdp.checks import check_table
from actiongap.mdp.engines import backups
from actiongap.mdp.model import FiniteMDP, check_model
from actiongap.mdp.stopping import check_step_size
from actiongap.operators import AnyOperator, Backup, Operator, parse

Pair = tuple[int, int]
"""A state and an action."""


def iterate_asynchronously(
    mdp: FiniteMDP, operator: AnyOperator, q0: np.ndarray, order: Iterable[Pair | Sequence[Pair]], eta: float = 1.0
) -> Iterator[np.ndarray]:
    """Yield Q after each update Q(x, a) <- (1 - eta) Q(x, a) + eta T'Q(x, a).

    Parameters
    ----------
    mdp
        The model.
    operator
        An `Operator`, a string such as `al:0.5`, or any function of a `Backup`.
    q0
        Initial Q (S, A).
    order
        The pairs (x, a) to update, in order. An item may be several pairs, which are updated at the same time.
    eta
        Step size in (0, 1].

    Examples
    --------
    >>> from actiongap.mdp.generators import ring
    >>> q0 = np.array([[-11.0, -10.0], [0.0, -1.0], [0.0, -1.0]])
    >>> *_, q = iterate_asynchronously(ring(gamma=0.9), "al:0.9", q0, cycling_order())
    >>> q.max(axis=1).round(6).tolist()
    [-10.0, 0.0, 0.0]
    """
    mdp, operator = check_model(mdp), parse(operator).plain()
    check_step_size(eta)
    q = check_table("q0", q0, (mdp.states, mdp.actions)).copy()
    for item in order:
        states, actions = np.atleast_2d(np.array(item, dtype=int)).T
        values = [_value(mdp, operator, q, x, a) for x, a in zip(states, actions, strict=True)]
        q[states, actions] += eta * (np.array(values) - q[states, actions])
        yield q.copy()


def _value(mdp: FiniteMDP, operator: Operator, q: np.ndarray, x: int, a: int) -> float:
    b = backups(mdp, q, rows=slice(x, x + 1))
    # The discount is a number, V(x) is (1, 1), and the rest is (1, A).
    return float(operator(Backup(*[np.broadcast_to(field, b.bellman.shape)[0, a] for field in b])))


def cycling_order(lowering: int = 10, raising: int = 20) -> list[Pair]:
    """Return one period of an order of updates in which `al:ALPHA` cycles on `ring(3)` if gamma (1 + alpha) > 1 and alpha < 1.

    The start has one low state, Q = (below -1 / (1 - gamma), -1 / (1 - gamma)), and two high ones, Q = (0, -1). A period makes each state
    the low one in turn. The predecessor of the low state is lowered: action 0 is updated until it is the worst, `lowering` times, and then
    action 1. The low state is raised: action 1 is updated, and then action 0 until it leads, `raising` times.

    Examples
    --------
    >>> cycling_order(lowering=2, raising=1)[:5]
    [(2, 0), (2, 0), (2, 1), (0, 1), (0, 0)]
    """
    order = []
    for low in (0, 2, 1):
        before = (low - 1) % 3
        order += [(before, 0)] * lowering + [(before, 1), (low, 1)] + [(low, 0)] * raising
    return order
