"""The action gap in one notebook: `marimo edit examples/tutorial.py`, or `marimo run` to only read it, or `python` to only run it."""

# What a cell ends with is shown.
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

    Under two minutes of computing, ten of reading. In `x1` you may eat cake, which pays 1 and half the time leads to a state
    that is bad for ever, or abstain, which pays nothing. Abstaining is better by `epsilon` = 0.1. That difference is the
    *action gap*: V(x) - Q(x, a), how far the best action is ahead.

    ## 1. Cake

    Each operator is iterated until V is *certified* to be right. They agree on V and on what to do, and not on the gap.
    """)
    return


@app.cell
def _(ag, mo):
    mdp = ag.cake(gamma=0.9, epsilon=0.1)
    names = ["bellman", "consistent", "al:0.5", "al:0.9", "pal:0.9", "pal-dqn:0.5"]
    solutions = {name: ag.solve(mdp, name) for name in names}
    rows = [
        {
            "operator": name,
            "V(x1)": round(float(found.v[0]), 6) + 0.0,
            "gap of eating": round(float(found.gaps[0, 0]), 4),
            "what came of it": found.status,
        }
        for name, found in solutions.items()
    ]
    mo.ui.table(rows, selection=None)
    return mdp, names, rows, solutions


@app.cell
def _(mo):
    alpha = mo.ui.slider(0.0, 0.95, 0.05, value=0.5, label="alpha of advantage learning")
    alpha
    return (alpha,)


@app.cell
def _(ag, alpha, mdp, mo):
    chosen = ag.solve(mdp, ag.advantage(alpha.value)).gaps[0, 0]
    mo.md(
        f"With alpha = {alpha.value:.2f} the gap is {chosen:.3f}, which is 0.1 / (1 - {alpha.value:.2f}) = {0.1 / (1 - alpha.value):.3f}."
    )
    return (chosen,)


@app.cell
def _(mo):
    mo.md("""
    ## 2. Noise

    Q is never exact. Add a random error to every value and see how often eating looks better. The wider the gap, the
    larger the errors may be. This is all that a wide gap is sure to do, and it is a statement about a *finished* Q.
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
    ## 3. An operator of your own

    An operator is a function of a *backup* `b`, the numbers seen at one state and action: `b.q`, `b.v`, `b.gap`,
    `b.bellman`, `b.again`, `b.repeat`, `b.next_gap`, `b.gamma`. Change the function below and run the cells again.
    """)
    return


@app.cell
def _(ag):
    def mine(b):
        """Advantage learning that takes off one unit of reward at most, and nothing from actions that are worth repeating."""
        return ag.maximum(b.bellman - 0.5 * ag.minimum(b.gap, 2.0), b.repeat)

    def too_greedy(b):
        """Takes off more than there is."""
        return b.bellman - 1.5 * b.gap

    return mine, too_greedy


@app.cell
def _(mo):
    mo.md("""
    ## 4. Prove it

    An operator that never gives more than Bellman's, and takes off no more than a share of the gap below 1, preserves
    optimality and narrows no gap: in every finite MDP. `prove` runs it on symbols and asks z3 whether there are numbers
    that break this. Where there are, it shows them, and looks for a small MDP on which the operator goes wrong.
    """)
    return


@app.cell
def _(ag, mine, mo, too_greedy):
    verdicts = {function.__name__: ag.prove(function) for function in (mine, too_greedy)}
    mo.md("\n\n".join(f"**{name}**: {verdict.summary}" for name, verdict in verdicts.items()))
    return (verdicts,)


@app.cell
def _(mo):
    mo.md("""
    ## 5. A random MDP

    A Garnet: 200 states, 4 actions, 5 successors each. Every dot is a suboptimal action. Its gap under Bellman's operator
    is to the right, its gap under others above; none is below the diagonal.
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
def _(mo, same):
    mo.md(f"The same V and the same policy as Bellman's: {same}.")
    return


@app.cell
def _(mo):
    mo.md("""
    ## 6. Learning from noisy rewards

    Now Q is not finished: Q-learning on FrozenLake, where every reward that the agent sees has noise added. An operator
    widens differences that are noise as readily as those that are real. The true gaps of FrozenLake are small, so a
    strong operator is *worse* here. Look at the spread over seeds before you believe a difference.
    """)
    return


@app.cell
def _(ag, gymnasium, np):
    lake = ag.from_gymnasium("FrozenLake-v1", gamma=0.99)
    truth = ag.solve(lake, "bellman")
    gaps = truth.gaps[:16]  # The model has one state more, for when the game is over.
    matters = gaps.max(axis=1) > 0.01

    def wrong(operator, seed):
        """The share of the states in which the choice matters and the learned one is wrong."""
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
    for _row, _shares in enumerate(learned.values()):
        dots.plot(_shares, np.full(len(_shares), _row), "o", alpha=0.5)
        dots.plot(np.mean(_shares), _row, "k|", markersize=16)
    dots.set(yticks=range(len(learned)), yticklabels=list(learned), xlabel="wrong greedy actions, twelve seeds and their mean", xlim=(0, 1))
    dots.invert_yaxis()
    spread
    return


@app.cell
def _(mo):
    mo.md("""
    ## 7. A simulator on a grid

    The mountain car has two continuous coordinates. It is planned on 31 by 31 points, and Q is interpolated in between.
    No theorem covers that. The picture shows the action gap of each plan; the title says how long the car takes in the
    simulator itself.
    """)
    return


@app.cell
def _(np):
    from actiongap.api import plan
    from actiongap.envs.simulators import load_simulator
    from actiongap.planning.rollouts import frequencies, rollouts

    car = load_simulator("mountain-car")
    policies = {operator: plan(car, operator, n=31, iterations=300, eta=0.5) for operator in ("bellman", "consistent")}
    tables = np.stack([policy.q for policy in policies.values()])
    trials = rollouts(car, policies["bellman"].grid, tables, episodes=50)
    numbers = dict(zip(policies, frequencies(car, trials), strict=True))
    return numbers, policies


@app.cell
def _(np, numbers, plt, policies):
    maps, squares = plt.subplots(1, 2, figsize=(8, 3), sharey=True, layout="constrained")
    for _square, (_operator, _policy) in zip(squares, policies.items(), strict=True):
        _best, _second = np.sort(_policy.q, axis=-1)[:, :-3:-1].T
        _square.imshow((_best - _second).reshape(31, 31).T, origin="lower", aspect="auto", extent=(-1.2, 0.6, -0.07, 0.07), vmin=0, vmax=3)
        _square.set(title=f"{_operator}: {numbers[_operator]['mean_steps']:.0f} steps", xlabel="position")
    squares[0].set_ylabel("speed")
    maps.colorbar(squares[0].images[0], ax=squares, label="action gap")
    maps
    return


@app.cell
def _(mo):
    mo.md("""
    ## Go on

    - `actiongap demo` is a page with knobs for every operator.
    - `docs/` has the guides; `make docs` makes a site of them. *Choosing an operator* says what is proved and measured of each.
    - `actiongap plan`, `train`, `sweep` and `report` do all this at scale.
    """)
    return


if __name__ == "__main__":
    app.run()
