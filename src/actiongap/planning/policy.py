"""Policies: the greedy policy of a table Q on a grid, and the file that stores it.

A `Policy` acts on one observation or on a batch. Its file is a .npz archive of plain arrays that `numpy.load` opens: a JSON header (format,
simulator, operator, grid) and the table Q. The last 64 bytes of the file, the comment of the archive, are the SHA-256 of all bytes before
them, so a truncated or modified file is rejected.
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

from actiongap._files import check_archive, check_version, open_regular, reason, writing
from actiongap.planning.grid import Axis, Grid
from actiongap.planning.interpolation import interpolated_rows
from actiongap.planning.simulator import Simulator

NOT_A_POLICY = "it is not a policy: give a .npz file that plan wrote"
FORMAT, VERSION = "actiongap-policy", 2
DIGITS = 64
"""Length of a SHA-256 digest in hexadecimal."""


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
    """The simulator, as text for `load_simulator`."""
    operator: str
    """The operator of the plan, as text."""
    grid: Grid
    actions: tuple[str, ...]
    """Names of the actions."""
    coordinates: tuple[str, ...]
    """Names of the coordinates."""
    table: np.ndarray
    """Q(z, a), (points, actions). Stored as float32."""
    about: dict[str, Any] = field(default_factory=dict)
    """How it was planned, as plain JSON: iterations, seed, gamma, eta and so on."""

    def __post_init__(self) -> None:
        table = np.ascontiguousarray(self.table, np.float32)
        wanted = (self.grid.size, len(self.actions))
        if table.shape != wanted:
            raise ValueError(
                f"Q has the shape {table.shape}: give a row per grid point ({wanted[0]}) and a column per action ({wanted[1]})"
            )
        if not np.isfinite([table.min(), table.max()]).all():
            raise ValueError("Q contains NaN or infinity: its plan has diverged, so use an earlier table")
        if len(self.coordinates) != len(self.grid.axes):
            raise ValueError(f"there are {len(self.coordinates)} coordinates and {len(self.grid.axes)} axes: give one axis per coordinate")
        object.__setattr__(self, "table", table)
        object.__setattr__(self, "actions", tuple(self.actions))
        object.__setattr__(self, "coordinates", tuple(self.coordinates))

    def q(self, observation: Any) -> np.ndarray:
        """Return sum_z A(z | x) Q(z, a) for every action, (..., actions), in float32.

        Observations are an array (..., coordinates), or a tuple with one array per coordinate. Sums are in float64 and rounded once, so an
        observation has the same Q-values, to the last bit, alone and in any batch.

        Examples
        --------
        >>> from actiongap.planning.grid import uniform
        >>> policy = Policy("slide", "bellman", Grid((uniform(0.0, 1.0, 2),)), ("left", "right"), ("x",), [[0.0, 1.0], [4.0, 1.0]])
        >>> policy.q((0.25,)).tolist()
        [1.0, 1.0]
        """
        is_tuple = isinstance(observation, tuple) and len(observation) > 0
        x = np.stack(np.broadcast_arrays(*observation), axis=-1) if is_tuple else np.asarray(observation)
        if not x.ndim or x.shape[-1] != len(self.coordinates):
            raise ValueError(f"an observation has the shape {x.shape}: its last axis must hold {', '.join(self.coordinates)}")
        points = np.asarray(x, np.float64).reshape(-1, len(self.coordinates))
        if not np.isfinite(points).all():
            self._check_not_finite(points)
        return interpolated_rows(self.grid, self.table, points).reshape(*x.shape[:-1], len(self.actions))

    def _check_not_finite(self, points: np.ndarray) -> None:
        """Raise ValueError unless the numbers that are not finite can be clipped to the ends of their axes."""
        if np.isnan(points).any():
            raise ValueError("an observation contains NaN: check the environment and its wrappers")
        for name, axis, column in zip(self.coordinates, self.grid.axes, points.T, strict=True):
            if axis.period is not None and np.isinf(column).any():
                raise ValueError(f"{name} is infinite in an observation, but it is periodic: check the environment and its wrappers")

    def act(self, observation: Any) -> Any:
        """Return argmax_a sum_z A(z | x) Q(z, a): an int for one observation, an array for a batch. Ties go to the first action.

        Examples
        --------
        >>> from actiongap.planning.grid import uniform
        >>> policy = Policy("slide", "bellman", Grid((uniform(0.0, 1.0, 2),)), ("left", "right"), ("x",), [[0.0, 1.0], [4.0, 1.0]])
        >>> policy.act((0.25,))
        0
        """
        best = self.q(observation).argmax(axis=-1)
        return best if best.ndim else int(best)


def check_policy(policy: Policy, simulator: Simulator) -> None:
    """Raise ValueError if the coordinates or the actions of a policy are not those of the simulator.

    Examples
    --------
    >>> from actiongap.envs.classic import mountain_car, pendulum
    >>> car = mountain_car()
    >>> check_policy(Policy("mountain-car", "bellman", Grid(car.axes(2)), car.actions, car.coordinates, np.zeros((4, 3))), pendulum())
    Traceback (most recent call last):
    ValueError: the policy is for mountain-car with the coordinates position, speed, but pendulum has angle, rate
    """
    if policy.coordinates != simulator.coordinates:
        expected, found = ", ".join(policy.coordinates), ", ".join(simulator.coordinates)
        raise ValueError(f"the policy is for {policy.env} with the coordinates {expected}, but {simulator.name} has {found}")
    if policy.actions != simulator.actions:
        raise ValueError(
            f"the policy is for {policy.env} with the actions {'; '.join(policy.actions)}, "
            f"but {simulator.name} has {'; '.join(simulator.actions)}"
        )


def save_policy(path: str | Path, policy: Policy) -> None:
    """Write a policy to a file, atomically.

    Examples
    --------
    >>> import tempfile
    >>> from actiongap.planning.grid import uniform
    >>> file = Path(tempfile.mkdtemp()) / "policy.npz"
    >>> save_policy(file, Policy("slide", "bellman", Grid((uniform(0.0, 1.0, 2),)), ("stay",), ("x",), np.array([[1.0], [2.0]])))
    >>> load_policy(file).table.tolist()
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
        raise ValueError(f"about cannot be written as JSON ({error}): use finite numbers and strings") from None
    with writing(path) as stream:
        _write(stream, text.encode(), policy.table)


def _write(stream: BinaryIO, header: bytes, table: np.ndarray) -> None:
    with zipfile.ZipFile(stream, "w") as archive:
        archive.comment = b"0" * DIGITS
        for name, array in ((FORMAT, np.frombuffer(header, np.uint8)), ("q", table)):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    stream.flush()
    with open(stream.name, "rb") as written:
        digest = _digest(written)
    stream.seek(-DIGITS, os.SEEK_END)
    stream.write(digest)


def _digest(stream: BinaryIO) -> bytes:
    """Return the SHA-256 of the stream without its last 64 bytes, and leave the stream positioned before them."""
    left, found = stream.seek(0, os.SEEK_END) - DIGITS, hashlib.sha256()
    stream.seek(0)
    while left > 0 and (block := stream.read(min(left, 2**20))):
        found.update(block)
        left -= len(block)
    return found.hexdigest().encode()


def load_policy(path: str | Path) -> Policy:
    """Load a policy that `save_policy` wrote, or raise ValueError if the file is not one or was changed."""
    if os.path.isdir(path):
        raise ValueError(f"{path} is a folder: give a .npz file, such as the policy.npz in the folder of a plan")
    # `Path.is_file` raises if the path is too long.
    if not os.path.isfile(path):
        raise ValueError(f"{path}: no such file; check the path")
    try:
        with open_regular(path) as stream:
            # The name of the first array follows the 30 bytes of the archive's first header.
            if not stream.read(30 + len(FORMAT)).endswith(FORMAT.encode()):
                raise ValueError(NOT_A_POLICY)
            if _digest(stream) != stream.read(DIGITS):
                raise ValueError("it is truncated, or was changed after it was saved: save the policy again")
            stream.seek(0)
            return _read(stream)
    except OSError as error:
        raise ValueError(f"{path}: {reason(error)}") from None
    except zipfile.BadZipFile:
        raise ValueError(f"{path}: its contents are not those of a policy: save the policy again") from None
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _read(stream: BinaryIO) -> Policy:
    with zipfile.ZipFile(stream) as found:
        check_archive(found, compressed=False)
    stream.seek(0)
    archive = _from_archive(lambda: np.load(stream, allow_pickle=False))
    header = _from_archive(lambda: json.loads(archive[FORMAT].tobytes()))
    check_version(header, FORMAT, VERSION, NOT_A_POLICY)
    table = _from_archive(lambda: archive["q"])
    # NumPy returns the bytes of a member that is no array.
    if not isinstance(table, np.ndarray):
        raise ValueError("its table is no array: save the policy again")
    if table.dtype != np.float32:
        raise ValueError(f"its table has the type {table.dtype}: it must be float32")
    try:
        # Format 1 named the field `domain`.
        texts = [header["env" if header["version"] > 1 else "domain"], header["operator"], *header["actions"], *header["coordinates"]]
        if not all(isinstance(text, str) for text in texts) or not isinstance(header["about"], dict):
            raise TypeError
        grid = Grid(tuple(Axis(axis["points"], axis["period"]) for axis in header["axes"]))
        actions, coordinates = tuple(header["actions"]), tuple(header["coordinates"])
    except (KeyError, TypeError):
        raise ValueError("a field of its header is missing or has the wrong type: save the policy again") from None
    return Policy(texts[0], texts[1], grid, actions, coordinates, table, header["about"])


def _from_archive(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception as error:  # Reading a damaged archive may raise any exception.
        pickled = "pickle" in str(error).lower()
        why = "it contains pickled objects, which are never loaded" if pickled else "its contents are not those of a policy"
        raise ValueError(f"{why}: save the policy again") from None
