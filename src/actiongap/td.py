"""A sampled transition becomes a backup: for one transition in plain floats, or for any number of them in any array library.

There is no done flag: the discount is zero where the next state is terminal, and a time limit is no terminal. Every value comes from the
same Q-function; for DQN pass the target network's values for both `q_tm1` and `q_t`, and regress the online Q(x, a) on the target.

A target is a constant: no gradient flows through `td_target`, in JAX or in PyTorch, whatever its arguments hang on. (In PyTorch ask the
target network under `torch.no_grad`, which saves the work of recording what is then cut off.) Through a backup gradients do flow, for those
who want them: `parse(operator)(sampled_backup(...))`. `torch.compile` makes one graph of either; parse the operator before.

On samples the consistent operator and advantage learning are exact: the mean of their sampled targets is the operator. `persistent`,
`persistent_dqn` and `lazy` are not linear in the next state, so the mean of their samples is a different operator. It preserves
optimality all the same: each sample lies between r + gamma V(x') - alpha (V(x) - Q(x, a)) and r + gamma V(x'), hence so does their mean,
and these are the two conditions of the theorem.

Operators with a temperature look at softmax policies, and get a backup that holds them: see `actiongap.operators`.
"""

from __future__ import annotations

from typing import Any

from array_api_compat import is_jax_array

from actiongap.maths import is_tensor, namespace, where
from actiongap.operators import AnyOperator, Backup, SoftBackup, backup, parse, persistent_dqn


def transition_backup(q: Any, v: Any, reward: Any, discount: Any, next_v: Any, next_q: Any, stay: Any) -> Backup:
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


def sampled_backup(
    q_tm1: Any, a_tm1: Any, r_t: Any, discount_t: Any, q_t: Any, *, returned: Any = False, v_tm1: Any = None, v_t: Any = None
) -> Backup:
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
    xp = namespace(q_tm1, q_t)
    if q_tm1.shape != q_t.shape:
        raise ValueError(f"q_tm1 has the shape {tuple(q_tm1.shape)} and q_t {tuple(q_t.shape)}: give the values of all actions for both")
    batch = tuple(q_t.shape[:-1])
    _check_shape("a_tm1", xp.asarray(a_tm1), batch, number=False)
    for name, given in {"r_t": r_t, "discount_t": discount_t, "returned": returned, "v_tm1": v_tm1, "v_t": v_t}.items():
        _check_shape(name, given, batch)
    v_tm1 = xp.max(q_tm1, axis=-1) if v_tm1 is None else v_tm1
    v_t = xp.max(q_t, axis=-1) if v_t is None else v_t
    # Numbers and booleans become arrays beside Q: of its shape, of its precision, on its device.
    zero = xp.zeros_like(q_t[..., 0])
    return transition_backup(
        _chosen(q_tm1, a_tm1), v_tm1 + zero, r_t + zero, discount_t + zero, v_t + zero, _chosen(q_t, a_tm1), returned + zero
    )


def soft_backup(q_tm1: Any, a_tm1: Any, r_t: Any, discount_t: Any, q_t: Any, *, temperature: float, returned: Any = False) -> SoftBackup:
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
    """What the operator would have Q(x, a) be, given sampled transitions; a constant, through which no gradient flows.

    `operator` is an `Operator`, its text form, or any function of a `Backup`; the rest is what `sampled_backup` takes. One that draws a
    number at every update must be drawn by the caller: `parse("rso:0,1").at(u)`. One with a temperature gets a `soft_backup`. `consistent`
    asks for `returned`, without which it would be Bellman's; so does a function of your own that reads `again`, but it cannot be seen to.

    Examples
    --------
    >>> import numpy as np
    >>> td_target("al:0.5", np.array([0.0, 2.0]), 0, 1.0, 0.5, np.array([4.0, 3.0])).item()
    2.0
    """
    operator = parse(operator)
    if returned is None and operator.returns:
        raise ValueError(f"{operator} looks at whether x' is x: give returned, an array of truth values, or False if it never is")
    returned = False if returned is None else returned
    if operator.temperature is None:
        return _constant(operator(sampled_backup(q_tm1, a_tm1, r_t, discount_t, q_t, returned=returned, v_tm1=v_tm1, v_t=v_t)))
    if v_tm1 is not None or v_t is not None:
        raise ValueError(f"{operator} follows a policy of its own, softmax(Q / {operator.temperature!r}): leave out v_tm1 and v_t")
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
    """The error of persistent advantage learning: r + gamma V(x') - alpha min(V(x) - Q(x, a), V(x') - Q(x', a)) - Q(x, a).

    It has the signature of the function of that name in RLax and TRFL, which regress on r + gamma ((1 - alpha) V(x') + alpha Q(x', a))
    instead: that has another fixed point, whose greedy policy need not be optimal. This is `pal-dqn:ALPHA`, the form that the paper trains
    DQN with. The two agree where V(x') - Q(x', a) is the lesser gap and their alpha is ours over gamma; elsewhere theirs takes off more.
    Gradients flow through the Q(x, a) that is subtracted, and through nothing else.

    Parameters
    ----------
    q_tm1, a_tm1, r_t, discount_t, q_t
        As in `sampled_backup`: one transition, to be mapped by `jax.vmap`, or any number of them at once.
    action_gap_scale
        alpha, a number.
    stop_target_gradients
        Whether the target is a constant; if not, gradients flow through it as well.
    target_q_tm1
        What the target network says of x, where there is one and `q_t` comes from it; otherwise gaps at x are those of `q_tm1`.

    Examples
    --------
    >>> import numpy as np
    >>> persistent_q_learning(np.array([1.0, 3.0]), 0, 0.5, 0.5, np.array([3.0, 4.0]), 0.5).item()
    1.0
    """
    seen = q_tm1 if target_q_tm1 is None else target_q_tm1
    target = persistent_dqn(action_gap_scale)(sampled_backup(seen, a_tm1, r_t, discount_t, q_t))
    return (_constant(target) if stop_target_gradients else target) - _chosen(q_tm1, a_tm1)


def _constant(x) -> Any:
    """The same numbers, cut off from what they were made of."""
    if is_tensor(x):
        return x.detach()
    if is_jax_array(x):
        from jax.lax import stop_gradient

        return stop_gradient(x)
    return x


def _softmax(q, temperature: float) -> tuple[Any, Any, Any]:
    """The logarithm of pi, tau log sum_b exp(Q / tau) and sum_b pi Q for pi = softmax(Q / tau); nothing overflows."""
    xp = namespace(q)
    top = xp.max(q, axis=-1, keepdims=True)
    below = q - top
    weights = xp.exp(below / temperature)
    total = xp.sum(weights, axis=-1, keepdims=True)
    log_total = xp.log(total)
    mean = top + xp.sum(weights * below, axis=-1, keepdims=True) / total
    return below / temperature - log_total, (top + temperature * log_total)[..., 0], mean[..., 0]


def _check_shape(name: str, given: Any, batch: tuple[int, ...], number: bool = True) -> None:
    """Refuse what is not of this shape, nor a number where that will do: a column beside rows would become a matrix, unnoticed."""
    shape = tuple(getattr(given, "shape", ()))
    if shape != batch and not (number and shape == ()):
        wanted = f"{'a number or ' if number else ''}the shape {batch}"
        raise ValueError(f"{name} has the shape {shape}, where {wanted} is wanted: one for each transition")


def _chosen(q, a):
    xp = namespace(q)
    return xp.take_along_axis(q, xp.asarray(a)[..., None], axis=-1)[..., 0]
