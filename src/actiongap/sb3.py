"""Stable-Baselines3 agents with an operator of your choice: replace the import by `from actiongap.sb3 import DQN`.

The original DQN regresses Q(x, a) on r + gamma max_b Q'(x', b), where Q' is the target network. Here the target is the operator's for the
same transition, and all of its values come from Q':

    replay buffer -> (x, a, r, discount, x') -> target network -> actiongap.td.td_target -> target
                                                online network -> Q(x, a) -> loss -> optimizer

With `operator="bellman"` the agent is the original, bit for bit. The discount is 0 at a terminal state and gamma at a time limit, provided
that the environment tells the two apart, as Gymnasium's do. With `n_steps` above 1 the reward is the sum of n discounted rewards, the
discount is gamma^n, and the operator's correction uses the first and the last state. The consistent operator treats x' as x where the two
observations are equal.

`QRDQN` is the same for the agent of that name in sb3-contrib, which learns quantiles of the return and acts on their mean. An operator
defines the target of that mean. Its correction of the Bellman target, such as alpha (V - Q), is one number per transition, like a change of
the reward, so all quantiles of the Bellman target shift by it. Their mean is then the operator's target and their spread is that of the
Bellman target; with the Bellman operator nothing shifts. This is our interpretation: the paper treats means only. For operators with a
temperature the mean is right too, and the spread is that of the greedy action.

The log has `train/action_gap`: the online network's V(x) minus its second-best action value, averaged over the sampled batches. `save`
stores the name of the operator.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from actiongap._system import install
from actiongap.maths import action_gap
from actiongap.operators import AnyOperator, Operator, parse
from actiongap.td import td_target

try:
    import torch
    from stable_baselines3 import DQN as OriginalDQN  # noqa: N811
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
    from torch.nn.functional import smooth_l1_loss
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(f"actiongap.sb3 needs {_error.name}: {install('sb3')}", name=_error.name) from None

__all__ = ["DQN", "QRDQN"]


class OperatorAgent(OffPolicyAlgorithm):
    """Base class of the agents: the operator, its targets and the gradient steps.

    It must come before the original class, as in `class DQN(OperatorAgent, OriginalDQN)`. Subclasses add the loss of a batch.
    """

    max_grad_norm: Any

    def __init__(self, policy: Any, env: Any, *args: Any, operator: AnyOperator = "al:0.9", **kwargs: Any):
        self._operator = parse(operator)
        self.operator: str = self._operator.name
        """The operator's name."""
        super().__init__(policy, env, *args, **kwargs)

    def _setup_model(self) -> None:
        super()._setup_model()
        if self.operator == self._operator.name:
            return
        # `load` builds an agent with the default operator, then replaces its attributes by the saved ones.
        try:
            self._operator = parse(self.operator)
        except ValueError as error:
            remedy = f"pass it yourself: {type(self).__name__}.load(path, operator=...)"
            raise ValueError(f"the operator of a saved agent cannot be found: {error}; {remedy}") from error
        self.operator = self._operator.name

    def _excluded_save_params(self) -> list[str]:
        return [*super()._excluded_save_params(), "_operator"]

    def loss(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of a batch of the replay buffer, and the online network's Q(x, .)."""
        raise NotImplementedError

    def train(self, gradient_steps: int, batch_size: int = 100) -> None:
        """Take gradient steps as the original does, with the operator's targets."""
        self.policy.set_training_mode(True)
        self._update_learning_rate(self.policy.optimizer)
        replay: Any = self.replay_buffer
        losses, gaps = [], []
        for _ in range(gradient_steps):
            loss, q = self.loss(replay.sample(batch_size, env=self._vec_normalize_env))
            losses.append(loss.item())
            gaps.append(action_gap(q.detach()).mean().item())
            self.policy.optimizer.zero_grad()
            loss.backward()
            if self.max_grad_norm is not None:
                torch.nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            self.policy.optimizer.step()
        self._n_updates += gradient_steps
        self.logger.record("train/n_updates", self._n_updates, exclude="tensorboard")
        self.logger.record("train/loss", np.mean(losses))
        self.logger.record("train/action_gap", np.mean(gaps))

    def sample_operator(self) -> Operator:
        """Return the operator of one update. Only stochastic operators draw a random number; others leave the generator unchanged."""
        return self._operator if self._operator.draw is None else self._operator.at(torch.rand(()).item())

    def discounts(self, batch: Any) -> torch.Tensor:
        """Return the discount of each transition, shape (batch, 1): 0 if the episode terminated, unchanged if it was truncated."""
        return (1 - batch.dones) * (self.gamma if batch.discounts is None else batch.discounts)

    def td_targets(self, operator: AnyOperator, q: torch.Tensor, next_q: torch.Tensor, batch: Any) -> torch.Tensor:
        """Return an operator's target for each Q(x, a), given Q(x, .) and Q(x', .): shape (batch, 1)."""
        self_loop = _equal(batch.observations, batch.next_observations)
        rewards, discounts = batch.rewards[:, 0], self.discounts(batch)[:, 0]
        return td_target(operator, q, batch.actions[:, 0], rewards, discounts, next_q, returned=self_loop)[:, None]


class DQN(OperatorAgent, OriginalDQN):
    """`stable_baselines3.DQN` with an operator's targets. It takes the parameters of the original and the keyword `operator`.

    Parameters
    ----------
    operator
        A name such as `al:0.9`, `path/to/file.py:name` for your own, or any function of a `Backup`. A function that is not in a file is not
        saved; pass it again: `DQN.load(path, operator=function)`.

    Examples
    --------
    >>> model = DQN("MlpPolicy", "CartPole-v1", operator="pal-dqn:0.9", buffer_size=1000, seed=0, device="cpu")
    >>> model.learn(200).operator
    'pal-dqn:0.9'
    """

    def targets(self, batch: Any) -> torch.Tensor:
        """Return the operator's targets for a batch of the replay buffer: shape (batch, 1), without gradient.

        Examples
        --------
        >>> model = DQN("MlpPolicy", "CartPole-v1", operator="bellman", buffer_size=1000, seed=0, device="cpu").learn(50)
        >>> model.targets(model.replay_buffer.sample(8)).shape
        torch.Size([8, 1])
        """
        with torch.no_grad():
            q, next_q = self.q_net_target(batch.observations), self.q_net_target(batch.next_observations)
            return self.td_targets(self.sample_operator(), q, next_q, batch)

    def loss(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the Huber loss of a batch, and the online network's Q(x, .)."""
        q = self.q_net(batch.observations)
        return smooth_l1_loss(torch.gather(q, dim=1, index=batch.actions.long()), self.targets(batch)), q


try:
    from sb3_contrib import QRDQN as OriginalQRDQN  # noqa: N811  # pyright: ignore[reportMissingImports]
    from sb3_contrib.common.utils import quantile_huber_loss  # pyright: ignore[reportMissingImports]
except ModuleNotFoundError as _error:
    # DQN works without sb3-contrib.
    _missing = _error.name
else:

    class QRDQN(OperatorAgent, OriginalQRDQN):
        """`sb3_contrib.QRDQN` whose target quantiles have the operator's target as their mean; `operator` is as for `DQN`.

        Examples
        --------
        >>> model = QRDQN("MlpPolicy", "CartPole-v1", operator="al:0.9", buffer_size=1000, seed=0, device="cpu")
        >>> model.learn(200).operator
        'al:0.9'
        """

        def targets(self, batch: Any) -> torch.Tensor:
            """Return target quantiles for a batch of the replay buffer: shape (batch, quantiles), without gradient.

            Examples
            --------
            >>> model = QRDQN("MlpPolicy", "CartPole-v1", operator="al:0.9", buffer_size=1000, seed=0, device="cpu").learn(50)
            >>> model.targets(model.replay_buffer.sample(8)).shape
            torch.Size([8, 200])
            """
            with torch.no_grad():
                quantiles, next_quantiles = (self.quantile_net_target(x) for x in (batch.observations, batch.next_observations))
                q, next_q = quantiles.mean(dim=1), next_quantiles.mean(dim=1)
                greedy = _quantiles_of(next_quantiles, next_q.argmax(dim=1, keepdim=True))
                shift = self.td_targets(self.sample_operator(), q, next_q, batch) - self.td_targets("bellman", q, next_q, batch)
                return batch.rewards + self.discounts(batch) * greedy + shift

        def loss(self, batch: Any) -> tuple[torch.Tensor, torch.Tensor]:
            """Return the quantile Huber loss of a batch, and the mean of the online network's quantiles."""
            quantiles = self.quantile_net(batch.observations)
            chosen = _quantiles_of(quantiles, batch.actions.long())
            return quantile_huber_loss(chosen, self.targets(batch), sum_over_quantiles=True), quantiles.mean(dim=1)


def __getattr__(name: str) -> Any:
    if name == "QRDQN":
        raise ModuleNotFoundError(f"actiongap.sb3.QRDQN needs {_missing}: {install('sb3')}", name=_missing)
    raise AttributeError(f"module 'actiongap.sb3' has no attribute {name!r}")


def _equal(observations: Any, others: Any) -> torch.Tensor:
    """Return whether two batches of observations (tensors or dictionaries of tensors) are equal, for each transition."""
    if isinstance(observations, dict):
        return torch.stack([_equal(observations[name], others[name]) for name in observations]).all(dim=0)
    return (observations == others).flatten(1).all(dim=1)


def _quantiles_of(quantiles: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
    """Select the quantiles of one action per transition: (batch, quantiles) from (batch, quantiles, actions)."""
    return quantiles.gather(2, action[..., None].expand(-1, quantiles.shape[1], 1)).squeeze(2)
