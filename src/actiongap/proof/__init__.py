"""Theorem 1 as a decision procedure: z3 decides whether an operator satisfies its conditions for every MDP.

`decide` applies the operator to symbols (`symbols`) and searches for a violation of either condition (`conditions`). `actiongap.prove` also
searches for a small MDP on which iterating the operator fails (`actiongap.mdp.witness`).
"""

from actiongap._system import needing_extras

with needing_extras(__name__):
    from actiongap.proof.conditions import Verdict, commutes, decide

__all__ = ["Verdict", "commutes", "decide"]
