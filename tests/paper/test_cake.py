import csv
import errno
import io
import itertools
import json
import math
import os
import platform

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from scipy import stats

from actiongap._files import make_directory, write_bytes, write_text
from actiongap.lab.statistics import wilson
from actiongap.mdp.generators import cake
from actiongap.mdp.model import Sparse
from actiongap.mdp.solve import solve
from actiongap.paper.cake import SCALES, fixed_point, noise_table, run, table
from actiongap.paper.cake_values import (
    CAKE,
    EPSILON,
    GAMMA,
    OPERATORS,
    Q_STAT,
    REWARD_NOISE,
    SIGMAS,
    Interval,
    closed_form,
    estimate,
    estimated_models,
    gaussian_noise,
    learn,
    wrong_probability,
)

gammas = st.floats(0.05, 0.99)
epsilons = st.floats(1e-3, 10.0)
alphas = st.floats(0.0, 0.9)


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    return run("smoke", tmp_path_factory.mktemp("cake"))


@pytest.mark.parametrize("family", ["bellman", "consistent", "al", "pal", "pal-dqn", "lazy", "baird", Q_STAT])
@settings(derandomize=True, deadline=None, max_examples=25)
@given(gamma=gammas, epsilon=epsilons, alpha=alphas)
def test_computed_limits_equal_the_closed_forms(family, gamma, epsilon, alpha):
    # Baird's K from 0.55 up, where its iterates converge on the cake at every discount.
    number = {"baird": 1 - alpha / 2, "bellman": None, "consistent": None, Q_STAT: None}.get(family, alpha)
    row = fixed_point(family if number is None else f"{family}:{number!r}", gamma, epsilon)
    assert row.difference is not None
    assert row.computed is not None
    low, high = row.closed_form if isinstance(row.closed_form, Interval) else (row.closed_form, row.closed_form)
    assert low - 1e-9 < row.computed < high + 1e-9
    assert row.difference == pytest.approx(abs(row.computed - np.clip(row.computed, low, high)), abs=1e-15)
    assert row.gap == pytest.approx(-row.computed, abs=1e-9)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(gamma=st.floats(0.05, 0.95), epsilon=epsilons, alpha=alphas, start=st.tuples(*[st.floats(-50, 50)] * 4))
def test_lazy_ends_inside_its_interval_from_any_start(gamma, epsilon, alpha, start):
    row = fixed_point(f"lazy:{alpha!r}", gamma, epsilon, q0=np.reshape(start, (2, 2)))
    assert row.computed is not None
    low, high = np.array(closed_form(f"lazy:{alpha!r}", gamma, epsilon))
    assert low - 1e-9 < row.computed < high + 1e-9


def test_lazy_has_many_fixed_points():
    # With V exact, every point of the interval is a fixed point of the lazy operator.
    assert closed_form("lazy:0.5", 0.5, 1.0) == Interval(-2.0, -1.0)
    assert solve(cake(0.5, 1.0), "bellman").v == pytest.approx([0.0, -8.0], abs=1e-9)
    for value in (-1.75, -1.5, -1.25):
        row = fixed_point("lazy:0.5", 0.5, 1.0, q0=np.array([[value, 0.0], [-8.0, -8.0]]))
        assert row.computed == pytest.approx(value, abs=1e-12)
        assert row.difference == 0.0


def test_the_paper_s_numbers():
    assert closed_form("bellman", 0.9, 0.1) == -0.1
    assert closed_form("consistent", 0.9, 0.1) == closed_form(Q_STAT, 0.9, 0.1) == pytest.approx(-0.1 / 0.55)
    assert closed_form("pal:0.3", 0.9, 0.1) == closed_form("al:0.3", 0.9, 0.1)
    assert closed_form("pal:0.6", 0.9, 0.1) == closed_form("consistent", 0.9, 0.1)
    assert closed_form("baird:0.25,2", 0.9, 0.1) == closed_form("al:0.5", 0.9, 0.1)
    assert closed_form("al:1", 0.9, 0.1) == -math.inf
    assert closed_form("lazy:1", 0.9, 0.1) == Interval(-math.inf, -0.1)


def test_operators_without_closed_form_raise(tmp_path):
    with pytest.raises(ValueError, match="unknown operator"):
        closed_form("soup", 0.9, 0.1)
    own = tmp_path / "own.py"
    own.write_text("def mine(b):\n    return b.bellman\n")
    with pytest.raises(ValueError, match="no closed form is known"):
        closed_form(f"{own}:mine", 0.9, 0.1)
    with pytest.warns(match="theory does not cover"), pytest.raises(ValueError, match="at most 1"):
        closed_form("al:1.5", 0.9, 0.1)


def test_divergent_iteration_has_a_status_and_no_limit():
    row = fixed_point("baird:0.1", 0.5, 0.1)
    assert row.computed is row.gap is row.difference is None
    assert "diverged" in row.status
    assert row.closed_form == pytest.approx(-1.0)


@pytest.mark.parametrize(("gap", "sigma"), [(0.1, 0.03), (0.1, 0.3), (0.2, 0.1), (1.0, 1.0)])
def test_exact_probability_is_that_of_the_difference_of_two_normals(gap, sigma):
    assert wrong_probability(gap, sigma) == pytest.approx(stats.norm.sf(gap, scale=sigma * math.sqrt(2)), rel=1e-12)


def test_monte_carlo_agrees_with_the_exact_probability():
    rows = [row for gap in (0.1, 0.2, 1.0) for row in gaussian_noise("any", gap, SIGMAS, draws=4000, seed=int(100 * gap))]
    # About 95% of the intervals cover the truth, and all intervals at four standard deviations (one miss in 15,000) do.
    assert np.mean([row.low <= row.exact <= row.high for row in rows]) > 0.87
    for row in rows:
        wide = wilson(round(row.wrong * row.draws), row.draws, level=float(1 - 2 * stats.norm.sf(4.0)))
        assert wide.low <= row.exact <= wide.high


def test_a_wider_gap_is_hidden_less_often():
    seen = [gaussian_noise("any", gap, SIGMAS, draws=2000, seed=0) for gap in (0.05, 0.1, 0.2, 1.0)]
    for narrow, wide in itertools.pairwise(seen):
        assert all(one.exact > other.exact for one, other in zip(narrow, wide, strict=True))
        assert all(one.wrong >= other.wrong for one, other in zip(narrow, wide, strict=True))
        assert sum(row.wrong for row in narrow) > sum(row.wrong for row in wide)


def better_in(mdp):
    """Whether cake is better in each estimated model, by comparing the two stationary policies."""
    assert isinstance(mdp.transitions, Sparse)
    stay = mdp.transitions.probabilities[:-1, :, 0]
    x2 = mdp.rewards[-1, 0] / (1 - mdp.gamma)
    always = (mdp.rewards[:-1] + mdp.gamma * (1 - stay) * x2) / (1 - mdp.gamma * stay)
    return always[:, 0] > always[:, 1]


def test_every_operator_errs_on_the_same_estimated_models():
    settled = [name for name in OPERATORS if name != "baird:0.1"]
    rows = list(estimated_models(settled, samples=50, models=300, seed=7))
    mdp = estimate(GAMMA, EPSILON, 50, 300, seed=7)
    better = better_in(mdp)
    assert 0.1 < better.mean() < 0.9
    assert {row.wrong for row in rows} == {better.mean()}
    policies = [solve(mdp, name, engine="arrays", max_sweeps=1000).policy for name in settled]
    disagreements = {np.count_nonzero((policy[:-1] == CAKE) != better) for policy in policies}
    assert disagreements == {0}


def test_more_samples_make_better_models():
    wrong = [better_in(estimate(GAMMA, EPSILON, samples, 2000, seed=3)).mean() for samples in (10, 100, 1000, 10_000)]
    assert wrong == sorted(wrong, reverse=True)
    assert wrong[-1] < 0.01


def test_divergent_operator_has_no_frequency():
    [row] = estimated_models(["baird:0.1"], samples=50, models=50, seed=7)
    assert row.wrong is row.low is row.high is None
    assert "not within" in row.status or "diverged" in row.status


def test_learning_with_the_consistent_operator_matches_its_linear_theory():
    # Each action backs itself up, so Q(x1, a) is an autoregression whose mean and variance are known.
    row = learn("consistent", 0.1, runs=400, burn_in=5, steps=500, seed=5)
    step, stay = 0.1, np.array([0.5, 1.0])
    mean = np.array([-EPSILON / (1 - GAMMA / 2), 0.0])
    jump = GAMMA * (mean - -2 * (1 + EPSILON) / GAMMA)
    spread = step**2 * (REWARD_NOISE**2 + stay * (1 - stay) * jump**2)
    # The variance that one step maps to itself: the coefficient of Q is 1 - step + step gamma [x' = x1].
    squared = stay * (1 - step + step * GAMMA) ** 2 + (1 - stay) * (1 - step) ** 2
    variance = spread / (1 - squared)
    assert row.wrong is not None
    assert row.mean_gap == pytest.approx(-mean[0], abs=0.04)
    assert row.sd_gap == pytest.approx(math.sqrt(variance.sum()), rel=0.03)
    assert row.wrong == pytest.approx(stats.norm.sf(-mean[0] / math.sqrt(variance.sum())), abs=0.03)


def test_learning_without_the_maximum_matches_its_linear_theory():
    # With V(x1) = Q(x1, abstain) both updates are linear, so the means and covariances that one step maps to themselves are known.
    row = learn("bellman", 0.1, runs=400, burn_in=5, steps=500, seed=5, value="abstain")
    h, decay, x2 = 0.1, 1 - 0.1 + 0.1 * GAMMA, -2 * (1 + EPSILON) / GAMMA
    abstain = (h * REWARD_NOISE) ** 2 / (1 - decay**2)
    both = h * GAMMA / 2 * decay * abstain / (1 - (1 - h) * decay)
    spread = REWARD_NOISE**2 + GAMMA**2 * (abstain / 2 + x2**2 / 4)
    eat = (h * (1 - h) * GAMMA * both + h**2 * spread) / (1 - (1 - h) ** 2)
    assert row.mean_gap == pytest.approx(EPSILON, abs=0.02)
    assert row.sd_gap == pytest.approx(math.sqrt(eat + abstain - 2 * both), rel=0.03)


def test_interval_of_learning_matches_the_spread_of_repetitions():
    rows = [learn("bellman", 0.1, runs=20, burn_in=2, steps=20, seed=seed) for seed in range(60)]
    wrong, low, high = np.array([(row.wrong, row.low, row.high) for row in rows], dtype=float).T
    assert np.mean(high - low) / 2 / 1.96 == pytest.approx(wrong.std(ddof=1), rel=0.25)


def test_learning_matches_a_plain_loop():
    # Bellman's targets, one run at a time, on the transitions that the vectorised form draws.
    runs, steps, step = 3, 40, 0.1
    row = learn("bellman", step, runs=runs, burn_in=1, steps=steps, seed=11)
    rng, first = np.random.default_rng(11), math.ceil(1 / (step * (1 - GAMMA)))
    q, wrong = [[0.0, 0.0] for _ in range(runs)], 0
    for t in range(first + steps):
        draws, noise = rng.random((runs, 2)), rng.standard_normal((runs, 2))
        for i in range(runs):
            v = max(q[i])
            eaten = 1 + REWARD_NOISE * noise[i, 0] + (GAMMA * v if draws[i, 0] < 0.5 else -2 * (1 + EPSILON))
            abstained = REWARD_NOISE * noise[i, 1] + GAMMA * v
            q[i] = [q[i][0] + step * (eaten - q[i][0]), q[i][1] + step * (abstained - q[i][1])]
            wrong += t >= first and q[i][0] >= q[i][1]
    assert row.wrong == pytest.approx(wrong / (runs * steps))


def test_maximization_bias_helps_the_bellman_learner():
    def learned(operator, value):
        row = learn(operator, 0.1, runs=400, burn_in=5, steps=500, seed=1, value=value)
        assert row.low is not None
        assert row.high is not None
        assert row.mean_gap is not None
        return row.low, row.high, row.mean_gap

    biased, consistent, unbiased = learned("bellman", "max"), learned("consistent", "max"), learned("bellman", "abstain")
    assert biased[1] < consistent[0]
    assert consistent[1] < unbiased[0]
    assert biased[2] > 2 * EPSILON


def test_divergent_learner_has_no_frequency():
    row = learn("baird:1e-5", 0.1, runs=3, burn_in=1, steps=300, seed=0)
    assert row.wrong is row.low is row.high is row.mean_gap is None


@pytest.mark.parametrize("scale", SCALES)
def test_every_scale_has_the_parameters_of_the_noise_experiments(scale):
    assert GAMMA in SCALES[scale].gammas
    assert EPSILON in SCALES[scale].epsilons


def test_a_run_writes_its_files(smoke):
    names = {file.name: file for file in smoke.files}
    assert {file.name for file in names["cake.json"].parent.iterdir()} == set(names) == {"cake.csv", "cake.png", "cake.svg", "cake.json"}
    record = json.loads(names["cake.json"].read_text(encoding="utf-8"))
    for key in ("command", "versions", "platform", "date", "scale", "seeds", "noise_settings"):
        assert record[key]
    assert record["command"].startswith("actiongap reproduce cake --scale smoke --out ")
    cells = len(SCALES["smoke"].gammas) * len(SCALES["smoke"].epsilons)
    assert len(record["fixed_points"]) == cells * (len(OPERATORS) + 1)
    assert {row["operator"] for row in record["learning"]} == set(OPERATORS)
    assert {row["operator"] for row in record["learning"] if row["value"] == "abstain"} == {"bellman"}
    assert record["platform"] == f"{platform.system()} {platform.machine()}"
    rows = list(csv.DictReader(io.StringIO(names["cake.csv"].read_text())))
    assert [float(row["gap"] or "nan") for row in rows] == pytest.approx(
        [math.nan if row.gap is None else row.gap for row in smoke.fixed_points], nan_ok=True
    )
    assert names["cake.png"].read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert b"<svg" in names["cake.svg"].read_bytes()


def test_repeated_run_gives_the_same_numbers_and_pictures(smoke, tmp_path):
    again = run("smoke", tmp_path)
    for kind in ("fixed_points", "gaussian_noise", "estimated_models", "learning"):
        assert getattr(again, kind) == getattr(smoke, kind)
    for first, second in zip(smoke.files[:3], again.files[:3], strict=True):
        assert first.read_bytes() == second.read_bytes()


def test_noise_is_added_to_every_limit(smoke):
    expected = {row.operator: row.gap for row in smoke.fixed_points if (row.gamma, row.epsilon) == (GAMMA, EPSILON)}
    assert {row.operator for row in smoke.gaussian_noise} == set(expected) == {*OPERATORS, Q_STAT}
    for row in smoke.gaussian_noise:
        assert row.exact == wrong_probability(expected[row.operator], row.sigma)
        assert row.draws == SCALES["smoke"].draws


def test_progress_counts_to_the_end(tmp_path):
    seen = []
    run("smoke", tmp_path / "made" / "for it", progress=lambda *now: seen.append(now))
    texts, fractions = zip(*seen, strict=True)
    assert fractions == pytest.approx([(i + 1) / len(seen) for i in range(len(seen))])
    assert fractions[-1] == 1.0
    assert len(set(texts)) == len(seen)
    assert "'" in json.loads((tmp_path / "made" / "for it" / "cake.json").read_text(encoding="utf-8"))["command"]


def test_tables_show_every_operator(smoke):
    text = io.StringIO()
    console = Console(width=200, file=text)
    console.print(table(smoke))
    console.print(noise_table(smoke))
    shown = text.getvalue()
    assert all(shown.count(f"{name} ") >= 2 for name in OPERATORS)
    assert Q_STAT in shown
    assert "bellman*" in shown
    assert "Q(x1, abstain), which has no maximum" in shown
    assert "-0.1818" in shown
    assert "not converged" in shown


def test_invalid_arguments_raise_before_any_work(tmp_path):
    started = []
    with pytest.raises(ValueError, match="unknown scale 'huge': choose from smoke"):
        run("huge", tmp_path, progress=lambda *now: started.append(now))
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(ValueError, match="cannot be made") as refused:
        run("smoke", file / "results", progress=lambda *now: started.append(now))
    assert "\n" not in str(refused.value)
    assert not started


def test_unwritable_folder_raises(tmp_path, monkeypatch):
    # The superuser may write anywhere, so os.access is replaced instead of changing permissions.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(ValueError, match="is not writable: change its permissions"):
        make_directory(tmp_path)


@pytest.mark.parametrize("trouble", ["fsync", "replace"])
def test_full_disk_keeps_the_old_file_and_leaves_no_other(trouble, tmp_path, monkeypatch):
    file = tmp_path / "cake.json"
    write_text(file, "old")

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, trouble, full)
    with pytest.raises(ValueError, match="cannot be written: no space left on device") as refused:
        write_bytes(file, b"new")
    assert "\n" not in str(refused.value)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_writing_into_a_missing_folder_raises(tmp_path):
    with pytest.raises(ValueError, match="cannot be written: no such file or directory"):
        write_text(tmp_path / "nowhere" / "cake.csv", "text")
