"""Studies: grids of experiments, described in a few lines.

    name = "operators on a lake"
    kind = "q-learning"
    env = ["gridworld:5,5", "gym/FrozenLake-v1"]
    operator = ["bellman", "consistent", "al:0.9"]
    seeds = 10
    steps = 50_000

A list is an axis, and the runs are all combinations: here 2 x 3 x 10. Several grids in one study are tables `[[runs]]`, which inherit the
values at the top. In Python the same is `Study("operators on a lake", grid("q-learning", env=[...], ...))`.
"""

from __future__ import annotations

import inspect
import itertools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_origin

from actiongap._user_code import check_trusted, from_file
from actiongap.lab.experiment import KINDS, Experiment, adopt, build, field_types, find, run_name
from actiongap.lab.validation import read_experiment

MAX_SEEDS = 1_000_000
"""Maximum number of seeds; more are probably a typing error."""


@dataclass(frozen=True)
class Study:
    """Experiments with a name, and the resources that each run needs.

    Examples
    --------
    >>> study = Study("cakes", grid("q-learning", env="cake", operator=["bellman", "al:0.5"], seed=range(3)))
    >>> len(study.runs), study.runs[0].operator, study.runs[0].seed
    (6, 'bellman', 0)
    """

    name: str
    runs: tuple[Experiment, ...]
    cpus: float = 1.0
    """CPU cores per run."""
    gpus: float = 0.0
    """Accelerators per run: 0.25 puts four runs on one."""

    def __post_init__(self) -> None:
        if not self.runs:
            raise ValueError(f"the study {self.name!r} has no runs: give it at least one")
        if not 0 < self.cpus < math.inf or not 0 <= self.gpus < math.inf:
            needs = f"{self.cpus:g} cores and {self.gpus:g} accelerators per run"
            raise ValueError(f"the study {self.name!r} asks for {needs}: cpus must be above 0, and gpus 0 or more")
        # All runs with the first seed come before any with the second, so that half a study can be read.
        unique = dict.fromkeys(sorted(self.runs, key=lambda run: run.seed))
        object.__setattr__(self, "runs", tuple(unique))

    def first(self, seeds: int) -> Study:
        """Return the study with its first `seeds` seeds only.

        Examples
        --------
        >>> len(Study("cakes", grid("q-learning", env="cake", seed=range(5))).first(2).runs)
        2
        """
        first = sorted({run.seed for run in self.runs})[:seeds]
        return replace(self, runs=tuple(run for run in self.runs if run.seed in first))

    def named(self) -> dict[str, Experiment]:
        """Return the runs by name, in the order in which they start."""
        return {run_name(run): run for run in self.runs}


def grid(kind: str | type[Experiment], **fields: Any) -> tuple[Experiment, ...]:
    """Return all combinations of values: a list, tuple or range is an axis, anything else a constant.

    Examples
    --------
    >>> [run.seed for run in grid("q-learning", env="cake", seed=range(3))]
    [0, 1, 2]
    """
    cls = find(kind) if isinstance(kind, str) else adopt(kind, _kind_of(kind))
    types_of = field_types(cls)
    axes = [[(field, value) for value in _axis(field, values, types_of)] for field, values in fields.items()]
    return tuple(build(cls, dict(chosen)) for chosen in itertools.product(*axes))


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
    path = Path(path)
    if path.suffix not in (".toml", ".py", ".json"):
        kinds = ", ".join(KINDS)
        raise ValueError(f"{path}: a study is a .toml file, a .py file that defines study, the config.json of a run, or one of {kinds}")
    if not path.is_file():
        raise ValueError(f"{path}: no such file; give a study as a .toml file, a .py file, or the config.json of a run")
    if path.suffix == ".py":
        try:
            study = from_file(path, "study")
        except ValueError as error:
            raise ValueError(f"{error}; to run an experiment of the file, write {path}:NAME") from None
        if not isinstance(study, Study):
            raise ValueError(f"{path}: study is a {type(study).__name__}; make it an actiongap.lab.study.Study")
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
            raise ValueError(f"kind is {'missing' if kind is None else repr(kind)}: choose one of {', '.join(KINDS)}")
        if "seeds" in fields:
            seeds = fields.pop("seeds")
            if not isinstance(seeds, int) or isinstance(seeds, bool) or not 1 <= seeds <= MAX_SEEDS:
                raise ValueError(f"seeds is {seeds!r}: it must be a number of seeds from 1 to {MAX_SEEDS:,}")
            if "seed" in fields:
                raise ValueError("seeds and seed are both given: keep one of them")
            fields["seed"] = range(seeds)
        runs += grid(kind, **fields)
    return Study(name, tuple(runs), **resources)
