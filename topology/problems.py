"""What is wrong with a pipeline file: each problem with its place and its fix, and the error that tells them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spillway.lineage.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Iterable

Path = tuple[str | int, ...]  # ("stages", 2, "after", 0)

_SHOWN = 50


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where in the pipeline, what, and how to mend it.

    `on_key` points at the field's name and not at its value.
    """

    path: Path
    text: str
    on_key: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """Where something stands in a file: line and column from 1, and its path as the file's author knows it."""

    line: int
    column: int
    path: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem and its place in the file."""

    file: str
    place: Place
    text: str

    def __str__(self) -> str:
        path = f" {self.place.path}:" if self.place.path else ""
        return f"{self.file}:{self.place.line}:{self.place.column}:{path} {self.text}"


class InvalidPipelineError(SpecError):
    """A pipeline file with all that is wrong with it, in the order of its lines."""

    def __init__(self, file: str, findings: Iterable[Finding]) -> None:
        unique = dict.fromkeys(findings)
        self.findings = tuple(sorted(unique, key=lambda each: (each.place.line, each.place.column)))
        count = len(self.findings)
        lines = [f"  {finding}" for finding in self.findings[:_SHOWN]]
        if count > _SHOWN:
            lines.append(f"  ... and {count - _SHOWN} more")
        super().__init__(f"{file} has {count} problem{'s' if count > 1 else ''}:\n" + "\n".join(lines))


def show_path(path: Path) -> str:
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
