"""An environment of your own, registered with Gymnasium: `PYTHONPATH=examples actiongap train gym/corridor:Corridor-v0`."""

import gymnasium
from gymnasium import spaces

LENGTH = 6


class Corridor(gymnasium.Env):
    """Six rooms in a row: 0 goes left and 1 right, every step costs 0.01, and the last room pays 1 and is the end."""

    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self):
        self.observation_space = spaces.Discrete(LENGTH)
        self.action_space = spaces.Discrete(2)
        # With a list of its transitions, P[x][a] = [(probability, next state, reward, whether it ends)], an environment can be solved too.
        self.P = {x: {a: [self._transition(x, a)] for a in (0, 1)} for x in range(LENGTH)}

    def _transition(self, x, a):
        following = min(max(x + 2 * a - 1, 0), LENGTH - 1)
        ended = following == LENGTH - 1
        return 1.0, following, 1.0 if ended else -0.01, ended

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x = 0
        return self.x, {}

    def step(self, action):
        _, self.x, reward, ended = self.P[self.x][int(action)][0]
        return self.x, reward, ended, False, {}


gymnasium.register("Corridor-v0", entry_point="corridor:Corridor", max_episode_steps=100)
