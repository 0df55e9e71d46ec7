"""What a user's code is: the digest changes with everything that may change numbers, and with little else."""

from __future__ import annotations

import functools
import importlib.machinery
import os
import re
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

from actiongap._user_code import from_file
from actiongap.lab.source import object_digest, source_digest, source_digests, text_of
from actiongap.operators import Operator, advantage

MINE = """\
\"\"\"My operators.\"\"\"
import functools
import math

import numpy as np
import helper
from helper import clip as limit

ALPHA = 0.5
SHARES = {"gap": 0.5}


class Base:
    share = 0.25


class Mine(Base):
    def __call__(self, b):
        return self.share * b.gap


def doubled(function):
    return lambda b: 2 * function(b)


def scaled(b):
    \"\"\"Scale the gap.\"\"\"
    return ALPHA * b.gap


@doubled
def half(b, *, least=math.pi * 0, most=SHARES["gap"]):
    \"\"\"Half of it.\"\"\"
    # A comment.
    return limit(b.bellman - scaled(b) - Mine()(b) + helper.tables.ROWS, least, most)


def unrelated(b):
    return b.v
"""
HELPER = """\
import tables
from more import beyond

LOW = 0.0


def clip(x, least, most):
    return beyond(min(max(x, LOW, least), most))


def other(x):
    return x
"""
MORE = "FAR = 1.0\n\n\ndef beyond(x):\n    return FAR * x\n\n\ndef unrelated(x):\n    return x\n"
TABLES = "ROWS = 3\nCOLUMNS = 4\n"
FILES = {"mine.py": MINE, "helper.py": HELPER, "more.py": MORE, "tables.py": TABLES}


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write files, and return the first."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / next(iter(files))


def digest(folder: Path, text: str, name: str = "half", **helpers: str) -> str:
    """The digest of a name of a file, beside helper modules."""
    return source_digest(write(folder, {"mine.py": text} | {f"{helper}.py": source for helper, source in helpers.items()}), name)


UNCHANGED = {
    "a function is added": ("mine.py", "def unrelated", "def added(b):\n    return b.q\n\n\ndef unrelated"),
    "a class is added": ("mine.py", "def unrelated", "class Added(Base):\n    share = 3.0\n\n\ndef unrelated"),
    "a constant is added": ("mine.py", "ALPHA = 0.5", "BETA = 0.25\nALPHA = 0.5"),
    "another function changes": ("mine.py", "return b.v", "return b.v + 1"),
    "another function is decorated": ("mine.py", "def unrelated", "@functools.cache\ndef unrelated"),
    "another function calls it": ("mine.py", "return b.v", "return half(b)"),
    "another function has a name of an argument": ("mine.py", "def unrelated", "def b(x):\n    return x\n\n\ndef unrelated"),
    "an import is added": ("mine.py", "import math", "import json\nimport math, random"),
    "a comment changes": ("mine.py", "# A comment.", "# Another comment, which is longer."),
    "a docstring changes": ("mine.py", "Half of it.", "Half of all."),
    "a docstring is removed": ("mine.py", '    """Scale the gap."""\n', ""),
    "the docstring of the file changes": ("mine.py", "My operators.", "Mine."),
    "parentheses are added": ("mine.py", "ALPHA * b.gap", "(ALPHA * b.gap)"),
    "a line is broken": ("mine.py", "ALPHA * b.gap", "(\n        ALPHA\n        * b.gap\n    )"),
    "quotes change": ("mine.py", '"gap"', "'gap'"),
    "lines move down": ("mine.py", "class Base", "\n\n\nclass Base"),
    "a function moves up": ("mine.py", MINE[MINE.index("def scaled") : MINE.index("@doubled")], ""),
    "the main program is added": ("mine.py", "def unrelated", 'if __name__ == "__main__":\n    print(half)\n\n\ndef unrelated'),
    "an import for type checkers": ("mine.py", "def unrelated", "if TYPE_CHECKING:\n    from other import Thing\n\n\ndef unrelated"),
    "another function of a helper": ("helper.py", "return x\n", "return x + 1\n"),
    "a comment in a helper": ("helper.py", "LOW = 0.0", "LOW = 0.0  # the lowest"),
    "another constant of a helper": ("tables.py", "COLUMNS = 4", "COLUMNS = 5"),
    "another function of a helper's helper": ("more.py", "return x\n", "return x + 1\n"),
}
CHANGED = {
    "its code": ("mine.py", "limit(b.bellman", "limit(b.again"),
    "a constant": ("mine.py", "ALPHA = 0.5", "ALPHA = 0.75"),
    "the type of a constant": ("mine.py", "ALPHA = 0.5", "ALPHA = 1"),
    "an item of a constant": ("mine.py", '{"gap": 0.5}', '{"gap": 0.25}'),
    "a default": ("mine.py", "math.pi * 0", "math.pi * 1"),
    "the name of an argument": ("mine.py", "*, least=", "least="),
    "its decorator is gone": ("mine.py", "@doubled\n", ""),
    "the code of its decorator": ("mine.py", "2 * function(b)", "3 * function(b)"),
    "a function that it calls": ("mine.py", "return ALPHA * b.gap", "return ALPHA + b.gap"),
    "a class": ("mine.py", "self.share * b.gap", "self.share + b.gap"),
    "a base class": ("mine.py", "share = 0.25", "share = 0.5"),
    "the base class is gone": ("mine.py", "Mine(Base)", "Mine"),
    "an import": ("mine.py", "clip as limit", "other as limit"),
    "a constant is bound twice": ("mine.py", "def unrelated", "ALPHA = 3.0\n\n\ndef unrelated"),
    "a constant is changed in place": ("mine.py", "def unrelated", 'SHARES["gap"] = 1.0\n\n\ndef unrelated'),
    "a table is updated": ("mine.py", "def unrelated", "SHARES.update(gap=1.0)\n\n\ndef unrelated"),
    "a table is updated elsewhere": ("mine.py", "def unrelated", "_ = SHARES.update(gap=1.0)\n\n\ndef unrelated"),
    "a loop changes a table": ("mine.py", "def unrelated", "for name in SHARES:\n    SHARES[name] = 1.0\n\n\ndef unrelated"),
    "an augmented assignment": ("mine.py", "def unrelated", "ALPHA += 1\n\n\ndef unrelated"),
    "a conditional definition": ("mine.py", "def unrelated", "if math.pi > 3:\n    def scaled(b):\n        return 0\n\n\ndef unrelated"),
    "a function that sets a global": (
        "mine.py",
        "def unrelated",
        "def change():\n    global ALPHA\n    ALPHA = 2\n\n\nchange()\n\n\ndef unrelated",
    ),
    "a class attribute is set by a call": (
        "mine.py",
        "def unrelated",
        "def change():\n    Base.share = 2\n    return 1\n\n\nONE = change()\n\n\ndef unrelated",
    ),
    "a call when the file is loaded": ("mine.py", "def unrelated", "np.seterr(all='raise')\n\n\ndef unrelated"),
    "a helper": ("helper.py", "min(max(", "max(max("),
    "a constant of a helper": ("helper.py", "LOW = 0.0", "LOW = 0.5"),
    "a helper's helper": ("more.py", "FAR * x", "FAR + x"),
    "a constant of a helper's helper": ("more.py", "FAR = 1.0", "FAR = 2.0"),
    "a constant of a helper's module": ("tables.py", "ROWS = 3", "ROWS = 4"),
    "a helper acts when it is loaded": ("tables.py", "ROWS = 3", "print('loaded')\nROWS = 3"),
}


@pytest.mark.parametrize("case", UNCHANGED)
def test_the_digest_is_the_same(tmp_path, case):
    name, before, after = UNCHANGED[case]
    assert before in FILES[name]
    changed = FILES[name].replace(before, after)
    if "moves up" in case:
        changed = changed.replace("class Base", f"{before}class Base")
    assert source_digest(write(tmp_path, FILES), "half") == source_digest(write(tmp_path, FILES | {name: changed}), "half")


@pytest.mark.parametrize("case", CHANGED)
def test_the_digest_is_another(tmp_path, case):
    name, before, after = CHANGED[case]
    assert before in FILES[name]
    changed = FILES[name].replace(before, after)
    assert source_digest(write(tmp_path, FILES), "half") != source_digest(write(tmp_path, FILES | {name: changed}), "half")


REGISTRY = """\
{imports}
TABLE = {{}}

def register(function):
    TABLE[function.__name__] = function
    return function

{decorator}
def scaled(b):
    return {number} * b.gap

def half(b):
    return TABLE["scaled"](b)
"""


def test_a_function_that_a_decorator_registers_counts(tmp_path):
    one, two = (REGISTRY.format(imports="", decorator="@register", number=number) for number in (1, 2))
    assert digest(tmp_path, one) != digest(tmp_path, two)
    one, two = (REGISTRY.format(imports="", decorator="", number=number) for number in (1, 2))
    assert digest(tmp_path, one) == digest(tmp_path, two)


def test_implementations_of_a_generic_function_count(tmp_path):
    text = "import functools\n@functools.singledispatch\ndef half(b): return 1\n@half.register(int)\ndef _(b): return {}\n"
    assert digest(tmp_path, text.format(2)) != digest(tmp_path, text.format(3))


def test_operators_made_by_one_function_are_told_apart(tmp_path):
    text = "def make(alpha):\n    def apply(b): return alpha * b.gap\n    return apply\n\nhalf = make(0.5)\n"
    before = digest(tmp_path, text)
    assert digest(tmp_path, text + "other = make(0.25)\n") == before
    assert digest(tmp_path, text.replace("0.5", "0.75")) != before
    assert digest(tmp_path, text.replace("alpha * b", "alpha + b")) != before


# Files of which all counts


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("from helper import *\ndef half(b): return clip(b)\n", "a star import"),
        ("def half(b): return eval('scaled(b)')\n", "eval"),
        ("def half(b):\n    exec('x = 3')\n", "exec"),
        ("for name in 'ab':\n    globals()[name] = 3\ndef half(b): return a\n", "globals"),
        ("import importlib\ndef half(b): return importlib.import_module('hel' + 'per').clip(b)\n", "import_module"),
        ("import sys\ndef half(b): return getattr(sys.modules[__name__], 'scaled')(b)\n", "sys.modules"),
        ("def half(b): return nowhere(b)\n", "nowhere, which it does not define"),
    ],
)
def test_all_of_a_file_counts_if_it_cannot_be_decided(tmp_path, text, reason):
    helper = "def clip(b): return b.v\n"
    before = digest(tmp_path, text, helper=helper)
    assert reason in source_digests(tmp_path / "mine.py", "half")[""]
    assert digest(tmp_path, text + "def added(b): return 3\n", helper=helper) != before
    assert digest(tmp_path, text + "# a comment\n", helper=helper) == before


def test_a_module_that_is_passed_on_counts_in_full(tmp_path):
    text = "import helper\ndef half(b): return getattr(helper, b.name)(b)\n"
    one, two = "def clip(b): return b\n", "def clip(b): return b.v\n"
    assert digest(tmp_path, text, helper=one) != digest(tmp_path, text, helper=two)


def test_a_module_imported_by_a_string_counts(tmp_path):
    text = "import importlib\ndef half(b): return importlib.import_module('helper').clip(b)\n"
    assert digest(tmp_path, text, helper="def clip(b): return b\n") != digest(tmp_path, text, helper="def clip(b): return b.v\n")


def test_methods_called_eval_are_not_eval(tmp_path):
    digest(tmp_path, "def half(b): return b.model.eval() + b.eval()\n")
    assert "because" not in source_digests(tmp_path / "mine.py", "half")[""]


# Imports


@pytest.mark.parametrize(
    "text",
    [
        "def half(b):\n    import helper\n    return helper.clip(b)\n",
        "def half(b):\n    from helper import clip\n    return clip(b)\n",
        "import helper as h\ndef half(b): return h.clip(b)\n",
        "import helper\ntools = helper\ndef half(b): return tools.clip(b)\n",
        "try:\n    import helper\nexcept ImportError:\n    helper = None\ndef half(b): return helper.clip(b)\n",
        "from helper import clip\nclass half:\n    def __call__(self, b): return clip(b)\n",
        "from helper import clip\nhalf = lambda b: clip(b)\n",
        "from helper import clip\ndef half(b, by=clip): return by(b)\n",
    ],
)
def test_every_form_of_import_is_followed(tmp_path, text):
    before = digest(tmp_path, text, helper="def clip(b): return b\n")
    assert digest(tmp_path, text, helper="def clip(b): return b.v\n") != before


@pytest.mark.parametrize(
    "text",
    [
        "import tools.near\ndef half(b): return tools.near.clip(b)\n",
        "import tools.near as near\ndef half(b): return near.clip(b)\n",
        "import tools.near as tools\ndef half(b): return tools.clip(b)\n",
        "from tools import near\ndef half(b): return near.clip(b)\n",
        "from tools.near import clip\ndef half(b): return clip(b)\n",
    ],
)
@pytest.mark.parametrize("marked", [True, False], ids=["package", "namespace"])
def test_packages_are_followed(tmp_path, text, marked):
    files = {"mine.py": text, "tools/near.py": "from .far import clip\ndef other(b): return 3\n", "tools/far.py": "def clip(b): return b\n"}
    if marked:
        files["tools/__init__.py"] = ""
    before = source_digest(write(tmp_path, files), "half")
    assert source_digest(write(tmp_path, files | {"tools/far.py": "def clip(b): return b\ndef more(b): return 3\n"}), "half") == before
    assert source_digest(write(tmp_path, files | {"tools/far.py": "def clip(b): return b.v\n"}), "half") != before
    if marked:
        assert source_digest(write(tmp_path, files | {"tools/__init__.py": "print('loaded')\n"}), "half") != before


def test_a_file_of_a_package_finds_its_relative_imports(tmp_path):
    files = {"pkg/sub/mine.py": "from ..far import clip\ndef half(b): return clip(b)\n", "pkg/far.py": "def clip(b): return b\n"}
    files |= {"pkg/__init__.py": "", "pkg/sub/__init__.py": ""}
    before = source_digest(write(tmp_path, files), "half")
    assert source_digest(write(tmp_path, files | {"pkg/far.py": "def clip(b): return b.v\n"}), "half") != before


def test_modules_on_the_path_are_followed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    write(tmp_path / "elsewhere", {"my_helper.py": "def clip(b): return b\n"})
    text = "from my_helper import clip\ndef half(b): return clip(b)\n"
    before = digest(tmp_path, text)
    write(tmp_path / "elsewhere", {"my_helper.py": "def clip(b): return b.v\n"})
    assert digest(tmp_path, text) != before


def test_installed_packages_and_actiongap_do_not_count(tmp_path):
    text = (
        "import numpy as np\nfrom actiongap import maths\nfrom scipy import sparse\ndef half(b): return np.abs(maths.sqrt(sparse.eye(b)))\n"
    )
    digest(tmp_path, text)
    assert list(source_digests(tmp_path / "mine.py", "half")) == [""]


def test_a_helper_that_appears_is_noticed(tmp_path):
    text = "try:\n    from my_tuned import clip\nexcept ImportError:\n    clip = None\ndef half(b): return clip\n"
    assert digest(tmp_path, text) != digest(tmp_path, text, my_tuned="def clip(b): return b\n")


def test_compiled_modules_count_by_their_bytes(tmp_path):
    text = "import fast\ndef half(b): return fast.clip(b)\n"
    compiled = tmp_path / f"fast{importlib.machinery.EXTENSION_SUFFIXES[-1]}"
    compiled.write_bytes(b"one")
    before = digest(tmp_path, text)
    compiled.write_bytes(b"two")
    assert digest(tmp_path, text) != before


def test_modules_that_import_each_other_end(tmp_path):
    text = "import helper\ndef half(b): return helper.clip(b)\ndef low(b): return 0\n"
    helper = "import mine\ndef clip(b): return mine.low(b) + mine.half(b)\n"
    before = digest(tmp_path, text, helper=helper)
    assert digest(tmp_path, text.replace("return 0", "return 1"), helper=helper) != before


def test_annotations_count_if_they_run(tmp_path):
    text = "Number = float\ndef half(b: Number): return b.v\n"
    assert digest(tmp_path, text) != digest(tmp_path, text.replace("float", "int"))
    later = "from __future__ import annotations\n"
    assert digest(tmp_path, later + text) == digest(tmp_path, later + text.replace("float", "int"))


# Reading


def test_no_file_is_run(tmp_path):
    journal = tmp_path / "journal"
    act = f"open({str(journal)!r}, 'w').close()\nraise RuntimeError\n"
    before = set(sys.modules)
    digest(tmp_path, act + "import helper\ndef half(b): return helper.clip(b)\n", helper=act + "def clip(b): return b\n")
    assert not journal.exists()
    assert not {"helper", "mine"} & (set(sys.modules) - before)


@pytest.mark.parametrize("name", ["mine", "helper"])
def test_a_syntax_error_is_one_sentence(tmp_path, name):
    texts = {"mine": "import helper\ndef half(b): return helper.x\n", "helper": "x = 3\n"}
    texts[name] += "def (:\n"
    with pytest.raises(ValueError, match=rf"{name}\.py: the file is not valid Python \(.*in line \d\); fix it and try again$"):
        digest(tmp_path, texts["mine"], helper=texts["helper"])


def test_a_name_that_is_missing_is_no_error(tmp_path):
    before = digest(tmp_path, "def other(b): return b\n")
    assert digest(tmp_path, "def other(b): return b.v\n") != before


def test_the_digest_does_not_depend_on_the_folder(tmp_path, monkeypatch):
    before = source_digest(write(tmp_path / "one", FILES), "half")
    write(tmp_path / "two", FILES)
    monkeypatch.chdir(tmp_path / "two")
    assert source_digest("mine.py", "half") == source_digest(os.path.join("..", "one", "mine.py"), "half") == before


def made(alpha):
    class Scale:
        factor = alpha

        def __call__(self, b):
            return self.factor * b.gap

    return Scale()


def reading(table):
    return lambda b: b.bellman - table[-1] * b.gap


def wrapping(inner):
    return lambda b: inner(b)


LIVE = {
    "a closure": (lambda alpha: lambda b: b.bellman - alpha * b.gap),
    "a default": (lambda alpha: lambda b, alpha=alpha: b.bellman - alpha * b.gap),
    "a keyword": (lambda alpha: lambda b, *, alpha=alpha: b.bellman - alpha * b.gap),
    "an array": (lambda alpha: reading(np.append(np.zeros(9999), alpha))),
    "an object": (lambda alpha: made(alpha)),
    "a partial function": (lambda alpha: functools.partial(lambda b, alpha: b.bellman - alpha * b.gap, alpha=alpha)),
    "a nested function": (lambda alpha: lambda b: (lambda: b.bellman - alpha * b.gap)()),
    "an operator": (lambda alpha: Operator("mine", lambda b: b.bellman - alpha * b.gap)),
    "a function of the library": (lambda alpha: wrapping(advantage(alpha).apply)),
    "a set": (lambda alpha: lambda b, names=frozenset({"a", "b", str(alpha)}): b.bellman - len(names) * b.gap),
}


@pytest.mark.parametrize("case", LIVE)
def test_objects_of_this_process_are_told_apart_by_their_values(case):
    make = LIVE[case]
    assert object_digest(make(0.5)) == object_digest(make(0.5)) != object_digest(make(0.25))


def test_globals_of_nested_functions_count():
    def digest(alpha: float) -> str:
        names: dict = {}
        exec(f"ALPHA = {alpha}\ndef own(b):\n    return (lambda: ALPHA * b.gap)()", names)
        return object_digest(names["own"])

    assert digest(0.5) == digest(0.5) != digest(0.25)


def test_globals_with_the_names_of_attributes_do_not_count():
    def digest(gap: float) -> str:
        names: dict = {"gap": gap, "q": [gap], "bellman": digest}
        exec("def own(b):\n    return b.bellman - 0.5 * b.gap + 0 * b.q", names)
        return object_digest(names["own"])

    assert digest(0.5) == digest(0.25)


IMPORTING = {
    "an attribute": ("import deeper", "def own(b): return deeper.ALPHA * b.gap"),
    "a module of a package": ("import parts.inner", "def own(b): return parts.inner.share(b)"),
    "what a module imports": ("import outer", "def own(b): return outer.share(b)"),
    "what a package imports": ("import parts", "def own(b): return parts.share(b)"),
    "an import inside": ("", "def own(b):\n    import deeper\n    return deeper.ALPHA * b.gap"),
    "a name imported inside": ("", "def own(b):\n    from outer import share\n    return share(b)"),
    "a module imported inside": ("", "def own(b):\n    from parts import inner\n    return inner.share(b)"),
}


@pytest.mark.parametrize("case", IMPORTING)
def test_modules_that_a_function_of_the_main_program_uses_count(tmp_path, case):
    top, code = IMPORTING[case]
    write(
        tmp_path,
        {
            "deeper.py": "ALPHA = 0.5",
            "outer.py": "import deeper\ndef share(b): return deeper.ALPHA * b.gap",
            "parts/__init__.py": "from .inner import share",
            "parts/inner.py": "import deeper\ndef share(b): return deeper.ALPHA * b.gap",
            "main.py": f"{top}\nfrom actiongap.lab.source import object_digest\n{code}\nprint(object_digest(own))",
        },
    )

    def digest(seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run([sys.executable, "main.py"], cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout

    before = digest("1")
    assert digest("2") == before
    (tmp_path / "deeper.py").write_text("ALPHA = 0.25")
    assert digest("1") != before


def test_attributes_of_modules_count_by_their_values(tmp_path, monkeypatch):
    mine = types.ModuleType("mine")
    mine.__file__ = str(write(tmp_path, {"mine.py": "ALPHA = 0.5"}))
    monkeypatch.setattr(mine, "ALPHA", 0.5, raising=False)
    own = lambda b: mine.ALPHA * b.gap  # noqa: E731
    before = object_digest(own)
    monkeypatch.setattr(mine, "ALPHA", 0.25)
    assert object_digest(own) != before


def test_functions_that_call_themselves_have_a_digest():
    def own(b, depth=0):
        return b.v if depth else own(b, 1)

    assert object_digest(own) == object_digest(own)


def test_a_function_that_its_file_does_not_hold_by_its_name_is_registered(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("def half(b):\n    return b.v\n\n\nkept = half\n\n\ndef half(b):\n    return b.q\n")
    assert text_of(from_file(file, "half")).endswith("mine.py:half")
    assert re.fullmatch("half@[0-9a-f]{8}", text_of(from_file(file, "kept")))


def test_the_digest_is_the_same_in_every_process(tmp_path):
    text = MINE.replace("def unrelated", "def wild(b): return eval(b) + exec(b) + sys.modules\n\nALL = wild(half)\n\ndef unrelated")
    file = write(tmp_path, FILES | {"mine.py": text.replace("return ALPHA", "return eval('ALPHA')")})
    program = f"from actiongap.lab.source import source_digests; print(source_digests({str(file)!r}, 'half'))"
    found = {
        subprocess.run([sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True).stdout
        for seed in ("1", "2", "3")
    }
    assert found == {f"{source_digests(file, 'half')}\n".encode()}
