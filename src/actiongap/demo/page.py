"""The page: our look, the translated operators and worlds, the rides, and what `assets/` makes of them, in one file.

`assets/mdp.js` iterates an operator on a small MDP, `assets/demo.js` draws, `assets/demo.html` tells the story.
"""

from __future__ import annotations

import html
import json
from importlib import resources
from inspect import signature

from actiongap.demo.javascript import translate, translate_function
from actiongap.demo.rides import load_rides
from actiongap.demo.worlds import GARDEN, World, cake_world, garden_world
from actiongap.operators import FAMILY, backup
from actiongap.report.html import document

TITLE = "The action gap, by hand"
WORDS = {
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
    options = "".join(f'<option value="{name}">{html.escape(WORDS[name][0])}</option>' for name in FAMILY)
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
        fields = {"name": WORDS[name][0], "words": WORDS[name][1], "numbers": list(found.numbers), "formula": found.formula}
        operators.append(f"  {json.dumps(name)}: {{ ...{json.dumps(fields)}, apply: {found.function} }},")
    worlds = {"cake": cake_world(), "garden": garden_world()}
    lines = [
        "// Translated from actiongap.operators and actiongap.demo.worlds by actiongap.demo.javascript.",
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


def _world(world: World) -> str:
    tables = {"successors": world.successors.tolist(), "probabilities": world.probabilities.round(12).tolist()}
    return f"{{ ...{json.dumps(tables, separators=(',', ':'))}, rewards: {translate_function(world.rewards)} }}"


def _rides() -> str:
    # What stands in a script element must not end it.
    text = json.dumps(load_rides(), separators=(",", ":"))
    assert "<" not in text
    return f'<script type="application/json" id="rides">{text}</script>'


def _asset(name: str) -> str:
    return (resources.files("actiongap.demo") / "assets" / name).read_text(encoding="utf-8")
