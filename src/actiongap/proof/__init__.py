"""Theorem 1 as a decision procedure: whether an operator satisfies its conditions for every MDP, decided by z3.

`prove` runs the operator on symbols (`symbols`), asks for a violation of either condition (`conditions`), and where one is violated looks
for a small MDP on which iterating the operator is seen to go wrong (`witness`).
"""

from actiongap.proof.conditions import Verdict, commutes, prove

__all__ = ["Verdict", "commutes", "prove"]
