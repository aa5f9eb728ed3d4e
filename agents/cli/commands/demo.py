"""`spillway demo`: the one way to see a system at work."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from agents.cli.demos import clone, demos, module


@click.command()
@click.argument("name", required=False)
def demo(name: str | None) -> None:
    """Show a system at work; without a name, list those there are.

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
            click.echo(f"{known:<10} {summary}")
        return
    arguments = [sys.executable, "-m", module(root, name)]
    os.chdir(root)
    sys.stdout.flush()
    # In place of this process: Ctrl-C and the exit code are the demonstration's, with nobody in between.
    os.execv(sys.executable, arguments)  # noqa: S606 - no shell, and arguments of our own
