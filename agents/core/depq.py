"""The double-ended priority queue of PARD (section 4.3): what waits, by remaining latency budget.

At one instant the order by remaining budget is the order by deadline, so the queue keeps that and never sorts anew.
Of equal deadlines the one that came first leaves first at the low end, last at the high end. Adding and taking cost
O(log n). The sorted list is that of `sortedcontainers`: lists of lists that C code bisects, which is faster in CPython
than a min-max heap written in Python, and gives both ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sortedcontainers import SortedList

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.core.request import Request


class Depq:
    """Requests by deadline; both ends can be taken."""

    __slots__ = ("_turn", "_waiting")

    def __init__(self) -> None:
        # (deadline, place in the order of arrival, request); places differ, so requests are never compared.
        self._waiting: SortedList[tuple[float, int, Request]] = SortedList()
        self._turn = 0

    def push(self, request: Request) -> None:
        self._turn += 1
        self._waiting.add((request.deadline, self._turn, request))

    def pop_low(self) -> Request | None:
        """Take the request with the smallest budget; None when empty."""
        return self._waiting.pop(0)[2] if self._waiting else None

    def pop_high(self) -> Request | None:
        """Take the request with the largest budget; None when empty."""
        return self._waiting.pop()[2] if self._waiting else None

    def pop_expired(self, now: float) -> Request | None:
        """Take the request with the smallest budget if that is used up; looks at no other."""
        waiting = self._waiting
        return waiting.pop(0)[2] if waiting and waiting[0][0] < now else None

    @property
    def latest(self) -> float:
        """The deadline of the request with the largest budget; of an empty queue, for ever ago."""
        return self._waiting[-1][0] if self._waiting else float("-inf")

    def __len__(self) -> int:
        return len(self._waiting)

    def remove(self, unwanted: Callable[[Request], bool]) -> list[Request]:
        removed = [item for item in self._waiting if unwanted(item[2])]
        for item in removed:
            self._waiting.remove(item)
        return [request for _, _, request in removed]
