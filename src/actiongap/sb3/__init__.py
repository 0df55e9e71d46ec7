"""Agents of Stable-Baselines3 with an operator of one's choice: `from actiongap.sb3 import DQN`, and nothing else changes.

The original regresses Q(x, a) on r + gamma max_b Q'(x', b), where Q' is the target network. Here the target is what an operator makes of
the same transition, all of whose values come from Q':

    replay buffer -> (x, a, r, discount, x') -> target network -> actiongap.td.td_target -> target
                                                online network -> Q(x, a) -> loss -> optimiser

With `operator="bellman"` that is the original, bit for bit. The discount is 0 at a terminal state; at a time limit it is not, if the
environment says which is which, as Gymnasium's do. With `n_steps` above 1 the reward is the sum of n discounted rewards, the discount is
gamma^n, and what the operator adds is of the first state and of the last. x' counts as x, for the consistent operator, where the two
observations are equal.

`QRDQN` is the same for the agent of that name in sb3-contrib, which learns distributions.

`train/action_gap` in the log is the online network's V(x) less its value of the second best action, on average over the batches learned
from. In the file that `save` writes, the operator is its text.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from actiongap._system import install

__all__ = ["DQN", "QRDQN"]

_HOME = {"DQN": "dqn", "QRDQN": "qrdqn"}
if TYPE_CHECKING:
    from actiongap.sb3.dqn import DQN
    from actiongap.sb3.qrdqn import QRDQN


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'actiongap.sb3' has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"actiongap.sb3.{_HOME[name]}"), name)
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(f"actiongap.sb3.{name} needs {missing.name}: {install('sb3')}", name=missing.name) from missing
