"""Your own operator, from one function to a verdict, a plan and a learning curve: `python examples/own_operator.py`."""

import actiongap as ag


def clipped_gap(b):
    """Return the Bellman backup minus half of the action gap, but never less than the backup of repeating the action."""
    return ag.maximum(b.bellman - 0.5 * b.gap, b.repeat)


def too_much(b):
    """Return the Bellman backup minus twice the gap: this subtracts too much."""
    return b.bellman - 2.0 * b.gap


def main():
    # 1. Is it optimality-preserving and gap-increasing on every MDP? A refutation comes with a small MDP where the operator fails.
    for operator in (clipped_gap, too_much):
        print(f"{operator.__name__}: {ag.prove(operator).summary}")

    # 2. What does it change on one MDP? V* and the greedy policy stay, the gaps widen.
    mdp = ag.garnet(50, 4, 3, seed=1)
    bellman, mine = ag.solve(mdp, "bellman"), ag.solve(mdp, clipped_gap)
    print(f"same greedy policy: {bool((bellman.policy == mine.policy).all())}, |V - V*| <= {mine.error_bound:.1g}")
    print(f"mean action gap: {bellman.gaps.mean():.3f} with Bellman, {mine.gaps.mean():.3f} with {clipped_gap.__name__}")

    # 3. Does it help when Q is learned from samples?
    for operator in ("bellman", clipped_gap):
        wrong = []
        for seed in range(5):
            learned = ag.q_learning(mdp, operator, steps=20_000, seed=seed)
            wrong.append((learned.policy != bellman.policy).mean())
        print(f"Q-learning, {getattr(operator, '__name__', operator)}: wrong action in {sum(wrong) / len(wrong):.0%} of the states")


if __name__ == "__main__":
    main()
