"""Theorem 1 as a decision procedure: whether an operator satisfies its conditions for every MDP, decided by z3.

`decide` runs the operator on symbols (`symbols`) and asks for a violation of either condition (`conditions`). `actiongap.prove` also looks
for a small MDP on which iterating the operator goes wrong (`actiongap.mdp.witness`).
"""

from actiongap.proof.conditions import Verdict, commutes, decide

__all__ = ["Verdict", "commutes", "decide"]
