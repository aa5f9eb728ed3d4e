"""Queries that wait for something before they enter their stage's queue, and take no room in it meanwhile.

A query waits a second at most, or half of what its deadline leaves, and then enters whatever it waited for. `now` is in
unix seconds and does not decrease.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.core.actions import Work

MOST_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.01


class Holding:
    """Those of one stage."""

    __slots__ = ("_awaits", "_enter", "_held")

    def __init__(self, awaits: Callable[[Work], bool], enter: Callable[[float, Work], object]) -> None:
        """`awaits`: whether a query has to wait, as things are; `enter` lets it go on."""
        self._awaits = awaits
        self._enter = enter
        self._held: list[tuple[float, Work]] = []  # until when at most

    def admit(self, now: float, work: Work) -> None:
        if self._awaits(work):
            self._held.append((now + min(MOST_SECONDS, max(0.0, work.deadline - now) / 2), work))
        else:
            self._enter(now, work)

    def advance(self, now: float) -> None:
        """Let those enter that need wait no more."""
        held, self._held = self._held, []
        for until, work in held:
            if until > now and self._awaits(work):
                self._held.append((until, work))
            else:
                self._enter(now, work)

    def next_wake(self, now: float) -> float | None:
        return now + _LOOK_SECONDS if self._held else None

    def remove(self, unwanted: Callable[[Work], bool]) -> int:
        """Forget those that `unwanted` picks; how many they are."""
        before = len(self._held)
        self._held = [(until, work) for until, work in self._held if not unwanted(work)]
        return before - len(self._held)
