"""Random models with state-dependent actions and ragged successors against the independent dense solver: `python FILE FIRST COUNT`."""

from __future__ import annotations

import sys
from typing import get_args

import numpy as np
from scipy import sparse

from actiongap import FiniteMDP, NotConvergedError, evaluate_policy, solve
from actiongap.mdp.values import Method
from reference_solver import gap_limits, optimal_values, random_pairs

OPERATORS = ("bellman", "consistent", "al:0.5", "al:0.9", "pal:0.5", "pal-dqn:0.9", "sal:0.4,0.8")
METHODS = get_args(Method)
LAYOUTS = (FiniteMDP.dense, FiniteMDP.sparse, FiniteMDP.ragged, lambda mdp: mdp)


def check(seed: int) -> int:
    """Solve the model of a seed with every operator, by a method and in a layout that depend on the seed; return the number of claims."""
    pairs = random_pairs(seed)
    mdp = FiniteMDP.from_pairs(
        pairs.states, pairs.actions, pairs.rewards, sparse.csr_array(pairs.transitions), pairs.gamma, f"model {seed}"
    )
    mdp = LAYOUTS[seed % len(LAYOUTS)](mdp)
    v, q = optimal_values(pairs)
    # Rounding of the reference itself.
    rounded = 1e-13 * max(1.0, float(np.abs(v).max())) / (1 - pairs.gamma)
    claims = 0
    for place, operator in enumerate(OPERATORS):
        if operator.startswith("pal") and pairs.gamma > 0.9:
            continue
        method = METHODS[(seed + place) % len(METHODS)]
        try:
            solution = solve(mdp, operator, tol=1e-6 * max(1.0, float(np.abs(v).max())), engine="arrays", method=method)
        except NotConvergedError as error:
            raise AssertionError(f"{mdp.name}, {operator}, {method}: {error}") from error
        limits = gap_limits(operator, pairs, v, q)
        told = f"{mdp.name}, {operator}, {solution.status}"
        assert np.abs(solution.v - v).max() <= solution.error_bound + rounded, told
        assert (v - evaluate_policy(mdp, solution.policy)).max() <= solution.policy_loss_bound + rounded, told
        assert not np.isneginf(q[np.arange(len(v)), solution.policy]).any(), told
        assert np.array_equal(np.isnan(solution.gaps), np.isnan(limits)), told
        assert solution.gap_bound is not None, told
        assert np.nanmax(np.abs(solution.gaps - limits)) <= solution.gap_bound + 20 * rounded, told
        assert np.array_equal(np.isnan(solution.action_gaps), (~np.isneginf(q)).sum(1) == 1), told
        claims += 5
    return claims


if __name__ == "__main__":
    first, count = int(sys.argv[1]), int(sys.argv[2])
    print(sum(check(seed) for seed in range(first, first + count)), "claims hold on", count, "models")
