"""Digests of user code: of the syntax tree of a function and of everything that it reaches. Nothing is executed.

A run is tied to the code that its configuration names, `path/to/file.py:name`, by what that code is, not by the bytes of its file.
These count:

- the function or class `name`, without comments, docstrings and layout;
- every module-level name of the file that it reaches: functions, classes, constants, decorators, defaults, annotations;
- the same of every module that is not installed and that these import: modules beside the file or on `sys.path`;
- module-level statements that act when a file is loaded: loops, conditions, calls, and assignments to items and attributes;
- definitions that may change an object that `name` reaches, such as a function that a decorator adds to a table.

Adding an unrelated function to the file therefore changes nothing, and changing a helper does. All of a file counts if what it does cannot
be decided by reading it: star imports, `exec`, `eval`, `globals`, `__import__`, `import_module`, `sys.modules`, names that it does not
define. Of installed packages, only the names of what is imported count. Data files that the code reads do not count.
"""

from __future__ import annotations

import ast
import builtins
import copy
import dataclasses
import dis
import functools
import hashlib
import importlib.machinery
import inspect
import json
import os
import re
import site
import symtable
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from actiongap import operators
from actiongap._files import reason
from actiongap._user_code import module_path, package_of, register

Chain = tuple[str, ...]
"""A name of a module, with the attributes that are read from it: `helper.table.get` is `("helper", "table", "get")`."""
EVERYTHING: Chain = ("*",)
"""In place of a name: all statements of a module."""
LOADED: Chain = ()
"""In place of a name: only what acts when a module is loaded."""

DYNAMIC = {"exec", "eval", "globals", "__import__"}
"""Functions that give access to names as strings, so that reachable code cannot be determined."""
DYNAMIC_ATTRIBUTES = {"import_module", "__globals__", "f_globals"}
"""The same, as attributes."""
IMPORTERS = {"import_module", "__import__"}
"""Functions that import a module whose name is a string."""
DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
LITERAL = (ast.Constant, ast.Tuple, ast.UnaryOp, ast.BinOp, ast.unaryop, ast.operator, ast.Name, ast.Attribute, ast.expr_context)
"""Expressions whose values cannot be changed in place."""


def source_digest(path: str | Path, name: str) -> str:
    r"""Return the SHA-256 of the code of the function or class `name` in a Python file. The file is read, not executed.

    Raises ValueError if the file, or a module that it imports, is not valid Python.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "mine.py"
    >>> written = file.write_text("def half(b): return b.bellman / 2")
    >>> before = source_digest(file, "half")
    >>> written = file.write_text("def other(b): return b.v\n\ndef half(b):\n    return b.bellman / 2  # half of it")
    >>> source_digest(file, "half") == before
    True
    """
    return _sha(json.dumps(list(source_digests(path, name).items())))


def source_digests(path: str | Path, name: str) -> dict[str, str]:
    r"""Return the digests of all files that `name` reaches: of its own file, by the key `""`, and of modules, by their paths.

    If all of a file counts because what it does cannot be decided, the digest is followed by the reason.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> written = (folder / "helper.py").write_text("SHARE = 0.5")
    >>> written = (folder / "mine.py").write_text("import helper\ndef half(b): return helper.SHARE * b.bellman")
    >>> list(source_digests(folder / "mine.py", "half"))
    ['', 'helper.py']
    """
    files = _Files(Path(path))
    return files.digests(files.reached((files.root, (name,) if name in files.root.binders else EVERYTHING)))


class Imported(NamedTuple):
    """One name that an import statement binds."""

    bound: str
    module: str
    name: str | None = None
    """The name in the module; None if a module is imported."""
    level: int = 0
    """Number of leading dots."""
    target: str = ""
    """The module that is bound if `name` is None: `import a.b` loads a.b and binds a."""


class Statement:
    """A module-level statement: what it binds, reads and imports."""

    def __init__(self, node: ast.stmt, lazy: bool):
        self.node: ast.stmt = node
        self._lazy = lazy  # whether annotations do not run
        self.imports: list[Imported] = list(_imports(node))
        self.is_import: bool = isinstance(node, (ast.Import, ast.ImportFrom))
        self.acts: bool = not (self.is_import or _is_definition(node))
        inner = list(ast.walk(node))
        self.declares: set[str] = {name for found in inner if isinstance(found, ast.Global) for name in found.names}
        self.binds: set[str] = set(self.declares)
        if isinstance(node, DEFINED):
            self.binds.add(node.name)
        else:
            self.binds |= {imported.bound for imported in self.imports}
            self.binds |= {found.id for found in inner if isinstance(found, ast.Name) and isinstance(found.ctx, ast.Store)}
            self.binds |= {found.name for found in inner if isinstance(found, DEFINED)}

    @functools.cached_property
    def chains(self) -> set[Chain]:
        """Global names that the statement reads, and names that it imports itself, each with the attributes that are read from it."""
        names = self._names[0] | {imported.bound for imported in self.imports}
        return set() if self.is_import else _chains(self.node, names)

    @functools.cached_property
    def _names(self) -> tuple[set[str], set[str]]:
        return _globals(self.node, self._lazy)

    @property
    def required(self) -> set[str]:
        """Names that are certainly global."""
        return set() if self.is_import else self._names[1]

    @functools.cached_property
    def effects(self) -> set[Chain]:
        """Global names that run when the statement defines something; empty if that calls nothing."""
        if self.acts or self.is_import:
            return set()
        run = _WithoutBodies().visit(copy.deepcopy(self.node))
        calls = any(
            isinstance(inner, ast.Call) or getattr(inner, "decorator_list", ()) or getattr(inner, "bases", ()) for inner in ast.walk(run)
        )
        return _chains(run, _globals(run, self._lazy)[0]) if calls else set()

    @functools.cached_property
    def dynamic(self) -> str:
        """The construct that makes the whole file count; empty if there is none."""
        if any(imported.name == "*" for imported in self.imports):
            return "a star import"
        mentioned = {chain for chain in self.chains if chain[0] in DYNAMIC}
        attributes = {inner.attr for inner in ast.walk(self.node) if isinstance(inner, ast.Attribute)}
        attributes |= {imported.name for imported in self.imports if imported.name}
        if any(chain[:2] == ("sys", "modules") for chain in self.chains):
            return "sys.modules"
        return min({chain[0] for chain in mentioned} | DYNAMIC_ATTRIBUTES & attributes, default="")

    @functools.cached_property
    def literal_modules(self) -> set[str]:
        """Modules that `import_module("NAME")` imports."""
        calls = [inner for inner in ast.walk(self.node) if isinstance(inner, ast.Call) and inner.args] if self.dynamic else []
        named = [call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant) and _called(call) in IMPORTERS]
        return {name for name in named if isinstance(name, str) and not name.startswith(".")}

    @functools.cached_property
    def writes(self) -> bool:
        """Whether the statement may change attributes or items of objects that it did not make."""
        if self.declares or self.dynamic or {("setattr",), ("delattr",)} & self.chains:
            return True
        return any(
            isinstance(inner, (ast.Attribute, ast.Subscript))
            and not isinstance(inner.ctx, ast.Load)
            and not (isinstance(inner.value, ast.Name) and inner.value.id == "self")
            for inner in ast.walk(self.node)
        )

    @functools.cached_property
    def is_fixed(self) -> bool:
        """Whether methods of what the statement binds cannot change it: a plain function or class, or a constant."""
        node = self.node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return not node.decorator_list
        if isinstance(node, ast.ClassDef):
            special = any(isinstance(inner, DEFINED) and inner.name == "__init_subclass__" for inner in node.body)
            return not (node.keywords or special) and all(isinstance(inner, DEFINED) or _is_literal(inner) for inner in node.body)
        return self.is_import or _is_literal(node)

    @functools.cached_property
    def may_move(self) -> bool:
        """Whether the place of the statement in its file does not matter."""
        node = self.node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return not (node.decorator_list or node.args.defaults or any(node.args.kw_defaults))
        return self.is_import

    @functools.cached_property
    def text(self) -> str:
        """The syntax tree as text, the same in all versions of Python."""
        return json.dumps(_plain(self.node))


class _WithoutBodies(ast.NodeTransformer):
    """Remove what does not run when a function is defined."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.body = [ast.Pass()]
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.body = [ast.Pass()]
        return self.generic_visit(node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        node.body = ast.Constant(None)
        return self.generic_visit(node)


def _called(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


class Module:
    """A file of Python code, or of machine code, that is not installed."""

    def __init__(self, path: Path, name: str, label: str):
        self.path: Path = path
        self.name: str = name
        """Its name in imports, with that of its package."""
        self.label: str = label
        """Its path from the root of its package."""
        self.package: str = name if path.stem == "__init__" else name.rpartition(".")[0]
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {reason(error)}; change its permissions") from None
        self.data: bytes = b"" if path.suffix == ".py" else data
        try:
            self.statements: Sequence[Statement] = _statements(data) if path.suffix == ".py" else ()
        except (SyntaxError, ValueError) as error:
            line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            said = error.msg if isinstance(error, SyntaxError) else str(error)
            raise ValueError(f"{path}: the file is not valid Python ({said}{line}); fix it and try again") from None
        self.binders: dict[str, list[int]] = {}
        for index, statement in enumerate(self.statements):
            for bound in statement.binds:
                self.binders.setdefault(bound, []).append(index)


@functools.lru_cache(maxsize=256)
def _statements(data: bytes) -> tuple[Statement, ...]:
    body = ast.parse(data).body
    future = [alias.name for node in body if isinstance(node, ast.ImportFrom) and node.module == "__future__" for alias in node.names]
    return tuple(Statement(node, "annotations" in future) for node in _split(body))


def _split(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that matter, with an import statement for every imported name."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (ast.Import([alias]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (ast.ImportFrom(node.module, [alias], node.level) for alias in node.names if node.module != "__future__")
        elif isinstance(node, ast.If) and not node.orelse and _never_runs(node.test):
            continue
        elif not (isinstance(node, ast.Pass) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))):
            yield node


def _never_runs(test: ast.expr) -> bool:
    """Whether a condition is false when the file of an operator is loaded: it is not the main program, and types are not checked."""
    return ast.unparse(test) in ("__name__ == '__main__'", "'__main__' == __name__", "TYPE_CHECKING", "typing.TYPE_CHECKING")


def _is_definition(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign):
        names = [item for target in node.targets for item in (target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target])]
        return all(isinstance(name, ast.Name) for name in names)
    if isinstance(node, ast.AnnAssign):
        return isinstance(node.target, ast.Name)
    return isinstance(node, DEFINED) or type(node).__name__ == "TypeAlias"


def _is_literal(node: ast.stmt) -> bool:
    """Whether a statement binds a value that cannot be changed in place, or nothing."""
    if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        return isinstance(node.value, ast.Lambda) or all(isinstance(inner, LITERAL) for inner in ast.walk(node.value))
    return isinstance(node, (ast.AnnAssign, ast.Pass)) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))


def _imports(node: ast.AST) -> Iterator[Imported]:
    for inner in ast.walk(node):
        if isinstance(inner, ast.Import):
            for alias in inner.names:
                # `import a.b` binds a, and `import a.b as c` binds a.b.
                top = alias.name.partition(".")[0]
                yield Imported(alias.asname or top, alias.name, target=alias.name if alias.asname else top)
        elif isinstance(inner, ast.ImportFrom):
            for alias in inner.names:
                yield Imported(alias.asname or alias.name, inner.module or "", alias.name, inner.level)


def _chains(node: ast.AST, names: set[str]) -> set[Chain]:
    """Return the names that occur in a part of a program, each with the attributes that are read from it."""
    found: set[Chain] = set()
    _collect(node, found)
    return {chain for chain in found if chain[0] in names}


def _collect(node: ast.AST, found: set[Chain]) -> None:
    attributes, base = [], node
    while isinstance(base, ast.Attribute):
        attributes.append(base.attr)
        base = base.value
    if isinstance(base, ast.Name):
        found.add((base.id, *reversed(attributes)))
        return
    for child in [base] if attributes else ast.iter_child_nodes(node):
        _collect(child, found)


def _globals(node: ast.AST, lazy: bool) -> tuple[set[str], set[str]]:
    """Return the names that a statement may read from its module or from Python, and those that it does not bind itself."""
    try:
        text = ast.unparse(ast.fix_missing_locations(node))
    except ValueError:  # some f-strings
        return {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}, set()
    tables = [symtable.symtable("from __future__ import annotations\n" * lazy + text, "source", "exec")]
    found: set[str] = set()
    required: set[str] = set()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        outside = table.get_type() in ("module", "class")
        for symbol in table.get_symbols():
            name = symbol.get_name()
            if symbol.is_declared_global() or (symbol.is_referenced() and (outside or symbol.is_global())):
                found.add(name)
                if not (outside and (symbol.is_assigned() or symbol.is_imported())):
                    required.add(name)
    return found, required


def _plain(value: Any) -> Any:
    """Return a syntax tree as lists, without docstrings, places, and fields that are empty, which versions of Python write differently."""
    if isinstance(value, ast.Constant):
        return ["Constant", type(value.value).__name__, repr(value.value)]
    if isinstance(value, ast.AST):
        fields = [(name, _plain(field)) for name, field in ast.iter_fields(value) if name not in ("type_comment", "type_ignores")]
        return [type(value).__name__, *(item for item in fields if item[1] not in (None, []))]
    if isinstance(value, list):
        return [_plain(item) for item in value if not (isinstance(item, ast.Expr) and isinstance(item.value, ast.Constant))]
    return value if value is None or isinstance(value, (int, str)) else repr(value)


Place = tuple[Module, int]
"""A statement of a module, by its index."""


class _Files:
    """The modules that a file reaches, found without running them."""

    def __init__(self, path: Path):
        folder, package = package_of(path)
        name = ".".join(package if path.stem == "__init__" else [*package, path.stem])
        self.folder: Path = folder
        self.root: Module = Module(path.resolve(), name, "")
        self.modules: dict[tuple[Path, str], Module] = {(self.root.path, name): self.root}
        self.reasons: dict[Module, set[str]] = {}
        """Why all of a module counts, if that is because it could not be decided."""
        self._found: dict[str, list[Module]] = {}

    def reached(self, *start: tuple[Module, Chain]) -> set[Place]:
        """Return all statements that count."""
        seeds, touched = list(start), {}
        while True:
            reached = self._closure(seeds, loaded=True)
            added: list[tuple[Module, Chain]] = []
            for module in list(self.modules.values()):
                for index, statement in enumerate(module.statements):
                    if (module, index) in reached or not statement.effects:
                        continue
                    if (module, index) not in touched:
                        touched[module, index] = self._closure([(module, chain) for chain in statement.effects], loaded=False)
                    run = touched[module, index]
                    writes = any(owner.statements[place].writes for owner, place in run)
                    if any(writes or not owner.statements[place].is_fixed for owner, place in run & reached):
                        added += [(module, (name,)) for name in statement.binds]
            if not added:
                return reached
            seeds += added

    def digests(self, reached: set[Place]) -> dict[str, str]:
        """Return the digest of each module's statements."""
        indices: dict[Module, list[int]] = {module: [] for module in self.modules.values()}
        for module, index in reached:
            indices[module].append(index)
        result = {}
        for module in sorted(indices, key=lambda module: module.label):
            statements = [(index, module.statements[index]) for index in sorted(indices[module])]
            if not statements and not module.data and module is not self.root:
                continue
            # A definition that may move is put in the order of names, if its name is bound once.
            free = [item for item in statements if item[1].may_move and all(len(module.binders[name]) == 1 for name in item[1].binds)]
            ordered = [item for item in statements if item not in free]
            texts = [*sorted(self._text(module, statement) for _, statement in free), *(statement.text for _, statement in ordered)]
            # A construct explains more than a name that is missing because of it.
            reasons = sorted(self.reasons.get(module, ()), key=lambda why: (", which" in why, why))
            digest = hashlib.sha256(json.dumps(texts).encode() + module.data).hexdigest()
            result[module.label] = f"{digest} (all of the file counts, because it uses {reasons[0]})" if reasons else digest
        return result

    def _text(self, module: Module, statement: Statement) -> str:
        """Return the text of a statement; that of an import also says whether the module is installed."""
        if not statement.is_import:
            return statement.text
        [imported] = statement.imports
        return f"{statement.text} {bool(self.find(_absolute(module, imported)))}"

    def _closure(self, start: Iterable[tuple[Module, Chain]], loaded: bool) -> set[Place]:
        """Return the statements that names reach; if `loaded`, also those that act when the modules are loaded."""
        found: set[Place] = set()
        seen: set[tuple[Module, Chain]] = set()
        todo = list(start)
        while todo:
            module, chain = todo.pop()
            if (module, chain) in seen:
                continue
            seen.add((module, chain))
            if chain and loaded:
                todo.append((module, LOADED))
            taken: Iterable[int] = ()
            if chain == EVERYTHING:
                taken = range(len(module.statements))
                todo += [lead for statement in module.statements for item in statement.imports for lead in self._follow(module, item, ())]
            elif chain:
                taken = module.binders.get(chain[0], ())
                bound = [item for index in taken for item in module.statements[index].imports if item.bound == chain[0]]
                todo += [lead for item in bound for lead in self._follow(module, item, chain[1:])]
            elif loaded:
                taken = [index for index, statement in enumerate(module.statements) if statement.acts]
                for statement in module.statements:
                    if statement.is_import:
                        todo += self._load(module, statement.imports[0])
                        if statement.imports[0].name == "*":
                            todo.append(self._everything(module, statement.dynamic))
            for index in taken:
                if (module, index) not in found:
                    found.add((module, index))
                    todo += self._leads(module, module.statements[index], loaded)
        return found

    def _leads(self, module: Module, statement: Statement, loaded: bool) -> Iterator[tuple[Module, Chain]]:
        """Yield what one statement reaches."""
        own = {imported.bound for imported in statement.imports}
        if loaded:
            unknown = {name for name in statement.required - own - module.binders.keys() if not hasattr(builtins, name)}
            unknown = {name for name in unknown if not (name.startswith("__") and name.endswith("__"))}
            if why := statement.dynamic or next((f"{name}, which it does not define" for name in sorted(unknown)), ""):
                yield self._everything(module, why)
            for imported in statement.imports:
                yield from self._load(module, imported)
        for name in statement.literal_modules:
            yield from self._resolve(name, ())
        for chain in statement.chains:
            if chain[0] in module.binders:
                yield module, chain
            if not statement.is_import:
                for imported in statement.imports:
                    if imported.bound == chain[0]:
                        yield from self._follow(module, imported, chain[1:])

    def _everything(self, module: Module, why: str) -> tuple[Module, Chain]:
        self.reasons.setdefault(module, set()).add(why)
        return module, EVERYTHING

    def _load(self, module: Module, imported: Imported) -> Iterator[tuple[Module, Chain]]:
        """Yield the modules that an import statement loads: the packages around a module too."""
        name = _absolute(module, imported)
        for dotted in [*_prefixes(name), f"{name}.{imported.name}"]:
            yield from ((found, LOADED) for found in self.find(dotted))

    def _follow(self, module: Module, imported: Imported, chain: Chain) -> Iterator[tuple[Module, Chain]]:
        """Yield what a chain of attributes of an imported name reaches."""
        name = _absolute(module, imported)
        if imported.name == "*":
            yield from self._resolve(name, ())
        elif imported.name is not None:
            yield from self._resolve(name, (imported.name, *chain))
        else:
            yield from self._resolve(imported.target, chain)

    def _resolve(self, name: str, chain: Chain) -> Iterator[tuple[Module, Chain]]:
        """Yield what a chain of attributes of a module reaches; without attributes, everything."""
        nested = self.find(f"{name}.{chain[0]}") if chain else []
        bound = False
        for found in self.find(name):
            if chain and chain[0] in found.binders:
                bound = True
                yield found, chain
            elif not nested:
                yield found, EVERYTHING
        if nested and not bound:
            yield from self._resolve(f"{name}.{chain[0]}", chain[1:])

    def find(self, name: str) -> list[Module]:
        """Return the modules that an import of this name may load, beside the file or on `sys.path`, if they are not installed."""
        if name not in self._found:
            parts = name.split(".")
            if not all(parts) or parts[0] in sys.builtin_module_names or parts[0] == __name__.partition(".")[0]:
                self._found[name] = []
                return []
            paths = dict.fromkeys(_locate(parts, roots) for roots in ([str(self.folder)], module_path()))
            own = [path for path in paths if path is not None and not _is_installed(path)]
            self._found[name] = [self._module(path, name, " (on sys.path)" * (path != own[0])) for path in own]
        return self._found[name]

    def _module(self, path: Path, name: str, which: str) -> Module:
        if (path, name) not in self.modules:
            parts = name.split(".")
            label = "/".join([*parts, path.name] if path.stem == "__init__" else [*parts[:-1], path.name])
            self.modules[path, name] = Module(path, name, label + which)
        return self.modules[path, name]


def _absolute(module: Module, imported: Imported) -> str:
    """Return the full name of the module that an import statement names; empty if it is outside of any package."""
    if not imported.level:
        return imported.module
    package = module.package.split(".")[: len(module.package.split(".")) - imported.level + 1]
    return ".".join([*package, imported.module] if imported.module else package)


def _prefixes(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def _locate(parts: Sequence[str], roots: Iterable[str]) -> Path | None:
    """Return the file of a module, as Python's path search finds it; None if there is none."""
    name, *rest = parts
    folders = []
    for root in roots:
        base = Path(root or ".", name)
        for file in (base / "__init__.py", *(base.with_name(name + suffix) for suffix in importlib.machinery.all_suffixes())):
            if file.is_file():
                if not rest:
                    return file.resolve()
                return _locate(rest, [str(base)]) if file.parent == base else None
        if base.is_dir():
            folders.append(str(base))
    return _locate(rest, folders) if rest and folders else None


@functools.cache
def _installed_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    folders = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple({os.path.realpath(folder) for folder in (*folders, *site.getsitepackages(), site.getusersitepackages())})


def _is_installed(path: Path) -> bool:
    return bool({"site-packages", "dist-packages"} & set(path.parts)) or any(path.is_relative_to(folder) for folder in _installed_folders())


def _sha(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def text_of(value: Any) -> str:
    """Return the text by which a configuration names an operator or a simulator: a string names itself.

    Objects of the library have texts of their own. A function that another process finds in its file is `path/to/file.py:name`. Anything
    else, such as a lambda or a function of the main program, is registered in this process (`actiongap._user_code.register`), and its text
    holds a digest of its code.

    Examples
    --------
    >>> from actiongap.operators import advantage
    >>> text_of("al:0.9"), text_of(advantage(0.5))
    ('al:0.9', 'al:0.5')
    """
    if isinstance(value, str):
        return value
    name = getattr(value, "name", None) or operators.name_of(value)
    if getattr(getattr(value, "apply", None), "__module__", "") == operators.__name__:
        return name
    if inspect.isfunction(value) and value.__module__ != "__main__" and value.__qualname__.isidentifier():
        file = inspect.getsourcefile(value)
        found = getattr(sys.modules.get(value.__module__), value.__qualname__, None) is value
        if found and file is not None and os.path.isfile(file):
            return f"{os.path.relpath(file)}:{value.__qualname__}"
    return register(re.sub(r"[^A-Za-z0-9_.+-]+", "-", name).strip("-") or "object", object_digest(value), value)


def object_digest(value: Any) -> str:
    """Return the SHA-256 of an object of this process: of its code, and of the values that its code reaches.

    These are values of closures, defaults, the globals that it names and the attributes of modules that it reads, and what those reach. Of
    installed packages, only names count; of other modules, all of the file counts and of the modules that it imports.

    Examples
    --------
    >>> def made(alpha):
    ...     return lambda b: b.bellman - alpha * b.gap
    >>> object_digest(made(0.5)) == object_digest(made(0.5)), object_digest(made(0.5)) == object_digest(made(0.25))
    (True, False)
    """
    return _sha(repr(_described(value, {})))


def _described(value: Any, seen: dict[int, tuple[int, Any]]) -> Any:
    """Describe an object by plain values that are the same in every process. `seen` holds the objects that are described already."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value)
    if id(value) in seen:
        return ("seen", seen[id(value)][0])
    # Objects are kept, because an id may be used again after its object is gone.
    seen[id(value)] = len(seen), value
    if inspect.ismodule(value):
        return _described_module(value)
    if inspect.isfunction(value):
        cells = [cell.cell_contents for cell in value.__closure__ or () if cell != _EMPTY]
        code = [f"{value.__module__}.{value.__qualname__}"] if _is_of_others(value) else [value.__code__, *_reached(value)]
        return ("function", *(_described(part, seen) for part in (*code, cells, value.__defaults__, value.__kwdefaults__)))
    if inspect.isclass(value) and _is_of_others(value):
        return ("class", value.__module__, value.__qualname__)
    if inspect.iscode(value):
        return ("code", value.co_code, value.co_names, value.co_varnames, [_described(constant, seen) for constant in value.co_consts])
    if inspect.isclass(value):
        bases = [_described(base, seen) for base in value.__bases__]
        return (value.__name__, bases, [(name, _described(item, seen)) for name, item in sorted(vars(value).items()) if name not in _OWN])
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [_described(item, seen) for item in value])
    if isinstance(value, (set, frozenset)):
        return ("set", sorted(repr(_described(item, seen)) for item in value))
    if isinstance(value, Mapping):
        return ("mapping", [(_described(key, seen), _described(item, seen)) for key, item in value.items()])
    if hasattr(value, "tobytes") and hasattr(value, "shape"):
        return ("array", str(getattr(value, "dtype", "")), tuple(value.shape), _sha(value.tobytes().hex()))
    if isinstance(value, functools.partial):
        return ("partial", *(_described(part, seen) for part in (value.func, value.args, value.keywords)))
    if inspect.ismethod(value):
        return ("method", _described(value.__func__, seen), _described(value.__self__, seen))
    if isinstance(value, (staticmethod, classmethod, property)):
        functions = (value.fget, value.fset) if isinstance(value, property) else (value.__func__,)
        return (type(value).__name__, *(_described(function, seen) for function in functions))
    if dataclasses.is_dataclass(value):
        # Attributes that are no fields may be caches, which fill up as the object is used.
        fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value) if field.init}
        return ("object", _described(type(value), seen), _described(fields, seen))
    if hasattr(value, "__dict__"):
        return ("object", _described(type(value), seen), _described(vars(value), seen))
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


_EMPTY = types.CellType()
"""A cell of a variable that is not set."""
_OWN = {"__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__", "__static_attributes__", "__annotations__", "__annotate__"}
"""Attributes of classes that Python adds, or that do not act."""


def _reached(function: types.FunctionType) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the variables that a function reads but does not own, attributes of the user's modules, and digests of files it imports."""
    objects: dict[str, Any] = {}
    free = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    known = function.__globals__ | {name: cell.cell_contents for name, cell in free if cell != _EMPTY}
    for name, *attributes in sorted(_names_in(function.__code__)):
        if name not in known:
            continue
        value = objects[name] = known[name]
        # Attributes of a module may have been set after it was loaded. Modules of a package are attributes, too.
        for attribute in attributes:
            if not (inspect.ismodule(value) and _own_file(value) and attribute in vars(value)):
                break
            value, name = vars(value)[attribute], f"{name}.{attribute}"
            objects[name] = value
    located = {name: _locate(name.split("."), sys.path) for name in sorted(_imports_in(function.__code__))}
    return objects, {name: _file_digests(path) for name, path in located.items() if path is not None and not _is_installed(path)}


def _nested(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if inspect.iscode(constant):
            yield from _nested(constant)


def _names_in(code: types.CodeType) -> set[Chain]:
    """Return the global and free names that code and the functions inside it read, with the attributes that are read from them."""
    found: set[Chain] = set()
    for inner in _nested(code):
        chain: Chain = ()
        for instruction in dis.get_instructions(inner):
            free = instruction.opname == "LOAD_DEREF" and instruction.argval in code.co_freevars
            if free or instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                chain = (instruction.argval,)
            elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD") and chain:
                found.discard(chain)
                chain = (*chain, instruction.argval)
            else:
                chain = ()
            found |= {chain} - {()}
    return found


def _imports_in(code: types.CodeType) -> set[str]:
    """Return the modules that code and the functions inside it import when they run, and names that may be modules."""
    found: set[str] = set()
    for inner in _nested(code):
        module = ""
        for instruction in dis.get_instructions(inner):
            if instruction.opname == "IMPORT_NAME":
                module = instruction.argval
                found.add(module)
            elif instruction.opname == "IMPORT_FROM":
                found.add(f"{module}.{instruction.argval}")
    return {name for name in found if all(name.split("."))}


def _described_module(module: types.ModuleType) -> Any:
    """Describe a module by its name, and if it is the user's by its file and what that imports."""
    file = _own_file(module)
    return ("module", module.__name__) if file is None else ("module", module.__name__, _file_digests(file))


def _own_file(module: types.ModuleType) -> Path | None:
    """Return the file of a module of the user; None for modules that are installed, of this library, or without a file."""
    file = getattr(module, "__file__", None)
    if file is None or _is_of_package(module.__name__) or _is_installed(Path(file).resolve()) or not os.path.isfile(file):
        return None
    return Path(file)


def _file_digests(path: Path) -> list[tuple[str, str]]:
    """Return the digests of all of a file and of the modules that it imports."""
    files = _Files(path)
    return sorted(files.digests(files.reached((files.root, EVERYTHING))).items())


def _is_of_others(value: Any) -> bool:
    """Whether a function or class is of an installed package, of Python or of this library."""
    module = sys.modules.get(value.__module__ or "")
    if module is None or value.__module__ == "__main__":
        return False
    file = getattr(module, "__file__", None)
    return file is None or _is_of_package(value.__module__) or _is_installed(Path(file).resolve())


def _is_of_package(module: str) -> bool:
    return module.partition(".")[0] == __name__.partition(".")[0]
