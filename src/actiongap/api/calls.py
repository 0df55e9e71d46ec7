"""Call a target function of a user: what its parameters are, and with which arrays and shapes it works."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np

from actiongap._system import install
from actiongap.api.transitions import NAMES, POSITIONS, Q_INPUTS, Batch

Library = Literal["numpy", "torch", "jax"]
Layout = Literal["batch", "columns", "single"]
DType = Literal["float32", "float64"]

ALIASES = {alias: name for name, aliases in NAMES.items() for alias in aliases}
"""The input for each accepted name of a parameter."""
FLAGS = ("terminated", "truncated", "returned")


class FunctionError(ValueError):
    """The user's function raised an exception."""


class Input(NamedTuple):
    """What a parameter of a function takes."""

    parameter: str
    name: str
    """The input, a key of `NAMES`."""
    keyword: bool = False
    """Whether it must be passed by its name. Others are passed by position, because `jax.vmap` maps all keywords."""


def inputs_of(function: Callable[..., Any], given: Sequence[str] | None = None) -> tuple[Input, ...]:
    """Return the inputs of a function, by the names of its parameters or as given in order.

    Examples
    --------
    >>> [one.name for one in inputs_of(lambda q, a, r, done, q2: 0)]
    ['q_tm1', 'a_tm1', 'r_t', 'terminated', 'q_t']
    """
    if isinstance(given, str) or not isinstance(given, Sequence | None):
        raise ValueError(f"inputs is {given!r}: give a sequence of {', '.join(NAMES)}")
    wrong = [repr(word) for word in given or () if word not in ALIASES]
    if wrong:
        raise ValueError(f"inputs has the unknown name {wrong[0]}: choose from {', '.join(NAMES)}")
    try:
        parameters = list(inspect.signature(function).parameters.values())
        if all(one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD) for one in parameters):
            # The `__call__` of a PyTorch module takes anything and passes it to `forward`.
            parameters = list(inspect.signature(getattr(function, "forward", function)).parameters.values())
    except (TypeError, ValueError):
        parameters = [inspect.Parameter("inputs", inspect.Parameter.VAR_POSITIONAL)]
    by_position = [parameter for parameter in parameters if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)]
    required = [parameter.name for parameter in by_position if parameter.default is parameter.empty]
    keywords = [parameter for parameter in parameters if parameter.kind == parameter.KEYWORD_ONLY]
    if any(parameter.kind == parameter.VAR_POSITIONAL for parameter in parameters) and not by_position:
        words = dict(enumerate(POSITIONS if given is None else given))
        by_position = [inspect.Parameter(f"input_{place}", inspect.Parameter.POSITIONAL_ONLY) for place in words]
        words = {f"input_{place}": word for place, word in words.items()}
    elif given is not None:
        words = _given(function, [parameter.name for parameter in by_position], given)
    else:
        words = {parameter.name: parameter.name for parameter in (*by_position, *keywords) if parameter.name in ALIASES}
        if len(required) == len(POSITIONS):
            words = dict(zip(required, POSITIONS, strict=True)) | words
    absent = [p.name for p in (*by_position, *keywords) if p.default is p.empty and p.name not in words]
    if absent:
        remedy = "give it a default, bind it with functools.partial, or list the inputs, as in inputs=('q_tm1', 'a_tm1', ...)"
        known = "which is not a known input" if len(absent) == 1 else "which are not known inputs"
        raise ValueError(f"{name_of(function)} requires {', '.join(absent)}, {known} ({', '.join(NAMES)}): {remedy}")
    optional = {parameter.name for parameter in parameters if parameter.default is not parameter.empty}
    roles = _roles(function, words, optional)
    found, gap = [], False
    for parameter in by_position:
        gap |= parameter.name not in roles
        if parameter.name in roles:
            found.append(Input(parameter.name, roles[parameter.name], keyword=gap))
    return (*found, *(Input(parameter.name, roles[parameter.name], keyword=True) for parameter in keywords if parameter.name in roles))


def _given(function: Callable[..., Any], parameters: list[str], given: Sequence[str]) -> dict[str, str]:
    """Return the input that is given for each parameter in order."""
    if len(given) > len(parameters):
        raise ValueError(f"{name_of(function)} takes {len(parameters)} inputs, not {len(given)}: list those that it takes, in order")
    return dict(zip(parameters, given, strict=False))


def _roles(function: Callable[..., Any], words: dict[str, str], optional: set[str]) -> dict[str, str]:
    """Return the input of each parameter. Raise a ValueError if the inputs do not fit together."""
    roles = {parameter: ALIASES[word] for parameter, word in words.items()}
    has_done, has_discount = "terminated" in roles.values(), "discount_t" in roles.values()
    for parameter, word in words.items():
        # Beside a done flag, `discount` is a number for all transitions. Without one, gamma is the discount of each transition.
        if word == "discount" and has_done and "gamma" not in roles.values():
            roles[parameter] = "gamma"
        if word == "gamma" and not has_done and not has_discount:
            roles[parameter] = "discount_t"
        if word == "gamma" and not has_done and has_discount and parameter in optional:
            del roles[parameter]
    for name in NAMES:
        twice = [parameter for parameter, role in roles.items() if role == name]
        if len(twice) > 1:
            raise ValueError(
                f"{name_of(function)} takes {name} twice, as {' and '.join(twice)}: rename one, or list the inputs, inputs=(...)"
            )
    # An optional gamma was left out above.
    if {"discount_t", "gamma"} <= set(roles.values()) and not has_done:
        both = " and ".join(parameter for parameter, role in roles.items() if role in ("discount_t", "gamma"))
        remedy = "bind the other one, as in functools.partial(function, gamma=1.0)"
        raise ValueError(f"{name_of(function)} takes {both} without a done flag, and discount_t alone is the discount: {remedy}")
    if not {"q_t", "target_q_t", "online_q_t"} & set(roles.values()):
        raise ValueError(f"{name_of(function)} does not take q_t, the values of the next state: its parameters are {', '.join(POSITIONS)}")
    return roles


def name_of(function: Any) -> str:
    """Return the name of a function.

    Examples
    --------
    >>> name_of(partial(max, 1))
    'max'
    """
    while isinstance(function, partial):
        function = function.func
    return getattr(function, "__name__", type(function).__name__)


class Results(NamedTuple):
    """What a function returned for a batch of transitions."""

    values: Any
    """A number for each transition, in float64."""
    dtype: str
    """The type of the numbers that the function returned."""
    matrix: Any = None
    """The returned array if it has a second axis, which it should not have."""


class Call(NamedTuple):
    """A way to call a function."""

    function: Callable[..., Any]
    inputs: tuple[Input, ...]
    library: Library = "numpy"
    layout: Layout = "batch"
    dtype: DType = "float64"
    boolean_flags: bool = False
    """Whether done flags are booleans instead of numbers."""
    other_library: bool = False
    """Whether it may return an array of another library than those it is called with."""

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs of the function."""
        return tuple(one.name for one in self.inputs)

    def results(self, t: Batch) -> Results:
        """Call the function with a batch or, one by one, with its transitions. Raise a ValueError if that fails."""
        if self.layout != "single":
            return self._read(self.call(self.arrays(t)), len(t.a_tm1))
        each = [self._read(self.call(self.arrays(t, row)), 1) for row in range(len(t.a_tm1))]
        return Results(np.concatenate([one.values for one in each]), each[0].dtype)

    def shown(self, t: Batch, row: int) -> dict[str, Any]:
        """Return the inputs of a transition by parameter, as numbers and lists."""
        given = t.inputs(self.names)
        return {one.parameter: given[one.name] if one.name == "gamma" else given[one.name][row].tolist() for one in self.inputs}

    def arrays(self, t: Batch, row: int | None = None) -> dict[str, Any]:
        """Return the inputs by name as arrays of the library; those of one transition if a row is given."""
        return {name: self._array(name, value, row) for name, value in t.inputs(self.names).items()}

    def _array(self, name: str, value: Any, row: int | None) -> Any:
        if name == "gamma":
            return value
        value = value if row is None else value[row]
        if self.layout == "columns" and name not in Q_INPUTS:
            value = value[:, None]
        flag = name == "returned" or (name in FLAGS and self.boolean_flags)
        return convert(value, "int64" if name == "a_tm1" else "bool" if flag else self.dtype, self.library)

    def call(self, arrays: dict[str, Any]) -> Any:
        """Call the function with inputs by name. Raise a FunctionError if it raises an exception."""
        positional = [arrays[one.name] for one in self.inputs if not one.keyword]
        named = {one.parameter: arrays[one.name] for one in self.inputs if one.keyword}
        try:
            with precision(self.library, self.dtype):
                return self.function(*positional, **named)
        except (Exception, SystemExit) as error:
            raise FunctionError(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}") from error

    def _read(self, raw: Any, n: int) -> Results:
        """Read what the function returned for n transitions."""
        name, remedy = name_of(self.function), "return the target alone, an array with a number for each transition"
        try:
            library, values, dtype = read(raw)
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(f"{name} returns {'None' if raw is None else f'a {type(raw).__name__}'}: {remedy}") from None
        if library != self.library and not self.other_library and library != "float":
            raise FunctionError(f"a result that is an array of {library}")
        shapes = {"single": [()], "batch": [(n,)], "columns": [(n, 1), (n,)]}[self.layout]
        if values.shape in shapes:
            return Results(values.reshape(n), dtype)
        if self.layout != "single" and values.shape in ((n, n), (n, 1)):
            return Results(values[:, 0], dtype, values)
        expected = "a number for one transition" if self.layout == "single" else f"{shapes[0]} for {n} transitions"
        raise ValueError(f"{name} returns an array of shape {values.shape} instead of {expected}: {remedy}")


def libraries(function: Callable[..., Any]) -> Iterator[Library]:
    """Yield the array libraries to try a function with: those that its code names, NumPy, and those that are imported.

    Examples
    --------
    >>> next(libraries(lambda q_t: q_t.max()))
    'numpy'
    """
    named = _named(function, set())
    order: list[Library] = [*named, "numpy", "torch", "jax"]
    for library in dict.fromkeys(order):
        # The function may have imported it when it was called.
        if library in (*named, "numpy") or library in sys.modules:
            yield library


def _named(function: Any, seen: set[int]) -> list[Library]:
    """The array libraries that the code of a function names, and that of functions that it calls."""
    while isinstance(function, partial):
        function = function.func
    function = inspect.unwrap(function)
    if not inspect.isroutine(function):
        function = getattr(function, "forward", None) or type(function).__call__
    if id(function) in seen:
        return []
    seen.add(id(function))
    try:
        variables = inspect.getclosurevars(function)
    except (TypeError, ValueError):
        return []
    found: list[Library] = []
    for value in (*variables.nonlocals.values(), *variables.globals.values()):
        root = (value.__name__ if isinstance(value, ModuleType) else str(getattr(value, "__module__", ""))).partition(".")[0]
        if root == "torch":
            found.append("torch")
        elif root in ("jax", "jaxlib"):
            found.append("jax")
        if inspect.isfunction(value):
            found += _named(value, seen)
    return found


def convert(value: Any, dtype: str, library: Library) -> Any:
    """Return a copy of numbers as an array of a library.

    Examples
    --------
    >>> convert([1, 2], "float32", "numpy")
    array([1., 2.], dtype=float32)
    """
    value = np.array(value, dtype=dtype)
    if library == "numpy":
        return value if value.ndim else value[()]
    try:
        importlib.import_module(library)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"library={library!r} needs {library}: {install(library)}", name=error.name) from error
    if library == "torch":
        import torch

        return torch.from_numpy(value) if value.ndim else torch.tensor(value[()])
    import jax.numpy as jnp

    with precision(library, dtype):
        return jnp.asarray(value)


def read(raw: Any) -> tuple[str, Any, str]:
    """Return the library of an array ("float" for plain numbers), its numbers in float64, and the name of its dtype.

    Examples
    --------
    >>> read(1.5)
    ('float', array(1.5), 'float64')
    """
    if isinstance(raw, (str, bytes, dict)):
        raise TypeError("these are no numbers")
    root = type(raw).__module__.partition(".")[0]
    if root == "torch":
        if raw.is_complex():
            raise TypeError("these are complex numbers")
        return "torch", raw.detach().cpu().double().numpy(), str(raw.dtype).rpartition(".")[2]
    values = np.asarray(raw)
    if values.dtype == object or np.iscomplexobj(values) or (values.ndim and isinstance(raw, (tuple, list))):
        raise TypeError("these are no numbers")
    library = {"jaxlib": "jax", "jax": "jax", "numpy": "numpy"}.get(root, "float")
    return library, values.astype(np.float64), "float64" if library == "float" else str(values.dtype)


@contextlib.contextmanager
def precision(library: Library, dtype: str) -> Iterator[None]:
    """A context in which constants have the precision of the inputs: JAX keeps float64, and it is the default of PyTorch.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> with precision("jax", "float64"):
    ...     jnp.ones(1).dtype
    dtype('float64')
    """
    if library == "numpy" or dtype != "float64":
        yield
    elif library == "torch":
        import torch

        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        try:
            yield
        finally:
            torch.set_default_dtype(before)
    else:
        import jax

        older = getattr(jax, "enable_x64", None) is None
        with importlib.import_module("jax.experimental").enable_x64() if older else jax.enable_x64(True):
            yield


def gradients_of(call: Call, t: Batch) -> dict[str, Any]:
    """Return the gradients of the sum of a function's results with respect to its values: by input, shape (n, A).

    No gradient flows where a result cannot be differentiated.

    Examples
    --------
    >>> import torch
    >>> from actiongap.api.transitions import catalogue
    >>> def function(q_t): return torch.amax(q_t, dim=-1)
    >>> found = gradients_of(Call(function, inputs_of(function), library="torch"), catalogue()[0])
    >>> found["q_t"].sum().item()
    49.0
    """
    names = [name for name in call.names if name in Q_INPUTS]
    differentiate = _torch_gradients if call.library == "torch" else _jax_gradients
    if call.layout != "single":
        return dict(zip(names, differentiate(call, call.arrays(t), names), strict=True))
    found = {name: np.zeros(t.q_t.shape) for name in names}
    for row in range(len(t.a_tm1)):
        for name, gradient in zip(names, differentiate(call, call.arrays(t, row), names), strict=True):
            found[name][row] = gradient
    return found


def _torch_gradients(call: Call, arrays: dict[str, Any], names: list[str]) -> list[Any]:
    import torch

    values = [arrays[name].requires_grad_() for name in names]
    zeros = [np.zeros(value.shape) for value in values]
    try:
        result = call.call(arrays)
        if not result.requires_grad:
            return zeros
        found = torch.autograd.grad(result.sum(), values, allow_unused=True)
    except (ValueError, RuntimeError, AttributeError):
        return zeros
    return [zero if gradient is None else gradient.numpy() for zero, gradient in zip(zeros, found, strict=True)]


def _jax_gradients(call: Call, arrays: dict[str, Any], names: list[str]) -> list[Any]:
    import jax

    def total(values: list[Any]) -> Any:
        return call.call(arrays | dict(zip(names, values, strict=True))).sum()

    values = [arrays[name] for name in names]
    try:
        # The backward pass in float64 needs the context, too.
        with precision(call.library, call.dtype):
            return [np.asarray(gradient) for gradient in jax.grad(total)(values)]
    except (ValueError, TypeError, AttributeError):
        return [np.zeros(value.shape) for value in values]
