"""QR-DQN of sb3-contrib with an operator.

QR-DQN learns quantiles of the return, and acts by their mean. An operator says what that mean should be. What it takes off Bellman's
target, such as alpha (V - Q), is one number for a transition, as if the transition had been paid less; so all quantiles of Bellman's target
move by it together. Their mean is then the operator's target, their spread is Bellman's, and with Bellman's operator nothing moves. That is
our reading: the paper knows means alone. For operators with a temperature the mean is right too, and the spread is the greedy action's.
"""

from __future__ import annotations

from typing import Any

import torch
from sb3_contrib import QRDQN as Original  # noqa: N811  # pyright: ignore[reportMissingImports]
from sb3_contrib.common.utils import quantile_huber_loss  # pyright: ignore[reportMissingImports]

from actiongap.sb3.agent import OperatorAgent


class QRDQN(OperatorAgent, Original):
    """`sb3_contrib.QRDQN` whose target quantiles have an operator's target as their mean; `operator` is as for `DQN`.

    Examples
    --------
    >>> model = QRDQN("MlpPolicy", "CartPole-v1", operator="al:0.9", buffer_size=1000, seed=0, device="cpu")
    >>> model.learn(200).operator
    'al:0.9'
    """

    def targets(self, batch: Any) -> torch.Tensor:
        """Target quantiles for each transition of a batch of the replay buffer: shape (batch, quantiles), no gradient.

        Examples
        --------
        >>> model = QRDQN("MlpPolicy", "CartPole-v1", operator="al:0.9", buffer_size=1000, seed=0, device="cpu").learn(50)
        >>> model.targets(model.replay_buffer.sample(8)).shape
        torch.Size([8, 200])
        """
        with torch.no_grad():
            quantiles, next_quantiles = (self.quantile_net_target(x) for x in (batch.observations, batch.next_observations))
            q, next_q = quantiles.mean(dim=1), next_quantiles.mean(dim=1)
            greedy = _of_action(next_quantiles, next_q.argmax(dim=1, keepdim=True))
            moved = self.aim(self.drawn(), q, next_q, batch) - self.aim("bellman", q, next_q, batch)
            return batch.rewards + self.discounts(batch) * greedy + moved

    def loss(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """The quantile Huber loss of a batch, and the mean of the online network's quantiles."""
        quantiles = self.quantile_net(batch.observations)
        chosen = _of_action(quantiles, batch.actions.long())
        return quantile_huber_loss(chosen, self.targets(batch), sum_over_quantiles=True), quantiles.mean(dim=1)


def _of_action(quantiles: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """The quantiles (batch, quantiles) of one action (batch, 1) for each of a batch (batch, quantiles, actions)."""
    return quantiles.gather(2, action[..., None].expand(-1, quantiles.shape[1], 1)).squeeze(2)
