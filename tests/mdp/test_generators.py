import errno
import io
import os
import zipfile
from typing import Any

import numpy as np
import pytest

from actiongap import cake, chain, garnet, load_mdp, save_npz
from actiongap.mdp import generators as problems


def test_every_name():
    assert load_mdp("cake", gamma=0.5, epsilon=0.2).gamma == 0.5
    assert load_mdp("single-state").states == 1
    assert load_mdp("chain:7", slip=0.0).states == 7
    assert load_mdp("gridworld:3,4").states == 12
    assert load_mdp("gridworld:5").states == 25
    assert (load_mdp("garnet:9,2,3", seed=4).rewards == garnet(9, 2, 3, seed=4).rewards).all()
    assert load_mdp("gym/FrozenLake-v1", gamma=0.8).gamma == 0.8


@pytest.mark.parametrize(
    ("text", "options", "part"),
    [
        ("cke", {}, "unknown MDP 'cke': did you mean cake"),
        ("garnet", {}, "garnet:STATES,ACTIONS,BRANCHING"),
        ("garnet:1,2", {}, "garnet:STATES,ACTIONS,BRANCHING"),
        ("garnet:a,2,3", {}, "whole numbers"),
        ("garnet:1,2,3,4", {}, "give the sizes"),
        ("garnet:0,2,3", {}, "at least 1"),
        ("cake:3", {}, "give the sizes as cake"),
        ("cake", {"seed": 1}, "cake takes no seed"),
        ("gym/FrozenLake-v1", {"epsilon": 0.1}, "takes no epsilon"),
        ("missing.npz", {}, "no such file"),
        ("cake", {"gamma": 1.0}, "gamma is 1.0"),
        ("garnet:9,2,3", {"seed": -1}, "seed is -1: it must be a whole number of at least 0"),
        (
            "garnet:99999999999,8,8",
            {},
            "would need 83,199 GB of memory for its 99,999,999,999 states: choose at most",
        ),
        (f"garnet:{10**400},8,8", {}, "GB of memory"),
        ("garnet:5000000000,1,1", {}, "would need 100 GB of memory for its 5,000,000,000 states: .* 4,294,967,295 states"),
        ("garnet:1000000,1000,1000", {}, "would need 12,008 GB"),
        ("chain:99999999999", {}, "would need 6,399 GB"),
        ("gridworld:1000000", {}, "would need 176,000 GB of memory for its 1,000,000,000,000 states"),
        ("x" * 5000 + ".npz", {}, "x.npz: no such file"),
        ("null\0.npz", {}, "no such file"),
    ],
)
def test_bad_names_are_one_sentence(text, options, part):
    with pytest.raises(ValueError, match=part) as caught:
        load_mdp(text, **options)
    assert "\n" not in str(caught.value)


def test_names_are_strings():
    with pytest.raises(TypeError, match="an MDP is named by a string such as garnet:20,2,3, not by 3"):
        load_mdp(3)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: garnet("many", 2, 3), "garnet: states is 'many': it must be a whole number of at least 1"),  # pyright: ignore[reportArgumentType]
        (lambda: garnet(9, 2.5, 3), "garnet: actions is 2.5"),  # pyright: ignore[reportArgumentType]
        (lambda: chain(4, slip="x"), "slip is 'x': it must be a probability"),  # pyright: ignore[reportArgumentType]
        (lambda: cake(epsilon="x"), "epsilon is 'x'"),  # pyright: ignore[reportArgumentType]
    ],
)
def test_bad_numbers_are_one_sentence(make, said):
    with pytest.raises(ValueError, match=said):
        make()


@pytest.mark.parametrize("mdp", [cake(0.7), garnet(9, 2, 3, gamma=0.6)], ids=["dense", "sparse"])
def test_files_round_trip(mdp, tmp_path):
    file = tmp_path / "model.npz"
    save_npz(mdp, file)
    again = load_mdp(str(file))
    assert again.gamma == mdp.gamma
    assert again.name == "model.npz"
    assert type(again.transitions) is type(mdp.transitions)
    np.testing.assert_array_equal(again.rewards, mdp.rewards)
    for one, other in zip(again.transitions, mdp.transitions, strict=True):
        np.testing.assert_array_equal(one, other)
    assert load_mdp(str(file), gamma=0.1).gamma == 0.1
    assert os.listdir(tmp_path) == ["model.npz"]


def bad_file(path, kind):
    good: dict[str, Any] = {"rewards": np.zeros((1, 2)), "gamma": 0.9, "transitions": np.ones((1, 2, 1))}

    def save(arrays: dict[str, Any]) -> None:
        np.savez(path, **arrays)

    if kind == "text":
        path.write_text("not an archive")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "truncated":
        save(good)
        path.write_bytes(path.read_bytes()[:-40])
    elif kind == "flipped":
        save(good)
        data = bytearray(path.read_bytes())
        data[200] ^= 0xFF
        path.write_bytes(bytes(data))
    elif kind == "pickled":
        save(good | {"rewards": np.array([[{}, {}]], dtype=object)})
    elif kind == "pickled scalar":
        save(good | {"gamma": np.array({"a": 1}, dtype=object)})
    elif kind == "foreign member":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("rewards.npy", b"garbage")
    elif kind == "no gamma":
        np.savez(path, rewards=good["rewards"], transitions=good["transitions"])
    elif kind == "no transitions":
        np.savez(path, rewards=good["rewards"], gamma=0.9)
    elif kind == "only successors":
        np.savez(path, rewards=good["rewards"], gamma=0.9, successors=np.zeros((1, 2, 1), dtype=int))
    elif kind == "nan":
        save(good | {"rewards": np.array([[np.nan, 0.0]])})
    elif kind == "vector gamma":
        save(good | {"gamma": np.array([0.9, 0.8])})


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        ("text", "not a complete .npz"),
        ("empty", "not a complete .npz"),
        ("truncated", "not a complete .npz"),
        ("flipped", "cannot be read"),
        ("pickled", "pickled objects"),
        ("pickled scalar", "pickled objects"),
        ("foreign member", "cannot be read"),
        ("no gamma", "no array 'gamma'"),
        ("no transitions", "no next-state distributions"),
        ("only successors", "no next-state distributions"),
        ("nan", r"rewards\[0, 0\] is nan"),
        ("vector gamma", "one number"),
    ],
)
def test_bad_files_are_one_sentence(kind, part, tmp_path):
    file = tmp_path / "model.npz"
    bad_file(file, kind)
    with pytest.raises(ValueError, match=part) as caught:
        load_mdp(str(file))
    assert "\n" not in str(caught.value)
    assert "model.npz" in str(caught.value)


def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "model.npz"
    save_npz(cake(0.5), file)
    before = file.read_bytes()

    def full(*arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(problems.np, "savez_compressed", full)
    with pytest.raises(ValueError, match="no space left on device"):
        save_npz(cake(0.9), file)
    assert file.read_bytes() == before
    assert os.listdir(tmp_path) == ["model.npz"]


def test_a_folder_that_does_not_exist_is_said(tmp_path):
    with pytest.raises(ValueError, match="cannot be written"):
        save_npz(cake(), tmp_path / "nowhere" / "model.npz")


@pytest.mark.parametrize("shape", [(10**30,), (2**40, 2**40), (2**62,)], ids=str)
def test_declared_shapes_of_absurd_size_are_one_sentence(tmp_path, shape):
    file, array = tmp_path / "model.npz", io.BytesIO()
    np.lib.format.write_array_header_1_0(array, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("rewards.npy", array.getvalue() + bytes(64))
    with pytest.raises(ValueError, match="it is not a complete") as caught:
        problems.load_npz(file)
    assert "\n" not in str(caught.value)


def test_a_bomb_is_refused_by_its_declared_size(tmp_path, monkeypatch):
    file = tmp_path / "model.npz"
    monkeypatch.setattr("actiongap._files.INFLATED_BYTES", 2**20)
    np.savez_compressed(file, transitions=np.zeros(2**18))
    monkeypatch.setattr(np, "load", lambda *arguments, **options: pytest.fail("it is inflated"))
    with pytest.raises(ValueError, match=r"its arrays have 2.1 MB in 2\.\d+ kB: if that is right, save it without compression"):
        problems.load_npz(file)
