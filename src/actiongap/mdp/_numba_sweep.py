"""The Numba kernel behind the `numba` engine: one pass over a sparse or ragged model with the operator inlined.

The kernel computes every field of a backup for each pair. LLVM removes the fields that the operator does not use, so a Bellman sweep
neither searches for self-loops nor gathers Q(x', a). A sweep is memory-bound: it streams the model once and gathers V at random indices.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from actiongap._numba import compile_function, compile_operator, fields_read
from actiongap.mdp.transitions import Ragged, Sparse
from actiongap.operators import Operator, backup

BLOCK = 1024
"""States per block; a thread processes one block at a time."""
CACHE_BYTES = 1 << 20
"""Approximate cache size of a core; prefetching pays off for a larger V that is accessed at random."""
AHEAD = 8
"""Number of states to prefetch ahead."""


def make_kernel(operator: Operator, transitions: Sparse | Ragged, eta: float) -> Any | None:
    """Compile a sweep for an operator and the shape of the transitions, or return None if Numba cannot compile the operator.

    The kernel maps `(gamma, rewards, transitions, q, v, q_after, v_after)` to one row per block of states of
    (low, high, gap_change), and fills `q_after` and `v_after`.
    """
    if isinstance(transitions, Ragged):
        actions, width = transitions.starts.shape[1], 0
    else:
        _, actions, width = transitions.successors.shape
    ahead = AHEAD if _scattered(transitions) else 0
    ahead_in_q = ahead if {"next_gap", "repeat"} & fields_read(operator) else 0
    return _compile(operator, actions, width, eta, ahead, ahead_in_q)


def _accessors(width: int) -> tuple[Any, Any]:
    """Return functions that compute the range of entries of a pair, and read an entry; rows are ragged if `width` is 0."""
    if width > 0:
        # A constant number of successors, so that loops over them are unrolled.
        return numba.njit(lambda transitions, x, a: (0, width)), numba.njit(
            lambda transitions, x, a, k: (transitions[0][x, a, k], transitions[1][x, a, k])
        )
    return numba.njit(lambda transitions, x, a: (transitions[0][x, a], transitions[1][x, a])), numba.njit(
        lambda transitions, x, a, k: (np.uint32(transitions[2][k]), transitions[3][k])
    )


@lru_cache(maxsize=64)
def _compile(operator: Operator, actions: int, width: int, eta: float, ahead: int, ahead_in_q: int) -> Any | None:
    """Compile the kernel for one shape. All parameters but the arrays are compile-time constants, so loops are unrolled."""
    apply = compile_operator(operator)
    if apply is None:
        return None
    bounds, entry = _accessors(width)
    ragged = width == 0
    make_backup = compile_function(backup)

    # Products may be fused with sums, which rounds less often. Reordering sums would turn the gathers into vector instructions, which are
    # slower than scalar loads.
    @numba.njit(parallel=True, error_model="numpy", fastmath={"contract", "nsz"})
    def kernel(gamma, rewards, transitions, q, v, q_after, v_after):
        states = rewards.shape[0]
        blocks = (states + BLOCK - 1) // BLOCK
        seen = np.empty((blocks, 3))
        for block in numba.prange(blocks):
            low, high, change, poison = np.inf, -np.inf, 0.0, 0.0
            for x in range(block * BLOCK, min(states, (block + 1) * BLOCK)):
                best, best_after = -np.inf, -np.inf
                least_move, most_move = np.inf, -np.inf
                far = min(x + ahead, states - 1)
                for a in range(actions):
                    if ahead > 0:
                        first, last = bounds(transitions, far, a)
                        for k in range(first, last):
                            _prefetch(v, np.uint64(entry(transitions, far, a, k)[0]))  # pyright: ignore[reportCallIssue]
                    if ahead_in_q > 0:
                        first, last = bounds(transitions, far, a)
                        for k in range(first, last):
                            _prefetch(q, np.uint64(entry(transitions, far, a, k)[0]) * actions + a)  # pyright: ignore[reportCallIssue]
                    first, last = bounds(transitions, x, a)
                    if ragged and first == last:
                        continue
                    next_v, next_q, stay = 0.0, 0.0, 0.0
                    for k in range(first, last):
                        successor, probability = entry(transitions, x, a, k)
                        next_v += probability * v[successor]
                        next_q += probability * q[successor, a]
                    for k in range(first, last):
                        successor, probability = entry(transitions, x, a, k)
                        stay += probability if successor == x else 0.0
                    b = make_backup(gamma, rewards[x, a], q[x, a], v[x], next_v, next_q, stay)
                    after = apply(b) if eta == 1.0 else (1.0 - eta) * b.q + eta * apply(b)
                    q_after[x, a] = after
                    poison += 0.0 * after  # NaN if any value is NaN or infinite; max() would ignore NaN.
                    best, best_after = max(best, b.bellman), max(best_after, after)
                    least_move, most_move = min(least_move, after - b.q), max(most_move, after - b.q)
                v_after[x] = best_after
                if ragged:
                    for a in range(actions):
                        first, last = bounds(transitions, x, a)
                        if first == last:
                            q_after[x, a] = best_after
                # The change of a gap is the change of V minus that of Q, so the extreme changes of Q give the extreme changes of gaps.
                moved = best_after - v[x]
                change = max(change, max(abs(moved - least_move), abs(moved - most_move)))
                low, high = min(low, best - v[x]), max(high, best - v[x])
            seen[block, 0], seen[block, 1], seen[block, 2] = low, high, change + poison
        return seen

    return kernel


def _scattered(transitions: Sparse | Ragged) -> bool:
    """Whether successors are so far from their states that V is accessed at random in more memory than the cache holds."""
    states = len(transitions[0])
    if states * 8 <= CACHE_BYTES:
        return False
    sample = np.linspace(0, states - 1, 256).astype(np.int64)
    if isinstance(transitions, Ragged):
        pointers, successors, _ = transitions.rows(sample).packed()
        counts = pointers[transitions.starts.shape[1] :: transitions.starts.shape[1]]
        distance = np.abs(successors - np.repeat(sample, np.diff(counts, prepend=0)))
    else:
        distance = np.abs(transitions.successors[sample].astype(np.int64) - sample[:, None, None])
    return float(np.median(distance)) * 8 > CACHE_BYTES / 4


@intrinsic
def _prefetch(typingctx, array, index):
    """Prefetch an array entry, by its flat index, into the second-level cache."""

    def codegen(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        place = builder.gep(data, [arguments[1]])
        byte = ir.IntType(8).as_pointer()
        word = ir.IntType(32)
        signature = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        function = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0")
        read, second_level, data_cache = (ir.Constant(word, value) for value in (0, 2, 1))
        builder.call(function, [builder.bitcast(place, byte), read, second_level, data_cache])
        return context.get_dummy_value()

    return types.void(array, index), codegen
