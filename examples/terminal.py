"""How a demonstration is run from a terminal: its title, how it ends, and what everything that it started comes to."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from rich.console import Console

from spillway.lineage.errors import SpillwayError

if TYPE_CHECKING:
    from collections.abc import Callable


def shown(title: str, run: Callable[[Console, ExitStack], bool]) -> int:
    """Run a demonstration; its exit code: 0 where `run` says that all was well. What it started ends with it."""
    console = Console(highlight=False)
    console.print(f"[bold]Spillway[/]: {title}\n")
    try:
        with ExitStack() as stack:
            good = run(console, stack)
    except SpillwayError as error:
        console.print(f"error: {error}", markup=False, style="red")
        return error.exit_code
    except KeyboardInterrupt:
        console.print("interrupted; everything that was started has ended")
        return 130
    return 0 if good else 1
