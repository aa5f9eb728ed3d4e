"""`spillway demo`: the one way to see a system at work."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path

import click

from spillway.lineage.errors import UsageError
from spillway.topology.names import meant

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
    texts = {name: ast.parse(file.read_text(encoding="utf-8")) for name, file in _files(root).items()}
    return {name: (ast.get_docstring(text) or "").partition("\n")[0] for name, text in texts.items()}


def module(root: Path, name: str) -> str:
    """The module to run for the demonstration `name`. Raises UsageError where there is none of that name."""
    known = _files(root)
    if name not in known:
        raise UsageError(f"there is no demonstration {name!r} in {root / 'examples'}: {meant(name, known)}")
    return f"examples.{known[name].parent.name}.{known[name].stem}"


def _files(root: Path) -> dict[str, Path]:
    """By name: examples/clipper/demo.py is `clipper`, and demo_selection.py beside it `clipper-selection`."""
    found = sorted((root / "examples").glob("*/demo*.py"))
    files = [file for file in found if file.stem == "demo" or file.stem.startswith("demo_")]
    return {file.parent.name + file.stem.removeprefix("demo").replace("_", "-"): file for file in files}


@click.command()
@click.argument("name", required=False)
def demo(name: str | None) -> None:
    """Show a system at work; without a name, list the demonstrations.

    Each takes less than three minutes and ends in a table and one HTML page with plots. They are in the repository
    and are not installed, so this works in a clone of it.

    \b
    Example:
      spillway demo
      spillway demo pard
    """  # noqa: D301 - click's own marks
    root = clone(Path.cwd())
    if name is None:
        for known, summary in demos(root).items():
            click.echo(f"{known:<17} {summary}")
        return
    arguments = [sys.executable, "-m", module(root, name)]
    os.chdir(root)
    sys.stdout.flush()
    # In place of this process: Ctrl-C and the exit code are the demonstration's, with nobody in between.
    os.execv(sys.executable, arguments)  # noqa: S606 - no shell, and arguments of our own
