"""The benchmark of agents on Atari: its measurements and targets, and that its baseline is equivalent to our agent."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("ale_py")

from actiongap.dqn.config import PRESETS, Config
from benchmarks import atari, atari_baselines
from benchmarks.__main__ import main

SMALL = Config(
    num_envs=2,
    gradient_steps=2,
    batch_size=4,
    buffer_size=60,
    learning_starts=10,
    frame_stack=4,
    clip_rewards=True,
    optimizer="rmsprop-dqn",
)


@pytest.fixture(scope="module")
def quick():
    calls = []
    return atari.bench_atari("quick", lambda label, done: calls.append((label, done))), calls


@pytest.mark.long
def test_quick_benchmark_measures_an_agent_and_its_parts(quick):
    measurements, calls = quick
    assert [f"{m.name} against {m.against}" for m in measurements] == [
        f"an iteration of training on pong against {atari.IN_PYTORCH}",
        *(f"an iteration of training on pong: {part} against the whole iteration" for part in atari.PARTS),
    ]
    for m in measurements:
        assert m.met is None, "the quick scale has no targets"
        assert (m.ours is None) == (m.reference is None)
        assert m.ours is None or m.ours > 0
    first, *parts = measurements
    assert first.ours is None or first.floor == parts[-1].ours, "the floor is learning alone"
    assert calls[0][0] == "training one agent on pong on the CPU"
    assert (calls[0][1], calls[-1][1]) == (0.0, 1.0)


def fake_results(monkeypatch, **results):
    monkeypatch.setattr(atari, "in_new_process", lambda module, function, *arguments, platform=None: results[function])


def test_baseline_is_credited_with_its_better_number_of_threads(monkeypatch):
    time = {"reset": 0.5, "ours": 0.04, "emulators": 0.01, "replay and acting": 0.002, "learning": 0.02}
    baseline = {f"{atari.IN_PYTORCH}, 1": 0.09, f"{atari.IN_PYTORCH}, 2": 0.032}
    fake_results(monkeypatch, race_training={"time": time | baseline, "threads": [1, 2], "frames": 32})
    compared, *parts = atari.measure_training("full", "pong")
    assert (compared.ratio, compared.met, compared.times_floor) == (1.25, False, 2.0)
    assert "800 frames/s on 2 threads" in compared.note
    assert "1000, best on 2 of 2 threads" in compared.note
    assert [part.ratio for part in parts] == pytest.approx([0.25, 0.05, 0.5])
    fake_results(monkeypatch, race_training={"time": time, "threads": [1, 2], "frames": 32})
    absent, *parts = atari.measure_training("full", "pong")
    assert absent.ours is None
    assert "pip install torch" in absent.note
    assert len(parts) == len(atari.PARTS)


def test_target_of_a_population_is_the_speed_of_its_emulators(monkeypatch):
    time = {"reset": 0.5, "ours": 0.01, "waiting": 0.004, "emulators": 0.009, "replay and acting": 0.001, "learning": 0.006}
    fake_results(monkeypatch, race_population={"time": time, "frames": 480, "device": "H200", "cores": 16})
    whole, busy, *parts = atari.measure_population("full", atari.TRAINING)
    assert whole.name == "an iteration of 15 agents on asterix, beam_rider, pong, seaquest, space_invaders, H200"
    assert (whole.ratio, whole.met) == (pytest.approx(1 / 0.9), True)
    assert "48000 frames/s, 90% of the 53333" in whole.note
    assert "idle 30% of the time, and training waits for emulators 40% of the time" in whole.note
    assert busy.ratio == pytest.approx(0.7)
    assert len(parts) == 2
    fake_results(monkeypatch, race_population={"time": time | {"emulators": 0.008}, "frames": 480, "device": "H200", "cores": 16})
    two_games = atari.measure_population("full", ["pong", "breakout"])[0]
    assert (two_games.name, two_games.met) == ("an iteration of 18 agents on pong, breakout, H200", False), (
        "three seeds of each operator on each game"
    )
    fake_results(monkeypatch, race_population={})
    assert atari.measure_population("full", atari.TRAINING) == [], "without an accelerator nothing is measured"


@pytest.mark.long
def test_populations_are_measured_only_on_accelerators(monkeypatch):
    import jax

    assert atari.race_population("quick", "pong") == {}
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(atari, "_config", lambda plan: SMALL)
    result = atari.race_population("quick", "pong")
    assert result["frames"] == 2 * 2 * 4, "two agents with two games each, with four frames per step"
    assert set(result["time"]) == {"ours", "waiting", "reset", *atari.PARTS}
    assert min(result["time"].values()) > 0
    assert result["time"]["waiting"] < result["time"]["ours"]


def test_memory_and_start_up_are_measured_at_the_full_scale(monkeypatch):
    assert atari.measure_start_up("quick", ["pong"]) == []
    fake_results(monkeypatch, start_up={"bytes": 2**30, "parts": {"to build": 20.0, "to compile": 46.0}})
    memory, start = atari.measure_start_up("full", ["pong"])
    assert (memory.ratio, memory.met, memory.unit) == (0.25, True, "B")
    assert (start.ratio, start.met) == (1.1, False)
    assert "20.0 s to build + 46.0 s to compile" in start.note


def test_failure_is_a_row_with_its_reason(monkeypatch):
    result = atari.in_new_process(atari.__name__, "race_training", "enormous", "pong", platform="cpu")
    assert result == {"failed": "race_training(enormous, pong) failed: KeyError: 'enormous'"}
    failed = {"failed": "race(pong) failed: RuntimeError"}
    fake_results(monkeypatch, race_training=failed, race_population=failed, start_up=failed)
    rows = [*atari.measure_training("full", "pong"), *atari.measure_population("full", ["pong"]), *atari.measure_start_up("full", ["pong"])]
    assert len(rows) == 4
    assert all(row.ours is None and row.met is None and "RuntimeError" in row.note for row in rows)


def test_baseline_has_our_network_and_our_number_of_gradient_steps():
    torch = pytest.importorskip("torch")
    import jax

    from actiongap.dqn.networks import q_network

    ours = q_network((84, 84, 4), 6).init(jax.random.key(0))
    theirs = [part.numel() for part in atari_baselines.network(4, 6).parameters()]
    assert theirs == [part.size for layer in ours for part in layer]
    gradient_steps = []
    with pytest.MonkeyPatch.context() as patch:
        step = torch.optim.RMSprop.step
        patch.setattr(torch.optim.RMSprop, "step", lambda self, *rest: (gradient_steps.append(1), step(self, *rest)))
        atari_baselines.in_pytorch("pong", SMALL, threads=1)(9)
    assert len(gradient_steps) == 2 * 5, "two per iteration from the fifth on, when the buffer has ten steps"


def test_baseline_computes_the_same_q_values():
    torch = pytest.importorskip("torch")
    import jax

    from actiongap.dqn.networks import q_network

    network = q_network((84, 84, 4), 6)
    ours, theirs = network.init(jax.random.key(1)), atari_baselines.network(4, 6)
    stacks = np.random.default_rng(0).integers(256, size=(3, 84, 84, 4), dtype=np.uint8)
    flat = ours[3][0].reshape(7, 7, 64, 512).transpose(2, 0, 1, 3).reshape(-1, 512)
    weights = [*(w.transpose(3, 2, 0, 1) for w, _ in ours[:3]), flat.T, ours[4][0].T]
    with torch.no_grad():
        for k, part in enumerate(theirs.parameters()):
            part.copy_(torch.as_tensor(np.array(ours[k // 2][1] if k % 2 else weights[k // 2])))
        values = theirs(torch.as_tensor(stacks.transpose(0, 3, 1, 2).copy())).numpy()
    np.testing.assert_allclose(values, network.apply(ours, stacks), atol=1e-5)


def test_unknown_game_and_scale_raise_with_the_choices():
    with pytest.raises(ValueError, match="choose from full, quick"):
        atari.bench_atari("enormous")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="did you mean atari/pong"):
        atari.bench_atari("quick", games=["ponk"])


def test_games_option_takes_names_and_ids(monkeypatch, capsys):
    measured = []
    for stage in ("measure_training", "measure_population", "measure_start_up"):
        monkeypatch.setattr(atari, stage, lambda scale, games: measured.append(games) or [])
    assert main(["atari", "--scale", "quick", "--games", "breakout", "atari/qbert", "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"
    assert measured == ["breakout", ("breakout", "qbert"), ("breakout", "qbert")]
    assert main(["grid", "--games", "pong"]) == 2
    assert capsys.readouterr().err == "benchmarks: --games is an option of the atari benchmark: remove it from grid\n"


def test_full_scale_has_the_replay_ratio_of_the_preset():
    plan = atari.SCALES["full"]
    assert replace(atari._config(plan), buffer_size=1_000_000, learning_starts=50_000) == PRESETS[atari.PRESET]
    assert len(plan.games) * len(plan.operators) == 15
