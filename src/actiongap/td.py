"""A sampled transition becomes a backup: for one transition in plain floats, or for any number of them in any array library.

There is no done flag: the discount is zero where the next state is terminal, and a time limit is no terminal. Every value comes from the
same Q-function; for DQN pass the target network's values for both `q_tm1` and `q_t`, and regress the online Q(x, a) on the target.

On samples the consistent operator and advantage learning are exact: the mean of their sampled targets is the operator. `persistent`,
`persistent_dqn` and `lazy` are not linear in the next state, so the mean of their samples is a different operator. It preserves
optimality all the same: each sample lies between r + gamma V(x') - alpha (V(x) - Q(x, a)) and r + gamma V(x'), hence so does their mean,
and these are the two conditions of the theorem.

Operators with a temperature look at softmax policies, and get a backup that holds them: see `actiongap.relatives`.
"""

from __future__ import annotations

from typing import Any

from array_api_compat import array_namespace, is_torch_array

from actiongap.operators import AnyOperator, Backup, backup, parse, where
from actiongap.relatives import SoftBackup


def transition_backup(q, v, reward, discount, next_v, next_q, stay) -> Backup:
    """The backup of sampled transitions from values looked up already, floats or arrays: nothing at a terminal next state counts.

    Parameters
    ----------
    q, v
        Q(x, a) and V(x).
    reward, discount
        What was paid, and the discount; 0 where x' is terminal.
    next_v, next_q
        V(x') and Q(x', a), whatever they are where x' is terminal.
    stay
        1 where x' is x, and 0 elsewhere.

    Examples
    --------
    >>> transition_backup(q=0.0, v=2.0, reward=1.0, discount=0.0, next_v=4.0, next_q=3.0, stay=0.0).next_gap
    0.0
    """
    # Chosen, not multiplied by zero: a network may answer anything, even infinity, for an observation that it never trains on.
    alive = discount != 0
    return backup(discount, reward, q, v, where(alive, next_v, 0.0), where(alive, next_q, 0.0), stay)


def sampled_backup(q_tm1, a_tm1, r_t, discount_t, q_t, *, returned: Any = False, v_tm1=None, v_t=None) -> Backup:
    """The backup of sampled transitions (x, a, r, x') as arrays, looked up in Q(x, .) and Q(x', .).

    Parameters
    ----------
    q_tm1
        Q(x, .), shape (..., A).
    a_tm1
        The action taken, shape (...).
    r_t
        The reward received.
    discount_t
        The discount of the transition; 0 where x' is terminal.
    q_t
        Q(x', .), shape (..., A).
    returned
        Whether x' is x; only the consistent operator looks at it, and a terminal next state is no return whatever is said here.
    v_tm1, v_t
        Values of x and x' in place of the maxima, as for a fixed policy: sum_b pi(b | x) Q(x, b).

    Examples
    --------
    >>> import numpy as np
    >>> sampled_backup(np.array([0.0, 2.0]), 0, 1.0, 0.5, np.array([4.0, 3.0])).bellman.item()
    3.0
    """
    xp = array_namespace(q_tm1, q_t)
    v_tm1 = xp.max(q_tm1, axis=-1) if v_tm1 is None else v_tm1
    v_t = xp.max(q_t, axis=-1) if v_t is None else v_t
    # Numbers and booleans become arrays beside Q: of its shape, of its precision, on its device.
    zero = xp.zeros_like(q_t[..., 0])
    return transition_backup(
        _chosen(q_tm1, a_tm1), v_tm1 + zero, r_t + zero, discount_t + zero, v_t + zero, _chosen(q_t, a_tm1), returned + zero
    )


def soft_backup(q_tm1, a_tm1, r_t, discount_t, q_t, *, temperature: float, returned: Any = False) -> SoftBackup:
    """The backup of sampled transitions with what is seen of the policy softmax(Q / temperature) at both ends.

    The parameters are those of `sampled_backup`.

    Examples
    --------
    >>> import numpy as np
    >>> soft_backup(np.array([3.0, 3.0]), 0, 1.0, 0.5, np.array([4.0, 4.0]), temperature=0.1).mean_bellman.item()
    3.0
    """
    b = sampled_backup(q_tm1, a_tm1, r_t, discount_t, q_t, returned=returned)
    log_policy, _, mean = _softmax(q_tm1, temperature)
    # Of zeros where x' is terminal, for the same reason as in `transition_backup`; the discount keeps them out of every sum.
    _, next_soft, next_mean = _softmax(where((b.gamma != 0)[..., None], q_t, 0.0), temperature)
    return SoftBackup(*b, _chosen(log_policy, a_tm1), mean, r_t + b.gamma * next_mean, r_t + b.gamma * next_soft)


def td_target(operator: AnyOperator, q_tm1, a_tm1, r_t, discount_t, q_t, *, returned: Any = False, v_tm1=None, v_t=None):
    """What the operator would have Q(x, a) be, given sampled transitions.

    `operator` is an `Operator`, its text form, or any function of a `Backup`; the rest is what `sampled_backup` takes. One that draws a
    number at every update must be drawn by the caller: `parse("rso:0,1").at(u)`. One with a temperature gets a `soft_backup`.

    Examples
    --------
    >>> import numpy as np
    >>> td_target("al:0.5", np.array([0.0, 2.0]), 0, 1.0, 0.5, np.array([4.0, 3.0])).item()
    2.0
    """
    operator = parse(operator)
    if operator.temperature is None:
        return operator(sampled_backup(q_tm1, a_tm1, r_t, discount_t, q_t, returned=returned, v_tm1=v_tm1, v_t=v_t))
    if v_tm1 is not None or v_t is not None:
        raise ValueError(f"{operator} follows a policy of its own, softmax(Q / {operator.temperature!r}): leave out v_tm1 and v_t")
    return operator(soft_backup(q_tm1, a_tm1, r_t, discount_t, q_t, temperature=operator.temperature, returned=returned))


def _softmax(q, temperature: float) -> tuple[Any, Any, Any]:
    """The logarithm of pi, tau log sum_b exp(Q / tau) and sum_b pi Q for pi = softmax(Q / tau); nothing overflows."""
    xp = array_namespace(q)
    top = xp.max(q, axis=-1, keepdims=True)
    below = q - top
    weights = xp.exp(below / temperature)
    total = xp.sum(weights, axis=-1, keepdims=True)
    log_total = xp.log(total)
    mean = top + xp.sum(weights * below, axis=-1, keepdims=True) / total
    return below / temperature - log_total, (top + temperature * log_total)[..., 0], mean[..., 0]


def _chosen(q, a):
    xp = array_namespace(q)
    # PyTorch gathers with 64-bit indices on the device of the values, and with nothing else.
    index = xp.asarray(a, dtype=xp.int64, device=q.device) if is_torch_array(q) else xp.asarray(a)
    return xp.take_along_axis(q, index[..., None], axis=-1)[..., 0]
