"""`actiongap watch`: selection of frames and their contents."""

import importlib
import json
import sys

import numpy as np
import pytest
from PIL import Image, ImageSequence

from actiongap.envs.bicycle import bicycle, standing
from actiongap.envs.classic import cart_pole, pendulum
from actiongap.envs.episode_video import HOLD, SIZE, episode_frames, record_interval, select_frames, write_episode
from actiongap.envs.simulators import SIMULATORS, load_simulator
from actiongap.planning.grid import Grid
from actiongap.planning.policy import Policy, save_policy
from actiongap.planning.rollouts import Episode
from actiongap.planning.simulator import Outcome, Simulator
from actiongap.render.canvas import BLUE, FAINT, PAPER, blend, fit_text
from actiongap.render.video import makes_mp4

needs_av = pytest.mark.skipif(not makes_mp4(), reason="PyAV is not installed")


def make_episode(simulator, steps, outcome="limit", every=1, seed=0):
    """Return an episode through random coordinates of a simulator's box, for frames that need no physics."""
    rng = np.random.default_rng(seed)
    at = np.unique(np.append(np.arange(0, steps, every), steps))
    boxes = [(axis.points[0], axis.points[-1]) for axis in simulator.axes(3)]
    seen = tuple(rng.uniform(low, high, len(at)) for low, high in boxes)
    values = rng.normal(size=(len(at), len(simulator.actions)))
    state = standing(seen[4])._replace(omega=seen[0], theta=seen[2], y=seen[5]) if simulator.name == "bicycle" else seen
    return Episode(tuple(state), seen, values.argmax(1), values, at, outcome)


def falling():
    """Return a simulator that has no renderer."""
    step = lambda x, a, u: Outcome((x[0] + x[1], x[1] + a - 0.5), 0.0, x[0] > 5.0)  # noqa: E731
    return Simulator("falling", step, state={"height": (-5.0, 5.0), "rate": (-2.0, 2.0)}, actions=("down", "up"))


@pytest.mark.parametrize("steps", [1, 7, 500, 2501, 20_000, 36_000, 46_007, 100_000])
@pytest.mark.parametrize("seconds", [2.0, 15.0, 20.0])
def test_selected_frames_cover_the_episode_within_its_seconds(steps, seconds):
    simulator = bicycle()
    selection = select_frames(simulator, make_episode(simulator, steps, every=4), seconds=seconds)
    assert selection.indices[0] == 0
    assert selection.seconds <= seconds + 1 / selection.fps
    assert (np.diff(selection.indices) >= 0).all()
    held = round(HOLD * selection.fps)
    assert (selection.indices[-held - 1 :] == selection.indices[-1]).all()
    assert selection.indices[-1] == len(np.unique(np.append(np.arange(0, steps, 4), steps))) - 1


def test_long_episodes_start_and_end_in_real_time():
    simulator = bicycle()
    episode = make_episode(simulator, 46_007, every=4)
    selection = select_frames(simulator, episode, seconds=20.0)
    assert selection.seconds == pytest.approx(20.0, abs=0.1)
    assert set(selection.speeds[:50]) == set(selection.speeds[-75:]) == {100.0}
    # Only the last stride of the sped-up part may differ from the others.
    shown = episode.steps[selection.indices]
    strides = np.diff(shown)
    assert (strides[:50] == 4).all()
    # The last frame may be less than a stride after the one before it.
    assert (strides[-round(HOLD * selection.fps) - 50 : -round(HOLD * selection.fps) - 1] == 4).all()
    assert strides.max() > 100


@pytest.mark.parametrize("steps", range(12_000, 100_001, 8_800))
def test_the_ground_does_not_appear_to_move_backwards(steps):
    simulator = bicycle()
    hurry = select_frames(simulator, make_episode(simulator, steps, every=4)).speeds.max() / 25
    assert hurry % 144 <= 0.3 * 144
    assert hurry <= 0.3 * 144 or hurry % 144 >= 0.07 * 144


def test_one_speed_throughout():
    simulator = cart_pole()
    episode = make_episode(simulator, 500)
    for speed, seconds in ((1.0, 10.0), (5.0, 2.0), (0.5, 20.0)):
        selection = select_frames(simulator, episode, speed=speed)
        assert selection.seconds - HOLD == pytest.approx(seconds, abs=0.1)
        assert np.unique(selection.speeds).tolist() == pytest.approx([50 * speed])
    with pytest.raises(ValueError, match="speed is 0"):
        select_frames(simulator, episode, speed=0.0)
    with pytest.raises(ValueError, match=r"seconds is 1\.0"):
        select_frames(simulator, episode, seconds=1.0)


@pytest.mark.parametrize("name", [*SIMULATORS, "falling"])
def test_every_simulator_is_drawn(name):
    simulator = falling() if name == "falling" else load_simulator(name)
    episode = make_episode(simulator, 60, every=record_interval(simulator))
    selection = select_frames(simulator, episode)
    frames = list(episode_frames(simulator, episode, selection))
    assert len(frames) == len(selection.indices)
    assert {(frame.shape, frame.dtype) for frame in frames} == {((SIZE[1], SIZE[0], 3), np.dtype(np.uint8))}
    pictures = [frame[:, :640].tobytes() for frame in frames]
    assert len(set(pictures)) == len(np.unique(selection.indices)) > 1


def test_another_simulator_of_the_same_name_is_drawn_as_curves():
    step = lambda x, a, u: Outcome((x[0] + a,), 0.0, False)  # noqa: E731
    namesake = Simulator("pendulum", step, state={"amount": (0.0, 1.0)}, actions=("less", "more"))
    episode = make_episode(namesake, 30)
    frames = list(episode_frames(namesake, episode))
    assert len({frame.tobytes() for frame in frames}) == 31


def bar(frame, action, actions):
    """The row of pixels through the middle of an action's bar."""
    return frame[int(104 + (action + 0.5) * min(30, 162 / actions)), 640 + 140 : 640 + 304].astype(int)


def test_bar_lengths_show_q_and_bar_colours_the_chosen_action():
    simulator = cart_pole()
    episode = make_episode(simulator, 40)
    values = np.tile([-0.5, 1.0], (41, 1))
    values[20:] = [1.0, 0.25]
    episode = episode._replace(values=values, actions=values.argmax(1))
    selection = select_frames(simulator, episode, speed=0.5)
    frames = list(episode_frames(simulator, episode, selection))
    early, late = frames[int(np.searchsorted(selection.indices, 10))], frames[int(np.searchsorted(selection.indices, 30))]
    empty, pale = blend(PAPER, FAINT, 0.4), blend(PAPER, BLUE, 0.4)
    # The scale reaches down to the lowest value, 1.5 below V; later the other action is half of that below.
    assert (bar(early, 0, 2) == empty).all(axis=1).mean() > 0.95
    assert (bar(early, 1, 2) == BLUE).all(axis=1).mean() > 0.95
    assert (bar(late, 0, 2) == BLUE).all(axis=1).mean() > 0.95
    assert (bar(late, 1, 2) == pale).all(axis=1).mean() == pytest.approx(0.5, abs=0.02)


def test_sped_up_bars_show_means_over_the_steps_between_frames():
    simulator = cart_pole()
    values = np.tile([[0.0, 1.0], [1.0, 0.0]], (201, 1))[:401]
    episode = make_episode(simulator, 400)._replace(values=values, actions=values.argmax(1))
    frames = list(episode_frames(simulator, episode, select_frames(simulator, episode, speed=4.0)))
    for action in (0, 1):
        row = bar(frames[20], action, 2)
        assert (row == blend(blend(PAPER, BLUE, 0.4), BLUE, 0.5**0.5)).all(axis=1).mean() == pytest.approx(0.5, abs=0.02)


def test_values_of_terminal_states_are_not_shown():
    simulator = cart_pole()
    episode = make_episode(simulator, 30, outcome="fall")
    spoilt = episode._replace(values=np.concatenate([episode.values[:-1], np.full((1, 2), 1e6)]))
    for one, other in zip(episode_frames(simulator, episode), episode_frames(simulator, spoilt), strict=True):
        np.testing.assert_array_equal(one, other)


def test_long_titles_are_shortened_in_the_middle():
    simulator = pendulum()
    episode = make_episode(simulator, 5)
    heading = lambda title: next(episode_frames(simulator, episode, title=title))[8:31, 640:]  # noqa: E731
    long = "minatar/space_invaders, experiments/mine.py:halfway, seed "
    assert len(long) > 40
    # The seed is at its end, and the frame goes on beyond it.
    assert (heading(long + "1") != heading(long + "7")).any()
    assert (heading(long + "7")[:, -12:] == PAPER).all()
    longer = f"minatar/breakout, {'folder/' * 30}mine.py:halfway, seed "
    text, size = fit_text(longer + "7", 14, 288)
    assert text.startswith("minatar/breakout, ")
    assert text.endswith("mine.py:halfway, seed 7")
    assert "..." in text
    assert size == 9
    assert (heading(longer + "7")[:, -12:] == PAPER).all()


def test_a_single_step_makes_a_video():
    for simulator in (falling(), pendulum()):
        assert len(list(episode_frames(simulator, make_episode(simulator, 1, outcome="end")))) > 10


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    """A policy for the pendulum with random Q."""
    simulator = pendulum()
    grid = Grid(simulator.axes(5))
    q = np.random.default_rng(1).normal(size=(grid.size, 5)).astype(np.float32)
    file = tmp_path_factory.mktemp("policies") / "swing.npz"
    save_policy(file, Policy("pendulum", "bellman", grid, simulator.actions, simulator.coordinates, q, {}))
    return file


@needs_av
def test_watch_writes_both(run, policy, tmp_path):
    import av

    video = tmp_path / "new" / "swing.mp4"
    code, out, err = run("watch", policy, "--out", video, "--seconds", "3", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found == {
        "policy": str(policy),
        "video": str(video),
        "gif": str(video.with_suffix(".gif")),
        "steps": 200,
        "outcome": "limit",
        "seconds": pytest.approx(3.0, abs=0.1),
    }
    assert sorted(file.name for file in video.parent.iterdir()) == ["swing.gif", "swing.mp4"]
    with av.open(str(video)) as container:
        frames = list(container.decode(video=0))
        assert {(frame.width, frame.height) for frame in frames} == {SIZE}
        assert len(frames) / 20 == pytest.approx(found["seconds"])
    with Image.open(found["gif"]) as album:
        assert sum(1 for _ in ImageSequence.Iterator(album)) > 5


def test_watch_prints_a_line_and_names_the_video_after_the_policy(run, policy, tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(
        "actiongap.planning.rollouts.record_episode",
        lambda *arguments, **options: asked.append((arguments, options)) or make_episode(arguments[0], 200),
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "av", None)
    code, out, err = run("watch", policy, "--seconds", "2", "--episode", "3", "--episodes", "7", "--seed", "5")
    ((simulator, _, q, *which), options) = asked.pop()
    assert (simulator.name, q.shape, which, options["seed"]) == ("pendulum", (25, 5), [3, 7], 5)
    assert (code, err) == (0, "note: only the GIF is written: MP4 needs PyAV: pip install 'actiongap[video]'\n")
    assert out == "limit after 200 steps: wrote swing.gif, 2 s\n"
    assert [file.name for file in tmp_path.iterdir()] == ["swing.gif"]


def test_agents_with_dots_in_their_names_get_a_video_each(run, tmp_path, monkeypatch):
    simulator = pendulum()
    watching = importlib.import_module("actiongap.cli.watch")

    def play(folder, operator, seed, episode, trust, files, pace):
        return write_episode(simulator, make_episode(simulator, 20), **files, **pace)

    monkeypatch.setattr(watching, "_watch_agent", play)
    monkeypatch.setitem(sys.modules, "av", None)
    monkeypatch.chdir(tmp_path)
    names = ["al-0.5_seed-0_11111111", "al-0.9_seed-0_22222222"]
    for name in names:
        (tmp_path / "runs" / name).mkdir(parents=True)
        code, out, _ = run("watch", f"runs/{name}/", "--seconds", "2")
        assert (code, f"wrote {name}.gif" in out) == (0, True)
    assert sorted(file.name for file in tmp_path.glob("*.*")) == [f"{name}.gif" for name in names]
    monkeypatch.chdir(tmp_path / "runs" / names[0])
    assert f"wrote {names[0]}.gif" in run("watch", ".", "--seconds", "2")[1]
    assert f"wrote {names[0]}_al-0.9_seed-3.gif" in run("watch", ".", "--seconds", "2", "--operator", "al:0.9", "--seed", "3")[1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--episode", "7", "--episodes", "5"), "--episode is 7: it must be from 0 to 4"),
        (("--episode", "-1"), "--episode is -1"),
        (("--seconds", "9", "--speed", "2"), "seconds and speed both set the speed of the video"),
        (("--seconds", "0.5"), "seconds is 0.5"),
        (("--speed", "-1"), "speed is -1"),
        (("--out", "video.avi"), "must be an .mp4 or a .gif file"),
        (("--out", "video.gif", "--no-gif"), "--no-gif"),
    ],
)
def test_bad_input_is_one_sentence(run, policy, tmp_path, monkeypatch, arguments, message):
    monkeypatch.setattr("actiongap.planning.rollouts.record_episode", lambda simulator, *arguments, **options: make_episode(simulator, 200))
    monkeypatch.chdir(tmp_path)
    code, out, err = run("watch", policy, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.startswith("actiongap: ")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_files_that_are_not_policies_are_refused(run, policy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.npz").write_bytes(policy.read_bytes()[:-7])
    (tmp_path / "note.txt").write_text("cake")
    for name in ("broken.npz", "note.txt", "absent.npz"):
        code, out, err = run("watch", name)
        assert (code, out) == (2, "")
        assert err.startswith("actiongap: ")
        assert name in err
        assert err.count("\n") == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["broken.npz", "note.txt"]


def test_no_gif_without_pyav_is_refused(run, policy, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "av", None)
    code, _, err = run("watch", policy, "--no-gif")
    assert (code, err) == (2, "actiongap: MP4 needs PyAV: pip install 'actiongap[video]'\n")
    assert list(tmp_path.iterdir()) == []
