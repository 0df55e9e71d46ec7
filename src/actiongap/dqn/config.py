"""The numbers of an agent, each with what it does, and sets of them that go together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args, get_origin, get_type_hints


@dataclass(frozen=True)
class Settings:
    """How an agent learns. What is given here are the settings of the MinAtar paper.

    Examples
    --------
    >>> Settings().replay_ratio, PRESETS["throughput"].replay_ratio
    (32.0, 8.0)
    """

    gamma: float = 0.99
    """The discount."""
    environments: int = 1
    """Environments that the agent plays at once; they step together, and one step of all of them is a round."""
    updates: int = 1
    """Gradient steps after every round."""
    batch: int = 32
    """Transitions in a gradient step."""
    replay: int = 100_000
    """Transitions that are remembered."""
    learn_after: int = 5_000
    """Steps before the first gradient step."""
    target_every: int = 1_000
    """Steps between updates of the target network."""
    epsilon: float = 0.1
    """How often a random action is taken in the end; from always it falls evenly to that."""
    explore_for: int = 100_000
    """Steps until it has fallen, counted from when learning begins."""
    optimiser: Literal["rmsprop", "rmsprop-dqn", "adam"] = "rmsprop"
    """Centred RMSProp (decay 0.95, 0.01 added to the root), the same as DeepMind's DQN has it (0.01 inside the root, where squares are of
    gradients summed over a batch), or Adam (0.9, 0.999, 1e-5 added)."""
    rate: float = 0.00025
    """The step size."""
    loss: Literal["huber", "squared"] = "huber"
    """Huber's loss, in which errors beyond 1 count linearly, or half the square."""
    norm: float | None = None
    """The norm to which longer gradients are cut."""
    double: bool = False
    """Double DQN: V(x') is what the target network thinks of the action that the online network prefers. Outside the theorem."""
    dueling: bool = False
    """Q put together from a value and advantages. Another network, the same operator."""
    steps: int = 1
    """Steps of a transition; more than 1 are outside the theorem."""
    priority: float = 0.0
    """How much larger errors are replayed more often (0.6 is usual), with weights that correct for it; 0 for not at all."""
    correction: float = 0.4
    """How far those weights correct for it, from 0 to 1."""
    corrections: Literal["target", "online"] = "target"
    """The network whose values an operator compares; V(x') is the target network's in any case."""
    stack: int = 1
    """Frames that are one observation, in games that are seen frame by frame."""
    clip: bool = False
    """Whether rewards are clipped to [-1, 1] for learning."""
    lives: Literal["ignored", "terminal"] = "ignored"
    """Whether a lost life ends an episode for learning."""
    sticky: float = 0.1
    """How likely an environment is to repeat the last action instead, where it can."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """What products of matrices read; parameters, sums, losses and optimiser are float32 always."""

    def __post_init__(self) -> None:
        for name in ("environments", "updates", "batch", "replay", "target_every", "steps", "stack"):
            if (value := getattr(self, name)) < 1:
                raise ValueError(f"{name} is {value!r}: it must be 1 or more")
        for name in ("learn_after", "explore_for", "rate"):
            if (value := getattr(self, name)) < 0:
                raise ValueError(f"{name} is {value!r}: it must be 0 or more")
        for name in ("gamma", "epsilon", "sticky", "priority", "correction"):
            if not 0 <= (value := getattr(self, name)) <= 1:
                raise ValueError(f"{name} is {value!r}: it must be from 0 to 1")
        if self.replay >= 2**31:
            raise ValueError(f"replay is {self.replay!r}: it must be below 2^31")
        if self.norm is not None and not self.norm > 0:
            raise ValueError(f"norm is {self.norm!r}: it must be above 0, or be left out")
        for name, kind in get_type_hints(Settings).items():
            if get_origin(kind) is Literal and (value := getattr(self, name)) not in get_args(kind):
                raise ValueError(f"{name} is {value!r}: choose from {', '.join(get_args(kind))}")
        if self.gamma == 1:
            raise ValueError("gamma is 1.0: it must be below 1, or values need not be finite")
        if self.double and self.corrections == "online":
            raise ValueError("corrections is 'online': the online network already chooses in Double DQN, so leave out double")
        # Of stacks one row more: while half of the environments have gone on, the oldest frame of the others' is already written over.
        rounds = self.steps + self.stack + (self.stack > 1)
        if self.replay < self.environments * rounds:
            raise ValueError(f"replay is {self.replay!r}: it must hold {rounds} rounds of {self.environments} environments at least")

    @property
    def slots(self) -> int:
        """Rounds that are remembered."""
        return self.replay // self.environments

    @property
    def asks_online(self) -> bool:
        """Whether targets depend on the online network too."""
        return self.double or self.corrections == "online"

    @property
    def replay_ratio(self) -> float:
        """Transitions learned from for each step played."""
        return self.updates * self.batch / self.environments


ATARI = Settings(
    environments=8,
    updates=2,
    replay=1_000_000,
    learn_after=50_000,
    target_every=10_000,
    explore_for=1_000_000,
    optimiser="rmsprop-dqn",
    stack=4,
    clip=True,
    sticky=0.25,
)
"""DeepMind's DQN, which takes a gradient step of 32 transitions every 4 steps: here 2 after a step of 8 games."""

PRESETS = {
    "faithful": Settings(),
    "throughput": Settings(environments=64, updates=4, batch=128, optimiser="adam", precision="bfloat16"),
    "stochastic-minimal": ATARI,
    "original-dqn": replace(ATARI, sticky=0.0, lives="terminal"),
}
"""On MinAtar `faithful` learns from 32 transitions a step, as its paper does, and `throughput` from 8, in larger batches. On Atari
`stochastic-minimal` and `original-dqn` are the two settings of the paper on the action gap, and learn from 8."""
