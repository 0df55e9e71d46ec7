"""Gap-increasing operators: each is one function of a backup.

An operator computes a new Q(x, a) from a few numbers at the pair (x, a): the discount, the current value, the value of the state, and
three one-step backups. These numbers form a `Backup`. Each operator is written once, here, with arithmetic, comparisons and the functions
`maximum`, `minimum` and `where`. The same function object therefore runs on NumPy, JAX and PyTorch arrays, inside compiled kernels
(`actiongap._numba`) and on symbols (`actiongap.proof`).

Reference: Bellemare, Ostrovski, Guez, Thomas, Munos, "Increasing the Action Gap: New Operators for Reinforcement Learning", AAAI 2016.

Operators of other papers follow the paper's family. `clipped`, `smoothed` and `stochastic` are functions of a `Backup`, so the solver, the
planners, the learners and the prover accept them. `stochastic` has a random coefficient, which `Operator.at` samples for each update.
`munchausen`, `dpp`, `cvi` and `mellowmax` also depend on all of Q(x, .), through the policy pi = softmax(Q / tau) or a soft maximum. They
take a `SoftBackup`, which `actiongap.td` computes from Q(x, .) and Q(x', .). As tau tends to zero they tend to advantage learning:
`munchausen` without its clip and `cvi` to `al:ALPHA`, `dpp` to `al:1`, and `mellowmax` to `bellman`.
`scheduled` is advantage learning with another alpha in every sweep, which `Operator.sweep` returns.
"""

from __future__ import annotations

import functools
import inspect
import math
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from actiongap._files import one_line
from actiongap._suggest import did_you_mean, nearest
from actiongap._user_code import from_file, is_registered_text, registered, split_own
from actiongap.maths import maximum, minimum, where


class Backup(NamedTuple):
    """The input of an operator at a pair (x, a). All fields are scalars, or arrays of the same shape."""

    gamma: Any
    """Discount of this transition; 0 where the next state is terminal."""
    q: Any
    """Q(x, a)."""
    v: Any
    """V(x) = max_b Q(x, b), or the value of a fixed policy."""
    bellman: Any
    """R + gamma E V(x')."""
    again: Any
    """The backup in which a is repeated only if the next state is x: bellman - gamma P(x | x, a) gap."""
    gap: Any
    """V(x) - Q(x, a). It is negative only for a fixed policy, where an action is better than the policy."""
    next_gap: Any
    """E[V(x') - Q(x', a)]; 0 where x' is terminal. It is negative only for a fixed policy."""
    repeat: Any
    """The backup in which a is always repeated in x': R + gamma E Q(x', a) = bellman - gamma * next_gap."""


def backup(gamma: Any, reward: Any, q: Any, v: Any, next_v: Any, next_q: Any, stay: Any) -> Backup:
    """Compute the backup of a pair from `next_v` = E V(x'), `next_q` = E Q(x', a) and `stay` = P(x | x, a).

    V is max_b Q(., b), so no gap is negative; gaps are clipped at zero to remove rounding errors. For the value of a fixed policy, see
    `fixed_policy_backup`.

    Examples
    --------
    >>> backup(gamma=0.5, reward=1.0, q=2.0, v=3.0, next_v=4.0, next_q=2.0, stay=0.0).repeat
    2.0
    """
    bellman = reward + gamma * next_v
    gap = maximum(v - q, 0.0)
    next_gap = maximum(next_v - next_q, 0.0)
    return Backup(gamma, q, v, bellman, bellman - gamma * stay * gap, gap, next_gap, bellman - gamma * next_gap)


def fixed_policy_backup(gamma: Any, reward: Any, q: Any, v: Any, next_v: Any, next_q: Any, stay: Any) -> Backup:
    """Compute the backup of a pair where V is the value of a policy pi, V(x) = sum_b pi(b | x) Q(x, b).

    Gaps are not clipped: the gap of an action that is better than the policy is negative, and the mean of the gaps under pi is zero. An
    operator that subtracts a multiple of the gap, such as `al`, therefore keeps V^pi; with gaps clipped at zero it would lower it.

    Examples
    --------
    >>> fixed_policy_backup(gamma=0.5, reward=1.0, q=3.5, v=3.0, next_v=4.0, next_q=2.0, stay=0.0).gap
    -0.5
    """
    bellman, gap, next_gap = reward + gamma * next_v, v - q, next_v - next_q
    again, repeat = bellman - (gamma * stay) * gap, bellman - gamma * next_gap
    return Backup(gamma, q, v, bellman, again, gap, next_gap, repeat)


class TheoryWarning(UserWarning):
    """A parameter of an operator is outside the range that the theory covers."""


class OperatorError(ValueError):
    """An operator cannot be applied."""


@dataclass(frozen=True, eq=False)
class Operator:
    """A named function of a `Backup`.

    Examples
    --------
    >>> halfway = Operator("halfway", lambda b: 0.5 * b.q + 0.5 * b.bellman)
    >>> halfway(backup(gamma=0.5, reward=1.0, q=0.0, v=0.0, next_v=0.0, next_q=0.0, stay=0.0))
    0.5
    """

    name: str
    """Name, which `parse` accepts; a function that was not loaded from a file has its `__name__`."""
    apply: Callable[[Backup], Any]
    """The function from a backup to the new Q(x, a)."""
    commutes_with_constants: bool | None = None
    """Whether T'(Q + c) = T'Q + gamma c; None if unknown (`actiongap.proof` decides it)."""
    draw: Callable[[Any], Operator] | None = None
    """For a random operator: maps u, uniform on [0, 1), to the operator of one update. None for a deterministic operator."""
    temperature: float | None = None
    """For an operator that depends on the policy softmax(Q / temperature): `apply` then takes a `SoftBackup`. None otherwise."""
    reads_again: bool = False
    """Whether the operator is known to read `again`; its sampled targets then need `returned`, which marks transitions with x' = x."""
    parameters: tuple[float, ...] | None = None
    """The numbers of an operator of `FAMILY` or `OTHER_PAPERS`, () if it has none; None for your own functions."""
    schedule: Callable[[Any], Operator] | None = None
    """For an operator that changes with the sweep: maps k = 0, 1, ... to the operator of sweep k. None for a fixed operator."""

    def at(self, u: Any) -> Operator:
        """Return the operator of one update for u, uniform on [0, 1); a deterministic operator returns itself.

        u may be a scalar of any array library.

        Examples
        --------
        >>> parse("rso:0,1").at(0.25)(backup(gamma=0.5, reward=0.0, q=-1.0, v=0.0, next_v=0.0, next_q=0.0, stay=0.0))
        -0.25
        """
        return self if self.draw is None else self.draw(u)

    def sweep(self, k: Any) -> Operator:
        """Return the operator of sweep k = 0, 1, ...; an operator without a schedule returns itself.

        Examples
        --------
        >>> parse("al-schedule:1").sweep(3)(backup(gamma=0.5, reward=0.0, q=-1.0, v=0.0, next_v=0.0, next_q=0.0, stay=0.0))
        -0.75
        """
        return self if self.schedule is None else self.schedule(k)

    def plain(self) -> Operator:
        """Return the operator if it is one deterministic function of a `Backup`, and raise an `OperatorError` otherwise.

        Examples
        --------
        >>> parse("al:0.5").plain().name
        'al:0.5'
        """
        if self.draw is not None:
            remedy = "use q_learning, or apply operator.at(u) with u uniform on [0, 1)"
            raise OperatorError(f"{self.name} has a random coefficient, which must be sampled for each update: {remedy}")
        if self.schedule is not None:
            remedy = "use solve, or apply operator.sweep(k) in sweep k"
            raise OperatorError(f"{self.name} has a coefficient that changes with the sweep: {remedy}")
        if self.temperature is not None:
            remedy = "use td_target or fitted_q_iteration"
            raise OperatorError(f"{self.name} needs the policy softmax(Q / {self.temperature!r}), which is not available here: {remedy}")
        return self

    def __call__(self, b: Backup | Any) -> Any:
        if self.draw is not None or self.schedule is not None or (self.temperature is not None and isinstance(b, Backup)):
            self.plain()
        try:
            value = self.apply(b)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            raise OperatorError(f"the operator {self.name} {_problem(error)}") from error
        if isinstance(value, float):
            return value
        number = hasattr(value, "__array_namespace__") or hasattr(value, "__float__")
        if not number or isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool"):
            raise OperatorError(f"the operator {self.name} returns a {type(value).__name__}: return a number or an array")
        return value

    def __str__(self) -> str:
        return self.name


def check_operator(operator: Operator) -> Operator:
    """Return an operator after one trial on a small backup of arrays, or raise an `OperatorError` if its result is of no use to an engine.

    Engines that compile an operator would report the same in pages. Results that are not finite are left to what follows.

    Examples
    --------
    >>> check_operator(Operator("mine", lambda b: [b.bellman]))
    Traceback (most recent call last):
    actiongap.operators.OperatorError: the operator mine returns a list: return a number or an array
    """
    if operator.draw is not None or operator.temperature is not None:
        return operator
    import numpy as np

    numbers = [np.array([[low, low + 1.0], [low + 2.0, low + 1.0]]) for low in (0.0, 0.0, 2.0, 3.0, 1.0, 0.0)]
    with np.errstate(all="ignore"):
        value = operator(backup(np.full((2, 2), 0.5), *numbers))
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise OperatorError(f"the operator {operator} returns numbers of type {array.dtype}: return real numbers")
    if array.shape not in ((), (2, 2)):
        remedy = "compute each number from the numbers at the same place of the backup"
        raise OperatorError(f"the operator {operator} returns shape {array.shape} for a backup of shape (2, 2): {remedy}")
    return operator


def _problem(error: BaseException) -> str:
    """Return what is wrong with a user's function that raised an error, and what to do about it if that is known."""
    reason = one_line(error)
    if "truth value" in reason or "Boolean value" in reason or type(error).__name__ == "TracerBoolConversionError":
        return "branches on arrays: use where, maximum and minimum of actiongap in place of if, max and min"
    problem = f"fails with {type(error).__name__}: {reason}"
    if isinstance(error, AttributeError) and isinstance(error.obj, (Backup, SoftBackup)):
        fields = type(error.obj)._fields
        return problem + "; " + did_you_mean(str(error.name), fields, f"its fields are {', '.join(fields)}")
    if "does not support ufuncs" in reason:
        return f"{problem}; use functions of actiongap.maths, such as maximum and where, in place of NumPy's"
    return problem


def keeps_policy_values(operator: Operator) -> bool:
    """Return whether an operator keeps V^pi of every fixed policy pi in exact iteration, as far as fixed numbers show.

    It does if T'Q = Q + w (TQ - Q) - a (V - Q) with constants w and a: the mean of the gaps under pi is zero, so V moves by w (T^pi V - V).
    This holds for `al`, `rso`, `sal` and `baird`. `consistent`, `pal`, `pal-dqn`, `lazy` and `clipped-al` are not of this form, and change
    V^pi. The operator is tried on 40 random backups, at discounts 0 and 0.9.

    Examples
    --------
    >>> [keeps_policy_values(parse(text)) for text in ("al:0.9", "consistent", "pal:0.9", "lazy:0.9")]
    [True, False, False, False]
    """
    import numpy as np

    rng = np.random.default_rng(0)
    given = [fixed_policy_backup(0.9 * (k % 2), *map(float, rng.normal(size=5)), stay=float(rng.random())) for k in range(40)]
    terms = np.array([(b.bellman - b.q, b.gap) for b in given])
    for u in (None,) if operator.draw is None else (0.0, 0.4, 0.8):
        drawn = operator if u is None else operator.at(u)
        change = np.array([float(drawn(b)) - b.q for b in given])
        weights, *_ = np.linalg.lstsq(terms, change, rcond=None)
        if not np.abs(terms @ weights - change).max() <= 1e-9 * max(1.0, np.abs(change).max()) or not weights[0] > 0:
            return False
    return True


AnyOperator = str | Operator | Callable[[Backup], Any]
"""An operator, a string such as `al:0.9`, or any function of a `Backup`, as accepted by `parse`."""


def bellman() -> Operator:
    """The Bellman operator: R + gamma E max_b Q(x', b).

    Examples
    --------
    >>> bellman().name
    'bellman'
    """
    return Operator("bellman", lambda b: b.bellman, commutes_with_constants=True, parameters=())


def consistent() -> Operator:
    """The consistent Bellman operator: repeats a when the next state is x.

    For Q-value interpolation it is T_CQVI, the minimum of T_QVI and T'_QVI.

    Examples
    --------
    >>> consistent()(backup(gamma=0.5, reward=0.0, q=-1.0, v=0.0, next_v=0.0, next_q=-1.0, stay=1.0))
    -0.5
    """
    return Operator("consistent", lambda b: minimum(b.bellman, b.again), commutes_with_constants=True, reads_again=True, parameters=())


def advantage(alpha: float) -> Operator:
    """Advantage learning: T Q - alpha (V - Q). For alpha < 1, its limit has exactly 1 / (1 - alpha) times the gaps of Q*.

    Examples
    --------
    >>> advantage(0.5)(backup(gamma=0.5, reward=0.0, q=-1.0, v=0.0, next_v=0.0, next_q=-1.0, stay=0.0))
    -0.5
    """
    alpha = check_weight("al", alpha)
    return _advantage(f"al:{alpha!r}", alpha, (alpha,))


def _advantage(name: str, alpha: Any, parameters: tuple[float, ...] | None = None) -> Operator:
    return Operator(name, lambda b: b.bellman - alpha * b.gap, commutes_with_constants=True, parameters=parameters)


def persistent(alpha: float) -> Operator:
    """Persistent advantage learning, T_PAL: the maximum of advantage learning and R + gamma E Q(x', a).

    Examples
    --------
    >>> persistent(0.5)(backup(gamma=0.5, reward=0.0, q=-1.0, v=0.0, next_v=0.0, next_q=-0.5, stay=0.0))
    -0.25
    """
    alpha = check_weight("pal", alpha)
    advantage_learning = advantage(alpha).apply
    return Operator(f"pal:{alpha!r}", lambda b: maximum(advantage_learning(b), b.repeat), commutes_with_constants=True, parameters=(alpha,))


def persistent_dqn(alpha: float) -> Operator:
    """The sampled form of persistent advantage learning that the paper uses in DQN: T Q - alpha min(V(x) - Q(x, a), V(x') - Q(x', a)).

    It is not T_PAL on samples. The weight of the next gap is alpha here and gamma in T_PAL, and the maximum is taken for each next state
    here and after the expectation in T_PAL.

    Examples
    --------
    >>> persistent_dqn(0.5)(backup(gamma=0.5, reward=0.0, q=-1.0, v=0.0, next_v=0.0, next_q=-0.5, stay=0.0))
    -0.25
    """
    alpha = check_weight("pal-dqn", alpha)
    return Operator(
        f"pal-dqn:{alpha!r}", lambda b: b.bellman - alpha * minimum(b.gap, b.next_gap), commutes_with_constants=True, parameters=(alpha,)
    )


def lazy(alpha: float) -> Operator:
    """The lazy operator: keeps Q(x, a) while Q <= T Q <= alpha V + (1 - alpha) Q, and applies T otherwise.

    Examples
    --------
    >>> lazy(0.5)(backup(gamma=0.5, reward=0.0, q=-4.0, v=0.0, next_v=-4.0, next_q=-4.0, stay=0.0))
    -4.0
    """
    alpha = check_weight("lazy", alpha)

    def apply(b: Backup):
        return where((b.q <= b.bellman) & (b.bellman <= b.q + alpha * b.gap), b.q, b.bellman)

    return Operator(f"lazy:{alpha!r}", apply, commutes_with_constants=False, parameters=(alpha,))


def baird(c: float, dt: float = 1.0) -> Operator:
    """Baird's original advantage learning: V + (R + gamma^dt E V(x') - V) / K with K = C dt.

    The discount of the backup must already be gamma^dt. The operator has the fixed point of advantage learning with alpha = 1 - K. It is
    the Bellman operator if K = 1. Otherwise it satisfies neither condition of the theorem, and it diverges when K is small.

    Examples
    --------
    >>> baird(0.5)(backup(gamma=0.5, reward=1.0, q=0.0, v=0.0, next_v=0.0, next_q=0.0, stay=0.0))
    2.0
    """
    k = c * dt
    if not (c > 0 and dt > 0 and 0 < k < math.inf):
        raise ValueError(f"baird: K, or C and the time step, must be positive, not {c!r} and {dt!r}: try baird:0.5")
    name = f"baird:{c!r}" if dt == 1.0 else f"baird:{c!r},{dt!r}"
    return Operator(name, lambda b: b.v + (b.bellman - b.v) / k, commutes_with_constants=k == 1.0, parameters=(c, dt))


def check_discount(gamma: Any) -> float:
    """Return the discount as a float in [0, 1), or raise a `ValueError`.

    Examples
    --------
    >>> check_discount(1)
    Traceback (most recent call last):
    ValueError: gamma is 1.0: it must lie in [0, 1)
    """
    try:
        value = float(gamma)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"gamma is {gamma!r}: it must be one number in [0, 1)") from None
    if not 0 <= value < 1:
        raise ValueError(f"gamma is {value!r}: it must lie in [0, 1)")
    return value


def check_weight(name: str, alpha: float, example: str = "0.5") -> float:
    """Return alpha, the weight of a gap, as a float, and warn if it is above 1. `example` is the parameter text in the error's remedy.

    Examples
    --------
    >>> check_weight("al", 1)
    1.0
    """
    try:
        alpha = float(alpha)
    except (TypeError, ValueError):
        raise ValueError(f"{name}: alpha must be a number from 0 to 1, not {alpha!r}: try {name}:{example}") from None
    if not math.isfinite(alpha) or alpha < 0:
        raise ValueError(f"{name}: alpha must be a number from 0 to 1, not {alpha!r}: try {name}:{example}")
    if alpha > 1:
        warnings.warn(f"{name}:{alpha!r}: alpha is above 1, which the theory does not cover", TheoryWarning, stacklevel=3)
    return alpha


FAMILY: dict[str, Callable[..., Operator]] = {
    "bellman": bellman,
    "consistent": consistent,
    "al": advantage,
    "pal": persistent,
    "pal-dqn": persistent_dqn,
    "lazy": lazy,
    "baird": baird,
}
"""Operators by name; `parse` reads the parameters after the colon."""


def parse(text: AnyOperator) -> Operator:
    """Parse an operator: a string such as `al:0.9`, `path/to/file.py:name` for your own, or any function of a `Backup`.

    Examples
    --------
    >>> parse("al:0.9").name
    'al:0.9'
    """
    if isinstance(text, Operator):
        return text
    if callable(text):
        return Operator(name_of(text), text)
    if not isinstance(text, str):
        raise ValueError(f"an operator must be a string such as al:0.9 or a function of a Backup, not of type {type(text).__name__}")
    name, _, rest = text.strip().partition(":")

    known = FAMILY | OTHER_PAPERS
    if name in known:
        return _from_numbers(known[name], name, rest)
    if own := split_own(text):
        return _from_file(*own)
    if is_registered_text(text):
        found = registered(text)
        return found if isinstance(found, Operator) else Operator(text, found)
    if name.endswith(".py"):
        raise ValueError(f"{text} does not name a function in the file: write {text}:NAME")
    raise ValueError(f"unknown operator {text!r}: {_suggestion(text, known)}")


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function; of what `functools.partial` made, that of its function; of any other object, that of its class.

    Examples
    --------
    >>> name_of(functools.partial(max, 0))
    'max'
    """
    while isinstance(function, functools.partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


_PARSED: dict[str, Operator] = {}


FORMS = (
    *("bellman", "consistent", "al:ALPHA", "pal:ALPHA", "pal-dqn:ALPHA", "lazy:ALPHA", "baird:K"),
    *("al-schedule:C", "clipped-al:ALPHA,C", "rso:LOW,HIGH", "sal:ALPHA,OMEGA", "munchausen:TAU,ALPHA", "dpp:TAU"),
    *("cvi:ALPHA,BETA", "mellowmax:OMEGA"),
)
"""The texts of operators, as they are listed for users."""


def _suggestion(text: str, known: Mapping[str, Callable[..., Operator]]) -> str:
    """Return the operator that an unknown text probably means, such as al:0.9 for al0.9, or list all of them."""
    forms = {form.partition(":")[0]: form for form in FORMS}
    # The functions that make the operators are names too.
    names = forms | {make.__name__.replace("_", "-"): forms[name] for name, make in known.items()}
    match = re.fullmatch(r"\s*([a-z_-]*[a-z])[-:=(\s]*([\d.,e-]*)[)\s]*", text, re.IGNORECASE)
    near = match and nearest(match[1], names)
    if not match or near is None:
        return f"choose from {', '.join(FORMS)}, or give your own as path/to/file.py:name"
    name, colon, _ = names[near].partition(":")
    return f"did you mean {name}:{match[2]}?" if colon and match[2] else f"did you mean {names[near]}?"


def _from_numbers(make: Callable[..., Operator], name: str, rest: str) -> Operator:
    parameters = inspect.signature(make).parameters.values()
    required = sum(parameter.default is parameter.empty for parameter in parameters)
    example = name + ":" * (required > 0) + ",".join(["0.5"] * required)
    try:
        numbers = [float(number) for number in rest.split(",")] if rest else []
    except ValueError:
        raise ValueError(f"{name}:{rest}: {rest!r} is not a number: try {example}") from None
    if len(numbers) > len(parameters):
        wanted = "no number" if not parameters else f"at most {len(parameters)} number{'s' * (len(parameters) > 1)}"
        raise ValueError(f"{name}:{rest}: {name} takes {wanted}: try {example}")
    if len(numbers) < required:
        wanted = "a number" if required == 1 else f"{required} numbers"
        raise ValueError(f"{name} needs {wanted} after a colon: try {example}")
    operator = make(*numbers)
    # One object per text, so that caches of compiled operators are reused.
    return _PARSED.setdefault(operator.name, operator)


def _from_file(path: str, name: str) -> Operator:
    found = from_file(path, name)
    if isinstance(found, Operator):
        return found
    if not callable(found):
        raise ValueError(f"{path}: {name} is of type {type(found).__name__}; an operator is a function of a Backup")
    return Operator(f"{path}:{name}", found)


class SoftBackup(NamedTuple):
    """A `Backup` with quantities of the policy pi = softmax(Q / tau) at x and x'. All fields have the same shape."""

    gamma: Any
    q: Any
    v: Any
    bellman: Any
    again: Any
    gap: Any
    next_gap: Any
    repeat: Any
    log_policy: Any
    """log pi(a | x), never positive."""
    mean: Any
    """M Q(x) = sum_b pi(b | x) Q(x, b), the Boltzmann average."""
    mean_bellman: Any
    """R + gamma E M Q(x')."""
    soft_bellman: Any
    """R + gamma E [tau log sum_b exp(Q(x', b) / tau)]: the Boltzmann average plus tau times the entropy of pi."""
    mellow: Any
    """tau log mean_b exp(Q(x, b) / tau), the log-mean-exp average of Q(x, .)."""
    mellow_bellman: Any
    """R + gamma E [tau log mean_b exp(Q(x', b) / tau)]."""


def clipped(alpha: float, c: float, low: float = 0.0) -> Operator:
    """Clipped advantage learning: T Q - alpha (V - Q) where Q - low >= c (V - low), and T Q for worse actions.

    `low` is a lower bound of all values. With c = 0 it is advantage learning, with c = 1 the Bellman operator.

    Reference: Zhang, Gan, Tan, "Robust Action Gap Increasing with Clipped Advantage Learning", AAAI 2022.

    Examples
    --------
    >>> [clipped(0.5, 0.75)(backup(0.5, 0.0, q, v=4.0, next_v=8.0, next_q=8.0, stay=0.0)) for q in (2.0, 3.0)]
    [4.0, 3.5]
    """
    alpha, c, low = check_weight("clipped-al", alpha, "0.5,0.5"), float(c), float(low)
    if not (0 <= c <= 1 and math.isfinite(low)):
        raise ValueError(f"clipped-al: C must be from 0 to 1 and LOW a number, not {c!r} and {low!r}: try clipped-al:0.5,0.5")
    advantage_learning = advantage(alpha).apply

    def apply(b: Backup):
        return where(b.q - low >= c * (b.v - low), advantage_learning(b), b.bellman)

    name = f"clipped-al:{alpha!r},{c!r}" if low == 0.0 else f"clipped-al:{alpha!r},{c!r},{low!r}"
    return Operator(name, apply, commutes_with_constants=c == 1.0 or alpha == 0.0, parameters=(alpha, c, low))


def stochastic(low: float, high: float) -> Operator:
    """Robust stochastic operators: T Q - beta (V - Q), with beta sampled uniformly from [low, high) for each update.

    In synchronous sweeps V converges to V* almost surely if and only if the mean of log(beta) is at most 0: `rso:0,h` up to h = e
    (docs/theory.md). The operator itself raises when applied; `at` samples beta and returns a function of a backup. The mean over beta is
    `al` at the mean of beta, but a learner that uses the mean is a different algorithm.

    Reference: Lu, Squillante, Wu, "A Family of Robust Stochastic Operators for Reinforcement Learning", NeurIPS 2019.

    Examples
    --------
    >>> stochastic(0.5, 1.5).at(0.25)(backup(0.5, 0.0, q=0.0, v=4.0, next_v=8.0, next_q=8.0, stay=0.0))
    1.0
    """
    low, high = float(low), float(high)
    if not 0 <= low <= high < math.inf:
        raise ValueError(f"rso: LOW and HIGH must be numbers with 0 <= LOW <= HIGH, not {low!r} and {high!r}: try rso:0,1")
    name = f"rso:{low!r},{high!r}"
    if _mean_log(low, high) > 0:
        warnings.warn(f"{name}: the mean of log(beta) is above 0, so it may lose optimality", TheoryWarning, stacklevel=2)

    def draw(u: Any) -> Operator:
        beta = low + (high - low) * u
        return Operator(f"a sample of {name}", lambda b: b.bellman - beta * b.gap, commutes_with_constants=True)

    def apply(b: Backup):
        raise TypeError("sample it first, with at(u)")

    return Operator(name, apply, commutes_with_constants=True, draw=draw, parameters=(low, high))


def _mean_log(low: float, high: float) -> float:
    """The mean of log(beta) for beta uniform on [low, high]."""
    if low == high:
        return math.log(low) if low else -math.inf
    return (high * math.log(high) - (low * math.log(low) if low else 0.0)) / (high - low) - 1


def smoothed(alpha: float, omega: float) -> Operator:
    """Smoothing advantage learning: (1 - omega) Q + omega T Q - alpha (V - Q).

    It is a step of size omega from Q towards advantage learning with alpha / omega. If alpha < omega, its limit therefore has
    omega / (omega - alpha) times the gaps of Q*. If alpha > omega, a suboptimal action may remain greedy.

    Reference: Gan, Zhang, Tan, "Smoothing Advantage Learning", 2022.

    Examples
    --------
    >>> smoothed(0.25, 0.5)(backup(0.5, 0.0, q=2.0, v=4.0, next_v=8.0, next_q=8.0, stay=0.0))
    2.5
    """
    alpha, omega = float(alpha), float(omega)
    if not (0 <= alpha < math.inf and 0 < omega <= 1):
        raise ValueError(f"sal: ALPHA must be at least 0 and OMEGA in (0, 1], not {alpha!r} and {omega!r}: try sal:0.5,0.9")
    name = f"sal:{alpha!r},{omega!r}"
    if alpha > omega:
        warnings.warn(f"{name}: alpha is above omega, which may lose optimality", TheoryWarning, stacklevel=2)
    return Operator(
        name,
        lambda b: (1.0 - omega) * b.q + omega * b.bellman - alpha * b.gap,
        commutes_with_constants=omega == 1.0,
        parameters=(alpha, omega),
    )


def scheduled(c: float) -> Operator:
    """Advantage learning whose alpha grows towards 1: T Q - alpha_k (V - Q) with alpha_k = 1 - C / (k + C) in sweep k = 0, 1, ...

    The first sweep is Bellman's. Every alpha_k is below 1, so V_k converges to V*, and the gaps grow without end, about (k / (C + 1)) times
    those of Q*. The operator itself raises when applied; `sweep` returns the function of one sweep.

    Examples
    --------
    >>> [scheduled(5).sweep(k)(backup(0.5, 0.0, q=0.0, v=4.0, next_v=8.0, next_q=8.0, stay=0.0)) for k in (0, 5)]
    [4.0, 2.0]
    """
    c = float(c)
    if not 0 < c < math.inf:
        raise ValueError(f"al-schedule: C must be a positive number, not {c!r}: try al-schedule:5")
    name = f"al-schedule:{c!r}"

    def schedule(k: Any) -> Operator:
        return _advantage(f"sweep {k} of {name}", 1.0 - c / (k + c))

    def apply(b: Backup):
        raise TypeError("take the operator of one sweep first, with sweep(k)")

    return Operator(name, apply, commutes_with_constants=True, schedule=schedule, parameters=(c,))


def munchausen(tau: float, alpha: float, low: float = -1.0) -> Operator:
    """Munchausen: R + alpha max(tau log pi(a | x), low) + gamma E [tau log sum_b exp(Q(x', b) / tau)], pi = softmax(Q / tau).

    As in the paper, tau log pi is clipped before it is multiplied by alpha. The paper uses tau = 0.03, alpha = 0.9 and low = -1.

    Reference: Vieillard, Pietquin, Geist, "Munchausen Reinforcement Learning", NeurIPS 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from actiongap.td import td_target
    >>> float(td_target(munchausen(1.0, 0.5), np.zeros(2), 0, 0.0, 1.0, np.zeros(2)) / np.log(2.0))
    0.5
    """
    tau, alpha, low = _temperature("munchausen", tau, "0.03,0.9"), check_weight("munchausen", alpha, "0.03,0.9"), float(low)
    if not low <= 0:
        raise ValueError(f"munchausen: the clip of tau log pi must be at most 0, not {low!r}: try munchausen:0.03,0.9,-1")
    name = f"munchausen:{tau!r},{alpha!r}" if low == -1.0 else f"munchausen:{tau!r},{alpha!r},{low!r}"

    def apply(b: SoftBackup | Any):
        return b.soft_bellman + alpha * maximum(tau * b.log_policy, low)

    return Operator(name, apply, temperature=tau, parameters=(tau, alpha, low))


def dpp(tau: float) -> Operator:
    """Dynamic policy programming: Q(x, a) - M Q(x) + R + gamma E M Q(x'), where M is the average under softmax(Q / tau).

    Reference: Azar, Gomez, Kappen, "Dynamic Policy Programming", JMLR 13, 2012; tau is 1 / eta in their notation.

    Examples
    --------
    >>> import numpy as np
    >>> from actiongap.td import td_target
    >>> float(td_target(dpp(1.0), np.array([1.0, 1.0]), 0, 0.25, 0.5, np.array([2.0, 2.0])))
    1.25
    """
    tau = _temperature("dpp", tau, "0.1")

    def apply(b: SoftBackup | Any):
        return b.q - b.mean + b.mean_bellman

    return Operator(f"dpp:{tau!r}", apply, temperature=tau, parameters=(tau,))


def conservative(alpha: float, beta: float) -> Operator:
    """Conservative value iteration: R + gamma E M Q(x') + alpha (Q(x, a) - M Q(x)) with M Q = log mean_b exp(beta Q(., b)) / beta.

    As beta grows it tends to `al:ALPHA`; with alpha = 1 it is the log-mean-exp form of dynamic policy programming, and with alpha = 0
    `mellowmax:BETA`. For alpha < 1, M Q tends to the fixed point m of the mellowmax operator with BETA / (1 - ALPHA), and Q to
    m + (R + gamma E m(x') - m) / (1 - ALPHA). That m is at most (1 - ALPHA) log(A) / (BETA (1 - gamma)) below V*, where A is the number of
    actions; its greedy actions may be suboptimal.

    Reference: Kozuno, Uchibe, Doya, "Theoretical Analysis of Efficiency and Robustness of Softmax and Gap-Increasing Operators in
    Reinforcement Learning", AISTATS 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from actiongap.td import td_target
    >>> float(td_target(conservative(0.5, 1.0), np.array([1.0, 1.0]), 0, 0.25, 0.5, np.array([2.0, 2.0])))
    1.25
    """
    alpha, beta = check_weight("cvi", alpha, "0.9,10"), _inverse_temperature("cvi", beta, "0.9,10")

    def apply(b: SoftBackup | Any):
        return b.mellow_bellman + alpha * (b.q - b.mellow)

    return Operator(f"cvi:{alpha!r},{beta!r}", apply, temperature=1 / beta, parameters=(alpha, beta))


def mellowmax(omega: float) -> Operator:
    """The mellowmax operator: R + gamma E [log mean_b exp(OMEGA Q(x', b)) / OMEGA].

    It is a contraction of modulus gamma. Its fixed point has values at most log(A) / (OMEGA (1 - gamma)) below V*, where A is the number of
    actions, so its greedy actions may be suboptimal. It widens no gap by itself.

    Reference: Asadi, Littman, "An Alternative Softmax Operator for Reinforcement Learning", ICML 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from actiongap.td import td_target
    >>> float(td_target(mellowmax(5.0), np.array([0.0, 0.0]), 0, 1.0, 0.5, np.array([2.0, 2.0])))
    2.0
    """
    omega = _inverse_temperature("mellowmax", omega, "10")

    def apply(b: SoftBackup | Any):
        return b.mellow_bellman

    return Operator(f"mellowmax:{omega!r}", apply, temperature=1 / omega, parameters=(omega,))


def _temperature(name: str, tau: float, example: str) -> float:
    tau = float(tau)
    if not 0 < tau < math.inf:
        raise ValueError(f"{name}: the temperature must be a positive number, not {tau!r}: try {name}:{example}")
    return tau


def _inverse_temperature(name: str, beta: float, example: str) -> float:
    beta = float(beta)
    if not (0 < beta < math.inf and 1 / beta < math.inf):
        raise ValueError(f"{name}: the inverse temperature must be a positive number, not {beta!r}: try {name}:{example}")
    return beta


OTHER_PAPERS: dict[str, Callable[..., Operator]] = {
    "al-schedule": scheduled,
    "clipped-al": clipped,
    "rso": stochastic,
    "sal": smoothed,
    "munchausen": munchausen,
    "dpp": dpp,
    "cvi": conservative,
    "mellowmax": mellowmax,
}
"""Operators of other papers and schedules of alpha, by name, as in `FAMILY`."""
