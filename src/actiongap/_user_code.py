"""Code of users: objects in their Python files, and objects that exist only in this process.

`path/to/file.py:name` names an object in a file. A name that the user types is loaded. A name that a file contains, such as the
configuration of a run or a policy, may come from someone else, and reading it must not run code: callers that read names from files call
`check_trusted` before they load anything.

A function without such a name, for example a lambda or a cell of a notebook, is registered under a text of its own, `name@digest`. The text
can be recorded, but only the process that registered the object can find it again.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from actiongap._files import one_line
from actiongap._suggest import did_you_mean

_REGISTERED: dict[str, Any] = {}
_LOADED = "actiongap_user_"
"""Prefix of the names of modules that are loaded from files."""
_FOLDERS: list[str] = []
"""Folders of users' files that were added to `sys.path`."""
_LIVE = re.compile(r"[^@/]+@[0-9a-f]{8}")


def register(name: str, digest: str, value: Any) -> str:
    """Register an object of this process and return its text, `name@digest`.

    Examples
    --------
    >>> register("half", "0123abcd", lambda b: b.bellman / 2)
    'half@0123abcd'
    """
    text = f"{name}@{digest[:8]}"
    _REGISTERED[text] = value
    return text


def registered(text: str) -> Any:
    """Return the object that was registered under a text, or raise ValueError if another process registered it.

    Examples
    --------
    >>> registered("half@ffffffff")
    Traceback (most recent call last):
    ValueError: half@ffffffff is an object of another Python process: pass the object itself, or put it into a file and name it file.py:name
    """
    if text not in _REGISTERED:
        raise ValueError(
            f"{text} is an object of another Python process: pass the object itself, or put it into a file and name it file.py:name"
        )
    return _REGISTERED[text]


def is_registered_text(text: Any) -> bool:
    """Whether a string has the form `name@digest` of registered objects.

    Examples
    --------
    >>> is_registered_text("half@0123abcd"), is_registered_text("al:0.5"), is_registered_text(3)
    (True, False, False)
    """
    return isinstance(text, str) and _LIVE.fullmatch(text) is not None


def from_file(path: str | Path, name: str) -> Any:
    """Load the function or class `name` from a Python file. Raises ValueError if that fails.

    The file may import modules beside it, and from the package that it is in.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "mine.py"
    >>> written = file.write_text("def half(b): return b.bellman / 2")
    >>> from_file(file, "half").__name__
    'half'
    """
    path = Path(path)
    if not os.path.isfile(path):
        raise ValueError(f"{path}: no such file; check the path in path/to/file.py:name")
    # A unique module name per file: dataclasses and docstrings look up their module by name.
    unique = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    folder, package = package_of(path)
    spec = importlib.util.spec_from_file_location(".".join([*package, f"{_LOADED}{path.stem}_{unique}"]), path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        with _importing_from(str(folder)):
            spec.loader.exec_module(module)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        reason = one_line(error)
        raise ValueError(f"{path}: the file cannot be loaded ({type(error).__name__}: {reason}); fix it and try again") from error
    found = getattr(module, name, None)
    if found is None:
        own = [key for key, value in vars(module).items() if _is_own(value, module.__name__)]
        near = did_you_mean(name, own)
        raise ValueError(f"{path} has no function {name!r}" + (f": {near}" if near else f"; it has {', '.join(own) or 'none'}"))
    return found


@contextlib.contextmanager
def _importing_from(folder: str) -> Iterator[None]:
    """Let imports find the modules of a folder. Those of `sys.path` come first, and those beside other files of users come last."""
    if folder not in map(os.path.realpath, sys.path):
        _FOLDERS.append(folder)
    others = [other for other in _FOLDERS if other != folder]
    if folder in _FOLDERS:
        sys.path[:] = [*module_path(), folder, *others]
    loaded = {name: (getattr(module, "__dict__", {}).get("__file__") or "") for name, module in sys.modules.items() if others}
    beside_others = tuple(os.path.join(other, "") for other in others)
    hidden = {
        name: sys.modules.pop(name)
        for name, file in loaded.items()
        if file.startswith(beside_others) and not file.startswith(os.path.join(folder, "")) and _LOADED not in name
    }
    try:
        yield
    finally:
        for name, module in hidden.items():
            sys.modules.setdefault(name, module)


def module_path() -> list[str]:
    """Return where this process finds modules: `sys.path` without the folders that `from_file` added.

    Examples
    --------
    >>> set(module_path()) <= set(sys.path)
    True
    """
    return [entry for entry in sys.path if entry not in _FOLDERS]


def package_of(path: Path) -> tuple[Path, list[str]]:
    """Return the folder from which Python imports a file, and the packages in it that hold the file.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp()).resolve()
    >>> (folder / "mine").mkdir()
    >>> (folder / "mine" / "__init__.py").touch()
    >>> package_of(folder / "mine" / "operators.py") == (folder, ["mine"])
    True
    """
    folder, package = path.resolve().parent, []
    while (folder / "__init__.py").is_file():
        package.insert(0, folder.name)
        folder = folder.parent
    return folder, package


def from_text(text: str) -> Any:
    """Load the function that `path/to/file.py:name` or `module:name` names. Raises ValueError if that fails.

    Examples
    --------
    >>> from_text("math:sqrt")(4.0)
    2.0
    """
    if own := split_own(text):
        return from_file(*own)
    name, _, attribute = text.strip().partition(":")
    if not (attribute and all(part.isidentifier() for part in name.split("."))):
        raise ValueError(f"{text!r} does not name a function: write path/to/file.py:name or module:name")
    try:
        module = importlib.import_module(name)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        reason = one_line(error)
        raise ValueError(f"the module {name} cannot be imported ({type(error).__name__}: {reason}); check PYTHONPATH") from error
    if not hasattr(module, attribute):
        raise ValueError(f"the module {name} has no {attribute!r}; check the name")
    return getattr(module, attribute)


def split_own(text: str) -> tuple[str, str] | None:
    """Return the file and the name in `path/to/file.py:name`; None for any other string.

    Examples
    --------
    >>> split_own("my/operators.py:half"), split_own("al:0.5")
    (('my/operators.py', 'half'), None)
    """
    path, _, name = text.strip().rpartition(":")
    return (path, name) if path.endswith(".py") else None


def names_code(text: Any) -> bool:
    """Whether a string names user code: `path/to/file.py:name`, or `gym/MODULE:ID`, which imports MODULE.

    Examples
    --------
    >>> names_code("my/operators.py:half"), names_code("gym/my_games:Maze-v0"), names_code("gym/CartPole-v1"), names_code("al:0.5")
    (True, True, False, False)
    """
    if not isinstance(text, str):
        return False
    return split_own(text) is not None or (text.strip().startswith("gym/") and ":" in text)


def check_trusted(values: Any, trust: bool) -> None:
    """Raise ValueError if values from an untrusted file name code, at any depth of nesting. Loads nothing.

    Examples
    --------
    >>> check_trusted({"env": "cake", "operator": ["al:0.5", "theirs.py:op"]}, trust=False)
    Traceback (most recent call last):
    ValueError: it names code to run, 'theirs.py:op': give --trust (in Python trust=True) if you trust its author
    """
    items = values.values() if isinstance(values, Mapping) else values if isinstance(values, (list, tuple)) else ()
    for value in items:
        check_trusted(value, trust)
    if not trust and names_code(values):
        raise ValueError(f"it names code to run, {values[:100]!r}: give --trust (in Python trust=True) if you trust its author")


def _is_own(value: Any, module: str) -> bool:
    return (inspect.isfunction(value) or inspect.isclass(value)) and value.__module__ == module
