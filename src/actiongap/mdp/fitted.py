"""Fitted Q-iteration: an operator applied to a batch of transitions, with any regressor instead of a table.

Each iteration computes the operator's targets for all transitions at once (`actiongap.td`) and fits them (Ernst, Geurts and Wehenkel,
"Tree-based batch mode reinforcement learning", 2005). With a regressor that interpolates every pair it is value iteration.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike

from actiongap._progress import StepProgress
from actiongap._suggest import with_suggestions
from actiongap.mdp.checks import check_whole, make_rng
from actiongap.mdp.gym import EnvLike, as_env, discrete_space, rollout
from actiongap.operators import AnyOperator, check_discount, parse
from actiongap.td import td_target


@dataclass(frozen=True, eq=False)
class Transitions:
    """A batch of N sampled transitions (x, a, r, x'), checked when it is made.

    Examples
    --------
    >>> x, x_next = np.array([[0.0, 0.5], [0.5, 1.0]]), np.array([[0.5, 1.0], [1.0, 1.0]])
    >>> len(Transitions(x, a=np.array([1, 0]), r=np.array([0.0, 1.0]), discount=np.array([1, 0]), x_next=x_next))
    2
    """

    x: np.ndarray
    """Observations: states (N,), or rows of numbers (N, d)."""
    a: np.ndarray
    """Actions, counted from 0 (N,)."""
    r: np.ndarray
    """Rewards (N,)."""
    discount: np.ndarray
    """0 where x' is terminal and 1 elsewhere, truncation included (N,). It multiplies gamma, so one batch serves every gamma."""
    x_next: np.ndarray
    """The next observations, of the shape of `x`."""

    def __post_init__(self) -> None:
        for name in ("x", "a", "r", "discount", "x_next"):
            values = np.asarray(getattr(self, name))
            if values.dtype.kind not in "biuf":
                raise ValueError(f"{name} holds {values.dtype}: convert it to numbers")
            if not np.isfinite(values).all():
                raise ValueError(f"{name}[{np.argwhere(~np.isfinite(values))[0][0]}] is not finite: leave such transitions out")
            object.__setattr__(self, name, values)
        if self.x.ndim not in (1, 2) or self.x.shape != self.x_next.shape:
            raise ValueError(f"x has shape {self.x.shape} and x_next {self.x_next.shape}: both must be (N,), or both (N, d)")
        for name in ("a", "r", "discount"):
            shape = getattr(self, name).shape
            if shape != (len(self.x),) or not len(self.x):
                raise ValueError(f"{name} has shape {shape} and x {self.x.shape}: a batch has one entry per transition")
        if (self.a < 0).any() or (self.a != np.floor(self.a)).any():
            raise ValueError("a holds something other than whole numbers from 0: number the actions from 0")
        if not np.isin(self.discount, (0, 1)).all():
            raise ValueError("discount holds something other than 0 and 1: set it to 0 where x_next is terminal, and pass gamma separately")
        object.__setattr__(self, "a", self.a.astype(np.int64))

    def __len__(self) -> int:
        return len(self.a)


@with_suggestions
def collect(env: EnvLike, *, steps: int, seed: int, progress: bool | None = None) -> Transitions:
    """Collect transitions with the uniformly random policy. Actions must be discrete; observations other than states are flattened.

    Progress is shown if it takes longer than two seconds, at once with `progress=True`, and never with `progress=False`.

    Examples
    --------
    >>> collect("CartPole-v1", steps=100, seed=0).x.shape
    (100, 4)
    """
    rng = make_rng(seed)
    with as_env(env) as env, StepProgress("collect", progress) as bar:
        actions = int(discrete_space(env, "action").n)
        steps = check_whole("steps", steps, 1)
        sampled = rollout(env, lambda x: int(rng.random() * actions), steps=steps, seed=int(rng.integers(2**31)))
        transitions = list(bar.over(sampled, steps))
    x, a, r, terminated, x_next, _, _ = (np.array(values) for values in zip(*transitions, strict=True))
    return Transitions(x, a, r, 1.0 - terminated, x_next)


class Regressor(Protocol):
    """A regressor with the interface of scikit-learn."""

    def fit(self, X: Any, y: Any) -> Any: ...  # noqa: N803 - as scikit-learn names it
    def predict(self, X: Any) -> Any: ...  # noqa: N803


@dataclass(frozen=True, eq=False)
class FittedQ:
    """A Q-function with one regressor per action."""

    regressors: tuple[Regressor, ...]

    def q(self, x: ArrayLike) -> np.ndarray:
        """Return Q(x, .) of N observations: (N, A)."""
        rows = _rows(np.asarray(x))
        return np.stack([np.asarray(regressor.predict(rows), dtype=float).reshape(len(rows)) for regressor in self.regressors], axis=1)

    def policy(self, x: ArrayLike) -> np.ndarray:
        """Return the greedy actions of N observations (N,); ties go to the lowest index."""
        return self.q(x).argmax(axis=1)


@with_suggestions
def fitted_q_iteration(
    batch: Transitions,
    operator: AnyOperator,
    regressor: Regressor | Callable[[], Regressor],
    *,
    gamma: float,
    iterations: int,
    actions: int,
    q0: Callable[[np.ndarray], np.ndarray] | None = None,
    progress: bool | None = None,
) -> FittedQ:
    """Iterate Q <- fit(T'Q): each iteration fits one regressor per action to the operator's targets.

    Parameters
    ----------
    batch
        The transitions; x' counts as x where the observations are equal.
    operator
        An `Operator`, a string such as `al:0.5`, or any function of a `Backup`.
    regressor
        A regressor of scikit-learn, which is cloned for each fit, or a function without arguments that makes a new one.
    gamma
        The discount, in [0, 1).
    iterations
        Number of applications of the operator.
    actions
        Number of actions; the batch must contain each of them.
    q0
        Initial Q: a function from N observations to Q(x, .), such as `q` of an earlier result; zero by default.
    progress
        Whether to show progress. By default, only if it takes longer than two seconds.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeRegressor
    >>> from actiongap.mdp.generators import chain
    >>> batch = collect(chain(4, slip=0.0), steps=200, seed=0)
    >>> fitted_q_iteration(batch, "al:0.5", DecisionTreeRegressor(), gamma=0.9, iterations=50, actions=2).policy(range(3)).tolist()
    [1, 1, 1]
    """
    if not isinstance(batch, Transitions):
        raise TypeError(f"batch is of type {type(batch).__name__}: give Transitions, such as those of collect")
    operator, gamma, make = parse(operator), check_discount(gamma), _factory(regressor)
    if int(iterations) != iterations or iterations < 1:
        raise ValueError(f"iterations is {iterations!r}: it must be a whole number of at least 1")
    counts = np.bincount(batch.a, minlength=actions)
    if len(counts) > actions:
        raise ValueError(
            f"the batch contains action {len(counts) - 1}, but actions is {actions}: number the actions from 0 to {actions - 1}"
        )
    if not counts.all():
        raise ValueError(f"no transition of the batch has action {counts.argmin()}: collect a larger batch")
    x, x_next = _rows(batch.x), _rows(batch.x_next)
    returned = (x == x_next).all(axis=1)
    fitted = FittedQ(())
    start = (lambda x: np.zeros((len(x), actions))) if q0 is None else q0
    q, next_q = start(batch.x), start(batch.x_next)
    with StepProgress("fitted Q-iteration", progress) as bar:
        for done in range(int(iterations)):
            bar(f"iteration {done + 1} of {iterations}", done / iterations)
            targets = td_target(operator, q, batch.a, batch.r, gamma * batch.discount, next_q, returned=returned)
            regressors = tuple(make() for _ in range(actions))
            for a, model in enumerate(regressors):
                model.fit(x[batch.a == a], targets[batch.a == a])
            fitted = FittedQ(regressors)
            q, next_q = fitted.q(x), fitted.q(x_next)
    return fitted


def _rows(x: np.ndarray) -> np.ndarray:
    return x[:, None] if x.ndim == 1 else x


def _factory(regressor: Any) -> Callable[[], Any]:
    if callable(regressor):
        return regressor
    if not hasattr(regressor, "get_params"):
        raise TypeError(f"regressor is {regressor!r}: give a regressor of scikit-learn, or a function that makes a new regressor")
    try:
        from sklearn.base import clone
    except ImportError:
        raise ValueError("only regressors of scikit-learn can be cloned: pass a function that makes a new regressor") from None
    return lambda: clone(regressor)
