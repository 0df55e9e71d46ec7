"""Things that users keep in Python files of their own, found by `path/to/file.py:name`."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import os
import sys
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


def _is_own(value: Any, module: str) -> bool:
    return (inspect.isfunction(value) or inspect.isclass(value)) and value.__module__ == module
