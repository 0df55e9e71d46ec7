"""`sweep`, `report` and `reproduce`: experiments, and what came of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from actiongap.cli.common import Flag, StepProgress


def reproduce(
    what: Annotated[Positional[Literal["cake"]], arg(metavar="WHAT")] = "cake",
    scale: Literal["smoke", "laptop", "gpu", "paper"] = "laptop",
    out: Path = Path("out/cake"),
    json: Flag = False,
) -> int:
    """Regenerate a part of the paper, with its numbers beside ours.

    Args:
        what: cake, the two-state MDP of Figure 1.
        scale: How much of it: smoke takes seconds.
        out: The folder to write to.
        json: Print the results as one JSON object.
    """
    from rich.console import Console

    from actiongap.reproduce import cake

    with StepProgress(f"reproduce {what}") as progress:
        result = cake.run(scale, out, progress=progress)
    if json:
        print((out / "cake.json").read_text(encoding="utf-8"), end="")
    else:
        console = Console()
        console.print(cake.table(result))
        console.print(cake.noise_table(result))
        console.print(f"Wrote {', '.join(file.name for file in result.files)} to {out}", highlight=False)
    return 0
