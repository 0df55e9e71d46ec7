"""What agents of Stable-Baselines3 have in common when their operator is chosen: the operator itself, its targets, and gradient steps.

An `OperatorAgent` comes before the original among the bases of a class, `class DQN(OperatorAgent, Original)`, and says everything that is
different but two things, which the class adds: Q-values and the loss of a batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from actiongap.operators import AnyOperator, Operator, parse
from actiongap.td import td_target


class OperatorAgent(OffPolicyAlgorithm):
    """An agent whose parameters are those of the original, and `operator` by name."""

    max_grad_norm: Any

    def __init__(self, policy: Any, env: Any, *args: Any, operator: AnyOperator = "al:0.9", **kwargs: Any):
        self._operator = parse(operator)
        self.operator = self._operator.name
        """Its text."""
        super().__init__(policy, env, *args, **kwargs)

    def _setup_model(self) -> None:
        super()._setup_model()
        if self.operator == self._operator.name:
            return
        # `load` makes an agent with the default operator, and then puts what it has read in its place.
        try:
            self._operator = parse(self.operator)
        except ValueError as error:
            remedy = f"give it yourself as {type(self).__name__}.load(path, operator=...)"
            raise ValueError(f"the operator of a saved agent cannot be found: {error}; {remedy}") from error
        self.operator = self._operator.name

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_operator"]

    def loss(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss of a batch of the replay buffer, and the online network's Q(x, .)."""
        raise NotImplementedError

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Some gradient steps of the original, towards other targets."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        replay: Any = self.replay_buffer
        losses, gaps = [], []
        for _ in range(gradient_steps):
            loss, q = self.loss(replay.sample(batch_size, env=self._vec_normalize_env))
            losses.append(loss.item())
            gaps.append(_action_gap(q.detach()))
            self.policy.optimizer.zero_grad()
            loss.backward()
            if self.max_grad_norm is not None:
                torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", np.mean(losses))
        self.logger.record("train/action_gap", np.mean(gaps))

    def drawn(self) -> Operator:
        """The operator for one update. A number is drawn only if it needs one: others leave the generator as the original does."""
        return self._operator if self._operator.draw is None else self._operator.at(torch.rand(()).item())

    def discounts(self, batch: Any) -> torch.Tensor:
        """The discount of each transition, 0 where an episode ended and was not cut short: shape (batch, 1)."""
        return (1 - batch.dones) * (self.gamma if batch.discounts is None else batch.discounts)

    def aim(self, operator: AnyOperator, q: torch.Tensor, next_q: torch.Tensor, batch: Any) -> torch.Tensor:
        """What an operator would have Q(x, a) be, given Q(x, .) and Q(x', .): shape (batch, 1)."""
        returned = _equal(batch.observations, batch.next_observations)
        rewards, discounts = batch.rewards[:, 0], self.discounts(batch)[:, 0]
        return td_target(operator, q, batch.actions[:, 0], rewards, discounts, next_q, returned=returned)[:, None]


def _equal(observations: Any, others: Any) -> torch.Tensor:
    """Whether observations, tensors or dictionaries of them, are equal one by one."""
    if isinstance(observations, dict):
        return torch.stack([_equal(observations[name], others[name]) for name in observations]).all(dim=0)
    return (observations == others).flatten(1).all(dim=1)


def _action_gap(q: torch.Tensor) -> float:
    """The mean difference between the best and the second best action; 0 where there is but one."""
    best = q.topk(min(2, q.shape[1]), dim=1).values
    return (best[:, 0] - best[:, -1]).mean().item()
