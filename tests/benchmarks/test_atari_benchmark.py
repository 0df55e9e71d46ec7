"""The bench of agents on Atari: what it measures, what it claims, and that its baseline does as much as ours."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("jax")
pytest.importorskip("ale_py")

from actiongap.dqn.config import PRESETS, Config
from benchmarks import atari, atari_baselines
from benchmarks.__main__ import main

FEW = Config(
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
    told = []
    return atari.bench_atari("quick", lambda label, done: told.append((label, done))), told


@pytest.mark.long
def test_the_quick_bench_measures_an_agent_and_its_parts(quick):
    measurements, told = quick
    assert [f"{m.name} against {m.against}" for m in measurements] == [
        f"a round of training on pong against {atari.IN_PYTORCH}",
        *(f"a round of training on pong: {part} against the whole round" for part in atari.PARTS),
    ]
    for m in measurements:
        assert m.met is None, "of a few rounds nothing is claimed"
        assert (m.ours is None) == (m.reference is None)
        assert m.ours is None or m.ours > 0
    first, *parts = measurements
    assert first.ours is None or first.floor == parts[-1].ours, "the floor is learning alone"
    assert told[0][0] == "training one agent on pong on the CPU"
    assert (told[0][1], told[-1][1]) == (0.0, 1.0)


def answering(monkeypatch, **answers):
    monkeypatch.setattr(atari, "in_new_process", lambda module, function, *arguments, platform=None: answers[function])


def test_the_rival_is_credited_with_its_better_number_of_threads(monkeypatch):
    time = {"beginning": 0.5, "ours": 0.04, "emulators": 0.01, "remembering and choosing": 0.002, "learning": 0.02}
    baseline = {f"{atari.IN_PYTORCH}, 1": 0.09, f"{atari.IN_PYTORCH}, 2": 0.032}
    answering(monkeypatch, race_training={"time": time | baseline, "threads": [1, 2], "frames": 32})
    beside, *parts = atari.measure_training("full", "pong")
    assert (beside.ratio, beside.met, beside.times_floor) == (1.25, False, 2.0)
    assert "800 frames/s on 2 threads" in beside.note
    assert "1000, best on 2 of 2 threads" in beside.note
    assert [part.ratio for part in parts] == pytest.approx([0.25, 0.05, 0.5])
    answering(monkeypatch, race_training={"time": time, "threads": [1, 2], "frames": 32})
    absent, *parts = atari.measure_training("full", "pong")
    assert absent.ours is None
    assert "pip install torch" in absent.note
    assert len(parts) == len(atari.PARTS)


def test_a_population_is_claimed_to_be_nearly_as_fast_as_its_emulators(monkeypatch):
    time = {"beginning": 0.5, "ours": 0.01, "waiting": 0.004, "emulators": 0.009, "remembering and choosing": 0.001, "learning": 0.006}
    answering(monkeypatch, race_population={"time": time, "frames": 480, "device": "H200", "cores": 16})
    whole, busy, *parts = atari.measure_population("full", atari.TRAINING)
    assert whole.name == "a round of 15 agents on asterix, beam_rider, pong, seaquest, space_invaders, H200"
    assert (whole.ratio, whole.met) == (pytest.approx(1 / 0.9), True)
    assert "48000 frames/s, 90% of the 53333" in whole.note
    assert "idle 30% of the time, and whoever hands work to it waits for emulators 40% of it" in whole.note
    assert busy.ratio == pytest.approx(0.7)
    assert len(parts) == 2
    answering(monkeypatch, race_population={"time": time | {"emulators": 0.008}, "frames": 480, "device": "H200", "cores": 16})
    fewer = atari.measure_population("full", ["pong", "breakout"])[0]
    assert (fewer.name, fewer.met) == ("a round of 18 agents on pong, breakout, H200", False), "three seeds of each operator on each game"
    answering(monkeypatch, race_population={})
    assert atari.measure_population("full", atari.TRAINING) == [], "without an accelerator nothing is measured"


@pytest.mark.long
def test_populations_race_on_accelerators_alone(monkeypatch):
    import jax

    assert atari.race_population("quick", "pong") == {}
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(atari, "_config", lambda plan: FEW)
    told = atari.race_population("quick", "pong")
    assert told["frames"] == 2 * 2 * 4, "two agents with two games each, of which a step lasts four frames"
    assert set(told["time"]) == {"ours", "waiting", "beginning", *atari.PARTS}
    assert min(told["time"].values()) > 0
    assert told["time"]["waiting"] < told["time"]["ours"]


def test_memory_and_start_up_are_claims_of_the_full_scale(monkeypatch):
    assert atari.measure_start_up("quick", ["pong"]) == []
    answering(monkeypatch, start_up={"bytes": 2**30, "parts": {"of one thing": 20.0, "of another": 46.0}})
    memory, start = atari.measure_start_up("full", ["pong"])
    assert (memory.ratio, memory.met, memory.unit) == (0.25, True, "B")
    assert (start.ratio, start.met) == (1.1, False)
    assert "20.0 s of one thing + 46.0 s of another" in start.note


def test_whatever_fails_is_a_row_that_says_why(monkeypatch):
    told = atari.in_new_process(atari.__name__, "race_training", "enormous", "pong", platform="cpu")
    assert told == {"failed": "race_training(enormous, pong) measured nothing: KeyError: 'enormous'"}
    failed = {"failed": "race(pong) measured nothing: RuntimeError"}
    answering(monkeypatch, race_training=failed, race_population=failed, start_up=failed)
    rows = [*atari.measure_training("full", "pong"), *atari.measure_population("full", ["pong"]), *atari.measure_start_up("full", ["pong"])]
    assert len(rows) == 4
    assert all(row.ours is None and row.met is None and "RuntimeError" in row.note for row in rows)


def test_the_rival_has_our_network_and_takes_as_many_gradient_steps():
    torch = pytest.importorskip("torch")
    import jax

    from actiongap.dqn.networks import q_network

    ours = q_network((84, 84, 4), 6).init(jax.random.key(0))
    theirs = [part.numel() for part in atari_baselines.network(4, 6).parameters()]
    assert theirs == [part.size for layer in ours for part in layer]
    updates = []
    with pytest.MonkeyPatch.context() as patch:
        step = torch.optim.RMSprop.step
        patch.setattr(torch.optim.RMSprop, "step", lambda self, *rest: (updates.append(1), step(self, *rest)))
        atari_baselines.in_pytorch("pong", FEW, threads=1)(9)
    assert len(updates) == 2 * 5, "two after each round, from the fifth on, when ten steps are remembered"


def test_the_rival_computes_what_ours_does():
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


def test_games_and_scales_are_refused_with_the_choices():
    with pytest.raises(ValueError, match="choose from full, quick"):
        atari.bench_atari("enormous")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="did you mean atari/pong"):
        atari.bench_atari("quick", games=["ponk"])


def test_games_are_named_at_the_command_line_as_anywhere(monkeypatch, capsys):
    asked = []
    for stage in ("measure_training", "measure_population", "measure_start_up"):
        monkeypatch.setattr(atari, stage, lambda scale, games: asked.append(games) or [])
    assert main(["atari", "--scale", "quick", "--games", "breakout", "atari/qbert", "--json"]) == 0
    assert capsys.readouterr().out == "[]\n"
    assert asked == ["breakout", ("breakout", "qbert"), ("breakout", "qbert")]
    assert main(["grid", "--games", "pong"]) == 2
    assert capsys.readouterr().err == "benchmarks: --games belongs to the atari benchmark: leave it out of grid\n"


def test_the_full_scale_is_the_presets_replay_ratio():
    plan = atari.SCALES["full"]
    assert replace(atari._config(plan), buffer_size=1_000_000, learning_starts=50_000) == PRESETS[atari.PRESET]
    assert len(plan.games) * len(plan.operators) == 15
