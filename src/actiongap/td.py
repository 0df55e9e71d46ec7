"""TD targets: the backup of sampled transitions, and the target that an operator makes of it.

The functions accept one transition in plain floats, or any number of transitions in any array library. There is no done flag: the discount
is zero where the next state is terminal; truncation at a time limit does not make a state terminal. All values come from the same
Q-function. For DQN, pass the target network's values for both `q_tm1` and `q_t`, and regress the online Q(x, a) on the target.

A target is a constant: no gradient flows through `td_target`, in JAX or in PyTorch. In PyTorch, evaluate the target network under
`torch.no_grad`, which avoids recording a graph that is then discarded. Gradients do flow through a backup:
`parse(operator)(sampled_backup(...))`. `torch.compile` makes one graph of either; parse the operator outside the compiled function.

The consistent operator and advantage learning are exact on samples: the mean of their sampled targets is the operator. `persistent`,
`persistent_dqn` and `lazy` are not linear in the next state, so the mean of their sampled targets is a different operator. It still
preserves optimality: each sample lies between r + gamma V(x') - alpha (V(x) - Q(x, a)) and r + gamma V(x'), so the mean does too, and
these bounds are the two conditions of the theorem.

Operators with a temperature depend on softmax policies and take a `SoftBackup`: see `actiongap.operators`.
"""

from __future__ import annotations

import math
from typing import Any

from array_api_compat import is_jax_array

from actiongap.maths import is_tensor, namespace, where
from actiongap.operators import AnyOperator, Backup, SoftBackup, backup, fixed_policy_backup, parse, persistent_dqn


def transition_backup(
    q: Any, v: Any, reward: Any, discount: Any, next_v: Any, next_q: Any, stay: Any, *, fixed_policy: bool = False
) -> Backup:
    """Compute the backup of sampled transitions from Q(x, a), V(x), V(x') and Q(x', a), as floats or arrays.

    Values of a terminal x' are ignored.

    Parameters
    ----------
    q, v
        Q(x, a) and V(x).
    reward, discount
        The reward, and the discount; the discount is 0 where x' is terminal.
    next_v, next_q
        V(x') and Q(x', a); any value where x' is terminal.
    stay
        1 where x' is x, and 0 elsewhere.
    fixed_policy
        Whether V is the value of a policy and not the maximum of Q. Gaps may then be negative: see `fixed_policy_backup`.

    Examples
    --------
    >>> transition_backup(q=0.0, v=2.0, reward=1.0, discount=0.0, next_v=4.0, next_q=3.0, stay=0.0).next_gap
    0.0
    """
    # where, not multiplication by zero: a network may return infinity for an observation that it is never trained on.
    alive = discount != 0
    make = fixed_policy_backup if fixed_policy else backup
    return make(discount, reward, q, v, where(alive, next_v, 0.0), where(alive, next_q, 0.0), stay)


def sampled_backup(
    q_tm1: Any, a_tm1: Any, r_t: Any, discount_t: Any, q_t: Any, *, returned: Any = False, v_tm1: Any = None, v_t: Any = None
) -> Backup:
    """Compute the backup of sampled transitions (x, a, r, x') from arrays of Q(x, .) and Q(x', .).

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
        Whether x' is x. Only the consistent operator uses it. It has no effect where x' is terminal.
    v_tm1, v_t
        Values of x and x' instead of the maxima. `v_tm1` is the value of a fixed policy, sum_b pi(b | x) Q(x, b): if it is given, the gap
        of an action that is better than the policy is negative, so that `al` keeps V^pi (`fixed_policy_backup`). With `v_t` alone, as in
        double Q-learning, gaps are clipped at zero.

    Examples
    --------
    >>> import numpy as np
    >>> sampled_backup(np.array([0.0, 2.0]), 0, 1.0, 0.5, np.array([4.0, 3.0])).bellman.item()
    3.0
    """
    for name, given in {"q_tm1": q_tm1, "q_t": q_t}.items():
        if not hasattr(given, "shape"):
            raise TypeError(f"{name} is a {type(given).__name__}: pass an array of NumPy, JAX or PyTorch, with the values of all actions")
    xp = namespace(q_tm1, q_t)
    if q_tm1.shape != q_t.shape:
        raise ValueError(f"q_tm1 has shape {tuple(q_tm1.shape)} and q_t {tuple(q_t.shape)}: pass the values of all actions for both")
    batch = tuple(q_t.shape[:-1])
    actions = xp.asarray(a_tm1)
    if not is_tensor(actions) and actions.dtype.kind not in "iu":
        raise ValueError(f"a_tm1 has type {actions.dtype}: pass the numbers of the actions, an array of integers")
    _check_shape("a_tm1", actions, batch, number=False)
    for name, given in {"r_t": r_t, "discount_t": discount_t, "returned": returned, "v_tm1": v_tm1, "v_t": v_t}.items():
        _check_shape(name, given, batch)
    fixed_policy = v_tm1 is not None
    v_tm1 = xp.max(q_tm1, axis=-1) if v_tm1 is None else v_tm1
    v_t = xp.max(q_t, axis=-1) if v_t is None else v_t
    # Adding zero turns numbers and booleans into arrays with the shape, dtype and device of Q.
    zero = xp.zeros_like(q_t[..., 0])
    return transition_backup(
        _select_action(q_tm1, a_tm1),
        v_tm1 + zero,
        r_t + zero,
        discount_t + zero,
        v_t + zero,
        _select_action(q_t, a_tm1),
        returned + zero,
        fixed_policy=fixed_policy,
    )


def soft_backup(q_tm1: Any, a_tm1: Any, r_t: Any, discount_t: Any, q_t: Any, *, temperature: float, returned: Any = False) -> SoftBackup:
    """Compute the backup of sampled transitions, with quantities of the policy softmax(Q / temperature) at x and x'.

    The parameters are those of `sampled_backup`.

    Examples
    --------
    >>> import numpy as np
    >>> soft_backup(np.array([3.0, 3.0]), 0, 1.0, 0.5, np.array([4.0, 4.0]), temperature=0.1).mean_bellman.item()
    3.0
    """
    b = sampled_backup(q_tm1, a_tm1, r_t, discount_t, q_t, returned=returned)
    log_policy, soft, mean = _softmax(q_tm1, temperature)
    # Zeros where x' is terminal, for the same reason as in `transition_backup`; the zero discount removes them from the target.
    _, next_soft, next_mean = _softmax(where((b.gamma != 0)[..., None], q_t, 0.0), temperature)
    # The log of a mean is that of a sum minus that of the number of actions.
    entropy = temperature * math.log(q_t.shape[-1])
    soft_bellman = r_t + b.gamma * next_soft
    mellow, mellow_bellman = soft - entropy, soft_bellman - b.gamma * entropy
    return SoftBackup(*b, _select_action(log_policy, a_tm1), mean, r_t + b.gamma * next_mean, soft_bellman, mellow, mellow_bellman)


def td_target(
    operator: AnyOperator,
    q_tm1: Any,
    a_tm1: Any,
    r_t: Any,
    discount_t: Any,
    q_t: Any,
    *,
    returned: Any = None,
    v_tm1: Any = None,
    v_t: Any = None,
) -> Any:
    """Compute the target of an operator for Q(x, a) from sampled transitions; no gradient flows through it.

    `operator` is an `Operator`, a string, or any function of a `Backup`; the other parameters are those of `sampled_backup`. A random
    operator must be sampled by the caller: `parse("rso:0,1").at(u)`. An operator with a temperature is applied to a `soft_backup`.
    `consistent` requires `returned`; without it, it would equal the Bellman operator. A function of your own that reads `again` needs
    `returned` too, but this is not checked.

    Examples
    --------
    >>> import numpy as np
    >>> td_target("al:0.5", np.array([0.0, 2.0]), 0, 1.0, 0.5, np.array([4.0, 3.0])).item()
    2.0
    """
    operator = parse(operator)
    if returned is None and operator.reads_again:
        raise ValueError(f"{operator} depends on whether x' is x: pass returned, a boolean array, or returned=False if x' is never x")
    returned = False if returned is None else returned
    if operator.temperature is None:
        return _constant(operator(sampled_backup(q_tm1, a_tm1, r_t, discount_t, q_t, returned=returned, v_tm1=v_tm1, v_t=v_t)))
    if v_tm1 is not None or v_t is not None:
        raise ValueError(f"{operator} uses the policy softmax(Q / {operator.temperature!r}): leave out v_tm1 and v_t")
    return _constant(operator(soft_backup(q_tm1, a_tm1, r_t, discount_t, q_t, temperature=operator.temperature, returned=returned)))


def persistent_q_learning(
    q_tm1: Any,
    a_tm1: Any,
    r_t: Any,
    discount_t: Any,
    q_t: Any,
    action_gap_scale: float,
    stop_target_gradients: bool = True,
    *,
    target_q_tm1: Any = None,
) -> Any:
    """TD error of persistent advantage learning: r + gamma V(x') - alpha min(V(x) - Q(x, a), V(x') - Q(x', a)) - Q(x, a).

    The operator is `pal-dqn:ALPHA`, the form that the paper uses in DQN. The signature is that of `persistent_q_learning` in RLax and TRFL.
    Their target is r + gamma ((1 - alpha) V(x') + alpha Q(x', a)), which has another fixed point, whose greedy policy need not be optimal.
    The two targets are equal where V(x') - Q(x', a) is the smaller gap and their alpha is ours divided by gamma; elsewhere their target is
    lower. Gradients flow through the subtracted Q(x, a) only.

    Parameters
    ----------
    q_tm1, a_tm1, r_t, discount_t, q_t
        As in `sampled_backup`: one transition, which `jax.vmap` can map, or a batch.
    action_gap_scale
        alpha, a number.
    stop_target_gradients
        Whether the target is a constant; if False, gradients flow through it as well.
    target_q_tm1
        Q(x, .) of the target network, if `q_t` comes from it. By default the gap at x is computed from `q_tm1`.

    Examples
    --------
    >>> import numpy as np
    >>> persistent_q_learning(np.array([1.0, 3.0]), 0, 0.5, 0.5, np.array([3.0, 4.0]), 0.5).item()
    1.0
    """
    target_q_tm1 = q_tm1 if target_q_tm1 is None else target_q_tm1
    target = persistent_dqn(action_gap_scale)(sampled_backup(target_q_tm1, a_tm1, r_t, discount_t, q_t))
    return (_constant(target) if stop_target_gradients else target) - _select_action(q_tm1, a_tm1)


def _constant(x) -> Any:
    """The same values, without gradients."""
    if is_tensor(x):
        return x.detach()
    if is_jax_array(x):
        from jax.lax import stop_gradient

        return stop_gradient(x)
    return x


def _softmax(q, temperature: float) -> tuple[Any, Any, Any]:
    """Return log pi, tau log sum_b exp(Q / tau) and sum_b pi Q for pi = softmax(Q / tau), without overflow."""
    xp = namespace(q)
    top = xp.max(q, axis=-1, keepdims=True)
    below = q - top
    weights = xp.exp(below / temperature)
    total = xp.sum(weights, axis=-1, keepdims=True)
    log_total = xp.log(total)
    mean = top + xp.sum(weights * below, axis=-1, keepdims=True) / total
    return below / temperature - log_total, (top + temperature * log_total)[..., 0], mean[..., 0]


def _check_shape(name: str, given: Any, batch: tuple[int, ...], number: bool = True) -> None:
    """Raise unless the shape is that of the batch, or a number is allowed: a column would broadcast against a row into a matrix."""
    shape = tuple(getattr(given, "shape", ()))
    if shape != batch and not (number and shape == ()):
        expected = f"{'a number or ' if number else ''}an array of shape {batch}"
        raise ValueError(f"{name} has shape {shape}: pass {expected}, one value per transition")


def _select_action(q, a):
    xp = namespace(q)
    return xp.take_along_axis(q, xp.asarray(a)[..., None], axis=-1)[..., 0]
