"""Known mistakes in target functions, each with the targets that it leads to.

A mistake is recognized by its numbers: its targets are computed for all transitions and compared with those of the user's function. Each
mistake is written as a change of one thing: of the transitions that the operator is given, of the backup that it is applied to, or of its
formula. Everything else is `actiongap.td` and the operator itself.

Public implementations make many of them: no outer maximum (`persistent_q_learning` of RLax and TRFL), the persistence term not masked at
terminal states (PFRL), the greedy action instead of the replayed one (Coach), the action greedy at x taken at x' (rsrl), the log-policy
clipped on the wrong side, online and target networks mixed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from actiongap.api.transitions import Batch
from actiongap.maths import maximum, minimum, where
from actiongap.operators import FAMILY, Backup, Operator, parse
from actiongap.td import sampled_backup, soft_backup


class Mistake(NamedTuple):
    """A sentence, and the targets of a function that makes the mistake."""

    sentence: str
    targets: Callable[[Batch], Any]


def greedy(q: Any) -> Any:
    """Return the greedy action of each row."""
    return q.argmax(axis=-1)


def chosen(q: Any, a: Any) -> Any:
    """Return Q(., a) of each row."""
    return np.take_along_axis(q, a[:, None], axis=-1)[:, 0]


def backup_of(t: Batch, temperature: float | None = None) -> Any:
    """Return the backup of transitions; a `SoftBackup` for a temperature."""
    arrays = (t.q_tm1, t.a_tm1, t.r_t, t.discount_t, t.q_t)
    if temperature is None:
        return sampled_backup(*arrays, returned=t.returned)
    return soft_backup(*arrays, temperature=temperature, returned=t.returned)


BASES: dict[str, tuple[str, Callable[..., Any]]] = {
    "munchausen": (
        "the log-policy term is missing, or clipped on the wrong side so that 0 is left: clip tau log pi to [low, 0]",
        lambda b, *numbers: b.soft_bellman,
    ),
    "dpp": ("the term Q(x, a) - M Q(x) is missing", lambda b, *numbers: b.mean_bellman),
    "cvi": ("the term alpha (Q(x, a) - M Q(x)) is missing", lambda b, *numbers: b.mellow_bellman),
    "mellowmax": ("this is plain Bellman: the maximum is not soft", lambda b, *numbers: b.bellman),
    "baird": ("the division by K is missing: this is the Bellman operator", lambda b, *numbers: b.bellman),
    "pal": (
        "this is plain Bellman: the correction is missing, or one of its terms takes the greedy action instead of the replayed one, a_tm1",
        lambda b, *numbers: b.bellman,
    ),
    "consistent": ("this is plain Bellman: it does not repeat the action where x' is x (returned)", lambda b, *numbers: b.bellman),
    "sal": ("the correction is missing", lambda b, alpha, omega: (1 - omega) * b.q + omega * b.bellman),
}
"""By operator: the mistake of a target without the correction, and this target, a function of the backup and the operator's numbers.

Other operators have the entry of `pal`."""


def base(operator: Operator) -> tuple[str, Callable[[Any], Any]]:
    """Return the mistake of a target without correction, and this target as a function of the backup."""
    name, numbers = numbers_of(operator)
    sentence, plain = BASES.get(name, BASES["pal"])
    return sentence, lambda b: plain(b, *numbers)


FORMULAS: dict[str, dict[str, Callable[..., Any]]] = {
    "bellman": {
        "it bootstraps with Q(x', a) of the replayed action instead of the maximum over actions": lambda b: b.repeat,
    },
    "consistent": {
        "it repeats the action in every next state, not only where x' is x (returned)": lambda b: b.repeat,
    },
    "al": {
        "it subtracts the gap at x', V(x') - Q(x', a), instead of the gap at x": lambda b, alpha: b.bellman - alpha * b.next_gap,
        "it mixes V(x') and Q(x', a) as persistent_q_learning of RLax and TRFL does, instead of subtracting the gap at x": (
            lambda b, alpha: b.bellman - alpha * b.gamma * b.next_gap
        ),
    },
    "pal": {
        "no outer maximum: it mixes V(x') and Q(x', a) as persistent_q_learning of RLax and TRFL does": (
            lambda b, alpha: b.bellman - alpha * b.gamma * b.next_gap
        ),
        "no outer maximum: only the persistence term r + gamma Q(x', a) is left": lambda b, alpha: b.repeat,
        "it takes the minimum of the two terms instead of the maximum": (lambda b, alpha: minimum(b.bellman - alpha * b.gap, b.repeat)),
        "no outer maximum: it sums both corrections": lambda b, alpha: b.bellman - alpha * b.gap - b.gamma * b.next_gap,
        "alpha also multiplies the persistence term, which is r + gamma Q(x', a)": (
            lambda b, alpha: b.bellman - alpha * minimum(b.gap, b.gamma * b.next_gap)
        ),
    },
    "pal-dqn": {
        "no outer maximum: it mixes V(x') and Q(x', a) as persistent_q_learning of RLax and TRFL does": (
            lambda b, alpha: b.bellman - alpha * b.gamma * b.next_gap
        ),
        "no outer maximum: only the persistence term is left, bellman - alpha (V(x') - Q(x', a))": lambda b, alpha: (
            b.bellman - alpha * b.next_gap
        ),
        "no outer maximum: only r + gamma Q(x', a) is left": lambda b, alpha: b.repeat,
        "it takes the minimum of the two terms, and so the larger gap, instead of the maximum": (
            lambda b, alpha: b.bellman - alpha * maximum(b.gap, b.next_gap)
        ),
        "no outer maximum: it sums both corrections": lambda b, alpha: b.bellman - alpha * (b.gap + b.next_gap),
        "the gap at x', V(x') - Q(x', a), is multiplied by the discount": (
            lambda b, alpha: b.bellman - alpha * minimum(b.gap, b.gamma * b.next_gap)
        ),
        "alpha does not multiply the gap at x', V(x') - Q(x', a)": lambda b, alpha: b.bellman - minimum(alpha * b.gap, b.next_gap),
        "alpha does not multiply the gap at x, V(x) - Q(x, a)": lambda b, alpha: b.bellman - minimum(b.gap, alpha * b.next_gap),
    },
    "lazy": {
        "the lower condition Q(x, a) <= T Q is missing": lambda b, alpha: where(b.bellman <= b.q + alpha * b.gap, b.q, b.bellman),
        "the upper condition T Q <= alpha V + (1 - alpha) Q is missing": lambda b, alpha: where(b.q <= b.bellman, b.q, b.bellman),
        "the condition is reversed: it keeps Q(x, a) where it should apply T": (
            lambda b, alpha: where((b.q <= b.bellman) & (b.bellman <= b.q + alpha * b.gap), b.bellman, b.q)
        ),
        "alpha and 1 - alpha are exchanged": (
            lambda b, alpha: where((b.q <= b.bellman) & (b.bellman <= b.q + (1 - alpha) * b.gap), b.q, b.bellman)
        ),
    },
    "baird": {
        "it multiplies by K instead of dividing by it": lambda b, k, dt=1.0: b.v + k * dt * (b.bellman - b.v),
        "it starts from Q(x, a) instead of V(x)": lambda b, k, dt=1.0: b.q + (b.bellman - b.q) / (k * dt),
        "it subtracts Q(x, a) instead of V(x)": lambda b, k, dt=1.0: b.v + (b.bellman - b.q) / (k * dt),
    },
    "clipped-al": {
        "the clip is missing: this is advantage learning": lambda b, alpha, c, low=0.0: b.bellman - alpha * b.gap,
        "the clip is on the wrong side: the condition is Q - low >= c (V - low)": (
            lambda b, alpha, c, low=0.0: where(b.q - low >= c * (b.v - low), b.bellman, b.bellman - alpha * b.gap)
        ),
    },
    "sal": {
        "the step omega is missing: this is advantage learning": lambda b, alpha, omega: b.bellman - alpha * b.gap,
        "it starts from V(x) instead of Q(x, a)": lambda b, alpha, omega: (1 - omega) * b.v + omega * b.bellman - alpha * b.gap,
        "omega and 1 - omega are exchanged": lambda b, alpha, omega: omega * b.q + (1 - omega) * b.bellman - alpha * b.gap,
        "omega also multiplies the correction": lambda b, alpha, omega: (1 - omega) * b.q + omega * (b.bellman - alpha * b.gap),
    },
    "munchausen": {
        "it is plain Bellman: the log-policy term is missing, and the maximum is not soft": lambda b, tau, alpha, low=-1.0: b.bellman,
        "it bootstraps with the maximum instead of tau log sum exp(Q(x', .) / tau)": (
            lambda b, tau, alpha, low=-1.0: b.bellman + alpha * maximum(tau * b.log_policy, low)
        ),
        "the entropy of the policy at x' is missing": (
            lambda b, tau, alpha, low=-1.0: b.mean_bellman + alpha * maximum(tau * b.log_policy, low)
        ),
        "the log-policy is clipped on the wrong side: tau log pi must be clipped to [low, 0]": (
            lambda b, tau, alpha, low=-1.0: b.soft_bellman + alpha * minimum(tau * b.log_policy, low)
        ),
        "the log-policy is clipped before it is multiplied by tau: clip tau log pi to [low, 0]": (
            lambda b, tau, alpha, low=-1.0: b.soft_bellman + alpha * tau * maximum(b.log_policy, low)
        ),
        "the log-policy is multiplied by alpha before it is clipped: clip tau log pi to [low, 0]": (
            lambda b, tau, alpha, low=-1.0: b.soft_bellman + maximum(alpha * tau * b.log_policy, low)
        ),
        "the log-policy is clipped on the wrong side and has the wrong sign: clip tau log pi, which is negative, to [low, 0]": (
            lambda b, tau, alpha, low=-1.0: b.soft_bellman + alpha * minimum(-tau * b.log_policy, -low)
        ),
        "the log-policy is not clipped: clip tau log pi to [low, 0]": (
            lambda b, tau, alpha, low=-1.0: b.soft_bellman + alpha * tau * b.log_policy
        ),
        "the log-policy is not multiplied by tau": (lambda b, tau, alpha, low=-1.0: b.soft_bellman + alpha * maximum(b.log_policy, low)),
        "the log-policy is neither multiplied by tau nor clipped": (lambda b, tau, alpha, low=-1.0: b.soft_bellman + alpha * b.log_policy),
    },
    "dpp": {
        "it is plain Bellman": lambda b, tau: b.bellman,
        "it takes maxima instead of averages under the policy: this is al:1": lambda b, tau: b.bellman - b.gap,
        "it bootstraps with the maximum instead of the average under the policy": lambda b, tau: b.q - b.mean + b.bellman,
        "it bootstraps with tau log sum exp(Q(x', .) / tau) instead of the average under the policy": (
            lambda b, tau: b.q - b.mean + b.soft_bellman
        ),
        "it subtracts the maximum instead of the average under the policy at x": lambda b, tau: b.q - b.v + b.mean_bellman,
    },
    "cvi": {
        "it is plain Bellman": lambda b, alpha, beta: b.bellman,
        "it takes maxima instead of log-mean-exp averages: this is advantage learning": (lambda b, alpha, beta: b.bellman - alpha * b.gap),
        "it bootstraps with the maximum instead of the log-mean-exp average": lambda b, alpha, beta: b.bellman + alpha * (b.q - b.mellow),
        "it averages under the policy softmax(beta Q) instead of taking log-mean-exp averages": (
            lambda b, alpha, beta: b.mean_bellman + alpha * (b.q - b.mean)
        ),
        "it bootstraps with log sum exp(beta Q) / beta: the mean over the actions is a sum": (
            lambda b, alpha, beta: b.soft_bellman + alpha * (b.q - b.mellow)
        ),
    },
    "mellowmax": {
        "it bootstraps with log sum exp(omega Q) / omega: the mean over the actions is a sum": lambda b, omega: b.soft_bellman,
        "it averages under the policy softmax(omega Q) instead of taking the log-mean-exp average": lambda b, omega: b.mean_bellman,
    },
}
"""Wrong formulas: by operator and mistake, a function of the backup and of the operator's numbers."""


CORRECTIONS: dict[str, Callable[[Backup | Any, Batch, Any, Any], Any]] = {
    "the correction is added instead of subtracted: its sign, or that of alpha, is wrong": lambda b, t, plain, right: 2 * plain - right,
    "the correction is dropped at terminal states: only what depends on x' vanishes there": (
        lambda b, t, plain, right: where(b.gamma != 0, right, plain)
    ),
    "the correction is multiplied by the discount": lambda b, t, plain, right: plain + b.gamma * (right - plain),
    "the correction is multiplied by the discount, at terminal states too": lambda b, t, plain, right: plain + t.gamma * (right - plain),
}
"""Wrong corrections: by mistake, a function of the backup, the transitions, the target without correction and the right target."""


INPUTS: dict[str, Callable[[Batch], Batch]] = {
    "terminal states are ignored: the discount must be 0 there, so multiply it by 1 - done": (
        lambda t: t._replace(terminated=np.zeros_like(t.terminated))
    ),
    "truncation is treated as terminal: the discount is 0 only where the episode terminated": (
        lambda t: t._replace(terminated=t.terminated | t.truncated)
    ),
    "terminated and truncated are exchanged: the discount is 0 where the episode terminated": (
        lambda t: t._replace(terminated=t.truncated)
    ),
    "the done flag is reversed: it discounts terminal states and no others": lambda t: t._replace(terminated=~t.terminated),
    "it takes all values from the online network instead of the target network": (
        lambda t: t._replace(q_tm1=t.online_q_tm1, q_t=t.online_q_t)
    ),
    "it takes Q(x, .) from the online network instead of the target network": lambda t: t._replace(q_tm1=t.online_q_tm1),
    "it takes Q(x', .) from the online network instead of the target network": lambda t: t._replace(q_t=t.online_q_t),
    "the greedy action at x instead of the replayed one, a_tm1": lambda t: t._replace(a_tm1=greedy(t.q_tm1)),
    "the greedy action at x' instead of the replayed one, a_tm1": lambda t: t._replace(a_tm1=greedy(t.q_t)),
    "it bootstraps with the values of x instead of those of x'": lambda t: t._replace(q_t=t.q_tm1),
    "q_tm1 and q_t are exchanged": lambda t: t._replace(q_tm1=t.q_t, q_t=t.q_tm1),
    "the correction takes the values of x' instead of those of x": lambda t: t._replace(q_tm1=t.q_t),
    "returned is reversed": lambda t: t._replace(returned=~t.returned),
    "returned is taken to be true everywhere": lambda t: t._replace(returned=np.ones_like(t.returned)),
    "the reward is missing": lambda t: t._replace(r_t=np.zeros_like(t.r_t)),
    "the sign of the reward is wrong": lambda t: t._replace(r_t=-t.r_t),
    "the reward is clipped to [-1, 1]: clip it before you call the function": lambda t: t._replace(r_t=t.r_t.clip(-1.0, 1.0)),
    "the reward is discounted too": lambda t: t._replace(r_t=t.r_t * t.discount_t),
    "the discount is squared: discount_t is the discount of the whole transition": lambda t: t._replace(gamma=t.gamma**2),
}
"""The right operator of the wrong transitions."""


def with_next_value(b: Backup, t: Batch, v: Any, next_gap: Any) -> Backup:
    """Return the backup with other values of x', as if they were V(x'), and another next gap where x' is not terminal."""
    bellman = t.r_t + b.gamma * v
    return b._replace(bellman=bellman, again=bellman - (b.bellman - b.again), next_gap=where(b.gamma != 0, next_gap, 0.0))


def with_returned(b: Backup, t: Batch, target: Any) -> Backup:
    """Return the backup with another target where x' is x."""
    return b._replace(bellman=where(t.returned, target, b.bellman), again=where(t.returned, target, b.again))


def best(q: Any) -> Any:
    """Return the maximum of each row."""
    return q.max(axis=-1)


def with_value(b: Backup, v: Any) -> Backup:
    """Return the backup with another V(x)."""
    return b._replace(v=v, gap=v - b.q, again=where(b.again != b.bellman, b.bellman - b.gamma * (v - b.q), b.again))


UNMASKED: dict[str, Callable[[Backup, Batch], Backup]] = {
    "the persistence term is not masked at terminal states: V(x') - Q(x', a) counts as 0 there": (
        lambda b, t: b._replace(next_gap=best(t.q_t) - chosen(t.q_t, t.a_tm1))
    ),
    "the persistence term is not masked at terminal states: r + gamma Q(x', a) is r there": (
        lambda b, t: b._replace(repeat=t.r_t + t.gamma * chosen(t.q_t, t.a_tm1))
    ),
    "the persistence term is not masked at terminal states: its gap at x' is discounted there too": (
        lambda b, t: b._replace(repeat=b.bellman - t.gamma * (best(t.q_t) - chosen(t.q_t, t.a_tm1)))
    ),
}
"""Persistence terms that are not masked, as `BACKUPS`."""

BACKUPS: dict[str, Callable[[Backup, Batch], Backup]] = {
    **UNMASKED,
    "the returned action is not masked at terminal states": lambda b, t: b._replace(again=b.bellman - t.gamma * t.returned * b.gap),
    "the discount is missing in the persistence term r + gamma Q(x', a)": (
        lambda b, t: b._replace(repeat=t.r_t + where(b.gamma != 0, chosen(t.q_t, t.a_tm1), 0.0))
    ),
    "the discount is missing where x' is x (returned)": (lambda b, t: with_returned(b, t, t.r_t + where(b.gamma != 0, b.q, 0.0))),
    "the discount is missing where x' is x (returned), at terminal states too": lambda b, t: with_returned(b, t, t.r_t + b.q),
    "returned is reversed: it repeats the action where x' is not x": (
        lambda b, t: b._replace(bellman=where(t.returned, b.bellman, b.repeat), again=where(t.returned, b.bellman, b.repeat))
    ),
    "where x' is x (returned), it takes Q(x, a) from the online network instead of the target network": (
        lambda b, t: with_returned(b, t, t.r_t + b.gamma * chosen(t.online_q_tm1, t.a_tm1))
    ),
    "where x' is not x, it takes V(x') from the online network instead of the target network": (
        lambda b, t: with_returned(with_next_value(b, t, best(t.online_q_t), b.next_gap), t, b.again)
    ),
    "terminal states are ignored where x' is x (returned)": lambda b, t: with_returned(b, t, t.r_t + t.gamma * b.q),
    "the reward is missing in the persistence term r + gamma Q(x', a)": lambda b, t: b._replace(repeat=b.repeat - t.r_t),
    "the persistence term takes the action greedy at x instead of the replayed one, a_tm1": (
        lambda b, t: b._replace(
            next_gap=where(b.gamma != 0, best(t.q_t) - chosen(t.q_t, greedy(t.q_tm1)), 0.0),
            repeat=t.r_t + b.gamma * chosen(t.q_t, greedy(t.q_tm1)),
        )
    ),
    "it bootstraps with the action greedy at x instead of the one greedy at x'": (
        lambda b, t: with_next_value(b, t, chosen(t.q_t, greedy(t.q_tm1)), chosen(t.q_t, greedy(t.q_tm1)) - chosen(t.q_t, t.a_tm1))
    ),
    "it bootstraps with the action greedy at x instead of the one greedy at x', except in the persistence term": (
        lambda b, t: with_next_value(b, t, chosen(t.q_t, greedy(t.q_tm1)), b.next_gap)
    ),
    "it bootstraps with the online network's greedy action, as Double DQN does": (
        lambda b, t: with_next_value(b, t, chosen(t.q_t, greedy(t.online_q_t)), b.next_gap)
    ),
    "it takes the online network's greedy action at x', as Double DQN does": (
        lambda b, t: with_next_value(
            b, t, chosen(t.q_t, greedy(t.online_q_t)), chosen(t.q_t, greedy(t.online_q_t)) - chosen(t.q_t, t.a_tm1)
        )
    ),
    "the persistence term takes the greedy action instead of the replayed one, a_tm1, and the greedy action is the online network's": (
        lambda b, t: with_next_value(b, t, chosen(t.q_t, greedy(t.online_q_t)), best(t.q_t) - chosen(t.q_t, greedy(t.online_q_t)))._replace(
            repeat=t.r_t + b.gamma * chosen(t.q_t, greedy(t.online_q_t))
        )
    ),
    "the persistence term takes the greedy action instead of the replayed one, a_tm1, so that Double DQN is left": (
        lambda b, t: with_next_value(b, t, chosen(t.q_t, greedy(t.online_q_t)), 0.0)._replace(
            repeat=t.r_t + b.gamma * chosen(t.q_t, greedy(t.online_q_t))
        )
    ),
    "the persistence term takes the online network's greedy action instead of the replayed one, a_tm1": (
        lambda b, t: b._replace(
            next_gap=where(b.gamma != 0, best(t.q_t) - chosen(t.q_t, greedy(t.online_q_t)), 0.0),
            repeat=t.r_t + b.gamma * chosen(t.q_t, greedy(t.online_q_t)),
        )
    ),
    "the correction takes the values of x' from the online network instead of the target network": (
        lambda b, t: from_online(b, t, at_x=False, at_next=True)
    ),
    "the correction takes its values from the online network instead of the target network": (
        lambda b, t: from_online(b, t, at_x=True, at_next=True)
    ),
    "the correction takes Q(x, a) from the online network and V(x) from the target network": (
        lambda b, t: b._replace(q=chosen(t.online_q_tm1, t.a_tm1), gap=b.v - chosen(t.online_q_tm1, t.a_tm1))
    ),
    "the correction takes V(x) from the online network and Q(x, a) from the target network": (
        lambda b, t: with_value(b, best(t.online_q_tm1))
    ),
    "it bootstraps from the online network, and takes the correction from the target network": (
        lambda b, t: with_next_value(b, t, best(t.online_q_t), b.next_gap)
    ),
    "the gap at x is added instead of subtracted: its sign, or that of alpha, is wrong": lambda b, t: b._replace(gap=-b.gap),
    "the gap at x is multiplied by the discount": lambda b, t: b._replace(gap=b.gamma * b.gap),
    "the gap at x is multiplied by the discount, at terminal states too": lambda b, t: b._replace(gap=t.gamma * b.gap),
    "the gap at x is that between the best two actions instead of V(x) - Q(x, a)": (
        lambda b, t: b._replace(gap=b.v - np.sort(t.q_tm1, axis=-1)[:, -2])
    ),
    "the correction takes V(x') instead of V(x)": lambda b, t: with_value(b, best(t.q_t)),
    "the correction takes Q(x', a) instead of Q(x, a)": lambda b, t: b._replace(gap=b.v - chosen(t.q_t, t.a_tm1)),
    "V(x) is the maximum over the whole batch: take it over actions, with axis=-1": lambda b, t: with_value(b, t.q_tm1.max()),
    "V(x') is the maximum over the whole batch: take it over actions, with axis=-1": (
        lambda b, t: with_next_value(b, t, t.q_t.max(), t.q_t.max() - chosen(t.q_t, t.a_tm1))
    ),
    "V(x) and V(x') are maxima over the whole batch: take them over actions, with axis=-1": (
        lambda b, t: with_next_value(with_value(b, t.q_tm1.max()), t, t.q_t.max(), t.q_t.max() - chosen(t.q_t, t.a_tm1))
    ),
    "V(x) is the mean over actions instead of the maximum": lambda b, t: with_value(b, t.q_tm1.mean(axis=-1)),
    "V(x') is the mean over actions instead of the maximum": (
        lambda b, t: with_next_value(b, t, t.q_t.mean(axis=-1), t.q_t.mean(axis=-1) - chosen(t.q_t, t.a_tm1))
    ),
    "V(x') is the minimum over actions instead of the maximum": (
        lambda b, t: with_next_value(b, t, t.q_t.min(axis=-1), t.q_t.min(axis=-1) - chosen(t.q_t, t.a_tm1))
    ),
}
"""The right operator of the wrong backup."""


def from_online(b: Backup, t: Batch, *, at_x: bool, at_next: bool) -> Backup:
    """Return the backup with the gaps of the online network's values, and the Bellman target of the target network's."""
    other = backup_of(t._replace(q_tm1=t.online_q_tm1, q_t=t.online_q_t))
    fields = {"q": other.q, "v": other.v, "gap": other.gap} if at_x else {}
    return b._replace(**fields, **({"next_gap": other.next_gap, "repeat": other.repeat} if at_next else {}))


def mistakes(operator: Operator) -> Iterator[Mistake]:
    """Yield the known mistakes that apply to an operator, the simplest first.

    Examples
    --------
    >>> next(mistakes(parse("munchausen:0.03,0.9"))).sentence
    'the log-policy term is missing, or clipped on the wrong side so that 0 is left: clip tau log pi to [low, 0]'
    """
    name, numbers = numbers_of(operator)
    temperature = operator.temperature
    sentence, plain = base(operator)
    yield Mistake(sentence, lambda t: plain(backup_of(t, temperature)))
    for sentence, formula in FORMULAS.get(name, {}).items():
        yield Mistake(sentence, lambda t, formula=formula: formula(backup_of(t, temperature), *numbers))
    for other in others(name, numbers):
        yield Mistake(f"it computes {other.name}, not {operator.name}", lambda t, other=other: t.target(other))
    for other in others(name, numbers):
        if {name, other.name.partition(":")[0]} == {"pal", "pal-dqn"}:
            for sentence, replace in UNMASKED.items():
                yield Mistake(
                    f"it computes {other.name}, not {operator.name}, and {sentence}",
                    lambda t, other=other, replace=replace: other(replace(backup_of(t), t)),
                )
    for sentence, wrong in CORRECTIONS.items():
        yield Mistake(sentence, lambda t, wrong=wrong: _wrongly_corrected(wrong, plain, operator, t))
    for sentence, change in INPUTS.items():
        yield Mistake(sentence, lambda t, change=change: change(t).target(operator))
    if temperature is None:
        for sentence, replace in BACKUPS.items():
            yield Mistake(sentence, lambda t, replace=replace: operator(replace(backup_of(t), t)))


def _wrongly_corrected(wrong: Callable[..., Any], plain: Callable[[Any], Any], operator: Operator, t: Batch) -> Any:
    b = backup_of(t, operator.temperature)
    return wrong(b, t, plain(b), operator(b))


def numbers_of(operator: Operator) -> tuple[str, tuple[float, ...]]:
    """Return the name and the numbers in the text of an operator; no numbers for users' own.

    Examples
    --------
    >>> numbers_of(parse("munchausen:0.03,0.9"))
    ('munchausen', (0.03, 0.9))
    """
    name, _, rest = operator.name.partition(":")
    try:
        return name, tuple(float(number) for number in rest.split(",")) if rest else ()
    except ValueError:
        return operator.name, ()


def others(name: str, numbers: tuple[float, ...]) -> Iterator[Operator]:
    """Yield the other operators of the paper's family, with the same alpha if this one has an alpha.

    Examples
    --------
    >>> [other.name for other in others("al", (0.9,))]
    ['bellman', 'consistent', 'pal:0.9', 'pal-dqn:0.9', 'lazy:0.9']
    """
    for other in FAMILY:
        if other in ("bellman", "consistent") and other != name:
            yield parse(other)
        elif numbers and other not in ("bellman", "consistent", "baird", name):
            # The second number of munchausen is its alpha; the first of others.
            yield parse_quietly(f"{other}:{numbers[name == 'munchausen']!r}")


def parse_quietly(text: str) -> Operator:
    """Parse an operator without a warning about its numbers, which the user did not choose.

    Examples
    --------
    >>> parse_quietly("al:1.5").name
    'al:1.5'
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return parse(text)


class Fit(NamedTuple):
    """A mistake with an unknown number: its sentence, in which {0} stands for the number, and the targets for each number."""

    sentence: str
    targets: Callable[[float, Batch], Any]
    guesses: tuple[float, ...]
    """Numbers to try first."""


STARTS, STEPS, ROWS = (0.25, 0.75), 12, 4
"""The secant method: where it starts, its steps, and on how many transitions it is tried."""
TENTHS = tuple(number / 10 for number in range(11))
DISCOUNTS = (0.99, 0.9, 0.95, 0.98, 0.97, 0.995, 0.999, 0.5, 1.0, 0.0)


def fits(operator: Operator, done_flag: bool) -> Iterator[Fit]:
    """Yield the mistakes with a number of an operator: another alpha, another discount.

    `done_flag` says whether the function is given a done flag instead of the discount of each transition.

    Examples
    --------
    >>> [fit.sentence.format(0.5) for fit in fits(parse("al:0.9"), done_flag=True)][0]
    'it behaves like al:0.5: another number than 0.9'
    """
    name, numbers = numbers_of(operator)
    for place, number in enumerate(numbers):
        text = ",".join("{0!r}" if k == place else repr(other) for k, other in enumerate(numbers))
        sentence = f"it behaves like {name}:{text}: another number than {number!r}"
        yield Fit(sentence, lambda guess, t, text=text: t.target(parse_quietly(f"{name}:{text.format(guess)}")), TENTHS)
    for other in ("al", "pal", "pal-dqn"):
        if other != name:
            sentence = f"it computes {other}:{{0!r}}, not {operator.name}"
            yield Fit(sentence, lambda guess, t, other=other: t.target(parse_quietly(f"{other}:{guess!r}")), TENTHS)
    if done_flag:
        yield _discount_fit(operator)
        return
    constants: dict[str, Callable[[Batch, float], Any]] = {
        "terminal states are ignored: the discount is {0!r} everywhere, so use discount_t, which is 0 at terminal states": (
            lambda t, guess: np.full_like(t.gamma, guess)
        ),
        "terminal states are ignored: the discount is {0!r} where discount_t is 0": lambda t, guess: where(t.terminated, guess, t.gamma),
        "the discount is {0!r} wherever discount_t is not 0: use discount_t itself": lambda t, guess: where(t.terminated, 0.0, guess),
        "discount_t is taken for a done flag and {0!r} for the discount: call the parameter done if it is one": (
            lambda t, guess: guess * (1.0 - t.discount_t)
        ),
        "discount_t is multiplied by {0!r}": lambda t, guess: guess * t.discount_t,
    }
    for sentence, discount in constants.items():
        yield Fit(
            sentence,
            lambda guess, t, discount=discount: t._replace(gamma=discount(t, guess), terminated=np.zeros_like(t.terminated)).target(
                operator
            ),
            DISCOUNTS,
        )


def _discount_fit(operator: Operator) -> Fit:
    """Return the fit of one discount for all transitions."""

    def targets(guess: float, t: Batch) -> Any:
        return t._replace(gamma=np.full_like(t.gamma, guess)).target(operator)

    return Fit("the discount is {0!r} instead of gamma: if it is meant to be, check with gamma={0!r}", targets, DISCOUNTS)


class Answers(NamedTuple):
    """What a function returned for all transitions, one after the other."""

    catalogue: tuple[Batch, ...]
    values: Any
    tolerance: Any
    """How far a number may be from the right one."""
    subtracted: Any
    """What the function subtracts from its target: Q(x, a) if it returns the TD error, and 0 otherwise."""
    done_flag: bool
    """Whether the function takes a done flag instead of the discount of each transition."""

    def error(self, targets: Callable[[Batch], Any]) -> Any:
        """Return by how much the answers differ from those of a function with these targets."""
        with np.errstate(all="ignore"):
            right = [np.broadcast_to(targets(t), t.a_tm1.shape) for t in self.catalogue]
            return np.concatenate(right) - self.subtracted - self.values

    def match(self, targets: Callable[[Batch], Any]) -> bool:
        """Whether the answers are those of a function with these targets, on all transitions."""
        return bool((abs(self.error(targets)) <= self.tolerance).all())


def explain(operator: Operator, answers: Answers) -> str | None:
    """Return the simplest mistake that leads to these answers, as a sentence; None if no known mistake does.

    Examples
    --------
    >>> from actiongap.api.transitions import catalogue
    >>> transitions = catalogue(0.9)
    >>> bellman = np.concatenate([t.target("bellman") for t in transitions])
    >>> explain(parse("consistent"), Answers(transitions, bellman, 1e-9, 0.0, done_flag=True))
    "this is plain Bellman: it does not repeat the action where x' is x (returned)"
    """
    for mistake in mistakes(operator):
        if _attempt(answers.match, mistake.targets):
            return mistake.sentence
    for fit in fits(operator, answers.done_flag):
        for guess in (*fit.guesses, *_roots(fit, answers)):
            if _attempt(answers.match, partial(fit.targets, guess)):
                return fit.sentence.format(guess)
    return None


def fitted_discount(operator: Operator, answers: Answers) -> float | None:
    """Return the discount that a function with a done flag uses if its answers are right but for the discount; None if they are not.

    Examples
    --------
    >>> from actiongap.api.transitions import catalogue
    >>> transitions = catalogue(0.99)
    >>> values = np.concatenate([t._replace(gamma=np.full(49, 0.9)).target("bellman") for t in transitions])
    >>> fitted_discount(parse("bellman"), Answers(transitions, values, 1e-9, 0.0, done_flag=True))
    0.9
    """
    fit = _discount_fit(operator)
    guesses = (guess for guess in (*fit.guesses, *_roots(fit, answers)) if 1e-3 < guess <= 1)
    return next((guess for guess in guesses if _attempt(answers.match, partial(fit.targets, guess))), None)


def _attempt(function: Callable[[Callable[[Batch], Any]], Any], targets: Callable[[Batch], Any]) -> Any:
    """Call a function with the targets of a mistake; None where they cannot be computed, for example for a negative alpha.

    A user's operator may have the name of an operator of the tables, without its numbers.
    """
    try:
        return function(targets)
    except (TypeError, ValueError, AttributeError, ArithmeticError):
        return None


def _roots(fit: Fit, answers: Answers) -> Iterator[float]:
    """Yield candidates for the number of a fit: those that agree on one transition, found by the secant method."""

    def error(number: float) -> Any:
        return _attempt(answers.error, partial(fit.targets, number))

    ends = error(STARTS[0]), error(STARTS[1])
    if ends[0] is None or ends[1] is None:
        return
    # Transitions on which the number matters, from most to least.
    matters = [row for row in np.argsort(-abs(ends[1] - ends[0])).tolist() if ends[0][row] != ends[1][row]]
    for row in matters[:: max(len(matters) // ROWS, 1)]:
        (old, old_error), (new, new_error) = zip(STARTS, (float(end[row]) for end in ends), strict=True)
        for _ in range(STEPS):
            if new_error in (0.0, old_error) or not np.isfinite(new_error):
                break
            old, old_error, new = new, new_error, new - new_error * (new - old) / (new_error - old_error)
            found = error(new)
            if found is None:
                break
            new_error = float(found[row])
        # A number with few digits was more likely written than one within rounding of it.
        short = float(f"{new:.7g}")
        yield short if abs(short - new) < 1e-9 else new
