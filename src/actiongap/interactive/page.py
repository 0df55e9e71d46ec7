"""The demo page: translated operators, two MDPs, recorded bicycle episodes and their drawing, in one HTML file.

The two MDPs are the cake and a garden, a gridworld of five by six cells. Their rewards are functions of gamma and epsilon in plain
arithmetic, used for `FiniteMDP`s here and translated to JavaScript for the page.

In the garden, each step costs epsilon. Reaching home has a reward of 1 and falling into a pond -1; both are terminal. One step in five
slips, half of those to each side, and moving into a hedge has no effect. The smaller epsilon and the larger gamma, the smaller the action
gaps.

`assets/mdp.js` iterates an operator on a small MDP, `assets/demo.js` draws, and `assets/demo.html` is the text.
"""

from __future__ import annotations

import contextlib
import html
import json
import os
import sys
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np

from actiongap._files import as_path, write_text
from actiongap._suggest import with_suggestions
from actiongap.interactive.episodes import load_episodes
from actiongap.interactive.javascript import translate, translate_function
from actiongap.mdp.generators import MOVES, cake, cake_rewards
from actiongap.mdp.model import FiniteMDP, Sparse
from actiongap.operators import FAMILY, backup
from actiongap.reporting.html import check_page, document

GARDEN = (
    ".....H",
    ".##.O.",
    "....#.",
    "#.O...",
    "...#..",
)
"""Cells: free `.`, hedge `#`, pond `O` and home `H`."""
TERMINAL_REWARDS = {"H": 1.0, "O": -1.0}
"""Rewards of reaching the terminal cells."""
SLIP = 0.2


@dataclass(frozen=True, eq=False)
class ParametricMDP:
    """A finite MDP with rewards that depend on gamma and epsilon."""

    rewards: Callable[[Any, Any], list[list[Any]]]
    """R(x, a) as a function of gamma and epsilon."""
    successors: np.ndarray
    """(S, A, K)."""
    probabilities: np.ndarray
    """(S, A, K)."""

    def mdp(self, gamma: float, epsilon: float) -> FiniteMDP:
        """Return the MDP for a discount and an epsilon.

        Examples
        --------
        >>> cake_family().mdp(0.5, 1.0).rewards[1].tolist()
        [-4.0, -4.0]
        """
        return FiniteMDP.from_successors(self.rewards(gamma, epsilon), self.successors, self.probabilities, gamma)


def cake_family() -> ParametricMDP:
    """Return the paper's cake MDP for all gamma and epsilon.

    Examples
    --------
    >>> cake_family().successors.shape
    (2, 2, 2)
    """
    transitions = cake().sparse().transitions
    assert isinstance(transitions, Sparse)
    return ParametricMDP(cake_rewards, *transitions)


def garden_family() -> ParametricMDP:
    """Return the garden MDP: cells are states, numbered row by row. Hedges, ponds and home are absorbing, with reward 0.

    Examples
    --------
    >>> garden = garden_family()
    >>> garden.rewards(0.9, 0.5)[0], garden.successors[0, 1].tolist()
    ([-0.5, -0.5, -0.5, -0.5], [1, 6, 0])
    """
    rows, columns = len(GARDEN), len(GARDEN[0])
    signs = np.array([list(row) for row in GARDEN])
    ends = signs != "."
    successors = np.empty((rows * columns, 4, 3), int)
    for x in range(rows * columns):
        here = divmod(x, columns)
        reached = [here if ends[here] else _moved(signs, here, move) for move in MOVES]
        for a in range(4):
            successors[x, a] = [reached[turn % 4][0] * columns + reached[turn % 4][1] for turn in (a, a + 1, a - 1)]
    probabilities = np.broadcast_to([1 - SLIP, SLIP / 2, SLIP / 2], successors.shape)
    paid = np.vectorize(lambda sign: TERMINAL_REWARDS.get(sign, 0.0))(signs.ravel())
    prizes = (probabilities * paid[successors]).sum(-1).round(12)

    def rewards(gamma: Any, epsilon: Any) -> list[list[Any]]:
        return [[0.0 if ended else float(prize) - epsilon for prize in prizes[x]] for x, ended in enumerate(ends.ravel())]

    return ParametricMDP(rewards, successors, probabilities)


def _moved(signs: np.ndarray, here: tuple[int, int], move: tuple[int, int]) -> tuple[int, int]:
    row, column = here[0] + move[0], here[1] + move[1]
    inside = 0 <= row < signs.shape[0] and 0 <= column < signs.shape[1]
    return (row, column) if inside and signs[row, column] != "#" else here


TITLE = "The action gap, by hand"
OPERATOR_TEXTS = {
    "bellman": ("Bellman", "The reward plus the discounted value of the best next action."),
    "consistent": ("consistent Bellman", "As Bellman\u2019s, but if the state does not change, the same action is repeated."),
    "al": ("advantage learning", "Bellman\u2019s value minus alpha times the action\u2019s distance from the best."),
    "pal": ("persistent advantage learning", "As advantage learning, but at least the value of repeating the action."),
    "pal-dqn": (
        "persistent, as trained with DQN",
        "Bellman\u2019s value minus alpha times the smaller of two gaps: in this state and in the next.",
    ),
    "lazy": ("lazy", "Keeps a value if Bellman\u2019s operator would raise it by at most alpha times its gap."),
    "baird": ("Baird\u2019s, K = 1 \u2212 alpha", "Multiplies the distance from the best value by 1 / K. It may not converge."),
}
"""Name and description of each operator on the page."""


@dataclass(frozen=True, repr=False)
class Demo:
    """What `demo` did."""

    page: Path
    """The page."""
    opened: bool
    """Whether a browser shows it."""

    def __repr__(self) -> str:
        return f"Wrote {self.page}{' and opened it in your browser.' if self.opened else '. Open it in a browser.'}"


@with_suggestions
def demo(out: str | Path = "demo.html", *, open: bool = True) -> Demo:
    """Write an interactive page: vary the parameters of each operator, and see action gaps, greedy policies and bicycles.

    Parameters
    ----------
    out
        HTML file to write; it works offline.
    open
        Whether to open the page in a graphical browser, if there is one.

    Examples
    --------
    >>> import tempfile
    >>> demo(Path(tempfile.mkdtemp()) / "demo.html", open=False).page.name
    'demo.html'
    """
    out = as_path(out, "out")
    if out.suffix != ".html" or not os.path.isdir(out.parent):
        raise ValueError(f"{out}: it must be a .html file in an existing folder")
    check_page(out)
    write_text(out, render_demo())
    return Demo(out, open and _open_browser(out.resolve().as_uri()))


def _open_browser(address: str) -> bool:
    """Open an address in a graphical browser and return whether that worked. Text browsers are not used."""
    has_screen = sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    with contextlib.suppress(Exception):
        return has_screen and webbrowser.open(address)
    return False


def render_demo() -> str:
    """Return the demo page as one HTML file.

    Examples
    --------
    >>> page = render_demo()
    >>> "b.bellman - alpha * b.gap" in page, len(page) < 500_000
    (True, True)
    """
    options = "".join(f'<option value="{name}">{html.escape(OPERATOR_TEXTS[name][0])}</option>' for name in FAMILY)
    body = _asset("demo.html").replace("<!-- operators -->", options).replace("<!-- episodes -->", _episodes_element())
    return document(TITLE, body, style=_asset("demo.css"), script="\n".join([translated_script(), _asset("mdp.js"), _asset("demo.js")]))


def translated_script() -> str:
    """Return `backup`, the operators and the MDPs, translated to JavaScript.

    Examples
    --------
    >>> "lazy" in translated_script()
    True
    """
    operators = []
    for name, make in FAMILY.items():
        # The values do not matter: parameters become arguments.
        required = [0.5 for parameter in signature(make).parameters.values() if parameter.default is parameter.empty]
        found = translate(make(*required))
        fields = {
            "name": OPERATOR_TEXTS[name][0],
            "words": OPERATOR_TEXTS[name][1],
            "numbers": list(found.numbers),
            "formula": found.formula,
        }
        operators.append(f"  {json.dumps(name)}: {{ ...{json.dumps(fields)}, apply: {found.function} }},")
    mdps = {"cake": cake_family(), "garden": garden_family()}
    lines = [
        "// Translated from actiongap.operators and actiongap.interactive.page by actiongap.interactive.javascript.",
        f"const backup = {translate_function(backup)};",
        "const FAMILY = {",
        *operators,
        "};",
        "const MDPS = {",
        *(f"  {name}: {_mdp_script(mdp)}," for name, mdp in mdps.items()),
        "};",
        f"const GARDEN = {json.dumps(GARDEN)};",
    ]
    return "\n".join(lines)


def _mdp_script(mdp: ParametricMDP) -> str:
    tables = {"successors": mdp.successors.tolist(), "probabilities": mdp.probabilities.round(12).tolist()}
    return f"{{ ...{json.dumps(tables, separators=(',', ':'))}, rewards: {translate_function(mdp.rewards)} }}"


def _episodes_element() -> str:
    # The text of a script element must not contain a closing tag.
    text = json.dumps(load_episodes(), separators=(",", ":"))
    assert "<" not in text
    return f'<script type="application/json" id="episodes">{text}</script>'


def _asset(name: str) -> str:
    return (resources.files("actiongap.interactive") / "assets" / name).read_text(encoding="utf-8")
