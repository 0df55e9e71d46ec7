"""The two problems of the page: the cake, and a garden of five by six fields.

A world is a finite MDP whose rewards are a function of gamma and epsilon. The function is plain arithmetic, so that the same one makes
`FiniteMDP`s here and, translated, rewards on the page.

The garden: each step costs epsilon, home pays 1 and a pond costs 1, and both end the walk. One step in five slips, half of those to each
side, and who would walk into a hedge stays. The smaller epsilon, and the nearer gamma is to 1, the less it matters which way one goes.

The page: our look, the translated operators and worlds, the rides, and what `assets/` makes of them, in one file.

`assets/mdp.js` iterates an operator on a small MDP, `assets/demo.js` draws, `assets/demo.html` tells the story.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from inspect import signature
from typing import Any

import numpy as np

from actiongap.demo.episodes import load_episodes
from actiongap.demo.javascript import translate, translate_function
from actiongap.mdp.generators import MOVES, cake, cake_rewards
from actiongap.mdp.model import FiniteMDP, Sparse
from actiongap.operators import FAMILY, backup
from actiongap.report.html import document

GARDEN = (
    ".....H",
    ".##.O.",
    "....#.",
    "#.O...",
    "...#..",
)
"""Fields `.`, hedges `#`, ponds `O` and home `H`."""
TERMINAL_REWARDS = {"H": 1.0, "O": -1.0}
"""What it pays to come to a field on which the walk ends."""
SLIP = 0.2


@dataclass(frozen=True, eq=False)
class ParametricMDP:
    """A finite MDP but for its discount and epsilon."""

    rewards: Callable[[Any, Any], list[list[Any]]]
    """R(x, a) as a function of gamma and epsilon."""
    successors: np.ndarray
    """(S, A, K)."""
    probabilities: np.ndarray
    """(S, A, K)."""

    def mdp(self, gamma: float, epsilon: float) -> FiniteMDP:
        """The MDP.

        Examples
        --------
        >>> cake_family().mdp(0.5, 1.0).rewards[1].tolist()
        [-4.0, -4.0]
        """
        return FiniteMDP.from_successors(self.rewards(gamma, epsilon), self.successors, self.probabilities, gamma)


def cake_family() -> ParametricMDP:
    """The paper's cake.

    Examples
    --------
    >>> cake_family().successors.shape
    (2, 2, 2)
    """
    transitions = cake().sparse().transitions
    assert isinstance(transitions, Sparse)
    return ParametricMDP(cake_rewards, *transitions)


def garden_family() -> ParametricMDP:
    """The garden: every place is a state, numbered row by row; hedges, ponds and home pay nothing and are never left.

    Examples
    --------
    >>> world = garden_family()
    >>> world.rewards(0.9, 0.5)[0], world.successors[0, 1].tolist()
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
    "bellman": ("Bellman", "What a step pays, and what the best action is worth from there on."),
    "consistent": ("consistent Bellman", "As Bellman\u2019s, but whoever comes back to where they were does the same thing again."),
    "al": ("advantage learning", "Bellman\u2019s value, less alpha times how far the action is behind the best."),
    "pal": ("persistent advantage learning", "As advantage learning, but never less than if the same action were taken next."),
    "pal-dqn": (
        "persistent, as trained with DQN",
        "Bellman\u2019s value, less alpha times the narrower of two gaps: here and in the next state.",
    ),
    "lazy": ("lazy", "Leaves a value alone while Bellman\u2019s rule would raise it by no more than alpha times its gap."),
    "baird": ("Baird\u2019s, K = 1 \u2212 alpha", "Stretches the distance to the best value by 1 / K. It may never settle."),
}
"""What the operators of the family are called on the page, and what they do."""


def render_demo() -> str:
    """The demonstration as one HTML file.

    Examples
    --------
    >>> page = render_demo()
    >>> "b.bellman - alpha * b.gap" in page, len(page) < 500_000
    (True, True)
    """
    options = "".join(f'<option value="{name}">{html.escape(OPERATOR_TEXTS[name][0])}</option>' for name in FAMILY)
    body = _asset("demo.html").replace("<!-- operators -->", options).replace("<!-- rides -->", _rides())
    return document(TITLE, body, style=_asset("demo.css"), script="\n".join([translated(), _asset("mdp.js"), _asset("demo.js")]))


def translated() -> str:
    """What the page computes with, as JavaScript that nobody wrote: `backup`, the operators and the worlds.

    Examples
    --------
    >>> "lazy" in translated()
    True
    """
    operators = []
    for name, make in FAMILY.items():
        # Any numbers will do: they become arguments.
        required = [0.5 for parameter in signature(make).parameters.values() if parameter.default is parameter.empty]
        found = translate(make(*required))
        fields = {
            "name": OPERATOR_TEXTS[name][0],
            "words": OPERATOR_TEXTS[name][1],
            "numbers": list(found.numbers),
            "formula": found.formula,
        }
        operators.append(f"  {json.dumps(name)}: {{ ...{json.dumps(fields)}, apply: {found.function} }},")
    worlds = {"cake": cake_family(), "garden": garden_family()}
    lines = [
        "// Translated from actiongap.operators and actiongap.demo.page by actiongap.demo.javascript.",
        f"const backup = {translate_function(backup)};",
        "const FAMILY = {",
        *operators,
        "};",
        "const WORLDS = {",
        *(f"  {name}: {_world(world)}," for name, world in worlds.items()),
        "};",
        f"const GARDEN = {json.dumps(GARDEN)};",
    ]
    return "\n".join(lines)


def _world(world: ParametricMDP) -> str:
    tables = {"successors": world.successors.tolist(), "probabilities": world.probabilities.round(12).tolist()}
    return f"{{ ...{json.dumps(tables, separators=(',', ':'))}, rewards: {translate_function(world.rewards)} }}"


def _rides() -> str:
    # What stands in a script element must not end it.
    text = json.dumps(load_episodes(), separators=(",", ":"))
    assert "<" not in text
    return f'<script type="application/json" id="rides">{text}</script>'


def _asset(name: str) -> str:
    return (resources.files("actiongap.demo") / "assets" / name).read_text(encoding="utf-8")
