"""A sampled transition becomes a backup, for one transition or a batch, in any array library.

There is no done flag: `discount_t` is zero where the next state is terminal, and a time limit is no terminal. Every value comes from the
same Q-function; for DQN pass the target network's values for both `q_tm1` and `q_t`, and regress the online Q(x, a) on the target.

On samples the consistent operator and advantage learning are exact: the mean of their sampled targets is the operator. `persistent`,
`persistent_dqn` and `lazy` are not linear in the next state, so the mean of their samples is a different operator.
"""

from __future__ import annotations

from array_api_compat import array_namespace

from actiongap.operators import Backup, Operator, backup


def sampled_backup(q_tm1, a_tm1, r_t, discount_t, q_t, *, returned=False, v_tm1=None, v_t=None) -> Backup:
    """The backup of sampled transitions (x, a, r, x').

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
        Whether x' is x; only the consistent operator looks at it.
    v_tm1, v_t
        Values of x and x' under a fixed policy, in place of the maxima: Q(x', a') for SARSA, sum_b pi(b | x') Q(x', b) for expected SARSA.

    Examples
    --------
    >>> import numpy as np
    >>> sampled_backup(np.array([0.0, 2.0]), 0, 1.0, 0.5, np.array([4.0, 3.0])).bellman.item()
    3.0
    """
    xp = array_namespace(q_tm1, q_t)
    v_tm1 = xp.max(q_tm1, axis=-1) if v_tm1 is None else v_tm1
    v_t = xp.max(q_t, axis=-1) if v_t is None else v_t
    # The action's value at a terminal next state counts for nothing: with a zero discount only `next_gap` could still show it.
    alive = discount_t != 0
    return backup(discount_t, r_t, _chosen(q_tm1, a_tm1), v_tm1, v_t * alive, _chosen(q_t, a_tm1) * alive, returned * 1.0)


def td_target(operator: Operator, q_tm1, a_tm1, r_t, discount_t, q_t, *, returned=False, v_tm1=None, v_t=None):
    """What the operator would have Q(x, a) be, given sampled transitions.

    Examples
    --------
    >>> import numpy as np
    >>> from actiongap.operators import advantage
    >>> td_target(advantage(0.5), np.array([0.0, 2.0]), 0, 1.0, 0.5, np.array([4.0, 3.0])).item()
    2.0
    """
    return operator(sampled_backup(q_tm1, a_tm1, r_t, discount_t, q_t, returned=returned, v_tm1=v_tm1, v_t=v_t))


def _chosen(q, a):
    xp = array_namespace(q)
    return xp.take_along_axis(q, xp.asarray(a)[..., None], axis=-1)[..., 0]
