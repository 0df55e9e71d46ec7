"""Convert folders of runs from format 1 to format 2: `python tools/convert_results.py SRC DST`.

With one folder only, `python tools/convert_results.py FOLDER` renames the runs of format 2 in it that still have long names.

SRC is any folder with runs in it, such as the folder of a study. DST is a new folder of the same shape. Rows, seconds, digests and dates
are copied. Changed are the format number, the keys of configurations, `crew` of a status, the array `rides` of a plan, and the names of
the runs' folders, which contain a fingerprint of the configuration. Records of probes and videos beside the runs get their new keys, and
`film-*` is renamed to `video-*`. Custom experiments keep their keys and names, because their classes do.

Checkpoints are rewritten with the new number, except those of unfinished training runs: their arrays are named after parts of the agent
that have other names now. Such a run keeps its rows for reading, and starts again when it is resumed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from actiongap.lab.checkpoint import Checkpoint, write_checkpoint
from actiongap.lab.experiment import FORMAT, KINDS, VERSION, Experiment, convert_fields, defaults, find, fingerprint_of, name_of

ENV = {"problem": "env"}
EVALUATION = {"every": "eval_every", "limit": "max_episode_steps"}
AGENT = {
    "environments": "num_envs",
    "updates": "gradient_steps",
    "batch": "batch_size",
    "replay": "buffer_size",
    "learn_after": "learning_starts",
    "target_every": "target_update_interval",
    "epsilon": "final_epsilon",
    "explore_for": "exploration_steps",
    "optimiser": "optimizer",
    "rate": "learning_rate",
    "norm": "max_grad_norm",
    "steps": "n_step",
    "priority": "priority_exponent",
    "correction": "importance_exponent",
    "corrections": "correction_network",
    "stack": "frame_stack",
    "clip": "clip_rewards",
    "lives": "terminal_on_life_loss",
    "sticky": "repeat_action_probability",
}
KEYS: dict[str, dict[str, str]] = {
    **dict.fromkeys(("q-learning", "fitted-q", "noisy-values", "noisy-backups"), ENV),
    "plan": {**ENV, **EVALUATION, "record": "record_episodes"},
    "train": {**ENV, **EVALUATION, **AGENT, "save_memory": "save_replay_buffer"},
}
"""New names of configuration keys, by kind of experiment."""
ARRAYS = {"plan": {"rides": "episodes"}}
"""New names of arrays in checkpoints, by kind of experiment."""
BESIDE = {"made of": "digests", "ending": "outcome"}
"""New keys of records of probes and videos, which are beside the runs."""
VALUES: dict[str, Callable[[Any], Any]] = {"lives": lambda lives: lives == "terminal"}
"""New values, by old key."""
RECORDS = ("config.json", "meta.json", "status.json", "study.json", "times.json")
RUN_NAME = re.compile(r".*_[0-9a-f]{8}")
"""Names of run folders that contain a fingerprint of the configuration."""


def convert_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a configuration from format 1 to format 2."""
    keys = KEYS.get(config["kind"], {})
    spec = {keys.get(key, key): VALUES[key](value) if key in VALUES and keys else value for key, value in config["spec"].items()}
    return {**config, "version": VERSION, "spec": spec}


def convert_record(name: str, record: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Convert a JSON record from format 1 to format 2, given the new names of runs by their old ones."""
    if name == "config.json":
        return convert_config(record)
    changed = {("batch_size" if name == "status.json" and key == "crew" else key): value for key, value in record.items()}
    if name == "study.json":
        changed["runs"] = [names.get(run, run) for run in record["runs"]]
    return {**changed, "version": VERSION}


def convert_checkpoint(source: Path, target: Path, arrays: Mapping[str, str], run: str) -> None:
    """Convert a checkpoint from format 1 to format 2, given the new names of its arrays and the fingerprint of its run."""
    with open(source, "rb") as stream:
        if zipfile.ZipFile(stream).testzip() is not None:
            raise ValueError(f"{source} is damaged: delete it")
        stream.seek(0)
        found = np.load(stream, allow_pickle=False)
        header = json.loads(found["arr_0"].tobytes())
        state = {arrays.get(name, name): found[f"arr_{i}"] for i, name in enumerate(header["names"], start=1)}
    write_checkpoint(target, Checkpoint(header["chunk"], state, header["rows"], header["digest"], header["seconds"], run))


def convert_beside(file: Path, folder: Path) -> None:
    """Copy a file that is not part of a run; give records of probes and videos their new keys, and videos their new name."""
    target = folder / re.sub("^film-", "video-", file.name)
    try:
        record = json.loads(file.read_text(encoding="utf-8")) if file.suffix == ".json" else None
    except ValueError:
        record = None
    if not isinstance(record, dict) or "made of" not in record:
        shutil.copy2(file, target)
        return
    indent = 1 if file.name.startswith("film-") else None
    target.write_text(json.dumps(_renamed(record, BESIDE), indent=indent) + "\n", encoding="utf-8")


def _renamed(value: Any, keys: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {keys.get(key, key): _renamed(item, keys) for key, item in value.items()}
    return [_renamed(item, keys) for item in value] if isinstance(value, list) else value


def read_record(file: Path, version: int = 1) -> dict[str, Any] | None:
    """Read a JSON record of a run in a format, by default 1; None if the file is something else."""
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        return None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        return None
    if record.get("version") != version:
        raise ValueError(f"{file} has format {record.get('version')}, and only format {version} can be converted: leave it where it is")
    return record


def new_names(source: Path) -> dict[str, str]:
    """Return the new names of runs by their old ones."""
    names: dict[str, str] = {}
    for file in sorted(source.rglob("config.json")):
        record, folder = read_record(file), file.parent
        if record is not None and record["kind"] in KINDS and RUN_NAME.fullmatch(folder.name):
            names[folder.name] = new_name(convert_config(record), file)
    return names


def new_name(config: Mapping[str, Any], file: Path) -> str:
    """Return the name of a run, given its converted configuration."""
    return name_of(*kind_and_fields(config, file))


def kind_and_fields(config: Mapping[str, Any], file: Path) -> tuple[type[Experiment], dict[str, Any]]:
    """Return the class and the fields of a converted configuration. The experiment is not made: that would run code that it names."""
    cls = find(config["kind"])
    spec = convert_fields(cls, config["spec"])
    # The order of fields is that of the class, as in a run that this version writes.
    if missing := [name for name in defaults(cls) if name not in spec]:
        raise ValueError(f"{file} has no {missing[0]}: it is incomplete, so leave this run out")
    return cls, {name: spec[name] for name in defaults(cls)}


def rename(folder: Path) -> dict[str, str]:
    """Give the runs of format 2 in a folder their present names; return the new names by the old ones. Nothing else changes."""
    if not folder.is_dir():
        raise ValueError(f"{folder} is not a folder: give the folder of a study, or one with studies in it")
    names: dict[str, str] = {}
    for file in sorted(folder.rglob("config.json")):
        record, run = read_record(file, VERSION), file.parent
        if record is None or record["kind"] not in KINDS or not RUN_NAME.fullmatch(run.name):
            continue
        name = new_name(record, file)
        if name != run.name:
            if run.with_name(name).exists():
                raise ValueError(f"{run.with_name(name)} exists: it is the same run as {run}; move one of them away")
            names[run.name] = name
            run.rename(run.with_name(name))
    for file in sorted(folder.rglob("study.json")):
        study = read_record(file, VERSION)
        if study is not None:
            text = json.dumps({**study, "runs": [names.get(run, run) for run in study["runs"]]}, indent=1, allow_nan=False) + "\n"
            file.write_text(text, encoding="utf-8")
    return names


def is_unfinished_training(folder: Path) -> bool:
    """Whether a folder holds a training run that is not done."""
    config, status = (read_record(folder / name) if (folder / name).is_file() else None for name in ("config.json", "status.json"))
    return config is not None and config["kind"] == "train" and (status is None or status["state"] != "done")


def convert(source: Path, target: Path) -> list[str]:
    """Convert all runs in a folder into a new one; return the folders of runs that will start again when they are resumed."""
    if not source.is_dir():
        raise ValueError(f"{source} is not a folder: give the folder of a study or of a run")
    if target.exists():
        raise ValueError(f"{target} exists: give a new folder")
    names = new_names(source)
    restarted: list[str] = []
    for place, folders, files in os.walk(source):
        folders.sort()
        here = Path(place)
        parts = [names.get(part, part) for part in here.relative_to(source).parts]
        there = target.joinpath(*parts)
        if here.name == "checkpoint" and is_unfinished_training(here.parent):
            restarted.append(str(there.parent))
            continue
        there.mkdir(parents=True, exist_ok=True)
        for name in sorted(files):
            record = read_record(here / name) if name in RECORDS else None
            if record is not None:
                text = json.dumps(convert_record(name, record, names), indent=1, allow_nan=False) + "\n"
                (there / name).write_text(text, encoding="utf-8")
            elif here.name == "checkpoint" and name.endswith(".npz"):
                config = here.parent / "config.json"
                run = read_record(config) if config.is_file() else None
                arrays, fingerprint = {}, ""
                if run is not None and run["kind"] in KINDS:
                    arrays = ARRAYS.get(run["kind"], {})
                    fingerprint = fingerprint_of(*kind_and_fields(convert_config(run), config))
                convert_checkpoint(here / name, there / name, arrays, fingerprint)
            else:
                convert_beside(here / name, there)
    return restarted


def main(arguments: list[str]) -> int:
    """Convert the folder on the command line; return the exit code."""
    if len(arguments) not in (1, 2):
        print("usage: python tools/convert_results.py SRC DST, or FOLDER to rename the runs in it", file=sys.stderr)
        return 2
    try:
        if len(arguments) == 1:
            print(f"renamed {len(rename(Path(arguments[0])))} runs")
            return 0
        restarted = convert(Path(arguments[0]), Path(arguments[1]))
    except ValueError as error:
        print(f"convert_results: {error}", file=sys.stderr)
        return 2
    for folder in restarted:
        print(f"note: {folder} starts again when it is resumed: checkpoints of unfinished training are not converted", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
