"""Use a saved policy with NumPy alone, without actiongap: copy this file next to your controller.

    python read_policy.py cart.npz 0.5 -0.2

A policy file is a .npz archive with two arrays, and its layout is part of actiongap's stable interface:

- `actiongap-policy`: bytes of JSON: `format`, `version`, `env`, `operator`, `coordinates` (names), `actions` (names), `axes` and `about`.
  An axis has `points`, which increase, and `period`, which is null unless the axis is periodic.
- `q`: float32, (points of the grid, actions). Grid points are in C order: the last coordinate changes fastest.

The last 64 bytes of the file, the comment of the archive, are the SHA-256 of all bytes before them.
"""

import hashlib
import itertools
import json
import sys
from pathlib import Path

import numpy as np


class Policy:
    """The greedy policy of Q on a grid, interpolated between grid points."""

    def __init__(self, path):
        data = Path(path).read_bytes()
        if hashlib.sha256(data[:-64]).hexdigest().encode() != data[-64:]:
            raise ValueError(f"{path} is not a policy, or was changed after it was saved")
        with np.load(path, allow_pickle=False) as archive:
            header, self.table = json.loads(archive["actiongap-policy"].tobytes()), archive["q"]
        self.coordinates, self.actions, self.axes = header["coordinates"], header["actions"], header["axes"]

    def q(self, observation):
        """Return Q(x, a) of every action: the mean of the corners of the cell around x, weighted multilinearly."""
        lower, upper, fractions = zip(*(neighbors(axis, x) for axis, x in zip(self.axes, observation, strict=True)), strict=True)
        shape, values = [len(axis["points"]) for axis in self.axes], np.zeros(len(self.actions))
        for corner in itertools.product((0, 1), repeat=len(shape)):
            point = np.ravel_multi_index([above if bit else below for below, above, bit in zip(lower, upper, corner, strict=True)], shape)
            weight = np.prod([fraction if bit else 1.0 - fraction for fraction, bit in zip(fractions, corner, strict=True)])
            values += weight * self.table[point]
        return values

    def act(self, observation):
        """Return the index of the greedy action. Ties go to the first."""
        return int(self.q(observation).argmax())


def neighbors(axis, x):
    """Return the points below and above x on an axis, and the fraction of the way between them. Beyond an end is that end."""
    points, period = list(axis["points"]), axis["period"]
    if period is not None:
        x = points[0] + (x - points[0]) % period
        points.append(points[0] + period)
    x = min(max(x, points[0]), points[-1])
    below = min(int(np.searchsorted(points, x, side="right")) - 1, len(points) - 2)
    fraction = (x - points[below]) / (points[below + 1] - points[below])
    return below, (below + 1) % len(axis["points"]), fraction


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python read_policy.py POLICY.npz [NUMBER ...], an observation with one number per coordinate")
    policy = Policy(sys.argv[1])
    values = policy.q([float(number) for number in sys.argv[2:]])
    for name, value in zip(policy.actions, values, strict=True):
        print(f"{name:>12}  {value:.6g}")
    print("greedy action:", policy.actions[int(values.argmax())])
