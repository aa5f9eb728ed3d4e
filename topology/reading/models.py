"""YAML files that are no pipelines, read into a model and written: errors name the file, the place and the fix."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from spillway.lineage.errors import SpecError
from spillway.topology.problems import InvalidPipelineError
from spillway.topology.reading.document import MAX_BYTES, Document

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

_Model = TypeVar("_Model", bound=BaseModel)
_DIGITS: Final = 6  # of a figure: more says nothing
_NUMBER_LIKE: Final = re.compile(r"[-+.]?[0-9]")


def read_bytes(path: Path, what: str) -> bytes:
    """Return what a `what` holds. Raises SpecError where it cannot be read, or is too large to be one."""
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as error:
        raise SpecError(f"cannot read the {what} {path}: {error.strerror or error}") from error
    if len(data) > MAX_BYTES:
        raise SpecError(f"{path} is larger than {MAX_BYTES} bytes; is it a {what}?")
    return data


def read_model(path: Path, kind: type[_Model], what: str, fix: str) -> _Model:
    """What a `what` (a profile file, say) holds. Raises SpecError that ends with `fix`."""
    data = read_bytes(path, what)
    document = Document(str(path), data.decode("utf-8", "replace"))
    if document.findings:
        raise InvalidPipelineError(str(path), document.findings)
    try:
        return kind.model_validate(document.value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        steps = tuple(step for step in first["loc"] if step != "[key]")
        place = document.place(steps)
        message = first["msg"].removeprefix("Value error, ")
        raise SpecError(f"{path}:{place.line}:{place.column}: {place.path or 'the file'}: {message}; {fix}") from error


def write_yaml(path: Path, told: Any, what: str, header: str) -> None:
    """Write a `what` below a header, whole or not at all, its figures short. Raises SpecError where it cannot be."""
    text = header + yaml.dump(_rounded(told), Dumper=_Dumper, sort_keys=False, width=120)
    beside = path.with_name(f"{path.name}.new")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise SpecError(f"cannot write the {what} {path}: {error.strerror or error}") from error


def _rounded(told: Any) -> Any:
    if isinstance(told, dict):
        return {_rounded(key): _rounded(each) for key, each in told.items()}
    if isinstance(told, (list, tuple)):
        return [_rounded(each) for each in told]
    return float(f"{told:.{_DIGITS}g}") if isinstance(told, float) else told


class _Dumper(yaml.SafeDumper):
    """Figures that belong together on one line; text that begins like a number always in quotes."""

    def represent_str(self, data: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", data, style='"' if _NUMBER_LIKE.match(data) else None)

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:  # noqa: FBT001, ARG002 - PyYAML's signature
        return super().represent_mapping(tag, mapping, flow_style=_are_figures(mapping.values()))

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:  # noqa: FBT001, ARG002 - likewise
        return super().represent_sequence(tag, sequence, flow_style=_are_figures(sequence))


_Dumper.add_representer(str, _Dumper.represent_str)


def _are_figures(values: Iterable[Any]) -> bool:
    return all(isinstance(each, (int, float)) for each in values)
