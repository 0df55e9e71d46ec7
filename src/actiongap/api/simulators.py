"""Simulators for users: planning problems that are also Gymnasium environments.

sim = Simulator("cart", step, state={"position": (-5, 5), "speed": (-2, 2)}, actions=("back", "coast", "forward"))
env = sim.env()
"""

from __future__ import annotations

import dataclasses
import inspect
from typing import TYPE_CHECKING, Any, Literal, Self

from actiongap._suggest import choose_from, with_suggestions
from actiongap.planning import simulator as planning

if TYPE_CHECKING:
    from actiongap.envs.simulator_env import SimulatorEnv, SimulatorVectorEnv


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Simulator(planning.Simulator):
    """A simulator: a step on coordinates with ranges, actions, and noise. Plan with it (`plan`), or step through it (`env`).

    Parameters
    ----------
    name
        Its name, for titles and messages.
    step
        Function of the coordinates (a tuple), the number of the action and the noise. Returns `Outcome(next coordinates, reward, ended)`.
        It is called with numbers and with arrays, so write it with `actiongap.maths`. A tuple of factors makes planning faster.
    state
        The range of each coordinate by name: (low, high), `Periodic(low, high)` for angles, or an `Axis` with chosen points.
    actions
        Names of the actions.
    gamma
        Discount.
    noise
        `Uniform(low, high)` or `Discrete(values, probabilities)`: one number is drawn in every step. By default none.
    outcomes
        Named ends of an episode, such as goal and fall: functions of the last coordinates that return whether they hold.
    start
        Where episodes start: a range per coordinate by name, or a function of the number of episodes that returns arrays. By default
        anywhere on the grid.
    max_episode_steps
        Number of steps after which an episode is truncated.
    episodes
        An `EpisodeSpec`, if policies are evaluated with another step than the one to plan with.
    render
        Function of a state that returns an RGB image, for videos and `env(render_mode="rgb_array")`. By default curves.
    seconds_per_step
        Simulated duration of a step, for the speed of videos.

    Examples
    --------
    >>> from actiongap import Outcome
    >>> def slide(x, a, u):
    ...     return Outcome((x[0] + a - 0.5,), -1.0, x[0] > 1.5)
    >>> sim = Simulator("slide", slide, state={"place": (-2.0, 2.0)}, actions=("left", "right"), max_episode_steps=50)
    >>> print(sim.check())
    slide works: 8 points x 2 actions and the first step of its episodes were tried.
    >>> env = sim.env()
    >>> observation, info = env.reset(seed=0)
    >>> env.step(1)[1:4]
    (-1.0, False, False)
    >>> sim
    Simulator(slide: state place; 2 actions)
    """

    def __new__(cls, *arguments: Any, **parameters: Any) -> Self:
        """Refuse misspelt parameters, with the near one."""
        known = [field.name for field in dataclasses.fields(cls) if field.init]
        for name in parameters:
            if name not in known:
                raise TypeError(f"Simulator has no parameter {name!r}: {choose_from(name, known)}")
        return super().__new__(cls)

    @with_suggestions
    def env(self, render_mode: Literal["rgb_array"] | None = None) -> SimulatorEnv:
        """Return a Gymnasium environment. Its observations are the coordinates that policies observe, in float32.

        Examples
        --------
        >>> load_simulator("pendulum").env().action_space
        Discrete(5)
        """
        from actiongap.envs.simulator_env import SimulatorEnv

        return SimulatorEnv(self, render_mode)

    @with_suggestions
    def vector_env(self, num_envs: int) -> SimulatorVectorEnv:
        """Return a Gymnasium vector environment (`AutoresetMode.NEXT_STEP`) that steps all copies in one call.

        Examples
        --------
        >>> load_simulator("pendulum").vector_env(3).reset(seed=0)[0].shape
        (3, 2)
        """
        from actiongap.envs.simulator_env import SimulatorVectorEnv

        return SimulatorVectorEnv(self, num_envs)

    @with_suggestions
    def check(self, grid: int = 8) -> str:
        """Try the step on a grid, and the first step of its episodes. Return a sentence, or raise ValueError with what is wrong.

        Parameters
        ----------
        grid
            Points per axis.

        Examples
        --------
        >>> load_simulator("mountain-car").check(grid=41)
        'mountain-car works: 41 x 41 points x 3 actions and the first step of its episodes were tried.'
        """
        from actiongap.planning.checks import MAX_CHECKED_POINTS, check_simulator
        from actiongap.planning.plan import grid_of
        from actiongap.planning.rollouts import check_episodes

        points = grid_of(self, grid)
        check_simulator(self, points)
        check_episodes(self)
        shape = " x ".join(map(str, points.shape))
        some = f"{MAX_CHECKED_POINTS:,} of " if points.size > MAX_CHECKED_POINTS else ""
        return f"{self.name} works: {some}{shape} points x {len(self.actions)} actions and the first step of its episodes were tried."


# Help and notebooks show the parameters of `__init__`, not those of `__new__`.
_INIT = inspect.signature(Simulator.__init__)
Simulator.__signature__ = _INIT.replace(parameters=list(_INIT.parameters.values())[1:])  # pyright: ignore[reportAttributeAccessIssue]


def load_simulator(text: str) -> Simulator:
    """Return the simulator that a string describes: bicycle, mountain-car, pendulum, cart-pole or acrobot, or path/to/file.py:name.

    Options follow a colon: `bicycle:start=north`.

    Examples
    --------
    >>> load_simulator("pendulum:torques=3").actions
    ('-2', '0', '2')
    """
    if not isinstance(text, str):
        raise TypeError(f"text is {text!r}: give the name of a simulator, such as mountain-car or path/to/file.py:name")
    # The table of simulators takes longer to import than a user's own simulator needs.
    from actiongap.envs.simulators import load_simulator as load

    return as_simulator(load(text))


def as_simulator(simulator: planning.Simulator) -> Simulator:
    """Return a simulator with the methods of this module.

    Examples
    --------
    >>> from actiongap.envs.classic import pendulum
    >>> as_simulator(pendulum()).env().observation_space.shape
    (2,)
    """
    if isinstance(simulator, Simulator):
        return simulator
    return Simulator(**{field.name: getattr(simulator, field.name) for field in dataclasses.fields(simulator) if field.init})
