"""Queries that wait for versions before they enter their stage's queue, and take no room in it meanwhile.

A query waits a second at most, or half of what its deadline leaves, and then enters whatever it waited for. However
many wait, only those are looked at whose versions have come, or whose time is over. `now` is in unix seconds and does
not decrease.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from sortedcontainers import SortedList

from spillway.agents.core.step import Step

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from spillway.agents.core.actions import Work

MOST_SECONDS: Final = 1.0
_LOOK_SECONDS: Final = 0.01

Version = tuple[int, int]


class Want(NamedTuple):
    """A version to be reached by what has this name."""

    name: Hashable
    version: Version


class Versions(Protocol):
    """What the queries of a stage may wait for."""

    def wants(self, work: Work) -> tuple[Want, ...]:
        """What a query waits for, as things are, of which any may end its wait; empty where it need not wait."""

    def news(self) -> Mapping[Hashable, Version | None] | None:
        """The names whose version changed since this was asked before, each with what it is now.

        A name without a version may end any wait for it. None: too many changed to be told.
        """


class _Held(NamedTuple):
    work: Work
    until: float
    wants: tuple[Want, ...]


class TokenWait(Step):
    """Those of one stage."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._came = 0
        self._held: dict[int, _Held] = {}  # by number, in the order in which they came
        self._by_name: dict[Hashable, Any] = {}  # sorted (version that is wanted, number)
        self._dues: Any = SortedList()  # (until when at most, number)

    def admit(self, now: float, work: Work) -> None:
        wants = self._versions.wants(work)
        if wants and not self._held:
            self._versions.news()  # that of nobody; what comes from now on is of this one
            wants = self._versions.wants(work)
        if not wants:
            self._onward(now, work)
            return
        self._came += 1
        until = now + min(MOST_SECONDS, max(0.0, work.deadline - now) / 2)
        self._dues.add((until, self._came))
        self._hold(self._came, _Held(work, until, wants))

    def advance(self, now: float) -> None:
        """Let those enter that need wait no more."""
        if not self._held:
            return
        over = {number for _, number in self._dues.irange(maximum=(now, math.inf))}
        for number in sorted(self._stirred() | over):
            held = self._held.get(number)
            if held is None:
                continue
            wants = () if number in over else self._versions.wants(held.work)
            if not wants:
                self._forget(number)
                self._onward(now, held.work)
            elif wants != held.wants:
                self._let_go(number, held)
                self._hold(number, held._replace(wants=wants))

    def next_wake(self, now: float) -> float | None:
        return min(now + _LOOK_SECONDS, self._dues[0][0]) if self._held else None

    def remove(self, unwanted: Callable[[Work], bool]) -> int:
        found = [number for number, held in self._held.items() if unwanted(held.work)]
        for number in found:
            self._forget(number)
        return len(found)

    def _stirred(self) -> set[int]:
        """The numbers of those whose wait may be over by what has changed."""
        news = self._versions.news()
        if news is None:
            return set(self._held)
        found: set[int] = set()
        for name, version in news.items():
            waiting = self._by_name.get(name)
            if waiting is not None:
                found.update(number for _, number in waiting.irange(maximum=version and (version, math.inf)))
        return found

    def _hold(self, number: int, held: _Held) -> None:
        self._held[number] = held
        for name, version in held.wants:
            self._by_name.setdefault(name, SortedList()).add((version, number))

    def _let_go(self, number: int, held: _Held) -> None:
        for name, version in held.wants:
            waiting = self._by_name[name]
            waiting.remove((version, number))
            if not waiting:
                del self._by_name[name]

    def _forget(self, number: int) -> None:
        held = self._held.pop(number)
        self._dues.remove((held.until, number))
        self._let_go(number, held)
