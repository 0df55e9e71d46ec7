"""A custom simulator, a cart on a road in the wind: try `actiongap plan examples/parking.py:simulator --grid 41`."""

from actiongap.maths import clip, where
from actiongap.planning.grid import uniform
from actiongap.planning.simulator import EpisodeSpec, Outcome, Uniform, evenly_within, make_simulator


def step(x, a, u):
    """Make a step of 0.1 s, pushed by the action and the wind. It costs 1; leaving the road costs 100."""
    place, speed = x
    speed = clip(speed + 0.1 * (a - 1 + u), -2.0, 2.0)
    x = (place + 0.1 * speed, speed)
    return Outcome(x, where(off(x), -100.0, -1.0), off(x) | parked(x))


def parked(x):
    return (abs(x[0]) < 0.1) & (abs(x[1]) < 0.1)


def off(x):
    return abs(x[0]) > 5.0


def axes(n):
    return uniform(-5.0, 5.0, n), uniform(-2.0, 2.0, n)


episodes = EpisodeSpec(evenly_within([(-4.0, 4.0), (-1.0, 1.0)]), step, outcomes={"goal": parked, "fall": off}, max_episode_steps=200)
simulator = make_simulator("parking", ("place", "speed"), ("back", "coast", "on"), step, axes, noise=Uniform(-0.5, 0.5), episodes=episodes)
