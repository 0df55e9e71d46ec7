"""Write `examples/tutorial.ipynb`, the tutorial for Jupyter, from the marimo notebook `examples/tutorial.py`.

    python docs/making/notebook.py

A cell of text becomes a Markdown cell, any other cell the code of its function. `tests/docs/test_tutorial.py` fails if the notebook is not
what this program writes.
"""

from __future__ import annotations

import ast
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"
SOURCE, NOTEBOOK = EXAMPLES / "tutorial.py", EXAMPLES / "tutorial.ipynb"


def notebook(source: str) -> dict[str, Any]:
    """Return the notebook as plain values."""
    cells = [
        {"id": f"cell-{number}", "cell_type": kind, "metadata": {}, "source": text.splitlines(keepends=True)}
        | ({"execution_count": None, "outputs": []} if kind == "code" else {})
        for number, (kind, text) in enumerate(contents(source))
    ]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}


def contents(source: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and the text of each cell: `markdown` or `code`."""
    for cell in ast.parse(source).body:
        if not isinstance(cell, ast.FunctionDef):
            continue
        match cell.body[0]:
            case ast.Expr(ast.Call(ast.Attribute(ast.Name("mo"), "md"), [ast.Constant(str(text))])):
                yield "markdown", textwrap.dedent(text).strip()
            case _:
                yield "code", code(source, cell)


def code(source: str, cell: ast.FunctionDef) -> str:
    """Return the code of a cell, without its return and without marimo."""
    body = [part for part in cell.body if not isinstance(part, ast.Return)]
    lines = source.splitlines()[body[0].lineno - 1 : body[-1].end_lineno]
    return textwrap.dedent("\n".join(line for line in lines if line.strip() != "import marimo as mo"))


def text() -> str:
    """Return the file as it is written."""
    return json.dumps(notebook(SOURCE.read_text(encoding="utf-8")), indent=1) + "\n"


if __name__ == "__main__":
    NOTEBOOK.write_text(text(), encoding="utf-8")
