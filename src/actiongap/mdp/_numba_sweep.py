"""The Numba kernel behind the `numba` engine: one pass over a sparse model with the operator inlined.

Everything a backup offers is written out for each pair; what the operator does not use, LLVM removes, so a Bellman sweep neither looks
for self-loops nor gathers Q(x', a). A sweep is bound by memory: it streams the model once and gathers V at random places.
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
from actiongap.mdp.model import Sparse
from actiongap.operators import Operator, backup

BLOCK = 1024
"""States that one thread takes at a time."""
CACHE_BYTES = 1 << 20
"""About the size of a core's own cache; a V larger than this, visited at random, is worth prefetching."""
AHEAD = 8
"""How many states ahead to prefetch."""


def make_kernel(operator: Operator, transitions: Sparse, eta: float) -> Any | None:
    """A compiled sweep for this operator and these numbers of actions and successors, or None if Numba cannot compile the operator.

    The kernel maps `(gamma, rewards, successors, probabilities, q, v, q_after, v_after)` to one row per block of states of
    (low, high, gap_change), and fills `q_after` and `v_after`.
    """
    _, actions, width = transitions.successors.shape
    ahead = AHEAD if _scattered(transitions) else 0
    ahead_in_q = ahead if {"next_gap", "repeat"} & fields_read(operator) else 0
    return _compile(operator, actions, width, eta, ahead, ahead_in_q)


@lru_cache(maxsize=64)
def _compile(operator: Operator, actions: int, width: int, eta: float, ahead: int, ahead_in_q: int) -> Any | None:
    """The kernel for one shape: all but the arrays are constants to the compiler, which unrolls loops and drops what is not needed."""
    apply = compile_operator(operator)
    if apply is None:
        return None
    make_backup = compile_function(backup)

    # Products may be fused with sums, which rounds less often. Letting sums be reordered would turn the gathers into vector instructions,
    # which are slower than plain loads.
    @numba.njit(parallel=True, error_model="numpy", fastmath={"contract", "nsz"})
    def kernel(gamma, rewards, successors, probabilities, q, v, q_after, v_after):
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
                        for k in range(width):
                            _prefetch(v, np.uint64(successors[far, a, k]))  # pyright: ignore[reportCallIssue]
                    if ahead_in_q > 0:
                        for k in range(width):
                            _prefetch(q, np.uint64(successors[far, a, k]) * actions + a)  # pyright: ignore[reportCallIssue]
                    next_v, next_q, stay = 0.0, 0.0, 0.0
                    for k in range(width):
                        next_v += probabilities[x, a, k] * v[successors[x, a, k]]
                        next_q += probabilities[x, a, k] * q[successors[x, a, k], a]
                    for k in range(width):
                        stay += probabilities[x, a, k] if successors[x, a, k] == x else 0.0
                    b = make_backup(gamma, rewards[x, a], q[x, a], v[x], next_v, next_q, stay)
                    after = apply(b) if eta == 1.0 else (1.0 - eta) * b.q + eta * apply(b)
                    q_after[x, a] = after
                    poison += 0.0 * after  # NaN if anything ever is; a maximum would pass over it.
                    best, best_after = max(best, b.bellman), max(best_after, after)
                    least_move, most_move = min(least_move, after - b.q), max(most_move, after - b.q)
                v_after[x] = best_after
                # A gap changes by how much V moves more than Q does, so the extreme moves of Q give the extreme changes.
                moved = best_after - v[x]
                change = max(change, max(abs(moved - least_move), abs(moved - most_move)))
                low, high = min(low, best - v[x]), max(high, best - v[x])
            seen[block, 0], seen[block, 1], seen[block, 2] = low, high, change + poison
        return seen

    return kernel


def _scattered(transitions: Sparse) -> bool:
    """Whether successors lie so far from their states that V is visited at random in more memory than a cache holds."""
    states = transitions.successors.shape[0]
    if states * 8 <= CACHE_BYTES:
        return False
    sample = np.linspace(0, states - 1, 256).astype(np.int64)
    distance = np.abs(transitions.successors[sample].astype(np.int64) - sample[:, None, None])
    return float(np.median(distance)) * 8 > CACHE_BYTES / 4


@intrinsic
def _prefetch(typingctx, array, index):
    """Ask for the entry of an array in memory order to be brought into the second-level cache."""

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
