"""Things that users keep in Python files of their own, found by `path/to/file.py:name`.

Whoever types such a text chose the code. Where a file says it, a run's configuration or a policy, nobody did: files come from other people,
and reading them must not run what they name. So everything that reads a text from a file calls `check_trusted` before it loads anything.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def from_file(path: str | Path, name: str) -> Any:
    """The function or class `name` of a Python file, or one sentence about why there is none.

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
        raise ValueError(f"{path}: no such file in this folder; give what is your own as path/to/file.py:name")
    # One name for one file; dataclasses and docstrings look their module up by it.
    unique = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    spec = importlib.util.spec_from_file_location(f"actiongap_user_{path.stem}_{unique}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path}: the file cannot be loaded ({type(error).__name__}: {reason}); mend it and try again") from error
    found = getattr(module, name, None)
    if found is None:
        own = [key for key, value in vars(module).items() if _is_own(value, module.__name__)]
        raise ValueError(f"{path} has no function {name!r}; it has {', '.join(own) or 'none'}")
    return found


def split_own(text: str) -> tuple[str, str] | None:
    """The file and the name in `path/to/file.py:name`; None for any other text.

    Examples
    --------
    >>> split_own("my/operators.py:half"), split_own("al:0.5")
    (('my/operators.py', 'half'), None)
    """
    path, _, name = text.strip().rpartition(":")
    return (path, name) if path.endswith(".py") else None


def names_code(text: Any) -> bool:
    """Whether loading what a text names runs Python that is not ours: `path/to/file.py:name`, or `gym/MODULE:ID`, which imports MODULE.

    Examples
    --------
    >>> names_code("my/operators.py:half"), names_code("gym/my_games:Maze-v0"), names_code("gym/CartPole-v1"), names_code("al:0.5")
    (True, True, False, False)
    """
    if not isinstance(text, str):
        return False
    return split_own(text) is not None or (text.strip().startswith("gym/") and ":" in text)


def check_trusted(values: Any, trust: bool) -> None:
    """Refuse values of a file, however nested, that name code, unless the file is trusted. Nothing is loaded.

    Examples
    --------
    >>> check_trusted({"problem": "cake", "operator": ["al:0.5", "theirs.py:op"]}, trust=False)
    Traceback (most recent call last):
    ValueError: it names code to run, 'theirs.py:op': give --trust (in Python trust=True) if you trust whoever wrote it
    """
    inside = values.values() if isinstance(values, Mapping) else values if isinstance(values, (list, tuple)) else ()
    for value in inside:
        check_trusted(value, trust)
    if not trust and names_code(values):
        raise ValueError(f"it names code to run, {values[:100]!r}: give --trust (in Python trust=True) if you trust whoever wrote it")


def _is_own(value: Any, module: str) -> bool:
    return (inspect.isfunction(value) or inspect.isclass(value)) and value.__module__ == module
