"""The cake's study: how much of it to compute, computing it piece by piece, and writing it down.

One seed belongs to each kind of noise, whatever the scale, so a scale computed again gives the same numbers and the same picture.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from actiongap._files import make_directory, write_bytes, write_text
from actiongap.lab.provenance import describe, versions
from actiongap.reproduce.cake.drawing import figure, image
from actiongap.reproduce.cake.noise import (
    REWARD_NOISE,
    SIGMAS,
    STEP,
    GaussianNoise,
    Learning,
    ModelNoise,
    Value,
    estimated_models,
    gaussian_noise,
    learn,
)
from actiongap.reproduce.cake.values import EPSILON, FORMULAS, GAMMA, OPERATORS, Q_STAT, FixedPoint, Interval, ends, fixed_point

STEPS = {"bellman": (STEP, STEP / 10), "consistent": (STEP, STEP / 10)}
"""Steps to learn with, where there are more than one: a smaller step shows what averaging for longer does on its own."""
VALUES: dict[str, tuple[Value, ...]] = {"bellman": ("max", "abstain")}
"""What to take for V(x1), where there is more than one choice: Bellman without the maximum shows what the bias of the maximum does."""
SEEDS = {"gaussian_noise": 1, "estimated_models": 2, "learning": 3}
LIMITS = (*OPERATORS, Q_STAT)
"""Everything with a limit to set beside its closed form."""
KINDS = ("fixed_points", "gaussian_noise", "estimated_models", "learning")
"""The kinds of rows: fields of a result, and keys of its JSON."""


class Size(NamedTuple):
    """How much to compute."""

    gammas: tuple[float, ...]
    epsilons: tuple[float, ...]
    draws: int
    """Errors drawn for each sigma."""
    samples: tuple[int, ...]
    """Transitions of each action that a model is estimated from."""
    models: int
    """Estimated models for each number of samples."""
    runs: int
    """Independent learners for each operator."""
    forgotten: int
    """Time constants of learning, 1 / (step (1 - gamma)) steps each, before a learner is watched."""
    steps: int
    """Steps over which it is watched."""


SAMPLES = (10, 30, 100, 300, 1000)
SCALES = {
    "smoke": Size((0.5, 0.9), (0.1,), 1000, (100,), 200, 50, 1, 100),
    "laptop": Size((0.1, 0.5, 0.9, 0.99), (0.01, 0.1, 1.0), 10_000, SAMPLES, 2000, 400, 5, 1000),
    "gpu": Size((0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.95, 0.99), (0.01, 0.1, 1.0), 100_000, SAMPLES, 5000, 1000, 10, 2000),
    "paper": Size((*(k / 20 for k in range(1, 20)), 0.99), (0.01, 0.1, 1.0), 1_000_000, SAMPLES, 10_000, 2000, 10, 4000),
}
"""All of them run on one core: seconds, half a minute, a minute, a few minutes."""


@dataclass(frozen=True)
class CakeResult:
    """Everything that the cake's page shows."""

    scale: str
    fixed_points: tuple[FixedPoint, ...]
    gaussian_noise: tuple[GaussianNoise, ...]
    estimated_models: tuple[ModelNoise, ...]
    learning: tuple[Learning, ...]
    files: tuple[Path, ...] = ()


def run(scale: str, out: str | Path, progress: Callable[[str, float], None] | None = None) -> CakeResult:
    """Compute everything and write `cake.csv`, `cake.png`, `cake.svg` and `cake.json` into the folder `out`.

    Parameters
    ----------
    scale
        `smoke`, `laptop`, `gpu` or `paper`.
    out
        A folder; it is made if it is not there.
    progress
        Called after each piece of work with what it was and how much of the whole is done, from 0 to 1.

    Examples
    --------
    >>> import tempfile
    >>> result = run("smoke", tempfile.mkdtemp())
    >>> [file.name for file in result.files]
    ['cake.csv', 'cake.png', 'cake.svg', 'cake.json']
    """
    if scale not in SCALES:
        raise ValueError(f"unknown scale {scale!r}: choose from {', '.join(SCALES)}")
    size, folder = SCALES[scale], make_directory(out)
    rows: dict[str, list[Any]] = {kind: [] for kind in KINDS}
    pieces = _pieces(size)
    for done, (kind, text, compute) in enumerate(pieces, start=1):
        rows[kind] += compute()
        if progress:
            progress(text, done / len(pieces))
    files = tuple(folder / f"cake.{form}" for form in ("csv", "png", "svg", "json"))
    result = CakeResult(scale, **{kind: tuple(found) for kind, found in rows.items()}, files=files)
    drawing = figure(result)
    for file, data in zip(files, (_csv(result), image(drawing, "png"), image(drawing, "svg"), _json(result, out)), strict=True):
        write_bytes(file, data) if isinstance(data, bytes) else write_text(file, data)
    return result


def load(out: str | Path) -> CakeResult:
    """What `run` wrote into a folder; a ValueError where there is nothing, or it was changed.

    Examples
    --------
    >>> load("no such folder")
    Traceback (most recent call last):
    ValueError: no such folder/cake.json cannot be read: run the cake again
    """
    file = Path(out) / "cake.json"
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
        points = tuple(FixedPoint(**row) for row in record["fixed_points"])
        return CakeResult(
            record["scale"],
            tuple(row._replace(closed_form=_number_or_interval(row.closed_form)) for row in points),
            tuple(GaussianNoise(**row) for row in record["gaussian_noise"]),
            tuple(ModelNoise(**row) for row in record["estimated_models"]),
            tuple(Learning(**row) for row in record["learning"]),
        )
    except (OSError, ValueError, TypeError, KeyError):
        raise ValueError(f"{file} cannot be read: run the cake again") from None


def is_current(scale: str, out: str | Path) -> bool:
    """Whether a folder holds the cake at that scale, whole, made by these versions."""
    try:
        load(out)
        record = json.loads((Path(out) / "cake.json").read_text(encoding="utf-8"))
    except ValueError:
        return False
    pictures = all((Path(out) / f"cake.{form}").is_file() for form in ("csv", "png", "svg"))
    return pictures and record["scale"] == scale and record.get("versions") == versions()


def _number_or_interval(value: Any) -> float | Interval:
    return Interval(*value) if isinstance(value, list) else float(value)


def _pieces(size: Size) -> list[tuple[str, str, Callable[[], Iterable[Any]]]]:
    """What there is to compute: the kind of its rows, what to call it, and a function that makes the rows."""
    grid = itertools.product(size.gammas, size.epsilons)
    return [
        *(("fixed_points", f"fixed points at gamma {gamma}, epsilon {eps}", partial(_fixed_points, gamma, eps)) for gamma, eps in grid),
        *(("gaussian_noise", f"noise added to the Q of {name}", partial(_gaussian_noise, name, size)) for name in LIMITS),
        *(("estimated_models", f"models from {samples} samples", partial(_estimated_models, samples, size)) for samples in size.samples),
        *(("learning", f"learning with {name}", partial(_learning, name, size)) for name in OPERATORS),
    ]


def _fixed_points(gamma: float, epsilon: float) -> list[FixedPoint]:
    return [fixed_point(name, gamma, epsilon) for name in LIMITS]


def _gaussian_noise(operator: str, size: Size) -> list[GaussianNoise]:
    gap = fixed_point(operator, GAMMA, EPSILON).gap
    return [] if gap is None else gaussian_noise(operator, gap, SIGMAS, size.draws, SEEDS["gaussian_noise"])


def _estimated_models(samples: int, size: Size) -> Iterator[ModelNoise]:
    return estimated_models(OPERATORS, samples, size.models, SEEDS["estimated_models"])


def _learning(operator: str, size: Size) -> list[Learning]:
    choices = itertools.product(VALUES.get(operator, ("max",)), STEPS.get(operator, (STEP,)))
    return [learn(operator, step, size.runs, size.forgotten, size.steps, SEEDS["learning"], value) for value, step in choices]


def _csv(result: CakeResult) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    columns = ("gamma", "epsilon", "operator", "closed_form_low", "closed_form_high", "computed", "difference", "gap", "sweeps", "status")
    writer.writerow(columns)
    for row in result.fixed_points:
        writer.writerow((*row[:3], *ends(row.closed_form), *row[4:]))
    return text.getvalue()


def _json(result: CakeResult, out: str | Path) -> str:
    record = {
        "command": f"actiongap reproduce cake --scale {result.scale} --out {shlex.quote(str(out))}",
        "scale": result.scale,
        "size": SCALES[result.scale]._asdict(),
        **describe(),
        "seeds": SEEDS,
        "noise_settings": {"gamma": GAMMA, "epsilon": EPSILON, "reward_noise": REWARD_NOISE},
        "formulas": FORMULAS,
    }
    record |= {kind: [row._asdict() for row in getattr(result, kind)] for kind in KINDS}
    return json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n"
