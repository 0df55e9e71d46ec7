"""The same sweeps on several devices, of one process or of two: a program that tests start, and the domain that it sweeps.

    python two_processes.py FILE                      every case on some of this process's devices
    python two_processes.py FILE ADDRESS PROCESS      the cases on all devices of two processes, which meet at the address

How many devices a process has is up to XLA_FLAGS. The file is for Q, residual and halo of every case.
"""

import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax
import numpy as np

from actiongap.domains.classic import cart_pole, pendulum
from actiongap.grid.accelerated import JaxSweeps, jax_sweeps
from actiongap.grid.axes import Axis, Grid, periodic, uniform
from actiongap.grid.domain import Discrete, Domain, Factor, Outcome, Uniform
from actiongap.grid.rule import Rule
from actiongap.maths import sin
from actiongap.operators import parse

FIRST, COUNT = 7, 2
"""The sweeps that all tests make."""


def sled(noise: Uniform | Discrete = Uniform(-0.2, 0.3), around: bool = False) -> Domain:
    """Two held coordinates, one on uneven points and one that goes round, as does the free one; the track may go round too.

    Along the track, whose seven points are the slabs that devices share out, a step leads up to three slabs away.
    """

    def lively(x, a, u):
        tilt = x[0] + 0.35 * sin(x[2]) + 0.2 * (a % 2) + u
        return Outcome((tilt, x[1] + 0.8 * u + 0.3 * x[3], x[2] + 0.5 * x[0] - u), 0.5 * tilt - 0.1 * (a % 2), tilt > 1.2)

    def quiet(x, a, u):
        load = x[4] + 0.2 * x[1] - 0.05 * x[3]
        return Outcome((x[3] + 1.5 * x[0] + 0.7 * x[1] * (a // 2), load), 0.3 - load, load > 1.2)

    tilt, twist, swing = Axis((-1.0, -0.2, 0.3, 1.0)), periodic(0.0, 2.0, 4), periodic(0.0, 4.0, 3)
    track = periodic(0.0, 7.0, 7) if around else uniform(0.0, 6.0, 7)
    factors = (
        Factor((0, 1, 2), (0, 1, 2, 3), (0, 1, 0, 1), True, lively),
        Factor((3, 4), (0, 1, 3, 4), (0, 0, 1, 1), False, quiet),
    )
    axes = (tilt, twist, swing, track, uniform(0.0, 1.0, 3))
    return Domain("sled", ("tilt", "twist", "swing", "track", "load"), tuple("abcd"), factors, lambda n: axes, 0.9, noise)


class Case(NamedTuple):
    domain: Domain
    n: int
    counts: tuple[int, ...]
    """How many devices share the table out."""

    def prepared(self) -> tuple[Domain, Grid, Rule]:
        return self.domain, Grid(self.domain.axes(self.n)), Rule(parse("consistent"), self.domain.gamma, 0.5, seed=3)

    def random_q(self) -> np.ndarray:
        domain, grid, _ = self.prepared()
        return random_q(domain, grid)


CASES = {
    "sled": Case(sled(), 0, (1, 2, 3, 4)),
    "around": Case(sled(around=True), 0, (1, 3)),
    "cart-pole": Case(cart_pole(), 5, (1, 4)),
    "pendulum": Case(pendulum(), 5, (1, 2, 3, 4)),
}
TOGETHER = ("sled", "cart-pole")
"""Those for two processes: one gathers the whole table, and one hands on what neighbours need."""


def random_q(domain: Domain, grid: Grid) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((grid.size, len(domain.actions)))


def swept(sweeps: JaxSweeps, q: np.ndarray) -> dict[str, np.ndarray]:
    table, residual = sweeps.advance(sweeps.put(q), FIRST, COUNT)
    return {"q": sweeps.get(table), "residual": np.array(residual), "halo": np.array(-1 if sweeps.halo is None else sweeps.halo)}


def all_swept(names: Iterable[str], counts: Callable[[Case], Iterable[int]]) -> dict[str, np.ndarray]:
    found = {}
    for name in names:
        for count in counts(CASES[name]):
            sweeps = jax_sweeps(*CASES[name].prepared(), jax.devices()[:count])
            found |= {f"{name} {count} {key}": value for key, value in swept(sweeps, CASES[name].random_q()).items()}
    return found


if __name__ == "__main__":
    file, *others = sys.argv[1:]
    if others:
        jax.distributed.initialize(others[0], num_processes=2, process_id=int(others[1]))
        np.savez(file, **all_swept(TOGETHER, lambda case: [jax.device_count()]))
    else:
        np.savez(file, **all_swept(CASES, lambda case: case.counts))
