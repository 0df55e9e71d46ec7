"""Gap-increasing operators in reinforcement learning: plan with them, learn with them, prove things about them.

Names are loaded when they are first used, so that importing an operator loads NumPy and little else.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Backup": "operators",
    "Operator": "operators",
    "TheoryWarning": "operators",
    "advantage": "operators",
    "backup": "operators",
    "baird": "operators",
    "bellman": "operators",
    "consistent": "operators",
    "lazy": "operators",
    "maximum": "maths",
    "minimum": "maths",
    "parse": "operators",
    "persistent": "operators",
    "persistent_dqn": "operators",
    "where": "maths",
    "FiniteMDP": "finite.model",
    "NotConvergedError": "finite.solve",
    "Solution": "finite.solve",
    "solve": "finite.solve",
    "from_gymnasium": "finite.gymnasium",
    "load_mdp": "finite.problems",
    "save_npz": "finite.problems",
    "cake": "finite.examples",
    "chain": "finite.examples",
    "garnet": "finite.examples",
    "gridworld": "finite.examples",
    "single_state": "finite.examples",
    "Aggregation": "finite.aggregation",
    "induced_mdp": "finite.aggregation",
    "interpolated_backups": "finite.aggregation",
    "iterate_interpolated": "finite.aggregation",
    "Learned": "finite.learning",
    "expected_policy_evaluation": "finite.learning",
    "q_learning": "finite.learning",
    "sarsa": "finite.learning",
    "FittedQ": "finite.fitted",
    "Transitions": "finite.fitted",
    "collect": "finite.fitted",
    "fitted_q_iteration": "finite.fitted",
    "FiniteEnv": "finite.gymnasium",
    "sampled_backup": "td",
    "td_target": "td",
    "Verdict": "proof",
    "prove": "finite.witness",
    "evaluate_policy": "finite.exact",
    "policy_iteration": "finite.exact",
    "q_stationary": "finite.exact",
}
"""Where each public name lives."""

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'actiongap' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"actiongap.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    # What else is in the module is how it is made, and would only be in the way of whoever looks for a name.
    return [*__all__, "__version__"]


if TYPE_CHECKING:
    from actiongap.finite.aggregation import Aggregation, induced_mdp, interpolated_backups, iterate_interpolated
    from actiongap.finite.exact import evaluate_policy, policy_iteration, q_stationary
    from actiongap.finite.examples import cake, chain, garnet, gridworld, single_state
    from actiongap.finite.fitted import FittedQ, Transitions, collect, fitted_q_iteration
    from actiongap.finite.gymnasium import FiniteEnv, from_gymnasium
    from actiongap.finite.learning import Learned, expected_policy_evaluation, q_learning, sarsa
    from actiongap.finite.model import FiniteMDP
    from actiongap.finite.problems import load_mdp, save_npz
    from actiongap.finite.solve import NotConvergedError, Solution, solve
    from actiongap.finite.witness import prove
    from actiongap.maths import maximum, minimum, where
    from actiongap.operators import (
        Backup,
        Operator,
        TheoryWarning,
        advantage,
        backup,
        baird,
        bellman,
        consistent,
        lazy,
        parse,
        persistent,
        persistent_dqn,
    )
    from actiongap.proof import Verdict
    from actiongap.td import sampled_backup, td_target
