"""What works on this machine: every part is tried, not looked up, and whatever fails is explained together with its remedy.

A `Check` is a name, what it is good for, and a probe: a function that uses the part in earnest (compiles a kernel, solves a query, loads a
game, draws a picture) and returns a line about it, or raises. `examine` runs the probes and turns whatever they raise, missing packages and
broken ones alike, into a `Finding`; it never raises itself. Everything heavy is imported by the probes.
"""

from __future__ import annotations

import importlib
import io
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actiongap._system import EXTRAS, install

if TYPE_CHECKING:
    from rich.console import Console

ENOUGH_DISK = 1 << 30
"""Free bytes below which runs and videos are likely to fill the disk."""


@dataclass(frozen=True)
class Check:
    """One part to try."""

    name: str
    probe: Callable[[], str]
    """Uses the part and returns a line about it, or raises."""
    purpose: str
    """What the part is needed for."""
    remedy: str
    """What to do where it is missing."""
    required: bool = False
    """Whether nothing works without it."""


@dataclass(frozen=True)
class Finding:
    """What came of one check."""

    name: str
    ok: bool
    required: bool
    detail: str
    """What was found, or what went wrong and what the part is needed for, in one line."""
    remedy: str
    """What to do about it; empty where all is well."""


def examine(checks: Sequence[Check] | None = None, progress: Callable[[str, float], None] | None = None) -> list[Finding]:
    """One finding for each check, in order; never raises. `progress` is told what is tried next and the part done.

    Examples
    --------
    >>> examine([Check("sums", lambda: f"1 + 1 = {1 + 1}", "counting", "buy an abacus")])
    [Finding(name='sums', ok=True, required=False, detail='1 + 1 = 2', remedy='')]
    """
    checks, findings = CHECKS if checks is None else checks, []
    for done, check in enumerate(checks):
        if progress:
            progress(check.name, done / len(checks))
        findings.append(_try(check))
    return findings


def healthy(findings: Sequence[Finding]) -> bool:
    """Whether everything required works.

    Examples
    --------
    >>> healthy([Finding("videos", ok=False, required=False, detail="no ffmpeg", remedy="install ffmpeg")])
    True
    """
    return all(finding.ok for finding in findings if finding.required)


def as_json(findings: Sequence[Finding]) -> dict[str, Any]:
    """The findings as plain values for programs.

    Examples
    --------
    >>> as_json([])
    {'healthy': True, 'findings': []}
    """
    return {"healthy": healthy(findings), "findings": [asdict(finding) for finding in findings]}


def render(findings: Sequence[Finding], console: Console) -> None:
    """Print the findings as a table for people, then the remedies, then the verdict.

    Examples
    --------
    >>> from rich.console import Console
    >>> render([], Console(quiet=True))
    """
    from rich.markup import escape
    from rich.table import Table

    table = Table("", "part", "found", box=None)
    for finding in findings:
        mark = "[green]ok[/]" if finding.ok else "[red]failed[/]" if finding.required else "[yellow]no[/]"
        table.add_row(mark, escape(finding.name), escape(finding.detail))
    console.print(table)
    for finding in findings:
        if finding.remedy:
            console.print(f"{finding.name}: {finding.remedy}", markup=False, highlight=False, soft_wrap=True)
    verdict = "Everything required works." if healthy(findings) else "Something required does not work: see the remedies above."
    console.print(verdict, highlight=False)


def _try(check: Check) -> Finding:
    try:
        # What other packages deprecate is not a symptom.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Finding(check.name, True, check.required, check.probe(), "")
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        reason, remedy = f"{error.name} is not installed", check.remedy
    except _UnwellError as error:
        reason, remedy = str(error), check.remedy
    # An import may raise anything, even what is no Exception; installing again what is installed already would do nothing.
    except BaseException as error:
        reason = ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
        remedy = check.remedy.replace("pip install", "pip install --force-reinstall")
    return Finding(check.name, False, check.required, f"{reason}; needed for {check.purpose}", remedy)


def _python() -> str:
    version = ".".join(map(str, sys.version_info[:3]))
    _expect(sys.version_info >= (3, 11), f"Python {version} is older than 3.11")
    return f"{version}, {sys.executable}"


def _import(*modules: str) -> str:
    """Import each module and name its version, or raise where the version is older than this package asks for."""
    found = []
    for module in modules:
        importlib.import_module(module)
        distribution = {"z3": "z3-solver", "PIL": "pillow"}.get(module, module.replace("_", "-"))
        version, least = metadata.version(distribution), _least(distribution)
        _expect(_numbers(version) >= _numbers(least), f"{distribution} {version} is older than {least}")
        found.append(f"{distribution} {version}")
    return ", ".join(found)


def _least(distribution: str) -> str:
    """The oldest version of a dependency that this package declares to work with."""
    try:
        requirements = metadata.requires("actiongap") or []
    except metadata.PackageNotFoundError:  # run from its sources without being installed
        return "0"
    for requirement in requirements:
        match = re.match(rf"{re.escape(distribution)}(\[.*?\])?>=([\d.]+)", requirement)
        if match:
            return match[2]
    return "0"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:3])


def _numba() -> str:
    import numba
    import numpy as np

    @numba.njit(parallel=True)
    def total(values):
        result = 0.0
        for i in numba.prange(values.size):
            result += values[i]
        return result

    _expect(total(np.arange(5.0)) == 10.0, "a compiled parallel sum came out wrong")
    layer = numba.threading_layer()  # pyright: ignore[reportPrivateImportUsage]
    return f"compiles; {numba.get_num_threads()} threads ({layer})"


def _gymnasium() -> str:
    import gymnasium

    env = gymnasium.make("FrozenLake-v1")
    env.reset(seed=0)
    env.step(0)
    env.close()
    return "FrozenLake-v1 plays"


def _matplotlib() -> str:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure, file = Figure(), io.BytesIO()
    figure.subplots().plot([0, 1], [0, 1])
    FigureCanvasAgg(figure).print_png(file)
    _expect(file.getvalue().startswith(b"\x89PNG"), "the picture drawn is no PNG")
    return "draws without a display"


def _temporary() -> str:
    with tempfile.TemporaryDirectory(prefix="actiongap-") as folder:
        file = Path(folder) / "note"
        file.write_text("written")
        _expect(file.read_text() == "written", f"{tempfile.gettempdir()} loses what is written to it")
    return f"{tempfile.gettempdir()} can be written to"


def _disk() -> str:
    places = {str(Path.cwd()), tempfile.gettempdir()}
    free = {place: shutil.disk_usage(place).free for place in sorted(places)}
    for place, left in free.items():
        _expect(left >= ENOUGH_DISK, f"only {left / 1e9:.1f} GB are free in {place}")
    return ", ".join(f"{left / 1e9:.0f} GB free in {place}" for place, left in free.items())


def _jax() -> str:
    versions = _import("jax", "optax")
    import jax
    import jax.numpy as jnp

    with jax.enable_x64(True):
        third = jax.jit(lambda x: x / 3)(jnp.float64(1.0))
        _expect(float(third) == 1 / 3, "a compiled division is not done in float64")
    return f"{versions}; compiles for {', '.join(map(str, jax.devices()))}, float64 works"


def _z3() -> str:
    version = _import("z3")
    import z3

    x, solver = z3.Real("x"), z3.Solver()
    solver.add(x > 1, x < 1)
    _expect(solver.check() == z3.unsat, "z3 found a number that is both above and below 1")
    return f"{version}; decides"


def _torch() -> str:
    version = _import("torch")
    import torch

    _expect(float(torch.ones(3) @ torch.ones(3)) == 3.0, "a dot product came out wrong")
    return f"{version}; {torch.cuda.get_device_name() if torch.cuda.is_available() else 'no CUDA device, runs on the CPU'}"


def _stable_baselines() -> str:
    version = _import("stable_baselines3", "sb3_contrib")
    from actiongap.sb3 import DQN

    _expect(DQN("MlpPolicy", "CartPole-v1", buffer_size=100, device="cpu").operator == "al:0.9", "an agent forgot its operator")
    return version


def _ale() -> str:
    version = _import("ale_py")
    from ale_py import ALEInterface, LoggerMode, roms  # pyright: ignore[reportMissingImports]

    ALEInterface.setLoggerMode(LoggerMode.Error)
    game, rom = ALEInterface(), roms.get_rom_path("pong")
    _expect(rom is not None, "ale-py has no ROM of Pong")
    game.loadROM(str(rom))
    game.act(0)
    return f"{version}; Pong plays"


def _program(*names: str) -> str:
    found = next(filter(None, map(shutil.which, names)), None)
    _expect(found is not None, f"{names[0]} is not on the PATH")
    return str(found)


class _UnwellError(Exception):
    """A probe's own sentence about what it found."""


def _expect(condition: bool, otherwise: str) -> None:
    if not condition:
        raise _UnwellError(otherwise)


def _core(name: str, purpose: str, probe: Callable[[], str] | None = None) -> Check:
    module = {"pillow": "PIL"}.get(name, name.replace("-", "_"))

    def use() -> str:
        version = _import(module)
        return f"{version}; {probe()}" if probe else version

    return Check(name, use, purpose, "pip install actiongap", required=True)


def _extra(name: str, probe: Callable[[], str]) -> Check:
    return Check(f"extra {name}", probe, EXTRAS[name].purpose, install(name))


CHECKS: tuple[Check, ...] = (
    Check("python", _python, "everything", "install Python 3.11 or newer, and this package into it", required=True),
    _core("numpy", "arrays, everywhere"),
    _core("scipy", "exact solutions and statistics"),
    _core("numba", "fast sweeps on a CPU", _numba),
    _core("array-api-compat", "operators on the arrays of any library"),
    _core("tyro", "the command line"),
    _core("rich", "tables and progress bars"),
    _core("safetensors", "weights of agents"),
    _core("filelock", "one writer per run"),
    _core("matplotlib", "figures", _matplotlib),
    _core("pillow", "images and videos"),
    _core("gymnasium", "environments", _gymnasium),
    Check("temporary files", _temporary, "writing results whole or not at all", "set TMPDIR to a folder you may write to", required=True),
    Check("disk space", _disk, "runs, checkpoints and videos", "free some disk space, or set TMPDIR to a larger disk"),
    _extra("jax", _jax),
    _extra("proof", _z3),
    _extra("torch", _torch),
    _extra("sb3", _stable_baselines),
    _extra("atari", _ale),
    _extra("cluster", partial(_import, "ray")),
    _extra("video", partial(_import, "av")),
    _extra("notebook", partial(_import, "marimo")),
    _extra("docs", partial(_import, "mkdocs", "mkdocstrings")),
    Check(
        "chromium",
        partial(_program, "chromium", "chromium-browser", "google-chrome", "chrome"),
        "testing report pages in a browser",
        "install Chromium with your system's package manager",
    ),
)
"""Everything that `examine` tries."""
