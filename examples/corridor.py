"""A custom environment, registered with Gymnasium: `PYTHONPATH=examples actiongap train gym/corridor:Corridor-v0`."""

import gymnasium
from gymnasium import spaces

LENGTH = 6


class Corridor(gymnasium.Env):
    """Six rooms in a row: action 0 goes left and 1 right. Every step costs 0.01. The last room pays 1 and ends the episode."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self):
        self.observation_space = spaces.Discrete(LENGTH)
        self.action_space = spaces.Discrete(2)
        # With its transitions, P[x][a] = [(probability, next state, reward, terminated)], the environment can also be solved exactly.
        self.P = {x: {a: [self._transition(x, a)] for a in (0, 1)} for x in range(LENGTH)}

    def _transition(self, x, a):
        next_x = min(max(x + 2 * a - 1, 0), LENGTH - 1)
        terminated = next_x == LENGTH - 1
        return 1.0, next_x, 1.0 if terminated else -0.01, terminated

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = 0
        return self.x, {}

    def step(self, action):
        _, self.x, reward, terminated = self.P[self.x][int(action)][0]
        return self.x, reward, terminated, False, {}


gymnasium.register("Corridor-v0", entry_point="corridor:Corridor", max_episode_steps=100)
