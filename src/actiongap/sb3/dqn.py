"""Stable-Baselines3's DQN with an operator."""

from __future__ import annotations

from typing import Any

import torch
from stable_baselines3 import DQN as Original  # noqa: N811
from torch.nn.functional import smooth_l1_loss

from actiongap.sb3.agent import OperatorAgent


class DQN(OperatorAgent, Original):
    """`stable_baselines3.DQN` whose targets are an operator's; its parameters are those of the original, and `operator` by name.

    Parameters
    ----------
    operator
        `al:0.9` and its kin, `path/to/file.py:name` for one of your own, or any function of a `Backup`. A function that is in no file
        cannot be found again by `load`, which is then told: `DQN.load(path, operator=function)`.

    Examples
    --------
    >>> model = DQN("MlpPolicy", "CartPole-v1", operator="pal-dqn:0.9", buffer_size=1000, seed=0, device="cpu")
    >>> model.learn(200).operator
    'pal-dqn:0.9'
    """

    def targets(self, batch: Any) -> torch.Tensor:
        """What the operator would have Q(x, a) be for each transition of a batch of the replay buffer: shape (batch, 1), no gradient.

        Examples
        --------
        >>> model = DQN("MlpPolicy", "CartPole-v1", operator="bellman", buffer_size=1000, seed=0, device="cpu").learn(50)
        >>> model.targets(model.replay_buffer.sample(8)).shape
        torch.Size([8, 1])
        """
        with torch.no_grad():
            q, next_q = self.q_net_target(batch.observations), self.q_net_target(batch.next_observations)
            return self.aim(self.drawn(), q, next_q, batch)

    def loss(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """The Huber loss of a batch, and the online network's Q(x, .)."""
        q = self.q_net(batch.observations)
        return smooth_l1_loss(torch.gather(q, dim=1, index=batch.actions.long()), self.targets(batch)), q
