"""What a plan leaves behind: a table of values on a grid, and with it what to do anywhere.

A `Policy` acts on observations, one or many at once, and goes into one file. The file is a .npz archive of plain arrays, which `numpy.load`
opens: a header in JSON, which says what it is, of which simulator, by which operator and on which grid, and the table Q. Its last 64 bytes,
the comment of the archive, are the SHA-256 of all bytes before them, so a file that was cut short or changed anywhere is not believed.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from actiongap._files import check_version, reason, writing
from actiongap.planning.grid import Axis, Grid
from actiongap.planning.simulator import Simulator

NO_POLICY = "it is not a policy: give a file that was saved as one"
FORMAT, VERSION = "actiongap-policy", 2
DIGITS = 64
"""Of a SHA-256 in hexadecimal."""


@dataclass(frozen=True, eq=False)
class Policy:
    """The greedy policy of Q on a grid.

    Examples
    --------
    >>> from actiongap.planning.grid import uniform
    >>> policy = Policy("slide", "bellman", Grid((uniform(0.0, 1.0, 2),)), ("left", "right"), ("x",), np.array([[0.0, 1.0], [4.0, 1.0]]))
    >>> policy.act(np.array([0.5])), policy.act(np.array([[0.1], [0.5]])).tolist()
    (0, [1, 0])
    """

    env: str
    """Text that `load_simulator` reads."""
    operator: str
    """By which it was planned."""
    grid: Grid
    actions: tuple[str, ...]
    """What the actions are called."""
    coordinates: tuple[str, ...]
    """What the coordinates are called."""
    q: np.ndarray
    """Q(z, a), (points, actions). Kept as float32."""
    about: dict[str, Any] = field(default_factory=dict)
    """How it was planned, as plain JSON: iterations, seed, gamma, eta and the like."""

    def __post_init__(self) -> None:
        q = np.ascontiguousarray(self.q, np.float32)
        wanted = (self.grid.size, len(self.actions))
        if q.shape != wanted:
            raise ValueError(f"Q has the shape {q.shape}: there are {wanted[0]} grid points and {wanted[1]} actions")
        if not np.isfinite([q.min(), q.max()]).all():
            raise ValueError("Q holds something that is not a finite number: its plan has diverged, so take an earlier table")
        if len(self.coordinates) != len(self.grid.axes):
            raise ValueError(f"there are {len(self.coordinates)} coordinates and {len(self.grid.axes)} axes: give one for each")
        object.__setattr__(self, "q", q)
        object.__setattr__(self, "actions", tuple(self.actions))
        object.__setattr__(self, "coordinates", tuple(self.coordinates))

    def values(self, observation: Any) -> np.ndarray:
        """sum_z A(z | x) Q(z, a) for every action: (..., actions) for observations (..., coordinates), or a tuple with one array for each.

        Examples
        --------
        >>> from actiongap.planning.grid import uniform
        >>> policy = Policy("slide", "bellman", Grid((uniform(0.0, 1.0, 2),)), ("left", "right"), ("x",), [[0.0, 1.0], [4.0, 1.0]])
        >>> policy.values((0.25,)).tolist()
        [1.0, 1.0]
        """
        # Compilers are slow to load, and a policy may be wanted for its table alone.
        from actiongap.planning._numba_cells import lookup

        is_tuple = isinstance(observation, tuple) and len(observation) > 0
        x = np.stack(np.broadcast_arrays(*observation), axis=-1) if is_tuple else np.asarray(observation)
        if not x.ndim or x.shape[-1] != len(self.coordinates):
            raise ValueError(f"an observation has the shape {x.shape}: it must end with one number each for {', '.join(self.coordinates)}")
        points = np.ascontiguousarray(x, np.float64).reshape(-1, len(self.coordinates))
        if np.isnan(points).any():
            raise ValueError("an observation holds something that is no number: a policy cannot act on it")
        return lookup(self.grid).values(self.q, points).reshape(*x.shape[:-1], len(self.actions))

    def act(self, observation: Any) -> Any:
        """argmax_a sum_z A(z | x) Q(z, a), the first of several: an int for one observation, an array of them for many.

        Examples
        --------
        >>> from actiongap.planning.grid import uniform
        >>> policy = Policy("slide", "bellman", Grid((uniform(0.0, 1.0, 2),)), ("left", "right"), ("x",), [[0.0, 1.0], [4.0, 1.0]])
        >>> policy.act((0.25,))
        0
        """
        best = self.values(observation).argmax(axis=-1)
        return best if best.ndim else int(best)


def check_policy(policy: Policy, simulator: Simulator) -> None:
    """Refuse a policy whose coordinates or actions are not those of a simulator.

    Examples
    --------
    >>> from actiongap.envs.classic import mountain_car, pendulum
    >>> car = mountain_car()
    >>> check_policy(Policy("mountain-car", "bellman", Grid(car.axes(2)), car.actions, car.coordinates, np.zeros((4, 3))), pendulum())
    Traceback (most recent call last):
    ValueError: the policy is one of mountain-car and acts on position, speed, but pendulum has the coordinates angle, rate
    """
    if policy.coordinates != simulator.coordinates:
        acts_on, has = ", ".join(policy.coordinates), ", ".join(simulator.coordinates)
        raise ValueError(f"the policy is one of {policy.env} and acts on {acts_on}, but {simulator.name} has the coordinates {has}")
    if policy.actions != simulator.actions:
        raise ValueError(
            f"the policy is one of {policy.env} with the actions {'; '.join(policy.actions)}, "
            f"but those of {simulator.name} are {'; '.join(simulator.actions)}"
        )


def save_policy(path: str | Path, policy: Policy) -> None:
    """Write a policy to one file, which appears whole or not at all.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.planning.grid import uniform
    >>> file = Path(tempfile.mkdtemp()) / "policy.npz"
    >>> save_policy(file, Policy("slide", "bellman", Grid((uniform(0.0, 1.0, 2),)), ("stay",), ("x",), np.array([[1.0], [2.0]])))
    >>> load_policy(file).q.tolist()
    [[1.0], [2.0]]
    """
    header = {
        "format": FORMAT,
        "version": VERSION,
        "env": policy.env,
        "operator": policy.operator,
        "coordinates": policy.coordinates,
        "actions": policy.actions,
        "axes": [{"points": axis.points, "period": axis.period} for axis in policy.grid.axes],
        "about": policy.about,
    }
    try:
        text = json.dumps(header, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ValueError(f"what is said about the policy cannot be written as JSON ({error}): keep to finite numbers and texts") from None
    with writing(path) as stream:
        _write(stream, text.encode(), policy.q)


def _write(stream: BinaryIO, header: bytes, q: np.ndarray) -> None:
    with zipfile.ZipFile(stream, "w") as archive:
        archive.comment = b"0" * DIGITS
        for name, array in ((FORMAT, np.frombuffer(header, np.uint8)), ("q", q)):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    stream.flush()
    with open(stream.name, "rb") as written:
        digest = _digest(written)
    stream.seek(-DIGITS, os.SEEK_END)
    stream.write(digest)


def _digest(stream: BinaryIO) -> bytes:
    """The SHA-256 of everything but the digest itself, where it leaves the stream."""
    left, found = stream.seek(0, os.SEEK_END) - DIGITS, hashlib.sha256()
    stream.seek(0)
    while left > 0 and (block := stream.read(min(left, 2**20))):
        found.update(block)
        left -= len(block)
    return found.hexdigest().encode()


def load_policy(path: str | Path) -> Policy:
    """The policy that `save_policy` wrote, or one sentence about why it cannot be believed."""
    # Not `Path.is_file`, which raises where the path is too long to be one.
    if not os.path.isfile(path):
        raise ValueError(f"{path}: no such file")
    try:
        with open(path, "rb") as stream:
            # The name of the first array comes after the 30 bytes with which an archive begins.
            if not stream.read(30 + len(FORMAT)).endswith(FORMAT.encode()):
                raise ValueError(NO_POLICY)
            if _digest(stream) != stream.read(DIGITS):
                raise ValueError("it was cut short, or changed after it was saved: save the policy again")
            stream.seek(0)
            return _read(stream)
    except OSError as error:
        raise ValueError(f"{path}: {reason(error)}") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _read(stream: BinaryIO) -> Policy:
    archive = _from_archive(lambda: np.load(stream, allow_pickle=False))
    header = _from_archive(lambda: json.loads(archive[FORMAT].tobytes()))
    check_version(header, FORMAT, VERSION, NO_POLICY)
    q = _from_archive(lambda: archive["q"])
    if q.dtype != np.float32:
        raise ValueError(f"its table is of type {q.dtype}: it must be float32")
    try:
        # Format 1 called it `domain`.
        texts = [header["env" if header["version"] > 1 else "domain"], header["operator"], *header["actions"], *header["coordinates"]]
        if not all(isinstance(text, str) for text in texts) or not isinstance(header["about"], dict):
            raise TypeError
        grid = Grid(tuple(Axis(axis["points"], axis["period"]) for axis in header["axes"]))
        actions, coordinates = tuple(header["actions"]), tuple(header["coordinates"])
    except (KeyError, TypeError):
        raise ValueError("something in its header is missing, or not what it should be: save the policy again") from None
    return Policy(texts[0], texts[1], grid, actions, coordinates, q, header["about"])


def _from_archive(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception as error:  # reading from what is not quite an archive raises nearly anything
        pickled = "pickle" in str(error).lower()
        why = "it holds pickled objects, which are never loaded" if pickled else "its contents are not those of a policy"
        raise ValueError(f"{why}: save the policy again") from None
