"""Write `docs/api/reference.md`: every public name with its signature and its docstring, readable without building the site.

    python docs/making/reference.py

`tests/docs/test_reference.py` fails if the page is not what this program writes.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import actiongap

PAGE = Path(__file__).parents[1] / "api" / "reference.md"
INTRODUCTION = """# API reference

Every name of `import actiongap as ag`, with its signature and its docstring. The examples run in the tests. For the modules below, see
[the other pages](index.md).
"""
SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}\n", flags=re.MULTILINE)


def reference() -> str:
    """Return the page."""
    names = [name for name in actiongap.__all__ if not inspect.ismodule(getattr(actiongap, name))]
    modules = [name for name in actiongap.__all__ if name not in names]
    contents = " · ".join(f"[`{name}`](#ag.{name})" for name in names)
    others = [f"`ag.{name}` is the module `{getattr(actiongap, name).__name__}`.\n" for name in modules]
    return "\n".join([INTRODUCTION, f"{contents}\n", *others, *(line for name in names for line in entry(name, getattr(actiongap, name)))])


def entry(name: str, value: Any) -> Iterator[str]:
    """Yield the lines of a public name, and of what the objects of a class offer."""
    # Headings alone would give `Backup` and `backup` the same anchor.
    yield f'<a id="ag.{name}"></a>\n\n## {name}\n'
    yield f"```py\nag.{name}{signature(value)}\n```\n"
    yield from docstring(value)
    if inspect.isclass(value) and not issubclass(value, Exception):
        yield from fields(value)
        yield from members(value)


def fields(cls: type) -> Iterator[str]:
    """Yield the fields of a dataclass or named tuple, with the docstring after each."""
    if not (dataclasses.is_dataclass(cls) or hasattr(cls, "_fields")):
        return
    docs = field_docs(cls)
    if docs:
        yield "\n".join(["**Fields**\n", *(f"- `{name}`: {text}" for name, text in docs.items()), ""])


def field_docs(cls: type) -> dict[str, str]:
    """Return the docstring after each public field of a class, including inherited fields."""
    from actiongap.lab.experiment import field_docs as docs_of

    names = [field.name for field in dataclasses.fields(cls)] if dataclasses.is_dataclass(cls) else list(getattr(cls, "_fields", ()))
    docs = docs_of(cls)  # pyright: ignore[reportArgumentType]
    return {name: " ".join(docs.get(name, "").split()) for name in names if not name.startswith("_") and docs.get(name)}


def members(cls: type) -> Iterator[str]:
    """Yield the public methods and properties that a class of ours defines."""
    for owner in reversed([base for base in cls.__mro__ if base.__module__.startswith("actiongap")]):
        for name, member in vars(owner).items():
            if name.startswith("_") or not member.__doc__ or getattr(cls, name, None) is None:
                continue
            if isinstance(member, property):
                yield f"**{cls.__name__}.{name}**\n"
            elif isinstance(member, (classmethod, staticmethod)) or inspect.isfunction(member):
                yield f"**{cls.__name__}.{name}**`{signature(getattr(cls, name))}`\n"
            else:
                continue
            yield from docstring(member)


def signature(value: Callable[..., Any]) -> str:
    """Return the signature of a function or a class, without types, which the docstring explains."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    bare = [parameter.replace(annotation=parameter.empty) for name, parameter in found.parameters.items() if name != "self"]
    text = str(found.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    # Defaults that are objects have addresses in their text. A lambda has brackets in its name.
    return re.sub(r"<[^<>]+>", "...", text.replace("<lambda>", "lambda"))


def docstring(value: Any) -> Iterator[str]:
    """Yield a NumPy-style docstring as Markdown."""
    # Not `inspect.getdoc`, which takes the docstring of a method that this one replaces.
    text = inspect.cleandoc(value.__doc__ or "")
    first, *parts = SECTION.split(text)
    yield first.strip() + "\n"
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        if title == "Examples":
            yield f"```pycon\n{body.strip()}\n```\n"
        elif title in ("Parameters", "Returns", "Raises", "Attributes"):
            yield f"**{title}**\n"
            yield parameters(body) + "\n"
        else:
            yield f"**{title}**\n\n{body.strip()}\n"


def parameters(body: str) -> str:
    """Return the entries of a section as a list: each is a line, followed by indented text."""
    entries = re.split(r"^(?=\S)", body.strip(), flags=re.MULTILINE)
    found = [entry.partition("\n") for entry in entries if entry.strip()]
    return "\n".join(f"- `{name.strip()}`: {' '.join(text.split())}" if text.strip() else f"- {name.strip()}" for name, _, text in found)


if __name__ == "__main__":
    PAGE.write_text(reference())
