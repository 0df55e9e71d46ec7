"""Policies: actions and values, and files that are rejected if they were changed."""

import dataclasses
import hashlib
import io
import json
import math
import os
import re
import subprocess
import sys
import zipfile

import gymnasium
import numpy as np
import pytest

from actiongap._files import WriteError
from actiongap.envs.bicycle import bicycle
from actiongap.envs.classic import mountain_car
from actiongap.planning import policy as module
from actiongap.planning.grid import Axis, Grid, periodic
from actiongap.planning.interpolation import multilinear
from actiongap.planning.policy import Policy, check_policy, load_policy, save_policy
from actiongap.planning.rollouts import record_episode

GRID = Grid((Axis((-1.0, -0.2, 0.1, 1.0)), periodic(-math.pi, math.pi, 5)))
Q = np.random.default_rng(0).standard_normal((GRID.size, 3)).astype(np.float32)
ABOUT = {"iterations": 300, "seed": 7, "gamma": 0.99, "eta": 0.1, "noise": "independent", "best": None}
POLICY = Policy("wander:wind=0.3", "al:0.5", GRID, ("down", "stay", "up"), ("height", "angle"), Q, ABOUT)


@pytest.fixture
def file(tmp_path):
    save_policy(tmp_path / "policy.npz", POLICY)
    return tmp_path / "policy.npz"


def test_values_are_interpolated_and_actions_are_greedy():
    x = np.random.default_rng(1).uniform(-4.0, 4.0, (7, 11, 2))
    wanted = multilinear(GRID, (x[..., 0], x[..., 1])).of(Q.astype(np.float64))
    np.testing.assert_allclose(POLICY.q(x), wanted, rtol=0, atol=1e-6)
    np.testing.assert_array_equal(POLICY.q((x[..., 0], x[..., 1])), POLICY.q(x))
    np.testing.assert_array_equal(POLICY.act(x), wanted.argmax(axis=-1))
    assert POLICY.q(x[3, 4]).shape == POLICY.q(tuple(x[3, 4])).shape == POLICY.q(x[3, 4].tolist()).shape == (3,)
    for action in (POLICY.act(x[3, 4]), POLICY.act(tuple(x[3, 4])), POLICY.act(x[3, 4].astype(np.float32))):
        assert type(action) is int
        assert action == wanted[3, 4].argmax()
    assert POLICY.act((x[0, :, 0], 0.5)).shape == (11,)
    assert POLICY.act(x[:0]).shape == (0, 11)


def test_an_observation_has_the_same_q_values_alone_and_in_a_batch():
    x = np.random.default_rng(2).uniform(-4.0, 4.0, (300, 2))
    batch = POLICY.q(x)
    assert batch.dtype == np.float32
    np.testing.assert_array_equal(batch, [POLICY.q(point) for point in x])
    np.testing.assert_array_equal(POLICY.act(x), [POLICY.act(point) for point in x])


def test_coordinates_beyond_the_grid_are_clipped_even_if_they_are_infinite():
    np.testing.assert_array_equal(POLICY.q((np.inf, 0.5)), POLICY.q((1.0, 0.5)))
    np.testing.assert_array_equal(POLICY.q((np.full(20, -np.inf), 0.5)), POLICY.q((np.full(20, -1.0), 0.5)))


def test_the_first_action_of_a_process_loads_and_compiles_nothing_slow(file):
    program = (
        "import sys; from actiongap.planning.policy import load_policy; policy = load_policy(sys.argv[1]); "
        "print(policy.act((0.3, 0.4)), policy.q([(0.3, 0.4)] * 50).shape); "
        "print([m for m in ('numba', 'scipy', 'jax', 'torch', 'gymnasium', 'matplotlib', 'rich', 'tyro') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program, str(file)], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines() == [f"{POLICY.act((0.3, 0.4))} (50, 3)", "[]"]


def test_ties_go_to_the_first_action():
    assert dataclasses.replace(POLICY, table=np.tile([0.0, 1.0, 1.0], (GRID.size, 1))).act((0.3, 0.4)) == 1


@pytest.mark.parametrize(
    ("observation", "words"),
    [
        (np.zeros(3), r"the shape \(3,\): its last axis must hold height, angle"),
        (np.zeros((2, 5)), "its last axis must hold"),
        (0.5, "its last axis must hold"),
        ((0.5,), "its last axis must hold"),
        ((), "its last axis must hold"),
        (np.array([0.5, np.nan]), "contains NaN"),
        (np.array([0.5, np.inf]), "angle is infinite in an observation, but it is periodic"),
    ],
)
def test_bad_observations_are_rejected(observation, words):
    with pytest.raises(ValueError, match=words):
        POLICY.act(observation)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"table": Q[:, :2]}, r"Q has the shape \(20, 2\): give a row per grid point \(20\) and a column per action \(3\)"),
        ({"table": Q.T}, "Q has the shape"),
        ({"table": np.where(np.arange(3) == 1, np.nan, Q)}, "contains NaN or infinity"),
        ({"table": np.where(np.arange(3) == 1, -np.inf, Q)}, "contains NaN or infinity"),
        ({"actions": ("down", "up")}, r"a column per action \(2\)"),
        ({"coordinates": ("height",)}, "there are 1 coordinates and 2 axes"),
    ],
)
def test_inconsistent_policies_are_rejected(change, words):
    with pytest.raises(ValueError, match=words):
        dataclasses.replace(POLICY, **change)


def test_load_inverts_save(file):
    found = load_policy(file)
    for name in ("env", "operator", "grid", "actions", "coordinates", "about"):
        assert getattr(found, name) == getattr(POLICY, name)
    assert found.table.dtype == np.float32
    np.testing.assert_array_equal(found.table, Q)
    again = file.with_name("again.npz")
    save_policy(again, found)
    assert again.read_bytes() == file.read_bytes()
    # NumPy alone can read it.
    with np.load(file, allow_pickle=False) as plain:
        np.testing.assert_array_equal(plain["q"], Q)
        assert json.loads(plain["actiongap-policy"].tobytes())["axes"][1]["period"] == 2 * math.pi
    assert zipfile.ZipFile(file).testzip() is None


def test_saving_is_atomic(file, tmp_path):
    before = file.read_bytes()
    for about in ({"score": np.float32(1.0)}, {"score": math.nan}):
        with pytest.raises(ValueError, match="cannot be written as JSON"):
            save_policy(file, dataclasses.replace(POLICY, about=about))
    with pytest.raises(WriteError):
        save_policy(tmp_path / "nowhere" / "policy.npz", POLICY)
    assert file.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == ["policy.npz"]


def refused(file, data: bytes) -> str:
    file.write_bytes(data)
    with pytest.raises(ValueError, match=r"policy\.npz: ") as said:
        load_policy(file)
    assert "\n" not in str(said.value)
    return str(said.value).partition("policy.npz: ")[2]


def test_truncated_and_extended_files_are_rejected(file):
    data = file.read_bytes()
    for length in range(len(data)):
        said = refused(file, data[:length])
        assert "not a policy" in said if length < 46 else "truncated" in said
    for more in (b"\0", b"PK", data):
        assert "changed" in refused(file, data + more)
    file.write_bytes(data)
    assert load_policy(file).env == POLICY.env


def test_a_file_with_any_byte_changed_is_rejected(file):
    data = file.read_bytes()
    table = data.rindex(b"\x93NUMPY")
    random = np.random.default_rng(2)
    # All bytes before the table, some bytes of it, and all bytes after it.
    places = [*range(table + 128), *random.integers(table + 128, len(data), 60), *range(len(data) - 300, len(data))]
    for place in places:
        changed = bytearray(data)
        changed[place] ^= int(random.integers(1, 256))
        assert any(words in refused(file, bytes(changed)) for words in ("not a policy", "changed"))


def forged_file(file, header: bytes | None, arrays: dict[str, np.ndarray]) -> bytes:
    """Write an archive of these arrays with the right digest."""
    data = io.BytesIO()
    members = ({} if header is None else {"actiongap-policy": np.frombuffer(header, np.uint8)}) | arrays
    with zipfile.ZipFile(data, "w") as archive:
        archive.comment = b"0" * 64
        for name, array in members.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array)
    body = data.getvalue()[:-64]
    whole = body + hashlib.sha256(body).hexdigest().encode()
    file.write_bytes(whole)
    return whole


def forged(file, header: bytes | None, arrays: dict[str, np.ndarray]) -> str:
    """Error for an archive of these arrays with the right digest."""
    return refused(file, forged_file(file, header, arrays))


def header_of(file, **changes) -> bytes:
    with np.load(file) as found:
        header = json.loads(found["actiongap-policy"].tobytes()) | changes
    return json.dumps({name: value for name, value in header.items() if value is not ...}).encode()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"format": "actiongap-run"}, "not a policy"),
        ({"version": 3}, r"written by a later version \(format 3, and this one reads 2\): upgrade actiongap"),
        ({"version": 0}, "its version is 0, which no version of actiongap writes"),
        ({"version": True}, "its version is True"),
        ({"version": "1"}, "its version is '1'"),
        ({"version": ...}, "its version is None"),
        ({"env": ...}, "is missing or has the wrong type"),
        ({"env": 3}, "has the wrong type"),
        ({"actions": ["down", "up"]}, r"a column per action \(2\)"),
        ({"actions": ["down", 1, "up"]}, "has the wrong type"),
        ({"actions": 3}, "has the wrong type"),
        ({"coordinates": ["height"]}, "1 coordinates and 2 axes"),
        ({"axes": [{"points": [0.0, 1.0], "period": None}]}, r"a row per grid point \(2\)"),
        ({"axes": [{"points": [1.0, 0.0], "period": None}]}, "give increasing points"),
        ({"axes": [{"points": [0.0, 1.0]}]}, "has the wrong type"),
        ({"axes": [1.0]}, "has the wrong type"),
        ({"axes": []}, "a grid needs at least one axis"),
        ({"about": [1]}, "has the wrong type"),
    ],
)
def test_bad_headers_are_rejected(file, changes, words):
    assert re.search(words, forged(file, header_of(file, **changes), {"q": Q}))


def test_policies_of_format_1_are_read(file):
    forged_file(file, header_of(file, version=1, env=..., domain="theirs"), {"q": Q})
    assert load_policy(file).env == "theirs"


def test_bad_contents_are_rejected(file):
    header = header_of(file)
    missing = "contents are not those of a policy"
    assert missing in forged(file, header, {})
    assert missing in forged(file, b"{", {"q": Q})
    assert missing in forged(file, b"\xff", {"q": Q})
    assert "not a policy" in forged(file, b"[]", {"q": Q})
    assert "not a policy" in forged(file, None, {"q": Q})
    assert "the type float64: it must be float32" in forged(file, header, {"q": Q.astype(np.float64)})
    assert "the type <U1" in forged(file, header, {"q": np.full(Q.shape, "a")})
    assert "a row per grid point (20)" in forged(file, header, {"q": Q[1:]})
    assert "contains NaN or infinity" in forged(file, header, {"q": Q * np.float32(np.nan)})


def test_pickles_are_never_loaded(file, tmp_path):
    class Trap:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "trapped"),)

    header = header_of(file)
    assert "pickled objects, which are never loaded" in forged(file, header, {"q": np.array([[Trap()]], object)})
    np.savez(tmp_path / "other.npz", q=np.array([Trap()], object))
    with pytest.raises(ValueError, match="it is not a policy"):
        load_policy(tmp_path / "other.npz")
    assert not (tmp_path / "trapped").exists()


def test_other_files_are_rejected(tmp_path):
    with pytest.raises(ValueError, match=r"nothing\.npz: no such file"):
        load_policy(tmp_path / "nothing.npz")
    with pytest.raises(ValueError, match=r"is a folder: give a \.npz file"):
        load_policy(tmp_path)
    with pytest.raises(ValueError, match="no such file"):
        load_policy("a" * 5000)
    for name, data in (("empty", b""), ("text", b"position,speed\n" * 20), ("zeros", bytes(500))):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(ValueError, match=f"{name}: it is not a policy"):
            load_policy(tmp_path / name)
    np.savez(tmp_path / "arrays.npz", q=Q)
    with pytest.raises(ValueError, match="it is not a policy"):
        load_policy(tmp_path / "arrays.npz")


def test_later_formats_are_recognized(file, monkeypatch):
    monkeypatch.setattr(module, "VERSION", 3)
    save_policy(file, POLICY)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"format 3, and this one reads 2"):
        load_policy(file)


def test_check_policy():
    car = mountain_car()
    policy = Policy("mountain-car", "bellman", Grid(car.axes(2)), car.actions, car.coordinates, np.zeros((4, 3)))
    check_policy(policy, car)
    with pytest.raises(ValueError, match="with the coordinates position, speed, but bicycle has omega"):
        check_policy(policy, bicycle())
    with pytest.raises(ValueError, match="with the actions left; coast; right, but mountain-car has left; right; coast"):
        check_policy(policy, dataclasses.replace(car, actions=("left", "right", "coast")))


def balancing_policy() -> Policy:
    """Torque and lean by the sign of linear functions of the coordinates, which interpolation reproduces."""
    simulator = bicycle()
    grid = Grid(simulator.axes(2))
    x = np.stack(grid.points(), axis=1)[:, :5]
    turning, leaning = x @ [-0.543, 0.400, -0.304, -0.046, -0.0021], x @ [-1.312, 0.101, 0.006, -0.025, -0.001]
    q = np.outer(turning, np.repeat([-1, 0, 1], 3)) + np.outer(leaning, np.tile([-1, 0, 1], 3))
    return Policy("bicycle", "by hand", grid, simulator.actions, simulator.coordinates, q)


def test_a_policy_acts_in_gymnasium():
    policy = balancing_policy()
    env = gymnasium.make("actiongap.envs:actiongap/Bicycle-v0")
    observation, _ = env.reset(seed=0)
    for _ in range(1500):
        action = policy.act(observation)
        assert env.action_space.contains(action)
        observation, _, terminated, truncated, _ = env.step(action)
        assert not terminated
        assert not truncated
    # Without torque and lean the bicycle falls after a second or two.
    observation, _ = env.reset(seed=0)
    assert any(env.step(4)[2] for _ in range(1500))
    env.close()


def test_a_policy_acts_in_a_vector_environment_as_in_a_single_one():
    policy = balancing_policy()
    envs = gymnasium.make_vec("actiongap.envs:actiongap/Bicycle-v0", num_envs=3, vectorization_mode="vector_entry_point")
    alone = gymnasium.make("actiongap.envs:actiongap/Bicycle-v0")
    observations, _ = envs.reset(seed=4)
    observation, _ = alone.reset(seed=5)
    for _ in range(300):
        actions = policy.act(observations)
        assert envs.action_space.contains(actions)
        assert actions[1] == policy.act(observation)
        observations, _, terminated, _, _ = envs.step(actions)
        observation = alone.step(int(actions[1]))[0]
        assert not terminated.any()
        np.testing.assert_allclose(observations[1], observation, rtol=1e-5, atol=1e-6)
    envs.close()
    alone.close()


def test_a_policy_acts_as_in_rollouts():
    policy, simulator = balancing_policy(), bicycle()
    check_policy(policy, simulator)
    found = record_episode(simulator, policy.grid, policy.table, 1, 3, max_episode_steps=200)
    # The engine sums in float32, and at the start two actions tie up to rounding.
    np.testing.assert_allclose(policy.q(found.coordinates), found.values, rtol=0, atol=2e-7)
    assert (policy.act(found.coordinates) == found.actions).mean() > 0.99
