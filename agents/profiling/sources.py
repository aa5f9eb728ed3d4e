"""A hash of a model's code, taken without importing it: its class, and what that uses of the code beside it.

The module is found as an import would find it, and parsed. From the class on, every name of the module's top level
that is used belongs to the code, and so does, through imports, what modules below the same folder define: the user's
own code. What is installed elsewhere is not looked at (torch is told apart by its release). Comments, blank lines and
docstrings change nothing.
"""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST_MODULES: Final = 500  # a bound on what is looked at, for code that imports half a repository


def source_hash(reference: str, path: list[str]) -> str | None:
    """Hash of the code of `module:Name`, looked for along `path` (as sys.path); None where there is no source."""
    module, _, attribute = reference.partition(":")
    file = _file_of(module, path)
    if file is None:
        return None
    root = _root_of(file, module)
    if root is None:
        return None
    code = _Code(root)
    code.add(module, attribute.split(".")[0])
    return f"sha256:{hashlib.sha256(code.text().encode()).hexdigest()[:32]}"


def _file_of(module: str, path: list[str]) -> Path | None:
    """The source file of a module, found without running any of it; folders without `__init__.py` are packages too."""
    places = [Path(place) for place in path if place]
    *packages, last = module.split(".")
    for package in packages:
        regular = [place / package for place in places if (place / package / "__init__.py").is_file()]
        places = regular[:1] or [place / package for place in places if (place / package).is_dir()]
    for place in places:
        for file in (place / last / "__init__.py", place / f"{last}.py"):
            if file.is_file():
                return file
    return None


def _root_of(file: Path, module: str) -> Path | None:
    """The folder that `module`'s first part lies in; None for what a package manager installed."""
    folder = file.parent if file.name == "__init__.py" else file
    for _ in module.split("."):
        folder = folder.parent
    return None if "site-packages" in folder.parts else folder


class _Module:
    """One parsed module: what its top level defines, by name."""

    def __init__(self, name: str, file: Path) -> None:
        self.name = name
        self.package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        self.defined: dict[str, list[ast.stmt]] = {}
        self.imported: dict[str, tuple[str, str | None]] = {}  # name -> module, and name in it (None: the module)
        self.loose: list[ast.stmt] = []  # what only does something: calls, loops, conditions
        for statement in ast.parse(file.read_bytes()).body:
            self._take(statement)

    def _take(self, statement: ast.stmt) -> None:
        if isinstance(statement, ast.Import):
            for each in statement.names:
                bound = each.asname or each.name.partition(".")[0]
                self.imported[bound] = (each.name if each.asname else bound, None)
                self.defined.setdefault(bound, []).append(statement)
        elif isinstance(statement, ast.ImportFrom):
            base = self._absolute(statement)
            for each in statement.names:
                self.imported[each.asname or each.name] = (base, each.name)
                self.defined.setdefault(each.asname or each.name, []).append(statement)
        else:
            names = list(_bound(statement))
            for name in names:
                self.defined.setdefault(name, []).append(statement)
            if not names and not _is_text(statement):
                self.loose.append(statement)

    def _absolute(self, statement: ast.ImportFrom) -> str:
        if not statement.level:
            return statement.module or ""
        parts = self.package.split(".")
        parts = parts[: len(parts) - statement.level + 1]
        return ".".join([*parts, *([statement.module] if statement.module else [])])


class _Code:
    """What belongs to a model's code, gathered from its class on."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._modules: dict[str, _Module | None] = {}
        self._seen: set[tuple[str, str]] = set()
        self._statements: dict[tuple[str, int, int], str] = {}

    def text(self) -> str:
        """All of it, in an order that depends on nothing else."""
        return "\n".join(f"# {place[0]}\n{self._statements[place]}" for place in sorted(self._statements))

    def add(self, module: str, name: str) -> None:
        open_ = [(module, name)]
        while open_:
            place = open_.pop()
            if place not in self._seen:
                self._seen.add(place)
                open_ += self._uses(*place)

    def _uses(self, module_name: str, name: str) -> Iterator[tuple[str, str]]:
        module = self._module(module_name)
        if module is None:
            return
        statements = [*module.defined.get(name, ()), *module.loose]
        for statement in statements:
            self._statements[module_name, statement.lineno, statement.col_offset] = ast.unparse(
                _without_texts(statement)
            )
            for used in _used(statement):
                if used in module.defined:
                    yield module_name, used
        if name in module.imported:
            yield from self._imported(*module.imported[name])

    def _imported(self, base: str, name: str | None) -> Iterator[tuple[str, str]]:
        if name is not None and self._module(f"{base}.{name}") is None:
            yield base, name
            return
        whole = self._module(base if name is None else f"{base}.{name}")  # used as module.attribute: all of it counts
        if whole is not None:
            yield from ((whole.name, each) for each in whole.defined)

    def _module(self, name: str) -> _Module | None:
        if name not in self._modules and len(self._modules) < _MOST_MODULES:
            file = _file_of(name, [str(self._root)]) if name else None
            self._modules[name] = None if file is None else _Module(name, file)
        return self._modules.get(name)


def _bound(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
        return
    for node in ast.walk(statement):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node.name


def _used(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}


def _is_text(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _without_texts(statement: ast.stmt) -> ast.stmt:
    for node in ast.walk(statement):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and _is_text(node.body[0]):
            node.body = node.body[1:] or [ast.Pass()]
    return statement
