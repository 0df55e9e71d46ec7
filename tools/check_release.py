"""Build the package, install it without extras and with each of them in new environments, and run the commands of each extra.

    python tools/check_release.py                    # the core and every extra, some minutes
    python tools/check_release.py core jax           # only these
    python tools/check_release.py --python python3.13 core

If an extra is installed, its command must work. If not, the command must name the missing extra in one sentence. Versions are those of
constraints.txt; `--latest` installs the newest that the declared bounds allow.
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
"""The commands of each extra. Without a cluster Ray can only report that there is none."""
USER_IMPORTS = ("torch", "docs", "notebook")
"""Extras whose packages users import themselves, so that none of our messages can name them."""
CONTENTS = ("py.typed", "data/atari_games.csv", "interactive/assets/demo.html", "reporting/assets/page.js")
"""Files besides Python modules that the wheel must contain."""


@dataclass(frozen=True)
class CheckResult:
    """The result of one environment."""

    extra: str
    seconds: float
    size: int
    """Bytes of the environment."""
    failures: tuple[str, ...]


def main() -> int:
    """Check the requested extras, print a table, and return 1 if something failed."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    extras = ["core", *(name for name in declared if name not in ("all", "dev"))]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("extras", nargs="*", help=f"extras to check: {', '.join(extras)}; default: all")
    parser.add_argument("--python", default=sys.executable, help="the interpreter to install into")
    parser.add_argument("--latest", action="store_true", help="install the newest versions instead of those of constraints.txt")
    options = parser.parse_args()
    unknown = sorted(set(options.extras) - set(extras))
    if unknown:
        parser.error(f"there is no extra {unknown[0]}: choose from {', '.join(extras)}")
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        wheel = build(Path(folder))
        print(f"{'':9} {'time':>6} {'size':>7}  failures")
        found = []
        for extra in options.extras or extras:
            with tempfile.TemporaryDirectory(prefix=f"release-{extra}-") as place:
                result = check(wheel, extra, declared, Path(place), options)
            print(f"{extra:9} {result.seconds:4.0f} s {result.size / 1e6:4.0f} MB  {'; '.join(result.failures) or 'none'}", flush=True)
            found.append(result)
    return int(any(result.failures for result in found))


def build(folder: Path) -> Path:
    """Build the wheel from the source distribution, and check the contents of both. The wheel must not contain `benchmarks/`."""
    subprocess.run([sys.executable, "-m", "venv", folder / "builder"], check=True)
    python = folder / "builder" / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "build"], check=True)
    subprocess.run([python, "-m", "build", "--outdir", folder, ROOT], check=True, stdout=subprocess.DEVNULL)
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    missing = {f"actiongap/{name}" for name in CONTENTS} - set(names)
    foreign = [name for name in names if "bench" in name]
    with tarfile.open(source) as archive:
        heavy = [member.name for member in archive if member.size > 1 << 20]
    if missing or foreign or heavy:
        raise SystemExit(
            f"not in the wheel: {sorted(missing)}; in the wheel by mistake: {foreign}; too large for the source distribution: {heavy}"
        )
    print(f"{wheel.name} {wheel.stat().st_size / 1e6:.1f} MB, {source.name} {source.stat().st_size / 1e6:.1f} MB")
    return wheel


def check(wheel: Path, extra: str, declared: dict[str, list[str]], folder: Path, options: argparse.Namespace) -> CheckResult:
    """Install the wheel with one extra into a new environment, and run every command there."""
    start, venv, work = time.monotonic(), folder / "venv", folder / "work"
    work.mkdir()
    subprocess.run([options.python, "-m", "venv", venv], check=True)
    constraints = [] if options.latest else ["--constraint", ROOT / "constraints.txt"]
    install = [venv / "bin" / "pip", "install", "--quiet", *constraints, str(wheel) if extra == "core" else f"{wheel}[{extra}]"]
    installed = subprocess.run(install, capture_output=True, text=True, check=False)
    if installed.returncode:
        return CheckResult(extra, time.monotonic() - start, 0, (f"it cannot be installed: {installed.stderr.strip().splitlines()[-1]}",))
    environment = {**os.environ, "PATH": f"{venv / 'bin'}:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)

    def run(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, shell=True, cwd=work, env=environment, capture_output=True, text=True, check=False)

    available = {"core", extra, *re.findall(r"actiongap\[(\w+)\]", " ".join(declared.get(extra, ())))}
    # Stable-Baselines3 installs PyTorch, although torch is a separate extra.
    available |= {"torch"} if extra == "sb3" else set()
    failures = [*doctor(run, available), *readme(run, work)]
    for name, commands in COMMANDS.items():
        failures += [complaint for command in commands if (complaint := complaint_about(run(command), name, name in available))]
    size = sum(file.stat().st_size for file in venv.rglob("*") if file.is_file() and not file.is_symlink())
    return CheckResult(extra, time.monotonic() - start, size, tuple(failures))


Run = Callable[[str], "subprocess.CompletedProcess[str]"]


def doctor(run: Run, available: set[str]) -> Sequence[str]:
    """Return the errors in the doctor's findings."""
    done = run("actiongap doctor --json")
    if done.returncode:
        return [f"the doctor finds: {done.stdout or done.stderr}"]
    found = {finding["name"].removeprefix("extra "): finding for finding in json.loads(done.stdout)["findings"]}
    wrong = [name for name in COMMANDS if name != "core" and found[name]["ok"] != (name in available)]
    silent = [name for name in COMMANDS if name not in available and name != "core" and f"actiongap[{name}]" not in found[name]["remedy"]]
    return [f"the doctor is wrong about {name}: {found[name]['detail']}" for name in wrong] + [f"no remedy for {name}" for name in silent]


def readme(run: Run, work: Path) -> Sequence[str]:
    """Return the errors of the first example of the README."""
    block = re.search(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
    assert block is not None
    (work / "readme.py").write_text(block[1])
    done = run("python -W error readme.py")
    return [f"the README's example fails: {done.stderr.strip().splitlines()[-1]}"] if done.returncode else []


def complaint_about(done: subprocess.CompletedProcess[str], extra: str, available: bool) -> str:
    """Return what is wrong with a command of an extra; empty if nothing is."""
    errors = done.stderr.strip().splitlines()
    last = errors[-1] if errors else ""
    command = done.args.rpartition("&& ")[2].partition(" --")[0]
    named = f"actiongap[{extra}]" in done.stdout + done.stderr
    if "Traceback" in done.stderr and "ModuleNotFoundError: actiongap.sb3" not in last and not (extra in USER_IMPORTS and not available):
        return f"{command} ends in a traceback: {last}"
    if available and (named or (done.returncode and extra != "cluster")):
        return f"{command} does not work: {last}"
    if not available and not named and extra not in USER_IMPORTS:
        return f"{command} does not say that it needs actiongap[{extra}]: {last}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
