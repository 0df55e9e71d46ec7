"""Fixed transitions that every target function of users is tried on, and the inputs that such functions may take.

The transitions are ordinary, terminal and truncated ones; with two, three and five actions; with ties, self-loops, greedy actions, values
close to each other, large, negative and zero values. All of them are constants: two checks see the same numbers.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from actiongap.operators import AnyOperator
from actiongap.td import td_target

NAMES: dict[str, tuple[str, ...]] = {
    "q_tm1": ("q_tm1", "q", "q_values"),
    "a_tm1": ("a_tm1", "a", "action", "actions"),
    "r_t": ("r_t", "r", "reward", "rewards"),
    "discount_t": ("discount_t", "discount", "discounts"),
    "q_t": ("q_t", "next_q", "next_q_values", "q_next"),
    "terminated": ("terminated", "done", "dones", "terminal", "terminals", "terminations"),
    "truncated": ("truncated", "truncation", "truncations", "timeout", "timeouts"),
    "gamma": ("gamma",),
    "returned": ("returned", "self_loop", "same_state"),
    "target_q_tm1": ("target_q_tm1", "target_q", "target_q_values"),
    "target_q_t": ("target_q_t", "target_next_q", "target_next_q_values", "next_target_q"),
    "online_q_tm1": ("online_q_tm1", "online_q"),
    "online_q_t": ("online_q_t", "online_next_q", "next_online_q"),
}
"""The inputs that a target function may take, each with the names of parameters that stand for it."""

POSITIONS = ("q_tm1", "a_tm1", "r_t", "discount_t", "q_t")
"""The inputs of a function whose five parameters have other names, in order."""

Q_INPUTS = tuple(name for name in NAMES if "q_t" in name)
"""Inputs that are values of all actions."""


class Batch(NamedTuple):
    """Transitions (x, a, r, x') with the same number of actions, and the values that a target network and an online network give them."""

    q_tm1: Any
    """Q(x, .) of the target network, shape (n, A)."""
    a_tm1: Any
    r_t: Any
    gamma: Any
    """The discount where x' is not terminal."""
    q_t: Any
    """Q(x', .) of the target network, shape (n, A)."""
    online_q_tm1: Any
    """Q(x, .) of the online network; where there is one network, the same as `q_tm1`."""
    online_q_t: Any
    terminated: Any
    truncated: Any
    returned: Any
    """Whether x' is x. Then, and only then, Q(x', .) is Q(x, .)."""

    @property
    def discount_t(self) -> Any:
        """The discount of each transition; 0 where x' is terminal."""
        return np.where(self.terminated, 0.0, self.gamma)

    def target(self, operator: AnyOperator) -> Any:
        """Return the operator's target of each transition.

        Examples
        --------
        >>> catalogue()[0].target("bellman").shape
        (49,)
        """
        return td_target(operator, self.q_tm1, self.a_tm1, self.r_t, self.discount_t, self.q_t, returned=self.returned)

    def inputs(self, names: Collection[str]) -> dict[str, Any]:
        """Return the inputs of a function that takes those of these names (keys of `NAMES`).

        `q_tm1` and `q_t` are of the target network, unless the function takes values of both networks and calls the target network's
        `target_q_tm1` or `target_q_t`; see `check_target`.

        Examples
        --------
        >>> sorted(catalogue(0.99)[0].inputs(("r_t", "gamma")))
        ['gamma', 'r_t']
        """
        given = self._asdict() | {"target_q_tm1": self.q_tm1, "target_q_t": self.q_t, "discount_t": self.discount_t}
        if has_done_flag(names):
            given |= {"discount_t": self.gamma, "gamma": float(self.gamma[0])}
        if online(names, "q_tm1"):
            given["q_tm1"] = self.online_q_tm1
        if online(names, "q_t"):
            given["q_t"] = self.online_q_t
        return {name: given[name] for name in names}


def has_done_flag(names: Collection[str]) -> bool:
    """Whether a function with these inputs takes a done flag, and uses one discount for all transitions.

    Examples
    --------
    >>> has_done_flag(("r_t", "terminated", "q_t")), has_done_flag(("r_t", "discount_t", "q_t"))
    (True, False)
    """
    return "terminated" in names or "discount_t" not in names


def online(names: Collection[str], name: str) -> bool:
    """Whether `q_tm1` or `q_t` is the online network's in a function that takes these inputs.

    Examples
    --------
    >>> online(("q_tm1", "q_t"), "q_tm1"), online(("q_tm1", "target_q_tm1", "q_t"), "q_tm1"), online(("target_q_tm1", "q_t"), "q_t")
    (False, True, False)
    """
    return "target_q_t" in names or (name == "q_tm1" and "target_q_tm1" in names)


def has_two_networks(names: Collection[str]) -> bool:
    """Whether a function takes values of both networks.

    Examples
    --------
    >>> has_two_networks(("q_tm1", "q_t")), has_two_networks(("q_tm1", "target_q_t"))
    (False, True)
    """
    return any(name.startswith(("target", "online")) for name in names)


ORDINARY = ("ordinary",) * 6
TERMINAL = (*("terminal",) * 3, "positive terminal", "terminal worse close positive")
SPECIAL = ("truncated", "truncated", "truncated", "terminal truncated", "returned", "returned", "returned terminal")
GREEDY = ("greedy", "greedy", "greedy terminal", "tied", "next-tied", "tied next-tied")
CLOSE = ("close", "close", "close terminal", "close large")
EXTREME = ("large", "large terminal", "large greedy", "negative", "negative terminal", "zero", "zero terminal")
KINDS = (*ORDINARY, *TERMINAL, *SPECIAL, *GREEDY, *CLOSE, *EXTREME, "negative", "positive")
"""What is special about each of the transitions with the same number of actions.

`clipped-al` corrects the values of worse actions only if they are close to a positive V(x), compared with which their gap is small.
"""

FRACTIONS = (-0.2, 0.031, 0.137, 0.233, 0.331, 0.437, 0.531, 0.637, 0.733, 0.831, 0.937, 1.1)
"""Further transitions have a reward so that the Bellman target is Q(x, a) plus these fractions of the gap, which `lazy` looks at."""

DISCOUNTS = (0.9, 0.99, 0.5, 1.0, 0.95)
ACTIONS = (2, 3, 5)


def catalogue(gamma: float | None = None, two_networks: bool = True) -> tuple[Batch, ...]:
    """Return the fixed transitions, those with the same number of actions together.

    Parameters
    ----------
    gamma
        The discount where x' is not terminal; by default several.
    two_networks
        Whether the online network's values are different from the target network's.

    Examples
    --------
    >>> [transitions.q_t.shape for transitions in catalogue()]
    [(49, 2), (49, 3), (49, 5)]
    """
    return tuple(_transitions(actions, gamma, two_networks) for actions in ACTIONS)


def _transitions(actions: int, gamma: float | None, two_networks: bool) -> Batch:
    kinds = [set(kind.split()) for kind in (*KINDS, *("ordinary",) * len(FRACTIONS))]
    rng, n = np.random.default_rng(actions), len(kinds)
    q_tm1, q_t, noise, next_noise = (rng.uniform(-1.0, 1.0, (n, actions)).round(3) for _ in range(4))
    a_tm1, r_t = rng.integers(0, actions, n), rng.uniform(-4.0, 4.0, n).round(3)
    is_a = {name: np.array([name in kind for kind in kinds]) for name in set().union(*kinds)}

    # Values spread over 8, or over 0.2 where they are close to each other.
    spread, shift = np.where(is_a["close"], 0.1, 4.0), np.where(is_a["negative"], -6.0, np.where(is_a["positive"], 6.0, 0.0))
    scale = np.where(is_a["large"], 1000.0, np.where(is_a["zero"], 0.0, 1.0))
    q_tm1, q_t, noise, next_noise = (scale[:, None] * spread[:, None] * q for q in (q_tm1, q_t, noise / 2, next_noise / 2))
    q_tm1, q_t, r_t = q_tm1 + shift[:, None], q_t + shift[:, None], np.where(is_a["close"], 0.1, scale) * r_t
    a_tm1 = np.where(is_a["greedy"], q_tm1.argmax(axis=1), np.where(is_a["worse"], q_tm1.argmin(axis=1), a_tm1))
    for q, tied in ((q_tm1, is_a["tied"]), (q_t, is_a["next-tied"])):
        q[tied, 0] = q[tied, 1] = q[tied].max(axis=1)
    q_t[is_a["returned"]], next_noise[is_a["returned"]] = q_tm1[is_a["returned"]], noise[is_a["returned"]]

    discounts = np.resize(np.array(DISCOUNTS), n) if gamma is None else np.full(n, float(gamma))
    chosen, place = q_tm1[np.arange(n), a_tm1], slice(n - len(FRACTIONS), n)
    aim = chosen + np.concatenate([np.zeros(n - len(FRACTIONS)), FRACTIONS]) * (q_tm1.max(axis=1) - chosen)
    r_t[place] = (aim - discounts * q_t.max(axis=1))[place]
    online_q_tm1, online_q_t = (q_tm1 + noise, q_t + next_noise) if two_networks else (q_tm1, q_t)
    return Batch(
        q_tm1=q_tm1.round(4),
        a_tm1=a_tm1,
        r_t=r_t.round(4),
        gamma=discounts,
        q_t=q_t.round(4),
        online_q_tm1=online_q_tm1.round(4),
        online_q_t=online_q_t.round(4),
        terminated=is_a["terminal"],
        truncated=is_a["truncated"],
        returned=is_a["returned"],
    )
