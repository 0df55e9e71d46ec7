"""Chance in episodes: the noise of step t in episode e is `sway` of draw(place_key(trial_seed(seed), t), e).

It depends on nothing else, so all tables meet the same noise at the same moments, and so do all engines.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from actiongap.grid.domain import Discrete, Uniform
from actiongap.grid.draws import place_key
from actiongap.maths import where


def trial_seed(seed: int) -> int:
    """What `place_key` takes as the seed of episodes: the key of sweep -1, by which no plan with this seed draws.

    Examples
    --------
    >>> trial_seed(0) != trial_seed(1)
    True
    """
    return place_key(int(seed), -1)


@lru_cache
def sway(noise: Uniform | Discrete) -> Callable[[Any], Any]:
    """The noise that a number drawn evenly from [0, 1) stands for, as a function that every engine compiles.

    Examples
    --------
    >>> sway(Uniform(-1.0, 1.0))(0.75)
    0.5
    >>> [sway(Discrete((5.0, 7.0), (0.25, 0.75)))(share) for share in (0.0, 0.25, 0.9)]
    [5.0, 7.0, 7.0]
    """
    if isinstance(noise, Uniform):
        low, width = noise.low, noise.high - noise.low
        return lambda share: low + width * share
    *others, last = noise.values
    # As many bits as a draw has, so that both precisions draw the line at the same place.
    bounds = np.ceil(np.cumsum(noise.probabilities) * 2**24) / 2**24
    chosen = _always(last)
    for value, bound in reversed(list(zip(others, bounds.tolist(), strict=False))):
        chosen = _below(bound, value, chosen)
    return chosen


def _always(value: float) -> Callable[[Any], Any]:
    return lambda share: value


def _below(bound: float, value: float, otherwise: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda share: where(share < bound, value, otherwise(share))
