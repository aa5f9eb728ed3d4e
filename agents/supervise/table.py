"""How the children look to a person: a table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from agents.supervise.scrape import Figures


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


_COLUMNS = ("process", "state", "/s", "queue", "batch", "ms", "p99", "done", "drop", "fail", "dup")
_STYLES = {
    "running": "green",
    "failed": "bold red",
    "gone": "red",
    "starting": "yellow",
    "backing off": "yellow",
    "standby": "cyan",
}


@dataclass(frozen=True)
class Row:
    """One process: its name, its state in a word or two, and its figures where it answers."""

    name: str
    state: str
    figures: Figures | None
    restarts: int = 0

    @property
    def note(self) -> str:
        return f"({self.restarts} restarts)" if self.restarts else ""


def table(rows: Sequence[Row], title: str) -> Table:
    made = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for column in _COLUMNS:
        made.add_column(
            column, justify="left" if column in {"process", "state"} else "right", no_wrap=column != "state"
        )
    for row in rows:
        style = _STYLES.get(row.state.split(",")[0], "")
        state = f"[{style}]{row.state}[/]" if style else row.state
        made.add_row(row.name, state + (f" ↻{row.restarts}" if row.restarts else ""), *cells(row.figures))
    return made


def line(row: Row) -> str:
    if row.figures is None:
        return f"{row.name}: {row.state} {row.note}".rstrip()
    rate, queue, batch, latency, p99, done, dropped, failed, repeats = cells(row.figures)
    return (
        f"{row.name}: {row.state}, {rate}/s, queue {queue}, batch {batch}, latency {latency} ms (p99 {p99}), "
        f"done {done}, dropped {dropped}, failed {failed}, repeats suppressed {repeats} {row.note}"
    ).rstrip()


def cells(figures: Figures | None) -> tuple[str, ...]:
    """The figures as short texts, in the order of the columns; "-" for what is not known."""
    if figures is None:
        return ("-",) * (len(_COLUMNS) - 2)
    limit = f"/{figures.queue_limit}" if figures.queue_limit else ""
    done = figures.count("prediction") if figures.role == "gate" else figures.queries
    return (
        _number(figures.rate),
        f"{figures.queue}{limit}",
        "-" if figures.role == "gate" else _number(figures.batch),
        _milliseconds(figures.latency),
        _milliseconds(figures.latency_p99),
        str(done),
        str(figures.count("dropped")),
        str(figures.count("failed")),
        str(figures.duplicates),
    )


def details(figures: Figures) -> list[str]:
    """Outcomes by kind and reason, and dead letters by reason, a line each; nothing where there is none."""
    lines = [
        f"{figures.name}: {count} {kind}" + (f" ({reason})" if reason else "")
        for kind, reasons in figures.outcomes.items()
        for reason, count in reasons.items()
    ]
    lines += [f"{figures.name}: {count} dead letters ({reason})" for reason, count in figures.dead_letters.items()]
    lines += [
        f"{figures.name}: partition {partition} is stopped: its log lost what comes at {offset} (see the process's log)"
        for partition, offset in figures.stopped.items()
    ]
    if figures.role == "gate":
        lines.append(f"{figures.name}: {figures.good} good, {figures.late} late")
    if not math.isnan(figures.hold):
        waited = f"{_milliseconds(figures.hold)} ms (p99 {_milliseconds(figures.hold_p99)})"
        lines.append(f"{figures.name}: outcomes waited {waited} for versions to be durable")
    if not math.isnan(figures.marks):
        lines.append(f"{figures.name}: {_number(figures.marks)} bytes of marks a message")
    return lines


def _number(value: float) -> str:
    return "-" if value != value else f"{value:.1f}"  # noqa: PLR0124 - NaN: nothing happened


def _milliseconds(seconds: float) -> str:
    return _number(seconds * 1000.0)
