"""The same sweeps on several devices of one or two processes: a program that tests start, and its simulator.

    python two_processes.py FILE                      every case on some of this process's devices
    python two_processes.py FILE ADDRESS PROCESS      some cases on all devices of two processes, with a coordinator at the address

XLA_FLAGS sets the number of devices of a process. The file stores Q, residual and halo of every case.
"""

import sys
from typing import NamedTuple

import jax
import numpy as np

from actiongap.envs.classic import cart_pole, pendulum
from actiongap.maths import sin
from actiongap.operators import parse
from actiongap.planning._jax_sweeps import JaxSweeps, jax_sweeps
from actiongap.planning._pallas import Kernel
from actiongap.planning.backups import SweepConfig, Sweeps
from actiongap.planning.factors import layout_of
from actiongap.planning.grid import Grid, periodic, uniform
from actiongap.planning.simulator import Factor, Outcome, Simulator, Uniform

FIRST, COUNT = 7, 2
"""The sweeps that are compared."""


def skate(wild: bool = False, around: bool = False) -> Simulator:
    """A stochastic factor and two deterministic ones. A step moves up to three points along the track; devices share its seven points.

    With `wild`, the nine noise values that `reachable_cells` evaluates lead to the same place, and almost all others lead elsewhere.
    """

    def stochastic(x, a, u):
        kick = 1.5 * sin(8 * np.pi * u) if wild else 0.5 * u - 0.2
        lean = x[0] + 0.3 * x[1] + kick
        return Outcome((lean, 0.9 * x[1] + 0.2 * sin(x[2]) - 0.1 * u + 0.1 * (a % 2)), 0.5 * lean - 0.1 * (a % 2), lean > 1.3)

    def along(x, a, u):
        return Outcome((x[2] + 2.4 * x[0] + 0.3 * (a // 2),), 0.1 * x[2], x[2] < -1.0)

    def loaded(x, a, u):
        load = 0.8 * x[3] + 0.35 * x[0]
        return Outcome((load,), 0.3 - load, load > 0.9)

    track = periodic(0.0, 7.0, 7) if around else uniform(0.0, 6.0, 7)
    axes = (uniform(-1.0, 1.0, 6), uniform(-1.0, 1.0, 3), track, uniform(0.0, 1.0, 3))
    factors = (
        Factor((0, 1), (0, 1, 2), (0, 1, 0, 1), True, stochastic),
        Factor((2,), (0, 2), (0, 0, 1, 1), False, along),
        Factor((3,), (0, 3), (0, 0, 0, 0), False, loaded),
    )
    state = dict(zip(["lean", "swing", "track", "load"], axes, strict=True))
    return Simulator("skate", factors, state=state, actions=tuple("abcd"), gamma=0.9, noise=Uniform(0.0, 1.0))


class Case(NamedTuple):
    simulator: Simulator
    n: int
    counts: tuple[int, ...]
    """Numbers of devices that share the table."""
    kernel: bool = False

    def prepare(self) -> tuple[Simulator, Grid, SweepConfig]:
        return self.simulator, Grid(self.simulator.axes(self.n)), SweepConfig(parse("consistent"), self.simulator.gamma, 0.5, seed=3)

    def sweeps(self, count: int) -> Sweeps:
        make = kernel_sweeps if self.kernel else jax_sweeps
        return make(*self.prepare(), jax.devices()[:count])


CASES = {
    "skate": Case(skate(), 0, (1, 2, 3, 4)),
    "kernel": Case(skate(), 0, (3,), kernel=True),
    "around": Case(skate(around=True), 0, (3,)),
    "cart-pole": Case(cart_pole(), 5, (1, 4)),
    "pendulum": Case(pendulum(), 5, (1, 4)),
}
MULTI_PROCESS = ("skate", "cart-pole")
"""Cases for two processes with two devices each: one gathers the whole table, and one exchanges halos."""


def kernel_sweeps(simulator: Simulator, grid: Grid, config: SweepConfig, devices: list) -> JaxSweeps:
    """Sweeps by the GPU kernels, in the interpreter of Pallas."""
    layout = layout_of(simulator, grid)
    assert layout is not None
    return JaxSweeps(Kernel(simulator, grid, layout, config, interpret=True), config, devices)


def random_q(simulator: Simulator, grid: Grid) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((grid.size, len(simulator.actions)))


def swept(sweeps: Sweeps, q: np.ndarray, first: int = FIRST, count: int = COUNT) -> tuple[np.ndarray, float]:
    table, residual = sweeps.advance(sweeps.put(q), first, count)
    return sweeps.get(table), residual


def main(file: str, *coordinator: str) -> None:
    if coordinator:
        jax.distributed.initialize(coordinator[0], num_processes=2, process_id=int(coordinator[1]))
    found = {}
    for name in MULTI_PROCESS if coordinator else CASES:
        simulator, grid, _ = CASES[name].prepare()
        for count in [jax.device_count()] if coordinator else CASES[name].counts:
            sweeps = CASES[name].sweeps(count)
            assert isinstance(sweeps, JaxSweeps)
            q, residual = swept(sweeps, random_q(simulator, grid))
            found[f"{name} {count}"] = q
            found[f"{name} {count} residual"] = np.array(residual)
            found[f"{name} {count} halo"] = np.array(np.nan if sweeps.halo is None else sweeps.halo)
    np.savez(file, **found)


if __name__ == "__main__":
    main(*sys.argv[1:])
