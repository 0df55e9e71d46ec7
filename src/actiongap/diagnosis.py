"""Check an installation: exercise each feature, and report a remedy for each failure.

A `Check` has a probe, a function that uses a part (compiles a kernel, solves a query, loads a game, draws a picture) and returns a line
about it, or raises. `doctor` runs the probes and turns their exceptions, from missing and broken packages alike, into a `Finding`; it does
not raise itself. Only the probes import heavy packages.
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

from actiongap._html import table
from actiongap._progress import StepProgress
from actiongap._suggest import with_suggestions
from actiongap._system import EXTRAS, install

if TYPE_CHECKING:
    from rich.console import Console

ENOUGH_DISK = 1 << 30
"""Free bytes below which runs and videos are likely to fill the disk."""


@dataclass(frozen=True)
class Check:
    """A part to check."""

    name: str
    probe: Callable[[], str]
    """Uses the part and returns a line about it, or raises."""
    purpose: str
    """What the part is needed for."""
    remedy: str
    """What to do if it is missing."""
    required: bool = False
    """Whether the package needs it; other parts are optional."""


@dataclass(frozen=True)
class Finding:
    """The result of a check."""

    name: str
    ok: bool
    required: bool
    detail: str
    """One line: the result, or the problem and the purpose of the part."""
    remedy: str
    """What to do about it; empty if the part works."""

    @property
    def mark(self) -> str:
        """ok, failed (a required part does not work) or no (an optional one)."""
        return "ok" if self.ok else "failed" if self.required else "no"


class Diagnosis(tuple[Finding, ...]):
    """The findings of `doctor`, one for each check. They show as a table, the remedies below it, and a conclusion.

    Examples
    --------
    >>> Diagnosis([Finding("videos", ok=False, required=False, detail="no PyAV", remedy="pip install av")])
    no  videos  no PyAV
    videos: pip install av
    Everything required works.
    """

    @property
    def healthy(self) -> bool:
        """Whether all required parts work."""
        return all(finding.ok for finding in self if finding.required)

    @property
    def remedies(self) -> list[str]:
        """What to do about each part that does not work."""
        return [f"{finding.name}: {finding.remedy}" for finding in self if finding.remedy]

    @property
    def conclusion(self) -> str:
        """Whether everything required works, as a sentence."""
        return "Everything required works." if self.healthy else "Something required does not work: see the remedies above."

    def as_json(self) -> dict[str, Any]:
        """Return the findings as plain values for JSON.

        Examples
        --------
        >>> Diagnosis().as_json()
        {'healthy': True, 'findings': []}
        """
        return {"healthy": self.healthy, "findings": [asdict(finding) for finding in self]}

    def __repr__(self) -> str:
        marks = max((len(finding.mark) for finding in self), default=0)
        names = max((len(finding.name) for finding in self), default=0)
        lines = [f"{finding.mark:{marks}}  {finding.name:{names}}  {finding.detail}" for finding in self]
        return "\n".join([*lines, *self.remedies, self.conclusion])

    def _repr_html_(self) -> str:
        rows = [(finding.mark, finding.name, finding.detail, finding.remedy) for finding in self]
        return table(rows, ("", "part", "found", "remedy"), note=self.conclusion)


@with_suggestions
def doctor(checks: Sequence[Check] | None = None, *, progress: bool | None = None) -> Diagnosis:
    """Check every part of this installation, and say how to fix what is missing.

    Parameters
    ----------
    checks
        What to check; by default every part.
    progress
        Whether to show progress. By default, only if it takes longer than two seconds.

    Examples
    --------
    >>> doctor([Check("sums", lambda: f"1 + 1 = {1 + 1}", "counting", "buy an abacus")])
    ok  sums  1 + 1 = 2
    Everything required works.
    """
    checks, findings = CHECKS if checks is None else checks, []
    with StepProgress("doctor", progress) as bar:
        for done, check in enumerate(checks):
            bar(check.name, done / len(checks))
            findings.append(_try(check))
    return Diagnosis(findings)


def render(found: Diagnosis, console: Console) -> None:
    """Print a diagnosis in color.

    Examples
    --------
    >>> from rich.console import Console
    >>> render(Diagnosis(), Console(quiet=True))
    """
    from rich.markup import escape
    from rich.table import Table

    shown, colors = Table("", "part", "found", box=None), {"ok": "green", "failed": "red", "no": "yellow"}
    for finding in found:
        shown.add_row(f"[{colors[finding.mark]}]{finding.mark}[/]", escape(finding.name), escape(finding.detail))
    console.print(shown)
    for line in (*found.remedies, found.conclusion):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _try(check: Check) -> Finding:
    try:
        # Deprecation warnings of other packages do not matter here.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Finding(check.name, True, check.required, check.probe(), "")
    except KeyboardInterrupt:
        raise
    except ModuleNotFoundError as error:
        reason, remedy = f"{error.name} is not installed", check.remedy
    except _CheckError as error:
        reason, remedy = str(error), check.remedy
    # An import can raise anything, even a BaseException. pip does not reinstall an installed package without --force-reinstall.
    except BaseException as error:
        reason = ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])
        remedy = check.remedy.replace("pip install", "pip install --force-reinstall")
    return Finding(check.name, False, check.required, f"{reason}; needed for {check.purpose}", remedy)


def _python() -> str:
    version = ".".join(map(str, sys.version_info[:3]))
    _expect(sys.version_info >= (3, 11), f"Python {version} is older than 3.11")
    return f"{version}, {sys.executable}"


def _import(*modules: str) -> str:
    """Import each module and return its version. Raise if it is older than this package requires."""
    found = []
    for module in modules:
        importlib.import_module(module)
        distribution = {"z3": "z3-solver", "PIL": "pillow"}.get(module, module.replace("_", "-"))
        version, minimum = metadata.version(distribution), _minimum_version(distribution)
        _expect(_numbers(version) >= _numbers(minimum), f"{distribution} {version} is older than {minimum}")
        found.append(f"{distribution} {version}")
    return ", ".join(found)


def _minimum_version(distribution: str) -> str:
    """Return the minimum version of a dependency that this package declares."""
    try:
        requirements = metadata.requires("actiongap") or []
    except metadata.PackageNotFoundError:  # run from source, not installed
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

    _expect(total(np.arange(5.0)) == 10.0, "a compiled parallel sum has a wrong result")
    layer = numba.threading_layer()  # pyright: ignore[reportPrivateImportUsage]
    return f"compiles; {numba.get_num_threads()} threads ({layer})"


def _gymnasium() -> str:
    import gymnasium

    env = gymnasium.make("FrozenLake-v1")
    env.reset(seed=0)
    env.step(0)
    env.close()
    return "FrozenLake-v1 runs"


def _matplotlib() -> str:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure, file = Figure(), io.BytesIO()
    figure.subplots().plot([0, 1], [0, 1])
    FigureCanvasAgg(figure).print_png(file)
    _expect(file.getvalue().startswith(b"\x89PNG"), "a figure was not written as PNG")
    return "draws without a display"


def _temporary() -> str:
    with tempfile.TemporaryDirectory(prefix="actiongap-") as folder:
        file = Path(folder) / "note"
        file.write_text("written")
        _expect(file.read_text() == "written", f"a file written to {tempfile.gettempdir()} cannot be read back")
    return f"{tempfile.gettempdir()} is writable"


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
        _expect(float(third) == 1 / 3, "a compiled division is not computed in float64")
    return f"{versions}; compiles for {', '.join(map(str, jax.devices()))}, float64 works"


def _z3() -> str:
    version = _import("z3")
    import z3

    x, solver = z3.Real("x"), z3.Solver()
    solver.add(x > 1, x < 1)
    _expect(solver.check() == z3.unsat, "z3 found a number that is both above and below 1")
    return f"{version}; solves"


def _torch() -> str:
    version = _import("torch")
    import torch

    _expect(float(torch.ones(3) @ torch.ones(3)) == 3.0, "a dot product has a wrong result")
    return f"{version}; {torch.cuda.get_device_name() if torch.cuda.is_available() else 'no CUDA device, runs on the CPU'}"


def _stable_baselines() -> str:
    version = _import("stable_baselines3", "sb3_contrib")
    from actiongap.sb3 import DQN

    _expect(DQN("MlpPolicy", "CartPole-v1", buffer_size=100, device="cpu").operator == "al:0.9", "an agent lost its operator")
    return version


def _ale() -> str:
    version = _import("ale_py")
    from ale_py import ALEInterface, LoggerMode, roms  # pyright: ignore[reportMissingImports]

    ALEInterface.setLoggerMode(LoggerMode.Error)
    game, rom = ALEInterface(), roms.get_rom_path("pong")
    _expect(rom is not None, "ale-py has no ROM of Pong")
    game.loadROM(str(rom))
    game.act(0)
    return f"{version}; Pong runs"


def _program(*names: str) -> str:
    found = next(filter(None, map(shutil.which, names)), None)
    _expect(found is not None, f"{names[0]} is not on the PATH")
    return str(found)


class _CheckError(Exception):
    """Raised by a probe; the message says what is wrong."""


def _expect(condition: bool, message: str) -> None:
    if not condition:
        raise _CheckError(message)


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
    Check("temporary files", _temporary, "writing results atomically", "set TMPDIR to a folder you may write to", required=True),
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
"""The checks that `examine` runs by default."""
