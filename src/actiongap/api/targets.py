"""Check whether a target function of your own computes an operator's target.

The function is called with fixed transitions and its answers are compared with those of `actiongap.td`. Where they differ, the check shows
the first transition, both numbers and, if it recognizes it, the mistake.
"""

from __future__ import annotations

import html
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from actiongap._suggest import choose_from, with_suggestions
from actiongap._user_code import from_text
from actiongap.api.calls import (
    Call,
    DType,
    FunctionError,
    Layout,
    Library,
    Results,
    gradients_of,
    inputs_of,
    libraries,
    name_of,
)
from actiongap.api.mistakes import Answers, chosen, explain, fitted_discount
from actiongap.api.transitions import POSITIONS, Batch, catalogue, has_done_flag, has_two_networks
from actiongap.operators import AnyOperator, Operator, parse

Returns = Literal["target", "td_error"]

RTOL = {"float64": 1e-10, "float32": 1e-5}
"""Relative tolerance by the precision of the results; half precision has `HALF`."""
HALF = 2e-2
DISCOUNT = 0.99
"""The discount for functions that take a done flag."""
ROUNDING = 1e-6
"""Relative differences that computing in float32 may explain."""


@dataclass(frozen=True)
class Check:
    """What `check_target` found: it is true if the function computes the operator's target."""

    equal: bool
    """Whether all numbers are equal within the tolerance, and no gradient flows through the target."""
    mistake: str | None
    """The mistake in words; None if the function is right, or if the mistake is not known."""
    transition: dict[str, Any] | None
    """The inputs of the first transition that differs, by parameter of the function."""
    expected: float | None
    """The right number for this transition."""
    got: float | None
    """The function's number for it."""
    operator: str
    count: int
    """How many transitions the function was called with."""
    differing: int
    """How many of them differ."""
    library: Library
    """The array library of the inputs."""
    layout: Layout
    """The shapes of the inputs: `batch` (n,), `columns` (n, 1), or a `single` transition."""
    gamma: float | None = None
    """The discount for a function that takes a done flag."""
    note: str | None = None
    """What else to know about a function that is right: that it is wrong for a batch, and right for one transition."""

    def __bool__(self) -> bool:
        return self.equal

    def __repr__(self) -> str:
        called = {"batch": "", "columns": " in columns", "single": ", one at a time"}[self.layout]
        if self.equal:
            discount = "" if self.gamma is None else f", discount {self.gamma!r}"
            return f"equal to {self.operator} on {self.count} transitions{called} ({self.library}{discount})" + (
                f"; {self.note}" if self.note else ""
            )
        why = self.mistake or "no known mistake explains it"
        share = f" on {self.differing} of {self.count} transitions{called}" if self.differing else ""
        return f"differs from {self.operator}{share}: {why}{self._where()}"

    def _where(self) -> str:
        if self.transition is None or self.expected is None or self.got is None:
            return ""
        return f"; for {_listed(self.transition)} expected {_number(self.expected, self.got)}, got {_number(self.got, self.expected)}"

    def _repr_html_(self) -> str:
        rows = {"mistake": self.mistake, **(self.transition or {}), "expected": self.expected, "got": self.got, "note": self.note}
        title = f"{'Equal to' if self.equal else 'Differs from'} {self.operator}"
        cells = [(name, value) for name, value in rows.items() if value is not None]
        cells.append(("transitions", f"{self.differing} of {self.count} differ" if not self.equal else self.count))
        body = "".join(f"<tr><th>{html.escape(name)}</th><td>{html.escape(str(value))}</td></tr>" for name, value in cells)
        return f"<table><caption>{html.escape(title)}</caption>{body}</table>"


@with_suggestions
def check_target(
    function: Callable[..., Any] | str,
    operator: AnyOperator = "bellman",
    *,
    returns: Returns = "target",
    inputs: Sequence[str] | None = None,
    gamma: float | None = None,
    library: Library | None = None,
    layout: Layout | None = None,
    dtype: DType | None = None,
    gradients: bool = True,
    rtol: float | None = None,
    atol: float = 0.0,
) -> Check:
    """Check whether a target function of your own computes an operator's target.

    The function is called with fixed transitions: ordinary, terminal and truncated ones, ties, self-loops, large and negative values, two
    to five actions. Its answers are compared with those of `td_target`.

    Its parameters are recognized by name. Five parameters with other names are q_tm1, a_tm1, r_t, discount_t and q_t, in this order.

    | input | parameter | meaning |
    |---|---|---|
    | `q_tm1`, `q_t` | also `q`, `q_values`; `next_q`, `next_q_values`, `q_next` | Q(x, .) and Q(x', .), (n, A), of the target network |
    | `a_tm1`, `r_t` | also `a`, `action`, `actions`; `r`, `reward`, `rewards` | actions and rewards, (n,) |
    | `discount_t` | also `discount`, `discounts` | discounts, (n,); 0 where x' is terminal, unless there is a done flag, too |
    | `terminated` | also `done`, `dones`, `terminal`, `terminals`, `terminations` | 1 where x' is terminal; `discount` is then `gamma` |
    | `truncated` | also `truncation`, `truncations`, `timeout`, `timeouts` | 1 where the episode was truncated |
    | `gamma` | `gamma` | the discount, a number; without a done flag, the same as `discount_t` |
    | `returned` | `returned` | whether x' is x; then, and only then, Q(x', .) is equal to Q(x, .) |
    | `target_q_tm1`, `target_q_t` | also `target_q`, `target_next_q`, ... | the target network's values; `q_tm1` is then the online one's |
    | `online_q_tm1`, `online_q_t` | also `online_q`, `online_next_q` | the online network's values |

    If the function takes `target_q_t`, then `q_t` is the online network's, too.

    Gradients are checked in PyTorch and JAX: the sum of the targets is differentiated with respect to every input of values, and all
    gradients must be zero. The gradient of the TD error must be -1 for the online Q(x, a) and zero elsewhere.

    Parameters
    ----------
    function
        A function of a batch or of one transition, on arrays of NumPy, PyTorch or JAX; or `path/to/file.py:name` or `module:name`.
    operator
        An operator, a string such as `al:0.9`, or any function of a `Backup`. It must not be random.
    returns
        What the function returns: the `target`, or the `td_error`, the target minus Q(x, a).
    inputs
        The inputs of the function in order, instead of the names of its parameters.
    gamma
        The discount for functions that take a done flag. By default 0.99; if the function does not take the discount, whichever it uses.
    library, layout, dtype
        The array library; the shapes of all inputs but values, `batch` for (n,), `columns` for (n, 1) and `single` for one transition; the
        precision. By default the function is tried with each library and layout until it is right or its mistake is known, and with both
        precisions.
    gradients
        Whether to check that no gradient flows. Turn it off for a function that is called under `torch.no_grad()`.
    rtol, atol
        A number may differ by atol + rtol times the largest number of the transition. By default rtol is 1e-10 in float64 and 1e-5 in
        float32.

    Examples
    --------
    >>> def mine(q_tm1, a_tm1, r_t, discount_t, q_t):
    ...     return r_t + discount_t * q_t.max(axis=-1)
    >>> check_target(mine, "bellman")
    equal to bellman on 147 transitions (numpy)
    >>> check_target(mine, "al:0.9").mistake.partition(":")[0]
    'this is plain Bellman'
    """
    given, function = function, from_text(function) if isinstance(function, str) else function
    if not callable(function):
        wrong = f"{given} is not a function" if isinstance(given, str) else f"a target function is needed, not a {type(function).__name__}"
        raise ValueError(f"{wrong}: pass a function of {', '.join(POSITIONS)}")
    operator = parse(operator)
    if operator.draw is not None:
        remedy = "check one update's operator, such as parse('rso:0,1').at(0.5)"
        raise ValueError(f"{operator} has a random coefficient, so its target is not one number: {remedy}")
    for name, value, kind in (
        ("returns", returns, Returns),
        ("library", library, Library),
        ("layout", layout, Layout),
        ("dtype", dtype, DType),
    ):
        if value not in (*get_args(kind), *(() if name == "returns" else (None,))):
            raise ValueError(f"{name} is {value!r}: {choose_from(value, get_args(kind))}")
    gamma = None if gamma is None else _number_in("gamma", gamma, 1.0)
    rtol, atol = None if rtol is None else _number_in("rtol", rtol), _number_in("atol", atol)
    call = Call(function, inputs_of(function, inputs), other_library=library is not None)
    discount = (gamma or DISCOUNT) if has_done_flag(call.names) else None
    transitions = catalogue(discount, has_two_networks(call.names))
    reference = _Reference(operator, transitions, returns, call.names, discount, rtol, atol)
    precisions: tuple[DType, ...] = ("float64", "float32") if dtype is None else (dtype,)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        if not np.isfinite(reference.targets()).all():
            raise ValueError(f"the targets of {operator} are not finite, so nothing can be compared with them: correct the operator")
        tried = _try(
            call, reference, [library] if library else libraries(function), [layout] if layout else get_args(Layout), precisions[0]
        )
        # Of several ways to call it, the one that is right, or whose mistake is known, is meant.
        call, check = max(tried, key=lambda one: (one[1].equal, one[1].mistake is not None))
        if not check and gamma is None and not {"gamma", "discount_t"} & set(call.names):
            values = np.concatenate([call.results(t).values for t in transitions])
            fitted = fitted_discount(operator, reference.answers(values, call.dtype, returns))
            found = fitted if fitted or check.mistake else _own_discount(call, reference, values)
            if found is not None:
                options: dict[str, Any] = {"returns": returns, "inputs": inputs, "gradients": gradients, "rtol": rtol, "atol": atol}
                own = check_target(function, operator, gamma=found, library=call.library, layout=layout, dtype=dtype, **options)
                if fitted or own.mistake or own.differing < check.differing:
                    return own
        if not check and check.mistake is None and _is_random(call, transitions):
            random = "two calls with the same transitions return different numbers: it is random, or it changes what it depends on"
            return replace(check, mistake=random)
        for other in precisions[1:]:
            if check:
                call = call._replace(dtype=other)
                check = _compare(call, [call.results(t) for t in transitions], reference)
        check = _check_gradients(call, check, reference) if check and gradients else check
        batch = [one for way, one in tried if (way.library, way.layout) == (call.library, "batch")]
        return replace(check, note=_batch_note(batch[0])) if check and batch and not batch[0] else check


class _Reference(NamedTuple):
    """The right answers."""

    operator: Operator
    transitions: tuple[Batch, ...]
    returns: Returns
    names: tuple[str, ...]
    discount: float | None
    rtol: float | None
    atol: float

    def targets(self) -> Any:
        """Return the operator's target of each transition."""
        return np.concatenate([np.broadcast_to(t.target(self.operator), t.a_tm1.shape) for t in self.transitions])

    def answers(self, values: Any, dtype: str, returns: Returns) -> Answers:
        """Return what a function returned, with what it may differ by."""
        online = np.concatenate([chosen(t.online_q_tm1, t.a_tm1) for t in self.transitions])
        largest = [
            abs(np.concatenate([t.q_tm1, t.q_t, t.online_q_tm1, t.online_q_t, t.r_t[:, None]], -1)).max(-1) for t in self.transitions
        ]
        size = np.maximum(np.maximum(np.concatenate(largest), abs(self.targets())), 1.0)
        tolerance = self.atol + (RTOL.get(dtype, HALF) if self.rtol is None else self.rtol) * size
        return Answers(self.transitions, values, tolerance, online if returns == "td_error" else 0.0, has_done_flag(self.names))

    def check(self, call: Call, mistake: str | None, wrong: Any = None, expected: Any = None, got: Any = None) -> Check:
        """Return the check; `wrong` says which transitions differ, and the first of them is shown with its numbers."""
        count = sum(len(t.a_tm1) for t in self.transitions)
        rows = [] if wrong is None else np.flatnonzero(wrong).tolist()
        shared = (self.operator.name, count, len(rows), call.library, call.layout, self.discount)
        if not rows:
            return Check(mistake is None, mistake, None, None, None, *shared)
        row = rows[0]
        return Check(False, mistake, self.inputs(call, row), float(expected[row]), float(got[row]), *shared)

    def inputs(self, call: Call, row: int) -> dict[str, Any]:
        """Return the inputs of a transition, counted through all batches."""
        [(t, place)] = [
            (t, row - first) for t, first in zip(self.transitions, self.starts(), strict=True) if 0 <= row - first < len(t.a_tm1)
        ]
        return call.shown(t, place)

    def starts(self) -> list[int]:
        """Return the place of the first transition of each batch."""
        return np.cumsum([0, *(len(t.a_tm1) for t in self.transitions)])[:-1].tolist()


def _try(
    call: Call, reference: _Reference, tried: Sequence[Library] | Iterator[Library], layouts: Sequence[Layout], dtype: DType
) -> list[tuple[Call, Check]]:
    """Return the ways to call a function that work, until one is right or its mistake is known, and what was found.

    Raise a ValueError if none works.
    """
    failures: list[tuple[Library, ValueError]] = []
    found: list[tuple[Call, Check]] = []
    for library in tried:
        # NumPy accepts code for PyTorch such as `max(1)[0]`, with other results. JAX agrees with NumPy.
        if found and library == "jax":
            continue
        for layout in layouts:
            for boolean in (False, True):
                way = call._replace(library=library, layout=layout, dtype=dtype, boolean_flags=boolean)
                try:
                    results = [way.results(t) for t in reference.transitions]
                except ValueError as error:
                    failures.append((library, error))
                    continue
                try:
                    check = _compare(way, results, reference)
                except ValueError:
                    if not found:
                        raise
                    break
                matrix = results[0].matrix is not None
                # A function of a batch that is tried on columns returns a matrix, too: its results for the batch tell more.
                if matrix and layout == "columns" and found:
                    break
                found.append((way, check))
                # A matrix is a mistake, although the function may be right on columns.
                if check.equal or matrix:
                    return found
                break
        if any(check.mistake for _, check in found):
            return found
    if found:
        return found
    # What a function returns tells more than that it cannot be called with other arrays.
    library, error = next((failure for failure in failures if not isinstance(failure[1], FunctionError)), failures[0])
    if not isinstance(error, FunctionError):
        raise error
    shapes = {"batch": "(n, actions) and (n,)", "columns": "(n, actions) and (n, 1)", "single": "(actions,) and ()"}[layouts[0]]
    remedy = "correct it, or say what it takes with library, layout, dtype or inputs"
    raise ValueError(
        f"{name_of(call.function)} fails on arrays of {library} in {dtype}, of shapes {shapes}, with {error}; {remedy}"
    ) from error


def _compare(call: Call, results: list[Results], reference: _Reference) -> Check:
    """Compare what a function returned with the right answers."""
    values = np.concatenate([one.values for one in results])
    dtype = call.dtype if results[0].dtype == "float64" else results[0].dtype
    answers = reference.answers(values, dtype, reference.returns)
    expected = reference.targets() - answers.subtracted
    if results[0].matrix is not None:
        return _shape_check(call, results, expected, reference)
    if not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        inputs = _listed(reference.inputs(call, row))
        remedy = "return a finite target, for example by subtracting the maximum before exponentials"
        raise ValueError(f"{name_of(call.function)} returns {values[row]} for {inputs}: {remedy}")
    wrong = abs(values - expected) > answers.tolerance
    if wrong.any():
        mistake = _mistake(answers, expected, dtype, reference)
        if mistake is None and dtype == "float64":
            # Constants and flags in float32, as those of `done.float()`, must not hide another mistake.
            rough = reference._replace(rtol=max(ROUNDING, reference.rtol or 0.0))
            answers = rough.answers(values, dtype, reference.returns)
            mistake = _mistake(answers, expected, dtype, rough)
            wrong = wrong if mistake is None else abs(values - expected) > answers.tolerance
        return reference.check(call, mistake, wrong, expected, values)
    if dtype != call.dtype:
        alone = " (dtype='float32' checks float32 alone)" if dtype == "float32" else ""
        lost = f"the precision is lost: it returns {dtype} for inputs in {call.dtype}{alone}"
        return reference.check(call, lost, values != expected, expected, values)
    return reference.check(call, None)


def _mistake(answers: Answers, expected: Any, dtype: str, reference: _Reference) -> str | None:
    """Return the mistake that explains what a function returned; None if no known one does."""
    other: Returns = "td_error" if reference.returns == "target" else "target"
    if reference.answers(answers.values, dtype, other).match(lambda t: t.target(reference.operator)):
        what = "the TD error, not the target" if other == "td_error" else "the target, not the TD error"
        return f"it returns {what}: pass returns={other!r} if this is meant"
    if reference.returns == "td_error" and (abs(answers.values + expected) <= answers.tolerance).all():
        return "the sign is wrong: the TD error is the target minus Q(x, a)"
    if reference.returns == "td_error" and answers.match(
        lambda t: t.target(reference.operator) + chosen(t.online_q_tm1 - t.q_tm1, t.a_tm1)
    ):
        return "the TD error subtracts Q(x, a) of the target network instead of the online network"
    rounding = reference._replace(rtol=ROUNDING).answers(answers.values, dtype, reference.returns).tolerance
    if dtype == "float64" and (abs(answers.values - expected) <= rounding).all():
        return (
            "the differences are as small as the rounding of float32: a constant or a conversion loses the precision of float64 "
            "(dtype='float32' checks float32 alone)"
        )
    return explain(reference.operator, answers)


def _batch_note(check: Check) -> str:
    """Return what to know about a function that is right for one transition, but not for a batch."""
    why = check.mistake or "no known mistake explains the difference"
    return f"it is wrong for a batch ({why}), so map it over one, for example with jax.vmap or torch.vmap"


def _is_random(call: Call, transitions: Sequence[Batch]) -> bool:
    """Whether a function returns different numbers when it is called again."""
    first, second = (np.concatenate([call.results(t).values for t in transitions]) for _ in range(2))
    return not np.array_equal(first, second, equal_nan=True)


def _own_discount(call: Call, reference: _Reference, values: Any) -> float | None:
    """Return the discount of a function that also makes a mistake: from how its results move with the values of x'; None if it has none."""
    moved = [t._replace(q_t=t.q_t + 1.0, online_q_t=t.online_q_t + 1.0) for t in reference.transitions]
    try:
        change = np.concatenate([call.results(t).values for t in moved]) - values
    except ValueError:
        return None
    right = reference._replace(transitions=tuple(moved)).targets() - reference.targets()
    alive = np.concatenate([~(t.terminated | t.returned) for t in moved]) & (right != 0)
    found = float(f"{(reference.discount or 0.0) * np.median((change / right)[alive]):.6g}")
    return found if 1e-3 < found <= 1 else None


def _shape_check(call: Call, results: list[Results], expected: Any, reference: _Reference) -> Check:
    """Return the check of a function that returns a matrix or a column for a batch."""
    remedy = "squeeze it, or pass layout='columns' if the function takes inputs of shape (n, 1)"
    if call.layout == "columns":
        remedy = "keep the axis of V(x'), for example with keepdim=True, or pass layout='batch' if the function takes inputs of shape (n,)"
    matrices = [one.values[:, None] if one.matrix is None else one.matrix for one in results]
    if matrices[0].shape[1] == 1:
        return reference.check(call, f"it returns a column of shape (n, 1) for inputs of shape (n,): {remedy}")
    wrong, got = [], []
    for matrix, start in zip(matrices, reference.starts(), strict=True):
        right = abs(matrix - expected[start : start + len(matrix), None]) <= 1e-5
        wrong.append(~right.all(axis=1))
        got.append(matrix[np.arange(len(matrix)), right.argmin(axis=1)])
    mistake = f"it broadcasts a column of shape (n, 1) against shape (n,) and returns a matrix of shape (n, n): {remedy}"
    return reference.check(call, mistake, np.concatenate(wrong), expected, np.concatenate(got))


def _check_gradients(call: Call, check: Check, reference: _Reference) -> Check:
    """Return the check of a function whose numbers are right after its gradients are checked."""
    if call.library == "numpy":
        return check
    # The TD error is differentiated with respect to the Q(x, a) that it subtracts.
    learned = "online_q_tm1" if "online_q_tm1" in call.names else "q_tm1"
    found = [gradients_of(call, t) for t in reference.transitions]
    for name in found[0]:
        parts = []
        for t, gradients in zip(reference.transitions, found, strict=True):
            right = np.zeros_like(gradients[name])
            if reference.returns == "td_error" and name == learned:
                np.put_along_axis(right, t.a_tm1[:, None], -1.0, axis=-1)
            apart = abs(gradients[name] - right) > 1e-5
            # Of each transition, the first action whose gradient is wrong.
            place = np.arange(len(apart)), apart.argmax(axis=1)
            parts.append((apart.any(axis=1), right[place], gradients[name][place]))
        wrong, expected, got = (np.concatenate(part) for part in zip(*parts, strict=True))
        if wrong.any():
            parameter, first = next(one.parameter for one in call.inputs if one.name == name), wrong.argmax()
            mistake = _gradient_mistake(call.library, parameter, float(expected[first]), float(got[first]))
            return reference.check(call, mistake, wrong, expected, got)
    return check


def _gradient_mistake(library: Library, parameter: str, right: float, wrong: float) -> str:
    if right and not wrong:
        return f"no gradient flows to Q(x, a) in {parameter}, so the TD error teaches nothing: stop the gradient of the target only"
    stop = "target.detach()" if library == "torch" else "jax.lax.stop_gradient(target)"
    remedy = f"use {stop}, or pass gradients=False if it is called where no gradient is taken"
    return f"a gradient of {wrong:.3g} instead of {right:.3g} flows through the target to {parameter}: {remedy}"


def _number_in(name: str, value: Any, high: float = math.inf) -> float:
    """Return an option as a float: a number from 0, or above 0 where there is an upper bound. Raise a ValueError if it is none."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not 0 <= value <= high or (high < math.inf and not value):
        raise ValueError(f"{name} is {value!r}: it must be a number {'in (0, 1]' if high < math.inf else 'that is not negative'}")
    return float(value)


def _listed(inputs: dict[str, Any]) -> str:
    return ", ".join(f"{name}={value}" for name, value in inputs.items())


def _number(value: float, other: float) -> str:
    """Format a number with enough digits to tell it from another one."""
    return next((f"{value:.{digits}g}" for digits in (6, 9, 12) if f"{value:.{digits}g}" != f"{other:.{digits}g}"), repr(value))
