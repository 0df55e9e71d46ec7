"""One sweep of an operator over a finite MDP, on three engines that give the same numbers.

A sweep replaces every Q(x, a) by (1 - eta) Q(x, a) + eta T'Q(x, a). It also returns what the stopping rule needs: the range of
d = max_a T Q - V over the states, and the largest change of an action gap.

- `arrays`: NumPy, block by block; any operator, small or dense models.
- `numba`: the operator inlined into one compiled loop over the sparse representation; large models on a CPU.
- `jax`: the array code compiled for an accelerator.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from array_api_compat import array_namespace

from actiongap._suggest import choose_from
from actiongap._system import install
from actiongap.mdp.model import FiniteMDP
from actiongap.mdp.transitions import Dense, Ragged, Transitions, as_ragged, as_sparse
from actiongap.operators import Backup, Operator, OperatorError, backup, fixed_policy_backup

EngineName = Literal["auto", "arrays", "numba", "jax"]


class Progress(NamedTuple):
    """Statistics of one sweep, for the stopping rule."""

    low: float
    """min_x [max_a T Q(x, a) - V(x)]."""
    high: float
    """max_x [max_a T Q(x, a) - V(x)]."""
    gap_change: float
    """The largest change of any action gap."""


class Iterate(NamedTuple):
    """A Q-function (S, A) and V(x) = max_a Q(x, a), as arrays of the engine.

    Where a pair does not exist, Q is V(x). So it has no gap, it does not change the maximum, and an action that is repeated in a state that
    does not have it is replaced by the best one.
    """

    q: Any
    v: Any


class Engine(NamedTuple):
    """An implementation of the sweep: `start` moves a Q-function to the engine's device, `sweep` maps an iterate to the next one.

    An engine may overwrite the Q-function passed to `start` and any iterate except the last two.
    """

    name: str
    start: Callable[[np.ndarray], Iterate]
    sweep: Callable[[Iterate], tuple[Iterate, Progress]]


def make_engine(mdp: FiniteMDP, operator: Operator, name: EngineName = "auto", eta: float = 1.0) -> Engine:
    """Make the engine for a model and an operator. `auto` selects by size, with arrays where Numba cannot compile the operator.

    An operator that changes with the sweep has an engine on arrays only, which counts its sweeps from 0.
    """
    if operator.schedule is not None:
        if name not in ("auto", "arrays"):
            raise ValueError(f"engine {name!r} cannot change the operator {operator} with the sweep: use engine='arrays'")
        return _array_engine(mdp, operator, eta)
    operator = operator.plain()
    if name == "auto":
        name = _select_engine(mdp)
        if name == "numba":
            return _numba_engine(mdp, operator, eta) or _array_engine(mdp, operator, eta)
    if name == "arrays":
        return _array_engine(mdp, operator, eta)
    if name == "jax":
        return _jax_engine(mdp, operator, eta)
    if name == "numba":
        engine = _numba_engine(mdp, operator, eta)
        if engine is None:
            raise ValueError(f"Numba cannot compile the operator {operator}: use engine='arrays'")
        return engine
    raise ValueError(f"unknown engine {name!r}: {choose_from(name, get_args(EngineName))}")


def backups(mdp: FiniteMDP, q: Any, v: Any = None, rows: slice = slice(None)) -> Backup:
    """Compute the backup of every pair (x, a) of the given states; each field is (rows, A). Numbers of missing pairs have no meaning.

    V is the maximum of Q. Pass `v`, the value of a policy in every state (S,), for a fixed policy; gaps may then be negative.

    Examples
    --------
    >>> from actiongap.mdp.generators import cake
    >>> backups(cake(), np.zeros((2, 2))).bellman[0].round(3).tolist()
    [1.0, 0.0]
    """
    now, make = start_iterate(mdp, np.asarray(q, dtype=float)), backup if v is None else fixed_policy_backup
    return _backups(mdp.rewards, mdp.transitions, mdp.gamma, now.q, now.v if v is None else v, rows, make)


def start_iterate(mdp: FiniteMDP, q: np.ndarray) -> Iterate:
    """Return the iterate of a Q-function, whatever its values at missing pairs are.

    Examples
    --------
    >>> one = FiniteMDP.from_dense([[1.0, 0.0]], [[[1.0], [1.0]]], gamma=0.5, available=[[True, False]])
    >>> start_iterate(one, np.array([[3.0, 7.0]])).q.tolist()
    [[3.0, 3.0]]
    """
    v = mdp.masked(q).max(axis=1)
    return Iterate(mdp.masked(q, v[:, None]), v)


def _backups(
    rewards, transitions: Transitions, gamma, q, v=None, rows: slice = slice(None), make: Callable[..., Backup] = backup
) -> Backup:
    xp = array_namespace(q)
    v = xp.max(q, axis=1) if v is None else v
    here = transitions.rows(rows)
    next_v, next_q, stay = here.expect(v), here.expect_same_action(q), here.stay(xp.arange(q.shape[0])[rows])
    return make(gamma, rewards[rows], q[rows], v[rows][:, None], next_v, next_q, stay)


def _advance(rewards, transitions, available, gamma, operator: Operator, eta: float, q, v, rows: slice = slice(None)):
    """Sweep over some states with array operations; returns their next Q and V, and the statistics."""
    xp = array_namespace(q)
    b = _backups(rewards, transitions, gamma, q, v, rows)
    target = _target(operator, b, xp)
    after = target if eta == 1.0 else (1.0 - eta) * b.q + eta * target
    bellman = b.bellman
    if available is None:
        v_after = xp.max(after, axis=1)
    else:
        here = available[rows]
        bellman = xp.where(here, bellman, -xp.inf)
        v_after = xp.max(xp.where(here, after, -xp.inf), axis=1)
        after = xp.where(here, after, v_after[:, None])
    d = xp.max(bellman, axis=1) - v[rows]
    change = xp.abs((v_after[:, None] - after) - (b.v - b.q))
    return after, v_after, Progress(xp.min(d), xp.max(d), xp.max(change))


def _target(operator: Operator, b: Backup, xp: Any) -> Any:
    value = operator(b)
    try:
        return xp.broadcast_to(value, b.bellman.shape)
    except ValueError:
        shape, wanted = getattr(value, "shape", ()), tuple(b.bellman.shape)
        remedy = "compute each number from the numbers at the same place of the backup"
        raise OperatorError(f"the operator {operator} returns shape {shape} for a backup of shape {wanted}: {remedy}") from None


BLOCK_ENTRIES = 1 << 22
"""Successor entries per block of the array engine, which limits the memory of temporaries."""


def _array_engine(mdp: FiniteMDP, operator: Operator, eta: float) -> Engine:
    slices = mdp.transitions.blocks(BLOCK_ENTRIES)
    model = mdp.rewards, mdp.transitions, mdp.available, mdp.gamma

    sweeps = itertools.count()

    def sweep(now: Iterate) -> tuple[Iterate, Progress]:
        after, v_after, seen = np.empty_like(now.q), np.empty_like(now.v), []
        current = operator.sweep(next(sweeps))
        for rows in slices:
            after[rows], v_after[rows], progress = _advance(*model, current, eta, now.q, now.v, rows)
            seen.append(progress)
        low, high, change = np.array(seen).T
        return Iterate(after, v_after), Progress(float(low.min()), float(high.max()), float(change.max()))

    return Engine("arrays", partial(start_iterate, mdp), sweep)


def _numba_engine(mdp: FiniteMDP, operator: Operator, eta: float) -> Engine | None:
    from actiongap.mdp._numba_sweep import make_kernel

    form = mdp.transitions
    # Missing pairs are rows without successors.
    transitions = mdp.sparse_transitions() if mdp.available is None and not isinstance(form, Ragged) else as_ragged(form, mdp.available)
    kernel = make_kernel(operator, transitions, eta)
    if kernel is None:
        return None
    spare = [Iterate(np.empty((mdp.states, mdp.actions)), np.empty(mdp.states))]

    def sweep(now: Iterate) -> tuple[Iterate, Progress]:
        # Double buffering: read from one buffer and write to the other.
        after = spare.pop()
        seen = kernel(mdp.gamma, mdp.rewards, tuple(transitions), *now, *after)
        spare.append(now)
        return after, Progress(float(seen[:, 0].min()), float(seen[:, 1].max()), float(seen[:, 2].max()))

    return Engine("numba", partial(start_iterate, mdp), sweep)


def _jax_engine(mdp: FiniteMDP, operator: Operator, eta: float) -> Engine:
    try:
        import jax
    except ImportError:
        raise ValueError(f"engine 'jax' needs JAX: {install('jax')}") from None
    with jax.enable_x64(True):
        rewards, transitions, available = jax.device_put((mdp.rewards, _padded(mdp), mdp.available))
        advance = jax.jit(partial(_advance, gamma=mdp.gamma, operator=operator, eta=eta))

    def start(q: np.ndarray) -> Iterate:
        with jax.enable_x64(True):
            return Iterate(*jax.device_put(start_iterate(mdp, q)))

    def sweep(now: Iterate) -> tuple[Iterate, Progress]:
        with jax.enable_x64(True):
            after, v_after, progress = advance(rewards, transitions, available, q=now.q, v=now.v)
            return Iterate(after, v_after), Progress(*map(float, jax.device_get(progress)))

    return Engine("jax", start, sweep)


def _padded(mdp: FiniteMDP) -> Transitions:
    """Return next-state distributions whose arrays can be moved to an accelerator."""
    form = mdp.transitions
    if isinstance(form, Ragged) and form.width * form.starts.size > max(MAX_PADDING * form.entries, ACCELERATE):
        raise ValueError(f"engine 'jax' pads every pair to {form.width} successors, which takes too much memory here: use engine='numba'")
    return as_sparse(form) if isinstance(form, Ragged) else form


MAX_PADDING = 4
"""Factor of memory that the engine `jax` may add to a large model whose pairs have different numbers of successors."""
SMALL = 1 << 16
"""Below this number of successor entries, sweeping with arrays takes less time than compiling a kernel."""
ACCELERATE = 1 << 22
"""Above this number of successor entries, moving the model to an accelerator pays off."""


def _select_engine(mdp: FiniteMDP) -> EngineName:
    entries = mdp.transitions.entries
    if entries >= ACCELERATE and not isinstance(mdp.transitions, Ragged) and _accelerator():
        return "jax"
    return "arrays" if entries < SMALL or isinstance(mdp.transitions, Dense) else "numba"


def _accelerator() -> bool:
    try:
        import jax

        return jax.default_backend() != "cpu"
    except (ImportError, RuntimeError):
        return False
