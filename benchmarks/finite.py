"""Finite MDPs measured: one sweep against SciPy, the operators against Bellman, the way to a certified answer against QuantEcon, memory.

- *One sweep*, on one thread, against the sweep one would write with SciPy: V = max_a Q, then R + gamma P V with P a CSR matrix. Ours also
  computes the bounds on V* and the change of the gaps; a second SciPy sweep does that too, and so does the same work.
- *The floor* of a sweep is the longer of two times on one thread: reading the model and Q and writing Q once, in order; and gathering V at
  every successor.
- *A certified answer*: both sides stop when |V - V*| is guaranteed to be at most `TOL`. Ours stops on the range of max_a T Q - V and then
  goes on until the gaps have settled, on one thread and on all; QuantEcon's two methods stop on rules of their own, which
  `benchmarks.finite_baselines` states, and run on one.
- *Memory* is the largest resident memory of a fresh process that builds the model and solves it, less what it held before building.
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
"""The certified error that both sides are asked for."""
CLAIMED_OF_BELLMAN = {"al:0.5": 1.3, "consistent": 1.3, "pal:0.5": None, "lazy:0.5": None}
"""Operators measured against Bellman's sweep, and how many times as long each may take; None where nothing is claimed."""
PLAIN, SAME_WORK = "SciPy CSR sweep", "SciPy CSR sweep, same work"


@dataclass(frozen=True)
class Problem:
    """An MDP to measure on, and what is claimed of it."""

    text: str
    """The MDP, as `load_mdp` reads it."""
    sweep: float | None = None
    """A sweep on one thread over SciPy's, at most."""
    two_threads: float | None = None
    """A sweep on two threads over SciPy's, at most."""
    memory: float | None = None
    """Memory of model and solving over that of the model, at most."""


@dataclass(frozen=True)
class Scale:
    """What is measured and for how long. Small problems measure overheads, not sweeps, so of them nothing is claimed."""

    problems: tuple[Problem, ...]
    certified: str
    """The MDP to solve to a certified error."""
    value_iteration: float | None
    """The way to `TOL` over QuantEcon's value iteration, at most."""
    modified_policy_iteration: float | None
    """The way to `TOL` over QuantEcon's modified policy iteration, at most."""
    claimed_of_bellman: dict[str, float | None]
    seconds: float
    """How long each race lasts."""


SCALES = {
    "full": Scale(
        problems=(
            Problem("garnet:100000,8,8", sweep=0.6, two_threads=0.35),
            Problem("garnet:1000000,8,8", sweep=0.5, memory=2.0),
            Problem("gridworld:1000,1000", sweep=0.2),
        ),
        certified="garnet:100000,8,8",
        value_iteration=1 / 50,
        modified_policy_iteration=1.0,
        claimed_of_bellman=CLAIMED_OF_BELLMAN,
        seconds=15.0,
    ),
    # One number of actions and of successors, so that every operator is compiled once.
    "quick": Scale(
        problems=(Problem("garnet:300,4,3"), Problem("gridworld:20,20")),
        certified="garnet:300,4,3",
        value_iteration=None,
        modified_policy_iteration=None,
        claimed_of_bellman=dict.fromkeys(CLAIMED_OF_BELLMAN),
        seconds=0.05,
    ),
}


def bench_finite(scale: Literal["full", "quick"] = "full", progress: Callable[[str, float], None] | None = None) -> list[Measurement]:
    """Everything this module measures; minutes at full scale, seconds for `quick`. `progress` is told what comes next and the part done.

    Examples
    --------
    >>> bench_finite("enormous")
    Traceback (most recent call last):
    ValueError: unknown scale 'enormous': choose from full, quick
    """
    check_scale(scale, SCALES)
    plan, threads = SCALES[scale], numba.get_num_threads()
    # One object for each operator, since kernels are kept by operator.
    operators = {name: parse(name) for name in ("bellman", *plan.claimed_of_bellman)}
    stages: list[tuple[str, Callable[[], list[Measurement]]]] = [
        (f"sweeps of {problem.text}", partial(measure_sweeps, problem, operators, plan, threads)) for problem in plan.problems
    ]
    stages += [(f"memory of {problem.text}", partial(measure_memory, problem)) for problem in plan.problems]
    stages += [(f"certified answers to {plan.certified}", partial(measure_certified, plan, operators["bellman"], threads))]
    return measure_all(stages, progress)


def measure_sweeps(problem: Problem, operators: dict[str, Operator], plan: Scale, threads: int) -> list[Measurement]:
    """Sweeps of our compiled engine, of SciPy, and the floors, all in one race."""
    mdp = load_mdp(problem.text)
    start = np.zeros((mdp.states, mdp.actions))
    contestants: dict[str, Callable[[], Any]] = {}

    def ours(operator: Operator) -> Callable[[], None]:
        engine = make_engine(mdp, operator, "numba")
        return _again_and_again(lambda now: engine.sweep(now)[0], engine.start(start))

    contestants |= {name: ours(operator) for name, operator in operators.items()}
    matrix = transition_matrix(mdp)
    contestants[PLAIN] = _again_and_again(partial(scipy_sweep, mdp, matrix), start)
    contestants[SAME_WORK] = _again_and_again(lambda q: certifying_scipy_sweep(mdp, matrix, q)[0], start)
    successors, probabilities = mdp.sparse_transitions()
    rows = probabilities if probabilities.flags.c_contiguous else probabilities[0, 0]  # one row, repeated for every pair
    streamed = (successors.ravel(), rows.ravel(), mdp.rewards.ravel(), start.ravel(), np.empty(start.size))
    contestants["stream"] = partial(stream, *streamed)
    contestants["gather"] = partial(gather, successors.ravel(), np.zeros(mdp.states))
    two = "bellman, two threads"
    if problem == plan.problems[0] and threads >= 2:
        contestants[two] = on_threads(2, ours(operators["bellman"]))

    time = race(contestants, plan.seconds)
    floor = max(time["stream"], time["gather"])
    note = f"{problem.text}: in order {time['stream'] * 1e3:.3g} ms, gathers {time['gather'] * 1e3:.3g} ms; the longer is the floor."

    def row(name: str, against: str, target: float | None = None, floor: float | None = floor) -> Measurement:
        label = f"a sweep of {problem.text}: {name}"
        return Measurement(label, time[name], against, time[against], target=target, floor=floor, note=note)

    rows_of_scipy = [row("bellman", PLAIN, problem.sweep), row("bellman", SAME_WORK)]
    if two in time:
        rows_of_scipy.append(row(two, PLAIN, problem.two_threads, floor=None))
    return rows_of_scipy + [row(name, "bellman", target) for name, target in plan.claimed_of_bellman.items()]


def measure_memory(problem: Problem) -> list[Measurement]:
    """The largest memory of a fresh process that builds and solves this problem, beside that of the model alone."""
    label = f"memory of building and solving {problem.text}"
    script = "import sys; from benchmarks.finite import _tell_memory; _tell_memory(sys.argv[1])"
    child = subprocess.run([sys.executable, "-c", script, problem.text], capture_output=True, text=True, env=child_environment())
    if child.returncode:
        why = "; ".join(child.stderr.strip().splitlines()[-1:]) or f"the process ended with {child.returncode}"
        return [Measurement(label, None, "the model", None, "B", target=problem.memory, note=f"{label} was not measured: {why}")]
    told = json.loads(child.stdout)
    built, solved = told["built"] - told["before"], told["solved"] - told["before"]
    note = f"{problem.text}: building alone reached {built / 1e6:.0f} MB."
    return [Measurement(label, solved, "the model", told["model"], "B", target=problem.memory, note=note)]


def _tell_memory(text: str) -> None:
    operator = parse("bellman")
    solve(load_mdp("gridworld:3"), operator, engine="numba")  # the compiler's own memory is not counted
    before = _resident("VmRSS")
    mdp = load_mdp(text)
    built = _resident("VmHWM")
    solve(mdp, operator, engine="numba", max_sweeps=3, throw=False)  # a later sweep needs no more memory than the third
    print(json.dumps({"before": before, "built": built, "solved": _resident("VmHWM"), "model": mdp.nbytes}))


def _resident(field: Literal["VmRSS", "VmHWM"]) -> int:
    """Resident memory of this process in bytes, now or at its largest."""
    status = Path("/proc/self/status")
    if not status.exists():
        raise SystemExit("memory is read from /proc/self/status, which Linux alone has")
    # Not `ru_maxrss`, which a child process inherits from its parent.
    lines = status.read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def measure_certified(plan: Scale, operator: Operator, threads: int) -> list[Measurement]:
    """From nothing to |V - V*| <= `TOL`, on one thread and on all, against QuantEcon's value iteration and its fastest method."""
    label = f"{plan.certified} to a certified error of {TOL:g}"
    methods = {"value_iteration": plan.value_iteration, "modified_policy_iteration": plan.modified_policy_iteration}
    try:
        import quantecon  # noqa: F401
    except ImportError:
        note = "QuantEcon is not installed, so nothing was compared with it: pip install '.[bench]'"
        return [Measurement(label, None, f"QuantEcon {method}", None, target=target, note=note) for method, target in methods.items()]
    tiny = quantecon_solver(load_mdp("garnet:10,2,2"), TOL)
    mdp = load_mdp(plan.certified)
    baseline = quantecon_solver(mdp, TOL)
    counts = sorted({1, threads})
    ours = partial(solve, mdp, operator, tol=TOL, engine="numba")
    ours()
    measured = []
    for method, target in methods.items():
        tiny(method)
        answers: dict[str, Any] = {}
        contestants = {_counted(n): on_threads(n, _keep(answers, "ours", ours)) for n in counts}
        contestants[method] = _keep(answers, method, partial(baseline, method))
        # Value iteration takes tens of seconds a round at full scale.
        slow = method == "value_iteration"
        time = race(contestants, 0.0 if slow else plan.seconds, rounds=1 if slow else 3, warm_up=False)
        solution = answers["ours"]
        difference = float(np.abs(solution.v - answers[method].v).max())
        if difference > 2 * TOL:
            raise RuntimeError(f"ours and QuantEcon's {method} differ by {difference:.1e} on {plan.certified}: one of them is wrong")
        work = f"{answers[method].num_iter} iterations, ours {solution.sweeps} sweeps"
        note = f"{plan.certified}: {method} took {work}; the two V differ by {difference:.1e} at most."
        measured += [
            Measurement(f"{label}, {_counted(n)}", time[_counted(n)], f"QuantEcon {method}", time[method], target=target, note=note)
            for n in counts
        ]
    return measured


def _keep(answers: dict[str, Any], name: str, run: Callable[[], Any]) -> Callable[[], None]:
    return lambda: answers.update({name: run()})


def _again_and_again(sweep: Callable[[Any], Any], start: Any) -> Callable[[], None]:
    """A function that makes one more sweep each time it is called."""
    now = [start]

    def step() -> None:
        now[0] = sweep(now[0])

    return step


def _counted(threads: int) -> str:
    return "one thread" if threads == 1 else f"{threads} threads"
