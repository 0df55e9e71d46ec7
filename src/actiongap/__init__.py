"""Gap-increasing operators in reinforcement learning: planning, learning, and proofs.

Names are imported on first use, so importing an operator loads little more than NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from actiongap._version import __version__

_MODULES = {
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
    "FiniteMDP": "mdp.model",
    "NotConvergedError": "mdp.solve",
    "Solution": "mdp.solve",
    "iterate": "mdp.solve",
    "solve": "mdp.solve",
    "limit_gaps": "mdp.limits",
    "Diagnosis": "mdp.diagnose",
    "diagnose": "mdp.diagnose",
    "from_gymnasium": "mdp.gym",
    "load_explicit": "mdp.explicit",
    "load_mdp": "mdp.generators",
    "save_npz": "mdp.generators",
    "cake": "mdp.generators",
    "chain": "mdp.generators",
    "garnet": "mdp.generators",
    "gridworld": "mdp.generators",
    "ring": "mdp.generators",
    "single_state": "mdp.generators",
    "Aggregation": "mdp.aggregation",
    "induced_mdp": "mdp.aggregation",
    "interpolated_backups": "mdp.aggregation",
    "iterate_interpolated": "mdp.aggregation",
    "LearningResult": "mdp.learning",
    "expected_policy_evaluation": "mdp.learning",
    "q_learning": "mdp.learning",
    "sarsa": "mdp.learning",
    "FittedQ": "mdp.fitted",
    "Transitions": "mdp.fitted",
    "collect": "mdp.fitted",
    "fitted_q_iteration": "mdp.fitted",
    "FiniteEnv": "mdp.gym",
    "sampled_backup": "td",
    "td_target": "td",
    "Verdict": "proof",
    "prove": "mdp.witness",
    "Agent": "api.agents",
    "Agents": "api.agents",
    "load_agent": "api.agents",
    "load_agents": "api.agents",
    "train": "api.agents",
    "report": "api.reports",
    "reproduce": "paper.reproduce",
    "demo": "interactive.page",
    "doctor": "diagnosis",
    "Evaluation": "api.policies",
    "PlanFailedError": "api.policies",
    "Policy": "api.policies",
    "load_policy": "api.policies",
    "plan": "api.policies",
    "Simulator": "api.simulators",
    "load_simulator": "api.simulators",
    "Discrete": "planning.simulator",
    "EpisodeSpec": "planning.simulator",
    "Factor": "planning.simulator",
    "Outcome": "planning.simulator",
    "Periodic": "planning.simulator",
    "Uniform": "planning.simulator",
    "maths": "",
    "Runs": "api.studies",
    "Study": "api.studies",
    "load_study": "api.studies",
    "read_runs": "api.studies",
    "Check": "api.targets",
    "check_target": "api.targets",
    "evaluate_policy": "mdp.exact",
    "policy_iteration": "mdp.exact",
    "q_stationary": "mdp.exact",
}
"""The module of each public name; empty for a module."""

__all__ = sorted(_MODULES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'actiongap' has no attribute {name!r}{_near(name)}")
    from actiongap._system import needing_extras

    with needing_extras(f"actiongap.{name}"):
        module = importlib.import_module(f"actiongap.{_MODULES[name] or name}")
        value = getattr(module, name) if _MODULES[name] else module
    globals()[name] = value
    return value


def _near(name: str) -> str:
    """Return the end of an error message about an unknown name."""
    # Python asks for special names, such as __path__, which may be absent.
    if name.startswith("_"):
        return ""
    from actiongap._suggest import did_you_mean

    remedy = did_you_mean(name, __all__)
    return f": {remedy}" if remedy else ""


def __dir__() -> list[str]:
    # Public names only, for tab completion.
    return [*__all__, "__version__"]


if TYPE_CHECKING:
    from actiongap import maths
    from actiongap.api.agents import Agent, Agents, load_agent, load_agents, train
    from actiongap.api.policies import Evaluation, PlanFailedError, Policy, load_policy, plan
    from actiongap.api.reports import report
    from actiongap.api.simulators import Simulator, load_simulator
    from actiongap.api.studies import Runs, Study, load_study, read_runs
    from actiongap.api.targets import Check, check_target
    from actiongap.diagnosis import doctor
    from actiongap.interactive.page import demo
    from actiongap.maths import maximum, minimum, where
    from actiongap.mdp.aggregation import Aggregation, induced_mdp, interpolated_backups, iterate_interpolated
    from actiongap.mdp.diagnose import Diagnosis, diagnose
    from actiongap.mdp.exact import evaluate_policy, policy_iteration, q_stationary
    from actiongap.mdp.explicit import load_explicit
    from actiongap.mdp.fitted import FittedQ, Transitions, collect, fitted_q_iteration
    from actiongap.mdp.generators import cake, chain, garnet, gridworld, load_mdp, ring, save_npz, single_state
    from actiongap.mdp.gym import FiniteEnv, from_gymnasium
    from actiongap.mdp.learning import LearningResult, expected_policy_evaluation, q_learning, sarsa
    from actiongap.mdp.limits import limit_gaps
    from actiongap.mdp.model import FiniteMDP
    from actiongap.mdp.solve import NotConvergedError, Solution, iterate, solve
    from actiongap.mdp.witness import prove
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
    from actiongap.paper.reproduce import reproduce
    from actiongap.planning.simulator import Discrete, EpisodeSpec, Factor, Outcome, Periodic, Uniform
    from actiongap.proof import Verdict
    from actiongap.td import sampled_backup, td_target
