"""The action gap in one notebook: `marimo edit examples/tutorial.py`; `marimo run` shows it read-only, `python` runs it."""

# The last expression of a cell is displayed.
# pyright: reportUnusedExpression=false

import marimo

__generated_with = "0.25.2"

app = marimo.App(width="medium", app_title="The action gap")


@app.cell
def _():
    import gymnasium
    import marimo as mo
    import matplotlib.pyplot as plt
    import numpy as np

    import actiongap as ag

    return ag, gymnasium, mo, np, plt


@app.cell
def _(mo):
    mo.md("""
    # The action gap

    Computing takes under two minutes, reading ten. In `x1` you may eat cake, which pays 1 and leads, with probability 1/2, to
    an absorbing bad state, or abstain, which pays nothing. Abstaining is better by `epsilon` = 0.1. This difference is the
    *action gap*: V(x) - Q(x, a), how much better the best action is.

    ## 1. Cake

    Each operator is iterated until V is *certified*. The operators agree on V and on the policy, but not on the gap.
    """)
    return


@app.cell
def _(ag):
    mdp = ag.cake(gamma=0.9, epsilon=0.1)
    names = ["bellman", "consistent", "al:0.5", "al:0.9", "pal:0.9", "pal-dqn:0.5"]
    solutions = {name: ag.solve(mdp, name) for name in names}
    print("operator      V(x1)     gap of eating")
    for _name, _found in solutions.items():
        print(f"{_name:12}  {_found.v[0] + 0.0:8.6f}  {_found.gaps[0, 0]:.4f}")
    return mdp, names, solutions


@app.cell
def _(ag, mdp):
    alpha = 0.5  # Try another one, below 1.
    chosen = ag.solve(mdp, ag.advantage(alpha)).gaps[0, 0]
    print(f"With alpha = {alpha:.2f} the gap is {chosen:.3f}, which is 0.1 / (1 - {alpha:.2f}) = {0.1 / (1 - alpha):.3f}.")
    return alpha, chosen


@app.cell
def _(solutions):
    solutions["al:0.9"]
    return


@app.cell
def _(mo):
    mo.md("""
    ## 2. Noise

    Q is never exact. Add a random error to every value and see how often eating looks better. A wider gap tolerates larger
    errors. This is the only certain effect of a wide gap, and it is about a *converged* Q.
    """)
    return


@app.cell
def _(np, plt, solutions):
    deviations = np.geomspace(0.03, 3, 25)
    draws = np.random.default_rng(0).normal(size=(20_000, 2))
    mistakes = {
        name: [float(((found.q[0] + sd * draws).argmax(axis=1) == 0).mean()) for sd in deviations] for name, found in solutions.items()
    }
    figure, axes = plt.subplots(figsize=(6.5, 3.2), layout="constrained")
    for _name in ("bellman", "consistent", "al:0.5", "al:0.9"):
        axes.plot(deviations, mistakes[_name], label=_name)
    axes.set(xscale="log", xlabel="standard deviation of the error", ylabel="how often cake is eaten")
    axes.legend(frameon=False)
    figure
    return deviations, draws, mistakes


@app.cell
def _(mo):
    mo.md("""
    ## 3. A custom operator

    An operator is a function of a *backup* `b`, the numbers at one state and action: `b.q`, `b.v`, `b.gap`,
    `b.bellman`, `b.again`, `b.repeat`, `b.next_gap`, `b.gamma`. Change the function below and run the cells again.
    """)
    return


@app.cell
def _(ag):
    def mine(b):
        """Advantage learning that subtracts at most one unit of reward, and nothing if repeating the action is worth it."""
        return ag.maximum(b.bellman - 0.5 * ag.minimum(b.gap, 2.0), b.repeat)

    def too_greedy(b):
        """Subtracts more than the gap."""
        return b.bellman - 1.5 * b.gap

    return mine, too_greedy


@app.cell
def _(mo):
    mo.md("""
    ## 4. Prove it

    An operator that is at most Bellman's, and subtracts at most a fraction alpha < 1 of the gap, preserves optimality and
    narrows no gap, in every finite MDP. `prove` applies it to symbols and asks z3 for numbers that violate these conditions.
    If there are any, it shows them, and searches for a small MDP on which the operator fails.
    """)
    return


@app.cell
def _(ag, mine, too_greedy):
    verdicts = {function.__name__: ag.prove(function) for function in (mine, too_greedy)}
    verdicts["mine"]
    return (verdicts,)


@app.cell
def _(verdicts):
    verdicts["too_greedy"]
    return


@app.cell
def _(mo):
    mo.md("""
    ## 5. A random MDP

    A Garnet with 200 states, 4 actions, and 5 successors each. Every dot is a suboptimal action: its gap under Bellman's
    operator on the x-axis, its gap under another operator on the y-axis. No dot is below the diagonal.
    """)
    return


@app.cell
def _(ag, mine, np, plt):
    garnet = ag.garnet(200, 4, 5, gamma=0.95, seed=1)
    usual = ag.solve(garnet, "bellman")
    worse = usual.gaps > 1e-6
    wider = {name: ag.solve(garnet, operator) for name, operator in {"consistent": "consistent", "al:0.5": "al:0.5", "mine": mine}.items()}
    scatter, panels = plt.subplots(1, 3, figsize=(8, 2.8), sharex=True, sharey=True, layout="constrained")
    for _panel, (_name, _found) in zip(panels, wider.items(), strict=True):
        _panel.plot(usual.gaps[worse], _found.gaps[worse], ".", markersize=3)
        _panel.plot([0, usual.gaps.max()], [0, usual.gaps.max()], color="0.5", linewidth=1)
        _panel.set(title=_name, xlabel="gap, Bellman")
    panels[0].set_ylabel("gap")
    same = {name: bool((found.policy == usual.policy).all()) and np.allclose(found.v, usual.v, atol=1e-8) for name, found in wider.items()}
    scatter
    return garnet, same, usual, wider, worse


@app.cell
def _(same):
    print(f"The same V and the same policy as Bellman's: {same}.")
    return


@app.cell
def _(mo):
    mo.md("""
    ## 6. Learning from noisy rewards

    Now Q has not converged: Q-learning on FrozenLake, with noise added to every observed reward. A wide gap keeps the
    greedy action, right or wrong, so a strong operator explores less and is *worse* here. From the same data it is not:
    try `behavior="bellman"`. Look at the spread over seeds before you trust a difference.
    """)
    return


@app.cell
def _(ag, gymnasium, np):
    lake = ag.from_gymnasium("FrozenLake-v1", gamma=0.99)
    truth = ag.solve(lake, "bellman")
    gaps = truth.gaps[:16]  # The model has one more state, after the end of an episode.
    matters = gaps.max(axis=1) > 0.01

    def wrong(operator, seed):
        """Return the fraction of states with a wrong greedy action, among those where the choice matters."""
        rng = np.random.default_rng(seed)
        env = gymnasium.wrappers.TransformReward(gymnasium.make("FrozenLake-v1"), lambda reward: reward + rng.normal(0, 0.5))
        found = ag.q_learning(env, operator, steps=20_000, seed=seed, exploration=0.1, gamma=0.99)
        lost = gaps[np.arange(16), found.policy]
        return float((lost[matters] > 1e-6).mean())

    learned = {operator: [wrong(operator, seed) for seed in range(12)] for operator in ("bellman", "consistent", "al:0.5", "al:0.9")}
    return lake, learned, truth, wrong


@app.cell
def _(learned, np, plt):
    spread, dots = plt.subplots(figsize=(6.5, 2.6), layout="constrained")
    for _row, _fractions in enumerate(learned.values()):
        dots.plot(_fractions, np.full(len(_fractions), _row), "o", alpha=0.5)
        dots.plot(np.mean(_fractions), _row, "k|", markersize=16)
    dots.set(yticks=range(len(learned)), yticklabels=list(learned), xlabel="wrong greedy actions, twelve seeds and their mean", xlim=(0, 1))
    dots.invert_yaxis()
    spread
    return


@app.cell
def _(mo):
    mo.md("""
    ## 7. A simulator on a grid

    The mountain car has two continuous coordinates. It is planned on a grid of 31 by 31 points, and Q is interpolated between
    them. No theorem covers this. The picture shows the action gap of each plan; the title has the mean number of steps of an
    episode in the simulator.
    """)
    return


@app.cell
def _(ag):
    policies = {operator: ag.plan("mountain-car", operator, grid=31, iterations=300, eta=0.5) for operator in ("bellman", "consistent")}
    evaluations = {operator: policy.evaluate(episodes=50) for operator, policy in policies.items()}
    return evaluations, policies


@app.cell
def _(evaluations, np, plt, policies):
    maps, squares = plt.subplots(1, 2, figsize=(8, 3), sharey=True, layout="constrained")
    for _square, (_operator, _policy) in zip(squares, policies.items(), strict=True):
        _best, _second = np.sort(_policy.table, axis=-1)[:, :-3:-1].T
        _square.imshow((_best - _second).reshape(31, 31).T, origin="lower", aspect="auto", extent=(-1.2, 0.6, -0.07, 0.07), vmin=0, vmax=3)
        _square.set(title=f"{_operator}: {evaluations[_operator].mean_length.value:.0f} steps", xlabel="position")
    squares[0].set_ylabel("speed")
    maps.colorbar(squares[0].images[0], ax=squares, label="action gap")
    maps
    return


@app.cell
def _(mo):
    mo.md("""
    ## Next steps

    - `actiongap demo` is an interactive page with controls for every operator.
    - `docs/` has the guides; `make docs` builds the site. *Choosing an operator* lists what is proved and measured for each.
    - `actiongap plan`, `train`, `sweep` and `report` do the same at scale.
    """)
    return


if __name__ == "__main__":
    app.run()
