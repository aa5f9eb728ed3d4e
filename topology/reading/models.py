"""YAML files that are no pipelines, read into a model: errors name the file, the place and the fix."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from spillway.lineage.errors import SpecError
from spillway.topology.problems import InvalidPipelineError
from spillway.topology.reading.document import MAX_BYTES, Document

if TYPE_CHECKING:
    from pathlib import Path

_Model = TypeVar("_Model", bound=BaseModel)


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


def write_whole(path: Path, text: str, what: str) -> None:
    """Write a file, whole or not at all. Raises SpecError where it cannot be written."""
    beside = path.with_name(f"{path.name}.new")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        raise SpecError(f"cannot write the {what} {path}: {error.strerror or error}") from error
