"""A YAML or JSON file as plain values, each with its line and column.

PyYAML's composer does the parsing (JSON is YAML). Plain scalars are read by the rules of YAML 1.2, so that `no` is text
and `010` is ten. A key that is given twice is a problem, tags and merge keys are refused, and what an alias stands for
counts each time, so that size, depth and number of values are bounded.
"""

from __future__ import annotations

import re
from typing import Any, Final

import yaml
from yaml.composer import Composer
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import BaseResolver
from yaml.scanner import Scanner

from spillway.topology.problems import Finding, InvalidPipelineError, Path, Place, Problem, show_path

MAX_BYTES: Final = 256 << 10
MAX_VALUES: Final = 20_000
MAX_DEPTH: Final = 32

_CORE_TAGS: Final = {f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map")}
_NUMBER_CHARACTERS: Final = 40
_INTEGER: Final = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: Final[dict[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf"), float("inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
    "-.inf": float("-inf"),
}


class _Composer(Reader, Scanner, Parser, Composer, BaseResolver):
    """Makes nodes of text; resolves no plain scalar, and goes no deeper than it may."""

    def __init__(self, text: str) -> None:
        Reader.__init__(self, text)
        Scanner.__init__(self)
        Parser.__init__(self)
        Composer.__init__(self)
        BaseResolver.__init__(self)
        self._depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem=f"values are nested more than {MAX_DEPTH} deep", problem_mark=mark)
        node: yaml.Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


class Document:
    """The content of a file, and where each part of it stands."""

    def __init__(self, file: str, text: str) -> None:
        """Raises InvalidPipelineError where `text` is no document, or one over a bound."""
        self.file = file
        self.findings: list[Finding] = []  # what could be read in spite of: keys given twice and the like
        self._keys: dict[Path, Place] = {}
        self._values: dict[Path, Place] = {}
        self._count = 0
        try:
            node = _Composer(text).get_single_node()
        except yaml.MarkedYAMLError as error:
            raise self._syntax(error) from error
        except yaml.reader.ReaderError as error:
            before = text[: error.position]
            place = Place(before.count("\n") + 1, error.position - before.rfind("\n"), "")
            found = chr(error.character) if isinstance(error.character, int) else error.character
            raise self._failed(place, f"the character {found!r} is not allowed in YAML; remove it") from error
        if node is None:
            raise self._failed(Place(1, 1, ""), "the file is empty; begin with 'name: ...'")
        self.value: Any = self._convert(node, (), 1)

    def place(self, path: Path, *, on_key: bool = False) -> Place:
        known = path
        while known and known not in self._values:
            known = known[:-1]
        marks = self._keys if on_key and known == path else self._values
        mark = marks.get(known) or self._values[known]
        return Place(mark.line, mark.column, show_path(path))

    def finding(self, problem: Problem) -> Finding:
        return Finding(self.file, self.place(problem.path, on_key=problem.on_key), problem.text)

    def _convert(self, node: yaml.Node, path: Path, depth: int) -> Any:
        place = self._values[path] = _place(node, path)
        self._count += 1
        if self._count > MAX_VALUES:
            raise self._failed(
                place, f"the file has more than {MAX_VALUES} values (an alias counts as the values it refers to)"
            )
        if depth > MAX_DEPTH:
            raise self._failed(place, f"values are nested more than {MAX_DEPTH} deep (is an alias part of itself?)")
        if node.tag not in _CORE_TAGS and node.tag != "!":
            self._found(node, path, f"tags like {node.tag} are not supported; write the plain value")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, path, depth)
        if isinstance(node, yaml.SequenceNode):
            return [self._convert(item, (*path, number), depth + 1) for number, item in enumerate(node.value)]
        assert isinstance(node, yaml.ScalarNode)
        return self._scalar(node, path)

    def _mapping(self, node: yaml.MappingNode, path: Path, depth: int) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._found(key_node, path, "a key must be text or a number, not a list or mapping")
                continue
            key = self._scalar(key_node, path)
            name = key if isinstance(key, (str, int)) and not isinstance(key, bool) else key_node.value
            at = (*path, name)
            if key == "<<" and key_node.style is None:
                self._found(key_node, at, "merge keys ('<<') are not supported; write the fields out")
            elif name in found:
                self._found(key_node, at, f"is given twice (first in line {self._keys[at].line}); keep one")
            else:
                self._keys[at] = _place(key_node, at)
                found[name] = self._convert(value_node, at, depth + 1)
        return found

    def _scalar(self, node: yaml.ScalarNode, path: Path) -> Any:
        text = str(node.value)
        if node.style is not None:
            return self._text(text, node, path)
        if text in _WORDS:
            return _WORDS[text]
        if len(text) <= _NUMBER_CHARACTERS:
            if _INTEGER.fullmatch(text):
                return int(text, 0) if text[:2] in {"0o", "0x"} else int(text)
            if _FLOAT.fullmatch(text):
                return float(text)
        return self._text(text, node, path)

    def _text(self, text: str, node: yaml.Node, path: Path) -> str:
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self._found(node, path, "contains an unpaired surrogate, which is not a character; remove it")
            return text.encode(errors="replace").decode()

    def _syntax(self, error: yaml.MarkedYAMLError) -> InvalidPipelineError:
        mark = error.problem_mark or error.context_mark
        place = Place(mark.line + 1, mark.column + 1, "") if mark else Place(1, 1, "")
        said = ", ".join(part for part in (error.context, error.problem) if part) or "it cannot be read"
        begun = error.context_mark
        if begun is not None and begun.line + 1 < place.line:
            said += f" (which begins in line {begun.line + 1})"
        if error.problem and "'\\t'" in error.problem:
            said += "; indent with spaces, not tabs"
        return self._failed(place, f"this is not valid YAML: {said}")

    def _found(self, node: yaml.Node, path: Path, text: str) -> None:
        self.findings.append(Finding(self.file, _place(node, path), text))

    def _failed(self, place: Place, text: str) -> InvalidPipelineError:
        return InvalidPipelineError(self.file, [Finding(self.file, place, text)])


def _place(node: yaml.Node, path: Path) -> Place:
    return Place(node.start_mark.line + 1, node.start_mark.column + 1, show_path(path))
