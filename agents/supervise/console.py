"""What a person at the terminal of `serve` hears of queries: each kind of failure once, and at the end how many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spillway.agents.log import tail
from spillway.lineage.message import DROPPED, FAILED, PREDICTION

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from spillway.agents.supervise.scrape import Figures

STOPPED_EARLY: Final = "stopped while starting"
_BEGINNING: Final = "Traceback (most recent call last):"
_TAIL_BYTES: Final = 256 << 10
_MOST_LINES: Final = 30


class FirstFailures:
    """Notices the first query that fails in a stage for a reason."""

    def __init__(self) -> None:
        self._told: set[tuple[str, str]] = set()

    def news(self, stage: str, figures: Figures) -> Iterator[str]:
        """The reasons for which queries of `stage` fail, each when it is first seen."""
        for reason in figures.outcomes.get(FAILED, {}):
            if (stage, reason) not in self._told:
                self._told.add((stage, reason))
                yield reason


class Answered:
    """How many outcomes the gate has released, over all of its processes: each counts from its own beginning."""

    def __init__(self) -> None:
        self._before = self._last = 0

    def note(self, figures: Figures | None) -> None:
        if figures is None:
            return
        count = sum(figures.count(kind) for kind in (PREDICTION, DROPPED, FAILED))
        if count < self._last:
            self._before += self._last
        self._last = count

    @property
    def total(self) -> int:
        return self._before + self._last


class Silence:
    """For how long queries have waited while none was answered."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._answered = 0

    def note(self, now: float, answered: int, *, waiting: bool) -> None:
        """Take how many were answered so far, and whether any waits."""
        if not waiting:
            self._since = None
        elif self._since is None or answered != self._answered:
            self._since = now
        self._answered = answered

    def seconds(self, now: float) -> float:
        return 0.0 if self._since is None else now - self._since


def last_traceback(log: Path) -> str:
    """The newest traceback in a log, without the middle of a long one; empty where there is none."""
    lines = tail(log, _TAIL_BYTES).splitlines()
    begin = next((n for n in reversed(range(len(lines))) if lines[n].startswith(_BEGINNING)), None)
    if begin is None:
        return ""
    end = next((n for n in range(begin + 1, len(lines)) if not lines[n].startswith(" ")), len(lines) - 1)
    found = lines[begin : end + 1]
    if len(found) > _MOST_LINES:
        found = [*found[: _MOST_LINES // 2], "  ...", *found[-_MOST_LINES // 2 :]]
    return "\n".join(found)


def of_gate(figures: Mapping[str, Figures]) -> Figures | None:
    return next((each for each in figures.values() if each.role == "gate"), None)
