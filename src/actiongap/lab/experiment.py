"""Experiments: frozen dataclasses that are configuration, documentation and command line at once.

An experiment is divided into chunks. `start` returns the state before the first chunk, and `advance` does one chunk and returns rows of
numbers. Between chunks the whole state is a dictionary of arrays, so it can be saved or sent to another machine. Both are pure functions of
their arguments: random numbers come for example from `rng(chunk)`, never from a generator that is kept. A run that is killed and resumed
therefore has the same rows, bit for bit, as a run without interruption. The exceptions are `train` on `gym/` environments, whose state
cannot be saved, and on Atari without saved replay buffers.

    @dataclass(frozen=True)
    class CoinTosses(Experiment):
        columns = {"heads": "fraction of heads so far"}

        tosses: int = 1000
        \"\"\"Number of coins to toss in each of 10 chunks.\"\"\"
        seed: int = 0
        \"\"\"Random seed.\"\"\"

        @property
        def chunks(self):
            return 10

        @property
        def total_steps(self):
            return self.chunks * self.tosses

        def start(self):
            return {"heads": np.zeros((), int)}

        def advance(self, state, chunk):
            heads = state["heads"] + self.rng(chunk).integers(0, 2, self.tosses).sum()
            step = (chunk + 1) * self.tosses
            return {"heads": heads}, [{"step": step, "heads": heads / step}]

A field's docstring is its help on the command line. `as_config` and `from_config` turn an experiment into JSON and back.
"""

from __future__ import annotations

import abc
import ast
import contextlib
import dataclasses
import functools
import hashlib
import importlib
import inspect
import itertools
import json
import math
import os
import re
import textwrap
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from actiongap._files import check_version
from actiongap._suggest import choose_from, did_you_mean
from actiongap._system import needing_extras
from actiongap._user_code import check_trusted, from_file, is_registered_text, names_code, split_own
from actiongap.lab.source import source_digests, text_of
from actiongap.operators import Backup, OperatorError, backup, parse

T = TypeVar("T")
State = dict[str, np.ndarray]
"""Everything that a run needs to resume, between two chunks."""
Row = dict[str, float | int | str | None]
"""One row of results: `step` and the columns that the experiment declares. Values that are not finite are None."""

FORMAT = "actiongap-run"
VERSION = 2
"""Format number in the records and checkpoints of runs, in `study.json` and in saved agents.

A change that older versions would misread adds one."""

KINDS = {
    "q-learning": "actiongap.lab.kinds.finite:QLearning",
    "fitted-q": "actiongap.lab.kinds.finite:FittedQ",
    "noisy-values": "actiongap.lab.kinds.finite:NoisyValues",
    "noisy-backups": "actiongap.lab.kinds.finite:NoisyBackups",
    "plan": "actiongap.lab.kinds.plan:Planning",
    "train": "actiongap.lab.kinds.train:Training",
}
"""The class of each kind of experiment. Your own kind is `path/to/file.py:Name`."""

MAX_SLUG = 40
"""Maximum length of the operator or kind in the name of a run, so that paths stay short."""


class Experiment(abc.ABC):
    """A computation in chunks. Subclasses are frozen dataclasses with a docstring after each field.

    Fields hold numbers, strings, booleans, None, or tuples of these, and every field has a default. A subclass checks its values in
    `__post_init__` and raises a ValueError of one sentence, so that a bad study fails before any of it runs.
    """

    kind: ClassVar[str]
    """Name of the kind in studies."""
    step_name: ClassVar[str] = "steps"
    """Unit of `step` in the rows, and of speed."""
    columns: ClassVar[Mapping[str, str]]
    """Columns of a row besides `step`, with their meaning. The first is the score; higher is better."""

    compiles: ClassVar[bool] = False
    """Whether the first chunk compiles; progress says so, and its time does not count in rates."""
    presets: ClassVar[Mapping[str, Any]] = {}
    """Named sets of values. A class that has any takes `preset` as an argument and fills in the fields that are not given."""

    seed: int = 0

    @property
    @abc.abstractmethod
    def chunks(self) -> int:
        """Number of chunks. A chunk should take a few seconds at most, so that little is lost on interruption."""

    @property
    @abc.abstractmethod
    def total_steps(self) -> int:
        """Number of steps of all chunks, the unit of cost estimates."""

    @property
    def task(self) -> str:
        """What the run solves, as text; by default its `env`. Runs of the same task are compared with each other."""
        return str(getattr(self, "env", type(self).__name__))

    @property
    def agent(self) -> str:
        """The agent that solves the task: one line in a chart."""
        return str(getattr(self, "operator", type(self).__name__))

    @abc.abstractmethod
    def start(self) -> State:
        """Return the state before the first chunk."""

    @abc.abstractmethod
    def advance(self, state: State, chunk: int) -> tuple[State, Sequence[Row]]:
        """Do chunk `chunk`, counted from 0, and return the state after it and its rows."""

    def failure(self, row: Row) -> str:
        """Return what makes a run that ended with this row a failed one; empty by default. Other runs of its batch go on."""
        return ""

    def rng(self, chunk: int) -> np.random.Generator:
        """Return the random generator of one chunk. It depends on the seed and the chunk alone."""
        return np.random.default_rng([self.seed, chunk])


def find(kind: str) -> type[Experiment]:
    """Return the class of a kind of experiment: a name of `KINDS`, or `path/to/file.py:Name`.

    Examples
    --------
    >>> find("q-learning").__name__
    'QLearning'
    """
    if kind in KINDS:
        module, _, name = KINDS[kind].partition(":")
        with needing_extras(f"the experiment {kind!r}"):
            return getattr(importlib.import_module(module), name)
    own = split_own(kind)
    if own is None:
        choices = f"choose from {', '.join(KINDS)}, or give your own as path/to/file.py:Name"
        raise ValueError(f"unknown kind of experiment {kind!r}: {did_you_mean(kind, KINDS, choices)}")
    try:
        changed = os.stat(own[0]).st_mtime_ns
    except OSError:
        changed = 0
    return _user_class(*own, changed)


@functools.cache
def _user_class(path: str, name: str, changed: int) -> type[Experiment]:
    """Return a class in a user's file, loaded again when the file changes."""
    return adopt(from_file(path, name), f"{path}:{name}")


def adopt(found: Any, kind: str) -> type[Experiment]:
    """Return a user's class with its kind set, or raise a ValueError that says what is missing."""
    if not (inspect.isclass(found) and issubclass(found, Experiment) and dataclasses.is_dataclass(found)):
        raise ValueError(f"{kind} is not an experiment: make it a frozen dataclass that extends actiongap.lab.experiment.Experiment")
    if missing := sorted(found.__abstractmethods__):
        raise ValueError(f"{kind} has no {missing[0]}: define it, as every experiment does")
    for field in dataclasses.fields(found):
        if field.default is dataclasses.MISSING:
            raise ValueError(f"{kind}: the field {field.name} has no default: give it one")
    try:
        field_types(found)
    except (NameError, TypeError, AttributeError, SyntaxError) as error:
        raise ValueError(f"{kind}: the type of a field cannot be resolved: {error}") from None
    # A built-in class that the file merely imports keeps its name.
    if getattr(found, "kind", None) not in KINDS:
        found.kind = kind
    return found


def make(kind: str, values: Mapping[str, Any]) -> Experiment:
    """Return an experiment made from plain values, each checked against its field's type.

    Examples
    --------
    >>> make("q-learning", {"env": "cake", "operator": "al:0.5", "seed": 3}).operator
    'al:0.5'
    """
    return build(find(kind), values)


def build(cls: type[Experiment], values: Mapping[str, Any]) -> Experiment:
    """Return an experiment of a class, made from plain values, each checked against its field's type."""
    # Functions, operators and simulators are recorded as texts.
    fields = convert_fields(cls, {name: text_of(value) if _is_object(value) else value for name, value in values.items()})
    try:
        experiment = cls(**fields)
        chunks = experiment.chunks
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"{cls.kind} cannot be made from {fields}: {type(error).__name__}: {error}") from error
    if chunks < 1:
        raise ValueError(f"{cls.kind} with {fields} has no chunks: it needs at least one")
    return experiment


def _is_object(value: Any) -> bool:
    """Whether a value is an operator, a function or a simulator rather than plain data."""
    return callable(value) or dataclasses.is_dataclass(value)


def is_registered(experiment: Experiment) -> bool:
    """Whether an experiment names an object of this process, which no other process can find.

    Examples
    --------
    >>> is_registered(make("q-learning", {"env": "cake", "operator": lambda b: b.bellman}))
    True
    """
    return any(map(is_registered_text, dataclasses.asdict(experiment).values()))  # pyright: ignore[reportArgumentType]


def convert_fields(cls: type[Experiment], values: Mapping[str, Any]) -> dict[str, Any]:
    """Convert plain values to the types of an experiment's fields, or raise a ValueError. No code that a value names is loaded.

    Examples
    --------
    >>> convert_fields(find("noisy-values"), {"operator": "theirs.py:op", "noise": [1]})
    {'operator': 'theirs.py:op', 'noise': (1.0,)}
    """
    types_of = {**field_types(cls), **({"preset": str | None} if cls.presets else {})}
    unknown = sorted(set(values) - set(types_of))
    if unknown:
        remedy = did_you_mean(unknown[0], types_of, f"it has {', '.join(types_of)}")
        raise ValueError(f"{cls.kind} has no field {unknown[0]!r}: {remedy}")
    return {name: _convert(f"{cls.kind}: {name}", value, types_of[name]) for name, value in values.items()}


@functools.cache
def field_types(cls: type[Experiment]) -> dict[str, Any]:
    """Return the fields of an experiment with their types.

    Examples
    --------
    >>> field_types(find("q-learning"))["seed"]
    <class 'int'>
    """
    hints = get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}  # pyright: ignore[reportArgumentType]


def field_docs(cls: type[Experiment]) -> dict[str, str]:
    """Return the docstring after each field, including inherited fields.

    Examples
    --------
    >>> field_docs(find("q-learning"))["operator"][:11]
    'An operator'
    """
    docs: dict[str, str] = {}
    for ancestor in reversed(cls.__mro__[:-1]):
        try:
            body = ast.parse(textwrap.dedent(inspect.getsource(ancestor))).body[0]
        except (OSError, TypeError):  # classes defined interactively have no source
            continue
        statements = body.body if isinstance(body, ast.ClassDef) else []
        for field, after in itertools.pairwise(statements):
            if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
                continue
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                docs[field.target.id] = inspect.cleandoc(str(after.value.value))
    return docs


def _convert(what: str, value: Any, wanted: Any) -> Any:
    """Convert a plain value to the type of its field without loss, or raise a ValueError."""
    origin = get_origin(wanted)
    if origin in (Union, types.UnionType):
        for choice in get_args(wanted):
            try:
                return _convert(what, value, choice)
            except ValueError:
                continue
    elif origin is Literal:
        # In Python True == 1 == 1.0, but a choice of 1 accepts neither True nor 1.0.
        if any(type(value) is type(choice) and value == choice for choice in get_args(wanted)):
            return value
        raise ValueError(f"{what} is {value!r}: {choose_from(value, map(str, get_args(wanted)))}")
    elif origin is tuple:
        if isinstance(value, (list, tuple)):
            return tuple(_convert(what, item, get_args(wanted)[0]) for item in value)
    elif wanted is type(None):
        if value is None:
            return None
    elif wanted is float:
        with contextlib.suppress(OverflowError):
            if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(float(value)):
                return float(value)
    elif type(value) is wanted:
        return value
    name = getattr(wanted, "__name__", str(wanted)) if origin is None else str(wanted).replace("typing.", "")
    raise ValueError(f"{what} is {value!r}: it must be {name}")


def as_config(experiment: Experiment) -> dict[str, Any]:
    """Return the configuration of an experiment as plain values: enough to run it again and to read its rows.

    Examples
    --------
    >>> as_config(make("q-learning", {"env": "cake"}))["task"]
    'cake'
    """
    return {
        "format": FORMAT,
        "version": VERSION,
        "kind": experiment.kind,
        "task": experiment.task,
        "agent": experiment.agent,
        "step_name": experiment.step_name,
        "columns": dict(experiment.columns),
        "spec": dataclasses.asdict(experiment),  # pyright: ignore[reportArgumentType]
    }


def from_config(config: Mapping[str, Any], *, trust: bool = False) -> Experiment:
    """Return the experiment of a configuration. If it names code, it must be trusted, because loading it runs the code.

    Examples
    --------
    >>> experiment = make("q-learning", {"env": "cake"})
    >>> from_config(json.loads(json.dumps(as_config(experiment)))) == experiment
    True
    """
    check_format(config)
    if not isinstance(config.get("kind"), str) or not isinstance(config.get("spec"), dict):
        raise ValueError("it has no experiment: give it kind and spec")
    check_trusted((config["kind"], config["spec"]), trust)
    return make(config["kind"], config["spec"])


def check_format(record: Any) -> None:
    """Raise a ValueError unless the record is one of a run, in the current format.

    Examples
    --------
    >>> check_format({"format": "actiongap-run", "version": 1})
    Traceback (most recent call last):
    ValueError: it has format 1, and this version reads 2: convert the folder with tools/convert_results.py
    """
    check_version(record, FORMAT, VERSION, "it is not a run's record: it was written by another program, or changed")
    if record["version"] != VERSION:
        raise ValueError(
            f"it has format {record['version']}, and this version reads {VERSION}: convert the folder with tools/convert_results.py"
        )


def run_name(experiment: Experiment) -> str:
    """Return a name for a run that is a valid file name: its operator or kind, its seed, and a hash of all values that are not defaults.

    It does not depend on the study, and stays the same when a later version adds a field.

    Examples
    --------
    >>> run_name(make("q-learning", {"env": "gym/FrozenLake-v1", "operator": "al:0.5", "seed": 3}))
    'al-0.5_seed-3_fda7a92f'
    """
    return name_of(type(experiment), dataclasses.asdict(experiment))  # pyright: ignore[reportArgumentType]


def name_of(cls: type[Experiment], spec: Mapping[str, Any]) -> str:
    """Return the `run_name` of an experiment, given its class and the values of its fields. No code that a value names is loaded.

    Examples
    --------
    >>> name_of(find("q-learning"), {"env": "cake", "operator": "their/operators.py:op", "seed": 3})
    'operators.py-op_seed-3_9c263251'
    """
    # Names of files are kept without their folders.
    leading = os.path.basename(str(spec.get("operator") or "")) or short_kind(cls.kind).rpartition(":")[2]
    slug = re.sub(r"[^A-Za-z0-9.+]+", "-", leading)[:MAX_SLUG].strip("-.") or "run"
    return f"{slug}_seed-{spec.get('seed', cls.seed)}_{fingerprint_of(cls, spec)[:8]}"


def fingerprint_of(cls: type[Experiment], spec: Mapping[str, Any]) -> str:
    """Return the SHA-256 of the kind of an experiment and of all values that are not defaults. Its checkpoints carry it.

    Examples
    --------
    >>> fingerprint_of(find("q-learning"), {"env": "gym/FrozenLake-v1", "operator": "al:0.5", "seed": 3})[:8]
    'fda7a92f'
    """
    known = defaults(cls)
    chosen = {name: value for name, value in spec.items() if value != known[name]}
    return hashlib.sha256(json.dumps([short_kind(cls.kind), chosen], sort_keys=True).encode()).hexdigest()


def defaults(experiment: Experiment | type[Experiment]) -> dict[str, Any]:
    """Return the default of each field of an experiment.

    Examples
    --------
    >>> defaults(find("q-learning"))["seed"]
    0
    """
    return {field.name: field.default for field in dataclasses.fields(experiment)}  # pyright: ignore[reportArgumentType]


def short_kind(kind: str) -> str:
    """Return a kind without the directory of its file, which can be written in several ways.

    Examples
    --------
    >>> short_kind("./my/experiments.py:Coins"), short_kind("q-learning")
    ('experiments.py:Coins', 'q-learning')
    """
    path, colon, name = kind.rpartition(":")
    return f"{os.path.basename(path)}{colon}{name}"


def named_files(experiment: Experiment) -> dict[str, bytes]:
    """Return the contents, by path, of the user's files (FILE.py or FILE.npz) that the kind, operator or env of an experiment names.

    Examples
    --------
    >>> named_files(make("q-learning", {"env": "cake"}))
    {}
    """
    config = as_config(experiment)
    paths = map(path_in, (config["kind"], *config["spec"].values()))
    return {path: Path(path).read_bytes() for path in paths if os.path.isfile(path)}


class Fingerprints(NamedTuple):
    """What the user's files that an experiment names are."""

    files: dict[str, str]
    """The SHA-256 of every file, by file name."""
    code: dict[str, dict[str, str]]
    """The digests of every function and class (`actiongap.lab.source.source_digests`), by `file.py:name`."""


def fingerprints(experiment: Experiment) -> Fingerprints:
    """Return what the user's files that an experiment names are.

    Examples
    --------
    >>> fingerprints(make("q-learning", {"env": "cake"}))
    Fingerprints(files={}, code={})
    """
    files = named_files(experiment)
    config = as_config(experiment)
    named = [own for value in (config["kind"], *config["spec"].values()) if (own := split_own(str(value))) and own[0] in files]
    return Fingerprints(
        {os.path.basename(path): hashlib.sha256(data).hexdigest() for path, data in files.items()},
        {f"{os.path.basename(path)}:{name}": _digests(path, name, files[path]) for path, name in named},
    )


def _digests(path: str, name: str, data: bytes) -> dict[str, str]:
    try:
        return source_digests(path, name)
    except ValueError:  # what cannot be read as Python counts by its bytes
        return {"": hashlib.sha256(data).hexdigest()}


def path_in(text: Any) -> str:
    """Return the path of the file that a string names, or an empty string.

    Examples
    --------
    >>> path_in("my/operators.py:half"), path_in("al:0.5")
    ('my/operators.py', '')
    """
    path = str(text).rpartition(":")[0] if ".py:" in str(text) else str(text)
    return path if path.endswith((".py", ".npz")) else ""


MOST = 10**12
"""Counts are at most this: at a million a second, it takes twelve days."""


def check_count(name: str, value: int, most: int = MOST, of: str = "") -> None:
    """Raise a ValueError unless the value is a whole number from 1 to `most`, the number of something else or a fixed bound.

    Examples
    --------
    >>> check_count("rows", 30, most=20, of="steps")
    Traceback (most recent call last):
    ValueError: rows is 30: it must be at most 20, the number of steps
    """
    if int(value) != value or value < 1:
        raise ValueError(f"{name} is {value!r}: it must be a whole number of at least 1")
    if value > most:
        raise ValueError(f"{name} is {value!r}: it must be at most {most}" + (f", the number of {of}" if of else ""))


def check_seed(seed: int) -> None:
    """Raise a ValueError unless the seed is a whole number that JAX and NumPy take.

    Examples
    --------
    >>> check_seed(-1)
    Traceback (most recent call last):
    ValueError: seed is -1: it must be a whole number from 0 to 2^32 - 1
    """
    if not isinstance(seed, (int, np.integer)) or not 0 <= seed < 2**32:
        raise ValueError(f"seed is {seed!r}: it must be a whole number from 0 to 2^32 - 1")


def try_operators(experiments: Iterable[Experiment]) -> None:
    """Raise an OperatorError if an operator of the user fails on arrays and on numbers, before anything is written for it.

    Examples
    --------
    >>> from actiongap.lab.study import grid
    >>> try_operators(grid("q-learning", env="cake", operator=lambda b: b.belman))
    Traceback (most recent call last):
    actiongap.operators.OperatorError: the operator lambda@... fails with AttributeError: ...; did you mean bellman?
    """
    one = backup(gamma=0.9, reward=1.0, q=0.0, v=1.0, next_v=1.0, next_q=0.5, stay=0.5)
    for text in dict.fromkeys(str(getattr(run, "operator", "")) for run in experiments if run.kind in KINDS):
        if not (names_code(text) or is_registered_text(text)) or (operator := parse(text)).temperature is not None:
            continue
        try:
            operator.at(0.5)(Backup(*(np.array([number]) for number in one)))
        except OperatorError:
            operator.at(0.5)(one)


def check_finite(q: np.ndarray, operator: str) -> np.ndarray:
    """Return the table, or raise a ValueError if it is no longer finite."""
    if not np.isfinite(q).all():
        raise ValueError(f"Q is no longer finite: {operator} diverges here; choose another operator")
    return q


def chunk_bounds(total: int, chunks: int, chunk: int) -> tuple[int, int]:
    """Return the first and last step of chunk `chunk` if `total` steps are divided into `chunks` chunks of nearly equal size.

    Examples
    --------
    >>> [chunk_bounds(10, 3, chunk) for chunk in range(3)]
    [(0, 3), (3, 6), (6, 10)]
    """
    return chunk * total // chunks, (chunk + 1) * total // chunks


def cached(cache: dict[Any, T], key: Any, make: Callable[[], T]) -> T:
    """Return `cache[key]`, made if it is missing. The cache holds one entry, which is freed before another is made.

    Examples
    --------
    >>> cache = {"a": 1}
    >>> cached(cache, "b", lambda: len(cache)), cache
    (0, {'b': 0})
    """
    if key not in cache:
        cache.clear()
        cache[key] = make()
    return cache[key]
