"""Engines: the libraries that compute sweeps and episodes, and which one to use.

- `numpy` compiles nothing, so it is the fastest for small plans. It takes any simulator and any operator.
- `numba` runs compiled loops on all CPU cores. It compiles for a few seconds in every process: nothing that reaches an operator or a
  simulator is cached on disk, because such caches do not notice a changed function that another one calls.
- `jax` is for GPUs and TPUs; it is slower on a CPU.

All draw the same noise, and their results are the same up to the rounding of float32. `auto` is a function of the size of the problem and
of the devices of the machine, never of measured times: `numpy` if the work takes it less time than Numba takes to compile, otherwise `jax`
if JAX finds an accelerator, otherwise `numba`.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias, get_args

from actiongap._system import install
from actiongap.planning.grid import Grid
from actiongap.planning.simulator import Discrete, Simulator

ChosenEngine: TypeAlias = Literal["numpy", "numba", "jax"]
Engine: TypeAlias = Literal["auto", "numpy", "numba", "jax"]

COMPILE_SECONDS = 3.0
"""Seconds of CPU that Numba takes at least to compile sweeps and episodes, with its import."""
SWEEP_SECONDS, CORNER_SECONDS = 5e-4, 6e-8
"""Seconds that NumPy takes for a sweep of any size, and for each corner that it reads."""
STEP_SECONDS, LOOKUP_SECONDS = 1e-4, 2.5e-8
"""Seconds that NumPy takes for a step of any number of episodes, per coordinate and one more, and for each corner that it reads."""


class EngineChoice(NamedTuple):
    """An engine, and why it is used."""

    engine: ChosenEngine
    reason: str
    """A sentence that can be printed."""


class Work(NamedTuple):
    """The work of a plan. Unknown lengths of episodes count as their limit."""

    sweeps: int = 0
    samples: int = 1
    """Next states sampled per pair and sweep, if the noise is sampled."""
    tables: int = 0
    """Number of tables whose policies are evaluated."""
    episodes: int = 0
    """Number of episodes per table."""
    max_episode_steps: int = 0
    batches: int = 1
    """Number of batches in which the tables are evaluated."""


def numpy_seconds(simulator: Simulator, grid: Grid, work: Work) -> float:
    """Estimate the seconds that the engine `numpy` takes at most.

    Examples
    --------
    >>> from actiongap.envs.classic import mountain_car
    >>> car = mountain_car()
    >>> numpy_seconds(car, Grid(car.axes(6)), Work(sweeps=5, tables=1, episodes=100, max_episode_steps=200)) < 0.1
    True
    """
    corners, samples = 2 ** len(grid.axes), len(simulator.noise.values) if isinstance(simulator.noise, Discrete) else work.samples
    sweep = SWEEP_SECONDS + CORNER_SECONDS * grid.size * len(simulator.actions) * samples * corners
    # All episodes of a batch take a step together.
    steps = work.batches * STEP_SECONDS * (1 + len(grid.axes)) + LOOKUP_SECONDS * work.tables * work.episodes * corners
    return work.sweeps * sweep + (work.max_episode_steps * steps if work.tables else 0.0)


def choose_engine(engine: Engine, simulator: Simulator, grid: Grid, work: Work) -> EngineChoice:
    """Choose the engine for some work on a grid; any engine but `auto` is used as it is.

    Examples
    --------
    >>> from actiongap.envs.classic import mountain_car
    >>> car = mountain_car()
    >>> choose_engine("auto", car, Grid(car.axes(6)), Work(sweeps=5)).engine
    'numpy'
    >>> choose_engine("numba", car, Grid(car.axes(6)), Work(sweeps=5))
    EngineChoice(engine='numba', reason='Engine numba, as requested.')
    """
    if engine != "auto":
        chosen = engine_of(engine)
        return EngineChoice(chosen, f"Engine {chosen}, as requested.")
    if cpu_engine(engine, simulator, grid, work) == "numpy":
        return EngineChoice("numpy", "Engine numpy: this plan is so small that compiling it would take longer.")
    chosen = engine_of("auto")
    why = "JAX has an accelerator" if chosen == "jax" else "this plan is large enough to compile it, and JAX has no accelerator"
    return EngineChoice(chosen, f"Engine {chosen}: {why}.")


def cpu_engine(engine: Engine, simulator: Simulator, grid: Grid, work: Work) -> Literal["numpy", "numba"]:
    """Choose the engine for work that is done on the CPU in any case: `numba` instead of `jax`.

    Examples
    --------
    >>> from actiongap.envs.classic import mountain_car
    >>> car = mountain_car()
    >>> cpu_engine("auto", car, Grid(car.axes(6)), Work(sweeps=1_000_000))
    'numba'
    """
    _check_engine(engine)
    small = engine == "auto" and numpy_seconds(simulator, grid, work) <= COMPILE_SECONDS
    return "numpy" if engine == "numpy" or small else "numba"


def engine_of(engine: Engine) -> ChosenEngine:
    """Return the engine for work of unknown size: `auto` is `jax` if JAX finds an accelerator, and otherwise `numba`.

    Examples
    --------
    >>> engine_of("numba")
    'numba'
    """
    _check_engine(engine)
    if engine in ("numpy", "numba"):
        return engine
    try:
        import jax
    except ImportError:
        if engine == "jax":
            raise ValueError(f"engine 'jax' needs JAX: {install('jax')}") from None
        return "numba"
    return "jax" if engine == "jax" or jax.default_backend() != "cpu" else "numba"


def _check_engine(engine: Engine) -> None:
    if engine not in get_args(Engine):
        raise ValueError(f"unknown engine {engine!r}: choose from {', '.join(get_args(Engine))}")
