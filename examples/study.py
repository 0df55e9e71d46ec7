"""A study of operators, from Python: try `python examples/study.py`. Run it again to continue; finished runs are not repeated."""

import sys

import actiongap as ag


def mine(b):
    """Persistent advantage learning, written out."""
    return ag.maximum(b.bellman - 0.5 * b.gap, b.repeat)


def main(out="out/lake"):
    """Solve a lake, follow the sequence of an operator, and compare operators in Q-learning."""
    mdp = ag.load_mdp("gym/FrozenLake-v1", gamma=0.95)
    print(ag.solve(mdp, mine).status)
    for k, q in enumerate(ag.iterate(mdp, mine, sweeps=20), start=1):
        if k % 10 == 0:
            print(f"after {k} sweeps, V of the first state is {q[0].max():.4f}")

    study = ag.Study(
        "lake", "q-learning", env=["gridworld:4,4", "gym/FrozenLake-v1"], operator=["bellman", "al:0.9", mine], seeds=3, steps=2000, rows=10
    )
    # A row is a dictionary: run, env, operator, seed, step, and the columns of the kind. Send it to your own log here.
    best = {}
    runs = study.run(out, callback=lambda row: best.update({row["run"]: max(row["score"], best.get(row["run"], row["score"]))}))
    print(runs)
    if best:
        print(f"the best score in a row is {max(best.values()):.2f}")
    for row in runs.table():
        if row["number"] == "gap, last":
            print(f"{row['task']:18} {row['agent']:18} gap {row['value']:.4f} [{row['low']:.4f}, {row['high']:.4f}], n = {row['n']}")
    print(f"wrote {ag.report(runs, f'{out}/page.html').page}")


if __name__ == "__main__":
    main(*sys.argv[1:])
