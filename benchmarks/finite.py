"""Benchmarks of finite MDPs: a sweep against SciPy, operators against Bellman, certified solutions against QuantEcon, and memory.

- *One sweep*, on one thread, against the usual sweep with SciPy: V = max_a Q, then R + gamma P V with P a CSR matrix. Ours also computes
  the bounds on V* and the change of the gaps. A second SciPy sweep computes these too and does the same work.
- *The floor* of a sweep is the longer of two times on one thread: reading the model and Q and writing Q once, in order; and gathering V at
  every successor.
- *A certified solution*: both sides stop when |V - V*| is guaranteed to be at most `TOL`. Ours stops on the range of max_a T Q - V and
  continues until the gaps have settled, on one thread and on all. QuantEcon's two methods have their own stopping rules, which
  `benchmarks.finite_baselines` describes, and run on one thread.
- *Memory* is the peak resident memory of a new process that builds the model and solves it, minus its memory before building.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numba
import numpy as np

from actiongap.mdp.engines import make_engine
from actiongap.mdp.generators import load_mdp
from actiongap.mdp.solve import solve
from actiongap.operators import Operator, parse
from benchmarks import Measurement, check_scale, measure_all, on_threads, race
from benchmarks.finite_baselines import certifying_scipy_sweep, gather, quantecon_solver, scipy_sweep, stream, transition_matrix
from benchmarks.processes import child_environment

TOL = 1e-6
"""The certified error of both sides."""
BELLMAN_TARGETS = {"al:0.5": 1.3, "consistent": 1.3, "pal:0.5": None, "lazy:0.5": None}
"""Operators measured against Bellman's sweep, and the maximum ratio of their times; None if there is no target."""
PLAIN, SAME_WORK = "SciPy CSR sweep", "SciPy CSR sweep, same work"


@dataclass(frozen=True)
class Case:
    """An MDP and its targets."""

    text: str
    """The MDP, as `load_mdp` reads it."""
    sweep: float | None = None
    """Maximum ratio of a sweep on one thread to SciPy's."""
    two_threads: float | None = None
    """Maximum ratio of a sweep on two threads to SciPy's."""
    memory: float | None = None
    """Maximum ratio of the memory of building and solving to that of the model."""


@dataclass(frozen=True)
class Scale:
    """What is measured and for how long. Small MDPs measure overheads, not sweeps, so they have no targets."""

    cases: tuple[Case, ...]
    certified: str
    """The MDP to solve to a certified error."""
    value_iteration: float | None
    """Maximum ratio of our time to that of QuantEcon's value iteration."""
    modified_policy_iteration: float | None
    """Maximum ratio of our time to that of QuantEcon's modified policy iteration."""
    bellman_targets: dict[str, float | None]
    seconds: float
    """Duration of each race."""


SCALES = {
    "full": Scale(
        cases=(
            Case("garnet:100000,8,8", sweep=0.6, two_threads=0.35),
            Case("garnet:1000000,8,8", sweep=0.5, memory=2.0),
            Case("gridworld:1000,1000", sweep=0.2),
        ),
        certified="garnet:100000,8,8",
        value_iteration=1 / 50,
        modified_policy_iteration=1.0,
        bellman_targets=BELLMAN_TARGETS,
        seconds=15.0,
    ),
    # The same numbers of actions and successors, so that every operator is compiled once.
    "quick": Scale(
        cases=(Case("garnet:300,4,3"), Case("gridworld:20,20")),
        certified="garnet:300,4,3",
        value_iteration=None,
        modified_policy_iteration=None,
        bellman_targets=dict.fromkeys(BELLMAN_TARGETS),
        seconds=0.05,
    ),
}


def bench_finite(scale: Literal["full", "quick"] = "full", progress: Callable[[str, float], None] | None = None) -> list[Measurement]:
    """Run all benchmarks of finite MDPs: minutes at full scale, seconds for `quick`.

    `progress` is called with the label of the next stage and the fraction of the stages that is done.

    Examples
    --------
    >>> bench_finite("enormous")
    Traceback (most recent call last):
    ValueError: unknown scale 'enormous': choose from full, quick
    """
    check_scale(scale, SCALES)
    plan, threads = SCALES[scale], numba.get_num_threads()
    # One object per operator, because compiled kernels are cached by operator.
    operators = {name: parse(name) for name in ("bellman", *plan.bellman_targets)}
    stages: list[tuple[str, Callable[[], list[Measurement]]]] = [
        (f"sweeps of {case.text}", partial(measure_sweeps, case, operators, plan, threads)) for case in plan.cases
    ]
    stages += [(f"memory of {case.text}", partial(measure_memory, case)) for case in plan.cases]
    stages += [(f"certified solutions of {plan.certified}", partial(measure_certified, plan, operators["bellman"], threads))]
    return measure_all(stages, progress)


def measure_sweeps(case: Case, operators: dict[str, Operator], plan: Scale, threads: int) -> list[Measurement]:
    """Measure sweeps of our compiled engine and of SciPy, and the floors, in one race."""
    mdp = load_mdp(case.text)
    start = np.zeros((mdp.states, mdp.actions))
    contestants: dict[str, Callable[[], Any]] = {}

    def ours(operator: Operator) -> Callable[[], None]:
        engine = make_engine(mdp, operator, "numba")
        return _repeated(lambda iterate: engine.sweep(iterate)[0], engine.start(start))

    contestants |= {name: ours(operator) for name, operator in operators.items()}
    matrix = transition_matrix(mdp)
    contestants[PLAIN] = _repeated(partial(scipy_sweep, mdp, matrix), start)
    contestants[SAME_WORK] = _repeated(lambda q: certifying_scipy_sweep(mdp, matrix, q)[0], start)
    successors, probabilities = mdp.sparse_transitions()
    rows = probabilities if probabilities.flags.c_contiguous else probabilities[0, 0]  # one row, repeated for every pair
    streamed = (successors.ravel(), rows.ravel(), mdp.rewards.ravel(), start.ravel(), np.empty(start.size))
    contestants["stream"] = partial(stream, *streamed)
    contestants["gather"] = partial(gather, successors.ravel(), np.zeros(mdp.states))
    two_threads = "bellman, two threads"
    if case == plan.cases[0] and threads >= 2:
        contestants[two_threads] = on_threads(2, ours(operators["bellman"]))

    time = race(contestants, plan.seconds)
    floor = max(time["stream"], time["gather"])
    stream_ms, gather_ms = time["stream"] * 1e3, time["gather"] * 1e3
    note = f"{case.text}: reading in order takes {stream_ms:.3g} ms, gathering {gather_ms:.3g} ms; the longer is the floor."

    def row(name: str, against: str, target: float | None = None, floor: float | None = floor) -> Measurement:
        label = f"a sweep of {case.text}: {name}"
        return Measurement(label, time[name], against, time[against], target=target, floor=floor, note=note)

    rows_of_scipy = [row("bellman", PLAIN, case.sweep), row("bellman", SAME_WORK)]
    if two_threads in time:
        rows_of_scipy.append(row(two_threads, PLAIN, case.two_threads, floor=None))
    return rows_of_scipy + [row(name, "bellman", target) for name, target in plan.bellman_targets.items()]


def measure_memory(case: Case) -> list[Measurement]:
    """Measure the peak memory of a new process that builds and solves this MDP, relative to the model alone."""
    label = f"memory of building and solving {case.text}"
    script = "import sys; from benchmarks.finite import _print_memory; _print_memory(sys.argv[1])"
    child = subprocess.run([sys.executable, "-c", script, case.text], capture_output=True, text=True, env=child_environment())
    if child.returncode:
        reason = "; ".join(child.stderr.strip().splitlines()[-1:]) or f"the process ended with exit code {child.returncode}"
        return [Measurement(label, None, "the model", None, "B", target=case.memory, note=f"{label} was not measured: {reason}")]
    memory = json.loads(child.stdout)
    built, solved = memory["built"] - memory["before"], memory["solved"] - memory["before"]
    note = f"{case.text}: building alone takes {built / 1e6:.0f} MB."
    return [Measurement(label, solved, "the model", memory["model"], "B", target=case.memory, note=note)]


def _print_memory(text: str) -> None:
    operator = parse("bellman")
    solve(load_mdp("gridworld:3"), operator, engine="numba")  # the compiler's own memory is not counted
    before = _resident("VmRSS")
    mdp = load_mdp(text)
    built = _resident("VmHWM")
    solve(mdp, operator, engine="numba", max_sweeps=3, throw=False)  # a later sweep needs no more memory than the third
    print(json.dumps({"before": before, "built": built, "solved": _resident("VmHWM"), "model": mdp.nbytes}))


def _resident(field: Literal["VmRSS", "VmHWM"]) -> int:
    """Return the resident memory of this process in bytes, current or peak."""
    status = Path("/proc/self/status")
    if not status.exists():
        raise SystemExit("memory is read from /proc/self/status: use Linux")
    # Not `ru_maxrss`, which a child process inherits from its parent.
    lines = status.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def measure_certified(plan: Scale, operator: Operator, threads: int) -> list[Measurement]:
    """Measure solving to |V - V*| <= `TOL`, on one thread and on all, against QuantEcon's value iteration and its fastest method."""
    label = f"{plan.certified} to a certified error of {TOL:g}"
    methods = {"value_iteration": plan.value_iteration, "modified_policy_iteration": plan.modified_policy_iteration}
    try:
        import quantecon  # noqa: F401
    except ImportError:
        note = "QuantEcon is not installed, so there is no comparison with it: pip install '.[dev]'"
        return [Measurement(label, None, f"QuantEcon {method}", None, target=target, note=note) for method, target in methods.items()]
    warm_up = quantecon_solver(load_mdp("garnet:10,2,2"), TOL)
    mdp = load_mdp(plan.certified)
    baseline = quantecon_solver(mdp, TOL)
    thread_counts = sorted({1, threads})
    ours = partial(solve, mdp, operator, tol=TOL, engine="numba")
    ours()
    measured = []
    for method, target in methods.items():
        warm_up(method)
        solutions: dict[str, Any] = {}
        contestants = {_threads(n): on_threads(n, _store_result(solutions, "ours", ours)) for n in thread_counts}
        contestants[method] = _store_result(solutions, method, partial(baseline, method))
        # Value iteration takes tens of seconds per round at full scale.
        slow = method == "value_iteration"
        time = race(contestants, 0.0 if slow else plan.seconds, rounds=1 if slow else 3, warm_up=False)
        solution = solutions["ours"]
        difference = float(np.abs(solution.v - solutions[method].v).max())
        if difference > 2 * TOL:
            raise RuntimeError(f"ours and QuantEcon's {method} differ by {difference:.1e} on {plan.certified}: one of them is wrong")
        work = f"{solutions[method].num_iter} iterations, ours {solution.sweeps} sweeps"
        note = f"{plan.certified}: {method} took {work}; the two V differ by at most {difference:.1e}."
        measured += [
            Measurement(f"{label}, {_threads(n)}", time[_threads(n)], f"QuantEcon {method}", time[method], target=target, note=note)
            for n in thread_counts
        ]
    return measured


def _store_result(solutions: dict[str, Any], name: str, run: Callable[[], Any]) -> Callable[[], None]:
    return lambda: solutions.update({name: run()})


def _repeated(sweep: Callable[[Any], Any], start: Any) -> Callable[[], None]:
    """Return a function that makes one more sweep in every call."""
    iterate = [start]

    def step() -> None:
        iterate[0] = sweep(iterate[0])

    return step


def _threads(threads: int) -> str:
    return "one thread" if threads == 1 else f"{threads} threads"
