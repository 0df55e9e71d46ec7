"""The backups of Q-value interpolation at a block of grid points, on the arrays of any library.

At a pair (z, a) with next state x' and the weights A(. | x') of the grid points around it

    bellman  = R + gamma max_b Q(x', b),   Q(x', b) = sum_z' A(z' | x') Q(z', b)
    again    = R + gamma max_b [Q(x', b) - A(z | x') (Q(z, b) - Q(z, a))]
    next_gap = max_b Q(x', b) - Q(x', a)

and these are fields of a `Backup` like any other, so every operator applies: `bellman` of them is T_QVI, `consistent` is T_CQVI. Where an
episode ends nothing follows. Several next states, drawn or weighed by their probabilities, are averaged before the operator is applied.

With `of_values` it is V that is interpolated: E V(x') = sum A V stands for max_b Q(x', b), and E A(z | x') for the probability of staying
at z. That is the aggregation of the paper, a finite MDP on the grid points, in which the theorem holds.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from actiongap.grid.domain import Step
from actiongap.grid.interpolation import multilinear
from actiongap.grid.points import Grid
from actiongap.maths import namespace, where
from actiongap.operators import Backup, backup


def with_again(b: Backup, again: Any) -> Backup:
    """A backup in which returning is worth something else; inside kernels too, where tuples cannot replace a field.

    Examples
    --------
    >>> with_again(Backup(0.9, 0.0, 1.0, 2.0, 2.0, 1.0, 0.0, 2.0), 1.5).again
    1.5
    """
    return Backup(b.gamma, b.q, b.v, b.bellman, again, b.gap, b.next_gap, b.repeat)


class Average(NamedTuple):
    """What follows a pair, averaged over the next states seen so far."""

    reward: Any
    next_v: Any
    """max_b Q(x', b), as are the next two where an episode went on."""
    next_q: Any
    """Q(x', a)."""
    next_again: Any
    """max_b [Q(x', b) - A(z | x') (Q(z, b) - Q(z, a))]."""
    stay: Any
    """A(z | x')."""

    def with_one_more(self, share: Any, ended: Any, one: Average) -> Average:
        """The average with one more next state, of this share."""
        # What follows the end of an episode may be no number, so it is left out and not multiplied by nothing.
        after = [total + where(ended, 0.0, share * number) for total, number in zip(self[1:], one[1:], strict=True)]
        return Average(self.reward + share * one.reward, *after)

    def backup(self, gamma: Any, q: Any, v: Any, of_values: bool = False) -> Backup:
        """The backup of pairs whose present value is q, in states whose value is v."""
        plain = backup(gamma, self.reward, q, v, self.next_v, self.next_q, self.stay)
        return plain if of_values else with_again(plain, self.reward + gamma * self.next_again)


def interpolated_backups(
    step: Step, grid: Grid, q: Any, z: Any, x: tuple, noise: Iterable[tuple[Any, Any]], gamma: float, of_values: bool = False
) -> Backup:
    """The backups of all actions at the grid points numbered `z`, each field (points, actions).

    Parameters
    ----------
    step
        One step of everything, as `domain.one_step` gives it.
    grid
        The grid.
    q
        Q(z, a), (points of the grid, actions).
    z
        The numbers of some grid points (points,).
    x
        Their coordinates, a tuple of arrays (points,).
    noise
        Pairs of a noise, (points, actions) or one number, and its share in the average.
    gamma
        The discount.
    of_values
        Whether V is interpolated rather than Q.

    Examples
    --------
    >>> import numpy as np
    >>> from actiongap.grid.axes import uniform
    >>> from actiongap.grid.domain import Outcome
    >>> def slide(x, a, u):
    ...     return Outcome((x[0] + 0.25 * a,), 0.0 * x[0] * a, x[0] > 2.0)
    >>> grid, q = Grid((uniform(0.0, 1.0, 3),)), np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    >>> found = interpolated_backups(slide, grid, q, np.arange(3), grid.points(), [(0.0, 1.0)], gamma=0.5)
    >>> found.bellman[0].tolist()
    [0.5, 1.0]
    """
    xp, actions = namespace(q), q.shape[1]
    here, own = tuple(coordinate[:, None] for coordinate in x), q[z]
    v = xp.max(own, axis=1)[:, None]
    a = xp.arange(actions)[None, :]
    average = Average(*[xp.zeros(own.shape, dtype=q.dtype)] * 5)
    for u, share in noise:
        outcome = step(here, a, u)
        weights = multilinear(grid, outcome.x)
        mass = weights.mass(z[:, None])
        after = weights.of(q)
        same = xp.take_along_axis(after, a[..., None] + 0 * z[:, None, None], axis=2)[..., 0]
        best = weights.of(xp.max(q, axis=1)) if of_values else xp.max(after, axis=2)
        # What remains of the best when the part of x' that is z itself has to repeat the action.
        again = xp.max(after - mass[..., None] * own[:, None, :], axis=2) + mass * own
        average = average.with_one_more(share, outcome.ended, Average(outcome.reward, best, same, again, mass))
    return average.backup(gamma, own, v, of_values)
