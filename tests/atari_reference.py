"""Independent reference for the Atari agents: episodes as plain lists, DeepMind's DQN in PyTorch, and scripted games.

It is slow, and shares no code with the package except `StepResult`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from actiongap.envs.atari import StepResult

BLACK = 0


@dataclass
class Episode:
    """The frames, actions and rewards of an episode: one frame more than steps."""

    frames: list[np.ndarray]
    actions: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminal: bool = False
    """Whether it terminated; False if it was truncated or is still running."""

    def stack(self, i: int, depth: int) -> np.ndarray:
        """Return the frames up to the i-th, the newest last, and black before the first."""
        black = np.full_like(self.frames[0], BLACK)
        return np.stack([self.frames[j] if j >= 0 else black for j in range(i - depth + 1, i + 1)], axis=-1)


class ExpectedTransition(NamedTuple):
    """An n-step transition."""

    stack: np.ndarray
    action: int
    reward: float
    discount: float
    next_stack: np.ndarray
    newest: np.ndarray
    """The newest frame of the next stack."""


class EpisodeRecord:
    """The episodes of one environment, and the episode of each iteration."""

    def __init__(self) -> None:
        self.episodes: list[Episode] = []
        self.steps: dict[int, tuple[Episode, int]] = {}
        """Episode and index of the step of each iteration. Iterations that only started a game are missing."""

    def reset(self, frame: np.ndarray) -> None:
        self.episodes.append(Episode([frame]))

    def step(self, now: int, action: int, reward: float, frame: np.ndarray, terminal: bool) -> None:
        episode = self.episodes[-1]
        self.steps[now] = (episode, len(episode.actions))
        episode.frames.append(frame)
        episode.actions.append(action)
        episode.rewards.append(reward)
        episode.terminal = terminal

    def transition(self, now: int, n: int, gamma: float, depth: int) -> ExpectedTransition:
        """Return the n-step transition of an iteration; it ends with its episode."""
        episode, i = self.steps[now]
        steps = min(n, len(episode.actions) - i)
        reward = sum(gamma**k * episode.rewards[i + k] for k in range(steps))
        ended = episode.terminal and i + steps == len(episode.actions)
        next_stack = episode.stack(i + steps, depth)
        return ExpectedTransition(
            episode.stack(i, depth), episode.actions[i], reward, 0.0 if ended else gamma**steps, next_stack, next_stack[..., -1]
        )


def sampleable(record: EpisodeRecord, newest: int, capacity: int, n: int, depth: int) -> set[int]:
    """Return the iterations whose frame stacks and next n steps are still in a ring buffer of `capacity` frames.

    Frame r was seen before iteration r. The ring holds the last frames, up to the one after the newest iteration.
    """
    stored = set(range(max(1, newest + 2 - capacity), newest + 2))
    return {now for now in record.steps if now + n - 1 <= newest and all(r in stored for r in range(now - depth + 1, now + 1))}


class Scripted:
    """Fake emulators with short games, rewards of all sizes, and all ways to end.

    Frames and rewards depend only on the emulator and the number of its game. All actions and results are logged.
    """

    def __init__(self, count: int, side: int, longest: int = 9, shortest: int = 1):
        self.count, self.side, self.longest, self.shortest = count, side, longest, shortest
        self.game = np.zeros(count, int)
        self.log: list[tuple[np.ndarray | None, StepResult]] = []
        self.parts = (self,)
        """One group with all emulators."""

    def of_part(self, rows: Any, part: int) -> Any:
        return rows

    def reset(self, seeds: Any) -> StepResult:
        assert len(np.asarray(seeds)) == self.count
        self.ended = np.ones(self.count, bool)
        return self._shown(None)

    def send(self, actions: Any) -> None:
        self.actions = np.array(actions)

    def receive(self) -> StepResult:
        return self._shown(self.actions)

    def _shown(self, actions: np.ndarray | None) -> StepResult:
        frame = np.empty((self.count, self.side, self.side), np.uint8)
        reward, (lost, terminated, truncated) = np.zeros(self.count, np.float32), np.zeros((3, self.count), bool)
        first = self.ended
        self.game, self.step = self.game + first, np.where(first, 0, self.step + 1) if actions is not None else np.zeros(self.count, int)
        for i in range(self.count):
            rng = np.random.default_rng([i, self.game[i]])
            length, kind = int(rng.integers(self.shortest, self.longest + 1)), rng.random()
            step_rng = np.random.default_rng([i, self.game[i], self.step[i]])
            frame[i] = step_rng.integers(1, 256, (self.side, self.side))
            if not first[i]:
                reward[i] = step_rng.choice([-7.0, -1.0, 0.0, 0.5, 1.0, 50.0])
                done = self.step[i] == length
                terminated[i], truncated[i] = done and kind < 0.6, done and kind >= 0.6
                lost[i] = not done and step_rng.random() < 0.25
        self.ended = terminated | truncated
        seen = StepResult(frame, reward, lost, terminated, truncated, first)
        self.log.append((actions, seen))
        return seen


def records_of(
    log: list[tuple[np.ndarray | None, StepResult]], iteration: int, terminal_on_life_loss: bool, clipped: bool
) -> list[EpisodeRecord]:
    """Return the episodes of every environment, from the log of actions and results since an iteration."""
    found = [EpisodeRecord() for _ in log[0][1].reward]
    for now, (actions, seen) in enumerate(log, iteration):
        for i, record in enumerate(found):
            if seen.first[i]:
                record.reset(seen.frame[i])
                continue
            assert actions is not None
            reward = float(np.clip(seen.reward[i], -1, 1)) if clipped else float(seen.reward[i])
            life = bool(seen.life_lost[i]) and terminal_on_life_loss
            record.step(now, int(actions[i]), reward, seen.frame[i], bool(seen.terminated[i]) or life)
            if life:
                record.reset(seen.frame[i])
    return found


class Game(NamedTuple):
    """One game of an evaluation."""

    env: int
    start: int
    """Number of steps of all environments before it."""
    stacks: list[np.ndarray]
    """The observation before each step."""
    rewards: list[float]
    lost: list[bool]
    terminated: bool
    last: np.ndarray
    """The observation after the last step."""


def games_of(log: list[tuple[np.ndarray | None, StepResult]], env: int, depth: int, limit: int) -> list[Game]:
    """Return the finished games of one emulator in order, truncated after `limit` steps."""
    found: list[Game] = []
    episode, start, rewards, lost = None, 0, [], []
    for now, (_, seen) in enumerate(log):
        if seen.first[env]:
            episode, start, rewards, lost = Episode([seen.frame[env]]), now, [], []
            continue
        if episode is None:
            continue
        episode.frames.append(seen.frame[env])
        rewards.append(float(seen.reward[env]))
        lost.append(bool(seen.life_lost[env]))
        if seen.terminated[env] or seen.truncated[env] or len(rewards) == limit:
            stacks = [episode.stack(i, depth) for i in range(len(rewards) + 1)]
            found.append(Game(env, start, stacks[:-1], rewards, lost, bool(seen.terminated[env]), stacks[-1]))
            episode = None
    return found


# DeepMind's DQN. PyTorch is imported where it is used, so the rest works without it.


def nature(layers: Any, images: Any, actions: int, dueling: bool = False) -> Any:
    """Return Q(x, .) of byte stacks (batch, 84, 84, 4), for the actions of a game: the network of the Nature paper."""
    import torch
    from torch.nn.functional import conv2d, relu

    x = torch.as_tensor(np.asarray(images)).to(layers[0][0].dtype).permute(0, 3, 1, 2) / 255
    for (kernel, bias), stride in zip(layers[:3], (4, 2, 1), strict=True):
        x = relu(conv2d(x, kernel.permute(3, 2, 0, 1), bias, stride))
    x = x.permute(0, 2, 3, 1).flatten(1)
    (hidden, shift), (weights, bias) = layers[3:]
    x = relu(x @ hidden + shift) @ weights + bias
    if not dueling:
        return x[:, :actions]
    advantages = x[:, 1 : 1 + actions]
    return x[:, :1] + advantages - advantages.mean(dim=1, keepdim=True)


def in_torch(layers: Any) -> list[tuple[Any, Any]]:
    """Return weights and biases as float64 tensors."""
    import torch

    return [(torch.tensor(np.asarray(w), dtype=torch.float64), torch.tensor(np.asarray(b), dtype=torch.float64)) for w, b in layers]


def paper_target(operator: str, q: Any, a: Any, r: Any, discount: Any, q_next: Any, v_next: Any) -> np.ndarray:
    """Return the targets by the paper's formulas, one transition at a time. Values after a terminal state are 0.

    AL subtracts alpha (V(x) - Q(x, a)) from the Bellman target; PAL subtracts the smaller of that and alpha (V(x') - Q(x', a)).
    """
    kind, _, number = operator.partition(":")
    alpha = float(number or 0)
    out = []
    for i in range(len(a)):
        terminal = discount[i] == 0
        bellman = r[i] + (0.0 if terminal else discount[i] * v_next[i])
        gap = max(q[i]) - q[i][a[i]]
        next_gap = 0.0 if terminal else max(v_next[i] - q_next[i][a[i]], 0.0)
        out.append({"bellman": bellman, "al": bellman - alpha * gap, "pal-dqn": bellman - alpha * min(gap, next_gap)}[kind])
    return np.array(out)


class RMSProp:
    """Centred RMSProp as in DeepMind's DQN: 0.01 inside the root."""

    def __init__(self, parameters: list[Any], learning_rate: float = 2.5e-4):
        self.parameters, self.learning_rate = parameters, learning_rate
        self.mean, self.square = ([p.detach() * 0 for p in parameters] for _ in range(2))

    def step(self, gradients: Any) -> None:
        for k, g in enumerate(gradients):
            self.mean[k] = 0.95 * self.mean[k] + 0.05 * g
            self.square[k] = 0.95 * self.square[k] + 0.05 * g**2
            self.parameters[k].data -= self.learning_rate * g / (self.square[k] - self.mean[k] ** 2 + 0.01).sqrt()


def learn(layers: Any, optimizer: RMSProp, images: Any, a: Any, targets: np.ndarray, actions: int, dueling: bool = False) -> float:
    """Take a gradient step on the Huber loss summed over a batch, and return the mean loss."""
    import torch

    flat = [part for layer in layers for part in layer]
    for part in flat:
        part.requires_grad_(True)
    chosen = nature(layers, images, actions, dueling)[torch.arange(len(a)), torch.as_tensor(np.asarray(a)).long()]
    error = (chosen - torch.as_tensor(targets)).abs()
    losses = torch.where(error <= 1, 0.5 * error**2, error - 0.5)
    optimizer.step(torch.autograd.grad(losses.sum(), flat))
    return float(losses.mean().detach())
