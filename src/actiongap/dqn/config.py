"""Hyperparameters of a DQN agent, and presets: MinAtar's DQN, a variant for accelerators, and the paper's two Atari settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args, get_origin, get_type_hints

from actiongap._suggest import choose_from

COUNTS = ("num_envs", "gradient_steps", "batch_size", "buffer_size", "target_update_interval", "n_step", "frame_stack")
"""Numbers of at least 1."""


@dataclass(frozen=True)
class Config:
    """Hyperparameters of a DQN agent. The defaults are those of the MinAtar paper.

    Steps are steps of one environment: an iteration of `num_envs` environments is `num_envs` steps.

    `frame_stack`, `clip_rewards` and `terminal_on_life_loss` are for Atari. Populations on other environments ignore the last two, and the
    experiment `train` refuses all three there.

    Examples
    --------
    >>> Config().capacity, PRESETS["throughput"].capacity
    (100000, 1562)
    """

    gamma: float = 0.99
    """Discount factor."""
    num_envs: int = 1
    """Environments per agent. They step together; one step of all of them is an iteration."""
    gradient_steps: int = 1
    """Gradient steps per iteration."""
    batch_size: int = 32
    """Transitions per gradient step."""
    buffer_size: int = 100_000
    """Capacity of the replay buffer, in transitions."""
    learning_starts: int = 5_000
    """Steps before the first gradient step."""
    target_update_interval: int = 1_000
    """Steps between updates of the target network."""
    final_epsilon: float = 0.1
    """Final probability of a random action; it falls linearly from 1."""
    exploration_steps: int = 100_000
    """Steps until epsilon reaches its final value, counted from `learning_starts`."""
    optimizer: Literal["rmsprop", "rmsprop-dqn", "adam"] = "rmsprop"
    """rmsprop: centered RMSProp (decay 0.95, 0.01 added outside the root). rmsprop-dqn: RMSProp as in DeepMind's DQN (0.01 inside the
    root, gradients summed over the batch). adam: Adam (0.9, 0.999, epsilon 1e-5)."""
    learning_rate: float = 0.00025
    """Learning rate of the optimizer."""
    loss: Literal["huber", "squared"] = "huber"
    """Loss of the TD error: Huber (linear beyond 1), or half its square."""
    max_grad_norm: float | None = None
    """Maximum norm of the gradient; larger gradients are rescaled. By default no limit."""
    double: bool = False
    """Double DQN: the target network evaluates the action that the online network prefers in x'. Theorem 1 does not cover it."""
    dueling: bool = False
    """Dueling network: Q is a value plus advantages whose mean is zero. The operator is unchanged."""
    n_step: int = 1
    """Steps per transition (n-step returns). Theorem 1 covers 1 only."""
    priority_exponent: float = 0.0
    """Prioritized replay: transitions are sampled with probability proportional to |TD error|^priority_exponent (0.6 is usual); 0 samples
    uniformly."""
    importance_exponent: float = 0.4
    """Exponent of the importance-sampling weights that correct for prioritized replay, from 0 to 1."""
    correction_network: Literal["target", "online"] = "target"
    """Network that computes the operator's correction, such as alpha (V(x) - Q(x, a)). V(x') always comes from the target network."""
    behavior: Literal["own", "bellman"] = "own"
    """Who chooses the actions of training: own, the agent itself; bellman, a second learner with Bellman's operator that shares the replay
    buffer and its batches. With one seed, agents with any operators then learn from the same data. Not on Atari."""
    frame_stack: int = 1
    """Number of stacked frames per observation (Atari)."""
    clip_rewards: bool = False
    """On Atari, clip rewards to [-1, 1] for learning."""
    terminal_on_life_loss: bool = False
    """On Atari, treat the loss of a life as the end of an episode for learning."""
    repeat_action_probability: float = 0.1
    """Probability that the environment repeats the previous action (sticky actions). Environments of Gymnasium ignore it."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of the inputs of matrix products. Parameters, sums, losses and the optimizer are always float32."""

    def __post_init__(self) -> None:
        for name in COUNTS:
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} is {value!r}: it must be 1 or more")
        for name in ("learning_starts", "exploration_steps", "learning_rate"):
            if (value := getattr(self, name)) < 0:
                raise ValueError(f"{name} is {value!r}: it must be 0 or more")
        for name in ("gamma", "final_epsilon", "repeat_action_probability", "priority_exponent", "importance_exponent"):
            if not 0 <= (value := getattr(self, name)) <= 1:
                raise ValueError(f"{name} is {value!r}: it must be from 0 to 1")
        for name in COUNTS:
            if (value := getattr(self, name)) >= 2**31:
                raise ValueError(f"{name} is {value!r}: it must be below 2^31")
        if self.max_grad_norm is not None and not self.max_grad_norm > 0:
            raise ValueError(f"max_grad_norm is {self.max_grad_norm!r}: it must be above 0, or be left out")
        for name, kind in get_type_hints(Config).items():
            if get_origin(kind) is Literal and (value := getattr(self, name)) not in get_args(kind):
                raise ValueError(f"{name} is {value!r}: {choose_from(value, get_args(kind))}")
        if self.gamma == 1:
            raise ValueError("gamma is 1.0: it must be below 1, because values could otherwise be infinite")
        if self.double and self.correction_network == "online":
            raise ValueError(
                "correction_network is 'online': in Double DQN the online network already selects the action, so leave out double"
            )
        # Frame stacks need one more row: while half of the environments have stepped, the oldest frame of the others is overwritten.
        iterations = self.n_step + self.frame_stack + (self.frame_stack > 1)
        if self.buffer_size < self.num_envs * iterations:
            raise ValueError(
                f"buffer_size is {self.buffer_size!r}: it must be at least {self.num_envs * iterations}, "
                f"{iterations} iterations of {self.num_envs} environments"
            )

    @property
    def capacity(self) -> int:
        """Rows of the replay buffer; each holds one step of all environments."""
        return self.buffer_size // self.num_envs

    @property
    def targets_use_online(self) -> bool:
        """Whether targets depend on the online network too."""
        return self.double or self.correction_network == "online"


ATARI = Config(
    num_envs=8,
    gradient_steps=2,
    buffer_size=1_000_000,
    learning_starts=50_000,
    target_update_interval=10_000,
    exploration_steps=1_000_000,
    optimizer="rmsprop-dqn",
    frame_stack=4,
    clip_rewards=True,
    repeat_action_probability=0.25,
)
"""DeepMind's DQN takes one gradient step of 32 transitions per 4 steps: here 2 per iteration of 8 environments."""

PRESETS = {
    "faithful": Config(),
    "throughput": Config(num_envs=64, gradient_steps=4, batch_size=128, optimizer="adam", precision="bfloat16"),
    "stochastic-minimal": ATARI,
    "original-dqn": replace(ATARI, repeat_action_probability=0.0, terminal_on_life_loss=True),
}
"""On MinAtar, `faithful` has a replay ratio of 32, as in its paper; `throughput` has 8, with larger batches. On Atari,
`stochastic-minimal` and `original-dqn` are the two settings of the paper on the action gap; both have a replay ratio of 8."""
