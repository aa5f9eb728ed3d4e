"""How much of the comparison is measured, and where."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.hams.progress import Progress
    from benchmarks.output import Table
    from spillway.producers.connection import ClientSettings


@dataclass(frozen=True, slots=True)
class Setting:
    """One broker, some services, some modes."""

    cluster: ClientSettings
    folder: Path
    say: Callable[[str], None]
    services: tuple[str, ...]
    modes: tuple[str, ...]
    sizes: tuple[int, ...]
    repeats: int
    bursts: int  # of each run, beside those that warm up
    minutes: float  # of full load without a fault
    progress: Progress
    rate: float | None = None  # queries a second while processes are killed; None for each service's own
    again: int = 0  # times that a run which lost much to the machine's host is made again
    _runs: Iterator[int] = field(default_factory=lambda: count(1))

    def run(self) -> int:
        return next(self._runs)


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the comparison. What `measure` gives is plain JSON; tables are made of it alone."""

    measure: Callable[[Setting], dict[str, Any]]
    tables: Callable[[dict[str, Any]], list[Table]]
