"""Demonstrations: each is `examples/NAME/demo.py` of a clone, run by its path, as nothing here may import examples."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from lineage.errors import UsageError
from topology.names import meant

if TYPE_CHECKING:
    from pathlib import Path

_MARK = "spillway/entry.py"  # what tells a clone of this repository from another folder that has examples


def clone(start: Path) -> Path:
    """The clone of the repository that `start` is in. Raises UsageError where it is in none."""
    for folder in (start, *start.parents):
        if (folder / _MARK).is_file() and (folder / "examples").is_dir():
            return folder
    raise UsageError(
        f"{start} is not in a clone of Spillway's repository, and an installed Spillway has no demonstrations: clone "
        "the repository, change to its folder, run `make env`, then `.venv/bin/spillway demo`"
    )


def demos(root: Path) -> dict[str, str]:
    """The name of each demonstration, and the first line of its docstring."""
    return {file.parent.name: _summary(file) for file in sorted((root / "examples").glob("*/demo.py"))}


def module(root: Path, name: str) -> str:
    """The module to run for the demonstration `name`. Raises UsageError where there is none of that name."""
    known = demos(root)
    if name not in known:
        raise UsageError(f"there is no demonstration {name!r} in {root / 'examples'}: {meant(name, known)}")
    return f"examples.{name}.demo"


def _summary(file: Path) -> str:
    text = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]
