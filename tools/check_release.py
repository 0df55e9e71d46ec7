"""Build the package, install it alone and with each extra in environments of their own, and try what belongs there.

    python tools/check_release.py                    # the core and every extra, some minutes
    python tools/check_release.py core jax           # these alone
    python tools/check_release.py --python python3.13 core

Where an extra is installed its command must work; where it is not, the command must say in one sentence which extra it misses. Versions are
those of constraints.txt; `--latest` takes the newest that the declared bounds allow.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PLAN = "actiongap plan mountain-car --grid 7 --iterations 20 --eval-every 20 --episodes 2 --save car.npz"
CARTPOLE = "--frames 300 --episodes 2 --eval-every 300 --learning-starts 100"
TENSORS = "import torch, actiongap; q = torch.ones(1, 2); actiongap.td_target('al:0.9', q, torch.tensor([0]), 0.0, 0.9, q)"
AGENT = "from actiongap.sb3 import DQN, QRDQN; [made('MlpPolicy', 'CartPole-v1', device='cpu').learn(150) for made in (DQN, QRDQN)]"
COMMANDS: dict[str, tuple[str, ...]] = {
    "core": ("actiongap solve cake --operator al:0.9", "actiongap demo --no-open --out demo.html", PLAN),
    "jax": ("actiongap solve cake --engine jax", f"actiongap train gym/CartPole-v1 {CARTPOLE} --out cartpole"),
    "proof": ("actiongap prove al:0.9",),
    "atari": ("actiongap train atari/pong --frames 80 --episodes 1 --eval-every 80 --max-episode-steps 5 --buffer-size 100 --out pong",),
    "cluster": ("actiongap sweep q-learning --ray 127.0.0.1:9 --out swept",),
    "torch": (f'python -c "{TENSORS}"',),
    "sb3": (f'python -c "{AGENT}"',),
    "video": (f"{PLAN} && actiongap watch car.npz --no-gif --seconds 2",),
    "docs": ("mkdocs --version",),
    "notebook": ("marimo --version",),
}
"""What is tried of each extra. (Without a cluster Ray can but say that there is none.)"""
OF_OTHERS = ("torch", "docs", "notebook")
"""Extras whose packages users call themselves, so that nothing of ours can say where to get them."""
CONTENTS = ("py.typed", "data/atari_games.csv", "demo/assets/demo.html", "report/assets/page.js")
"""What is no Python and has to be in the wheel."""


@dataclass(frozen=True)
class Tried:
    """What came of one environment."""

    extra: str
    seconds: float
    size: int
    """Bytes that the environment takes."""
    failures: tuple[str, ...]


def main() -> int:
    """Check what is asked for, print a table, and leave with 1 if something failed."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    extras = ["core", *(name for name in declared if name not in ("all", "dev", "bench"))]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extras", nargs="*", help=f"of {', '.join(extras)}; all of them if not given")
    parser.add_argument("--python", default=sys.executable, help="the interpreter to install into")
    parser.add_argument("--latest", action="store_true", help="the newest versions, rather than those of constraints.txt")
    options = parser.parse_args()
    unknown = sorted(set(options.extras) - set(extras))
    if unknown:
        parser.error(f"there is no extra {unknown[0]}: choose from {', '.join(extras)}")
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        wheel = build(Path(folder))
        print(f"{'':9} {'took':>6} {'size':>7}  failures")
        found = []
        for extra in options.extras or extras:
            with tempfile.TemporaryDirectory(prefix=f"release-{extra}-") as place:
                tried = try_out(wheel, extra, declared, Path(place), options)
            print(f"{extra:9} {tried.seconds:4.0f} s {tried.size / 1e6:4.0f} MB  {'; '.join(tried.failures) or 'none'}", flush=True)
            found.append(tried)
    return int(any(tried.failures for tried in found))


def build(folder: Path) -> Path:
    """The wheel, made from the source distribution; both hold what they should."""
    subprocess.run([sys.executable, "-m", "venv", folder / "builder"], check=True)
    python = folder / "builder" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "build"], check=True)
    subprocess.run([python, "-m", "build", "--outdir", folder, ROOT], check=True, stdout=subprocess.DEVNULL)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        missing = {f"actiongap/{name}" for name in CONTENTS} - set(archive.namelist())
    with tarfile.open(source) as archive:
        heavy = [member.name for member in archive if member.size > 1 << 20]
    if missing or heavy:
        raise SystemExit(f"not in the wheel: {sorted(missing)}; too large for the source distribution: {heavy}")
    print(f"{wheel.name} {wheel.stat().st_size / 1e6:.1f} MB, {source.name} {source.stat().st_size / 1e6:.1f} MB")
    return wheel


def try_out(wheel: Path, extra: str, declared: dict[str, list[str]], folder: Path, options: argparse.Namespace) -> Tried:
    """Install the wheel with one extra into a new environment, and try every command there."""
    began, venv, work = time.monotonic(), folder / "venv", folder / "work"
    work.mkdir()
    subprocess.run([options.python, "-m", "venv", venv], check=True)
    constraints = [] if options.latest else ["--constraint", ROOT / "constraints.txt"]
    install = [venv / "bin" / "pip", "install", "--quiet", *constraints, str(wheel) if extra == "core" else f"{wheel}[{extra}]"]
    installed = subprocess.run(install, capture_output=True, text=True, check=False)
    if installed.returncode:
        return Tried(extra, time.monotonic() - began, 0, (f"it cannot be installed: {installed.stderr.strip().splitlines()[-1]}",))
    environment = {**os.environ, "PATH": f"{venv / 'bin'}:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)

    def run(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, shell=True, cwd=work, env=environment, capture_output=True, text=True, check=False)

    there = {"core", extra, *re.findall(r"actiongap\[(\w+)\]", " ".join(declared.get(extra, ())))}
    # PyTorch comes with Stable-Baselines3, whatever its extra is called.
    there |= {"torch"} if extra == "sb3" else set()
    failures = [*doctor(run, there), *readme(run, work)]
    for name, commands in COMMANDS.items():
        failures += [complaint for command in commands if (complaint := judged(run(command), name, name in there))]
    size = sum(file.stat().st_size for file in venv.rglob("*") if file.is_file() and not file.is_symlink())
    return Tried(extra, time.monotonic() - began, size, tuple(failures))


Run = Callable[[str], "subprocess.CompletedProcess[str]"]


def doctor(run: Run, there: set[str]) -> Sequence[str]:
    """What is wrong with the doctor's findings."""
    done = run("actiongap doctor --json")
    if done.returncode:
        return [f"the doctor finds: {done.stdout or done.stderr}"]
    found = {finding["name"].removeprefix("extra "): finding for finding in json.loads(done.stdout)["findings"]}
    wrong = [name for name in COMMANDS if name != "core" and found[name]["ok"] != (name in there)]
    silent = [name for name in COMMANDS if name not in there and name != "core" and f"actiongap[{name}]" not in found[name]["remedy"]]
    return [f"the doctor is wrong about {name}: {found[name]['detail']}" for name in wrong] + [f"no remedy for {name}" for name in silent]


def readme(run: Run, work: Path) -> Sequence[str]:
    """What is wrong with the first example of the README."""
    block = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    assert block is not None
    (work / "readme.py").write_text(block[1])
    done = run("python -W error readme.py")
    return [f"the README's example fails: {done.stderr.strip().splitlines()[-1]}"] if done.returncode else []


def judged(done: subprocess.CompletedProcess[str], extra: str, there: bool) -> str:
    """What is wrong with a command of an extra, if anything is."""
    said = done.stderr.strip().splitlines()
    last = said[-1] if said else ""
    command = done.args.rpartition("&& ")[2].partition(" --")[0]
    named = f"actiongap[{extra}]" in done.stdout + done.stderr
    if "Traceback" in done.stderr and "ModuleNotFoundError: actiongap.sb3" not in last and not (extra in OF_OTHERS and not there):
        return f"{command} ends in a traceback: {last}"
    if there and (named or (done.returncode and extra != "cluster")):
        return f"{command} does not work: {last}"
    if not there and not named and extra not in OF_OTHERS:
        return f"{command} does not say that it needs actiongap[{extra}]: {last}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
