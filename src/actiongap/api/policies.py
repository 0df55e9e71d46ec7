"""Plan with a simulator, and return the policy.

policy = plan("bicycle", "consistent", n=8, iterations=500)
policy.act(observation)
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from actiongap.envs.simulators import load_simulator
from actiongap.operators import AnyOperator, parse
from actiongap.planning.backups import SweepConfig
from actiongap.planning.checks import check_memory, check_simulator
from actiongap.planning.plan import Engine, SweepProgress, engine_of, grid_of, policy_of, run_sweeps, sweeps_for, zero_q
from actiongap.planning.policy import Policy
from actiongap.planning.simulator import Simulator

PROGRESS_CALLS = 50
"""Maximum number of calls of `progress` per plan."""


def plan(
    simulator: str | Simulator,
    operator: AnyOperator,
    n: int,
    iterations: int,
    *,
    gamma: float | None = None,
    eta: float = 0.1,
    samples: int = 1,
    shared: bool = False,
    of_values: bool = False,
    seed: int = 0,
    engine: Engine = "auto",
    progress: Callable[[str, float], None] | None = None,
) -> Policy:
    """Plan on a grid with n points per axis, and return the greedy policy after `iterations` sweeps from Q = 0.

    Parameters
    ----------
    simulator
        A simulator, or a string for `load_simulator`: `mountain-car`, `bicycle:fall=once`, `path/to/file.py:name`.
    operator
        An operator, a string such as `al:0.5`, or any function of a `Backup` that can be compiled.
    n
        Points per axis.
    iterations
        Number of sweeps.
    gamma
        The discount; by default the simulator's own.
    eta
        Step size of a sweep, in (0, 1]: Q <- (1 - eta) Q + eta T'Q.
    samples
        Next states sampled per pair and sweep, if the simulator has noise.
    shared
        Whether pairs share noise if they differ only in coordinates that no stochastic factor depends on.
    of_values
        Whether V is interpolated rather than Q.
    seed
        Seed of the noise.
    engine
        Library that computes the sweeps: `auto`, `numba` or `jax`.
    progress
        Called periodically with a message and the fraction of sweeps done.

    Examples
    --------
    >>> policy = plan("mountain-car", "consistent", n=15, iterations=20, eta=1.0)
    >>> policy.actions[policy.act((-0.5, 0.02))]
    'right'
    """
    text = simulator if isinstance(simulator, str) else simulator.name
    if isinstance(simulator, str):
        simulator = load_simulator(simulator)
    if iterations < 1:
        raise ValueError(f"iterations is {iterations!r}: it must be a whole number of at least 1")
    chosen, grid = engine_of(engine), grid_of(simulator, n)
    config = SweepConfig(parse(operator), simulator.gamma if gamma is None else gamma, eta, samples, shared, of_values, seed)
    check_memory(simulator, grid, chosen)
    check_simulator(simulator, grid)
    sweeps = sweeps_for(simulator, grid, config, chosen)

    def on_sweeps(sweeps: SweepProgress) -> None:
        if progress:
            progress(f"sweep {sweeps.done} of {iterations}, residual {sweeps.residual:.2e}", sweeps.done / iterations)

    with np.errstate(over="ignore", invalid="ignore"):
        table, residual = run_sweeps(
            sweeps, sweeps.put(zero_q(simulator, grid)), 0, iterations, -(-iterations // PROGRESS_CALLS), on_sweeps
        )
    return policy_of(text, simulator, grid, config, sweeps.get(table), iterations=iterations, engine=chosen, residual=residual)
