"""What `spillway serve` shows: a live table on a terminal, a line now and then elsewhere, and what happens, always."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from agents.supervise.table import Row, line, table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

_LINES_EVERY_SECONDS = 10.0


class Display:
    """Shows on stderr; stdout has one line, `ready`, for scripts that wait for it."""

    def __init__(self, title: str, *, quiet: bool) -> None:
        self._title = title
        self._quiet = quiet
        self._console = Console(stderr=True, highlight=False, soft_wrap=True)
        self._live: Live | None = None
        self._next_lines = time.monotonic() + _LINES_EVERY_SECONDS

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        self._console.print(Text(text))  # without markup for the text alone: options go for the live table as well

    def ready(self) -> None:
        if self._live is not None and sys.stdout.isatty():
            self.say("ready")
        else:
            print("ready", flush=True)

    def show(self, rows: Sequence[Row]) -> None:
        if self._live is not None:
            self._live.update(table(rows, self._title), refresh=True)
        elif not self._quiet and time.monotonic() >= self._next_lines:
            self._next_lines = time.monotonic() + _LINES_EVERY_SECONDS
            for row in rows:
                self.say(line(row))
