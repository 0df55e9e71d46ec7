"""Studies: grids of experiments, described in a few lines.

    name = "operators on a lake"
    kind = "q-learning"
    env = ["gridworld:5,5", "gym/FrozenLake-v1"]
    operator = ["bellman", "consistent", "al:0.9"]
    seeds = 10
    steps = 50_000

A list is an axis, and the runs are all combinations: here 2 x 3 x 10. `seeds` is the number of seeds, and `seed` the first one, 0 by
default. Several grids in one study are tables `[[runs]]`, which inherit the values at the top. In Python the same is
`Study("operators on a lake", "q-learning", env=[...], operator=[...], seeds=10, steps=50_000)`.
"""

from __future__ import annotations

import inspect
import itertools
import math
import os
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self, get_origin

import numpy as np

from actiongap._files import as_path
from actiongap._suggest import choose_from, did_you_mean
from actiongap._user_code import check_trusted, from_file
from actiongap.lab.experiment import KINDS, Experiment, adopt, build, field_types, find, run_name
from actiongap.lab.validation import read_experiment

MAX_SEEDS = 1_000_000
"""Maximum number of seeds; more are probably a typing error."""


@dataclass(frozen=True, init=False)
class Study:
    """Experiments with a name, and the resources that each run needs.

    Examples
    --------
    >>> study = Study("cakes", "q-learning", env="cake", operator=["bellman", "al:0.5"], seeds=3)
    >>> len(study.runs), study.runs[0].operator, study.runs[0].seed
    (6, 'bellman', 0)
    """

    name: str
    runs: tuple[Experiment, ...]
    cpus: float = 1.0
    """CPU cores per run."""
    gpus: float = 0.0
    """Accelerators per run: 0.25 puts four runs on one."""

    def __init__(
        self, name: str, runs: str | type[Experiment] | Iterable[Experiment], *, cpus: float = 1.0, gpus: float = 0.0, **fields: Any
    ) -> None:
        """Make a study from a kind of experiment with its fields, or from experiments.

        Parameters
        ----------
        name
            Its name.
        runs
            A kind of experiment: a name such as `q-learning`, a class, or `path/to/file.py:Name`. Or the experiments themselves, for
            example several calls of `grid` added together.
        cpus
            CPU cores per run.
        gpus
            Accelerators per run.
        **fields
            The fields of the kind, as for `grid`: a list is an axis, `seeds` is the number of seeds and `seed` the first one.
        """
        if not isinstance(name, str):
            raise TypeError(f"name is {name!r}: give the study a name, such as 'lake'")
        if isinstance(runs, str) or inspect.isclass(runs):
            experiments = grid(runs, **fields)
        elif fields:
            raise ValueError(f"the study {name!r} takes no {next(iter(fields))}, as it is given experiments: give fields only with a kind")
        else:
            experiments = _check_experiments(name, runs)
        if not experiments:
            raise ValueError(f"the study {name!r} has no runs: give it at least one")
        if not 0 < cpus < math.inf or not 0 <= gpus < math.inf:
            needs = f"{cpus:g} cores and {gpus:g} accelerators per run"
            raise ValueError(f"the study {name!r} asks for {needs}: cpus must be above 0, and gpus 0 or more")
        # All runs with the first seed come before any with the second, so that half a study can be read.
        unique = dict.fromkeys(sorted(experiments, key=lambda run: run.seed))
        for field, value in (("name", name), ("runs", tuple(unique)), ("cpus", cpus), ("gpus", gpus)):
            object.__setattr__(self, field, value)

    def first(self, seeds: int) -> Self:
        """Return the study with its first `seeds` seeds only.

        Examples
        --------
        >>> len(Study("cakes", "q-learning", env="cake", seeds=5).first(2).runs)
        2
        """
        first = sorted({run.seed for run in self.runs})[:seeds]
        return replace(self, runs=tuple(run for run in self.runs if run.seed in first))

    def starting_at(self, seed: int) -> Self:
        """Return the study with other seeds, as many as before: `seed` and those after it.

        Examples
        --------
        >>> [run.seed for run in Study("cakes", "q-learning", env="cake", seeds=3).starting_at(10).runs]
        [10, 11, 12]
        """
        first = min(run.seed for run in self.runs)
        moved: list[Any] = [replace(run, seed=run.seed - first + seed) for run in self.runs]  # pyright: ignore[reportArgumentType]
        return replace(self, runs=tuple(moved))

    def named(self) -> dict[str, Experiment]:
        """Return the runs by name, in the order in which they start."""
        return {run_name(run): run for run in self.runs}


def _check_experiments(name: str, runs: Any) -> tuple[Experiment, ...]:
    found = tuple(runs) if isinstance(runs, Iterable) else (runs,)
    for run in found:
        if not isinstance(run, Experiment):
            raise ValueError(
                f"the study {name!r} holds a {type(run).__name__}: give a kind such as 'q-learning', or experiments made by grid"
            )
    return found


def grid(kind: str | type[Experiment], *, seeds: int | None = None, **fields: Any) -> tuple[Experiment, ...]:
    """Return all combinations of values: a list, tuple or range is an axis, anything else a constant.

    `seeds` is the number of seeds, and `seed` the first one, 0 by default. Without `seeds`, `seed` may be a list like any other field.

    Examples
    --------
    >>> [run.seed for run in grid("q-learning", env="cake", seeds=3)]
    [0, 1, 2]
    >>> [run.seed for run in grid("q-learning", env="cake", seed=5, seeds=3)]
    [5, 6, 7]
    """
    cls = find(kind) if isinstance(kind, str) else adopt(kind, _kind_of(kind))
    if seeds is not None:
        fields["seed"] = seed_range(fields.get("seed", cls.seed), seeds)
    types_of = field_types(cls)
    axes = [[(field, value) for value in _axis(field, values, types_of)] for field, values in fields.items()]
    return tuple(build(cls, dict(chosen)) for chosen in itertools.product(*axes))


def seed_range(seed: Any, seeds: Any) -> range:
    """Return `seeds` seeds from the first seed `seed` on, or raise a ValueError. Training and the paper's studies use it too.

    Examples
    --------
    >>> seed_range(5, 3)
    range(5, 8)
    """
    if not _is_whole(seeds) or not 1 <= seeds <= MAX_SEEDS:
        raise ValueError(f"seeds is {seeds!r}: it must be a whole number from 1 to {MAX_SEEDS:,}")
    if isinstance(seed, (list, tuple, range)):
        raise ValueError(f"seed is {seed!r} and seeds is {seeds}: seed is the first seed, one whole number, or leave seeds out")
    if not _is_whole(seed) or seed < 0:
        raise ValueError(f"seed is {seed!r}: it must be a whole number of at least 0")
    return range(int(seed), int(seed) + int(seeds))


def _is_whole(value: Any) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def _axis(field: str, values: Any, types_of: Mapping[str, Any]) -> list[Any]:
    """Return the values of an axis. A field whose type is a tuple is an axis only if it is given several tuples."""
    if not isinstance(values, (list, tuple, range)):
        return [values]
    several = get_origin(types_of.get(field)) is not tuple or any(isinstance(value, (list, tuple)) for value in values)
    if several and not len(values):
        raise ValueError(f"{field} is an empty list: give at least one value")
    return list(values) if several else [values]


def _kind_of(cls: type[Experiment]) -> str:
    """Return the kind under which another process finds a class."""
    kind = getattr(cls, "kind", None)
    if kind in KINDS:
        return kind
    try:
        return f"{inspect.getsourcefile(cls)}:{cls.__name__}"
    except TypeError:
        raise ValueError(f"{cls.__name__} is not in a file, so other processes cannot load it: define it in a file") from None


def load_study(path: str | Path, *, trust: bool = False) -> Study:
    r"""Read a study from a TOML file, from a Python file that defines `study`, or from the config.json of a run.

    A Python file is run. Code that a file of another type names is run only if that file is trusted.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "cakes.toml"
    >>> written = file.write_text('kind = "q-learning"\nenv = "cake"\nseeds = 4')
    >>> study = load_study(file)
    >>> study.name, len(study.runs)
    ('cakes', 4)
    """
    path = as_path(path, "path")
    if path.suffix not in (".toml", ".py", ".json"):
        otherwise = f"a study is a .toml file, a .py file that defines study, the config.json of a run, or one of {', '.join(KINDS)}"
        raise ValueError(f"{path}: {did_you_mean(str(path), KINDS, otherwise)}")
    if not os.path.isfile(path):
        raise ValueError(f"{path}: no such file; give a study as a .toml file, a .py file, or the config.json of a run")
    if path.suffix == ".py":
        try:
            study = from_file(path, "study")
        except ValueError as error:
            raise ValueError(f"{error}; to run an experiment of the file, write {path}:NAME") from None
        if not isinstance(study, Study):
            raise ValueError(f"{path}: study is a {type(study).__name__}; make it an actiongap.Study")
        return study
    if path.suffix == ".json":
        run = read_experiment(path, trust=trust)
        return Study(run_name(run), (run,))
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        return _from_table(table, path.stem, trust)
    except (ValueError, RecursionError) as error:  # including malformed TOML and UTF-8
        raise ValueError(f"{path}: {error}") from None


def _from_table(table: dict[str, Any], name: str, trust: bool) -> Study:
    resources = {key: table.pop(key) for key in ("cpus", "gpus") if key in table}
    for key, value in resources.items():
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise ValueError(f"{key} is {value!r}: it must be a number")
    name, blocks = table.pop("name", name), table.pop("runs", [{}])
    if not isinstance(name, str) or not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise ValueError('name must be a string and runs must be tables: write them as name = "..." and [[runs]]')
    runs: list[Experiment] = []
    for block in blocks:
        fields = {**table, **block}
        check_trusted(fields, trust)
        kind = fields.pop("kind", None)
        if not isinstance(kind, str):
            raise ValueError(f"kind is {'missing' if kind is None else repr(kind)}: {choose_from(kind or '', KINDS)}")
        runs += grid(kind, **fields)
    return Study(name, tuple(runs), **resources)
