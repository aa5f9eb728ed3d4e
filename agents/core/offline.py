"""Offline queries of one lane: they wait beside its queue, and run while no online query waits (INFaaS, section 6.3.2).

Policies do not see them. They have no deadline, do not count as load, and their batches teach the estimates nothing. A
running batch is not interrupted, so an online query waits for the end of one at most. Their room is separate from the
queue's, so they never stop the stage's reading. Input offsets are committed in order, so an offline query waits for
`HELD_SECONDS` at most. After that, or if there is no room, it is handed back to its sender, which asks again
(`reasons.NO_SPARE_TIME`). A query whose worker died is not handed back: it runs again, alone, to find out whether it
killed the worker.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Final

from agents.core.policy import Refusal
from agents.core.workers import fitting
from lineage import reasons

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agents.core.request import Request

HELD_SECONDS: Final = 10.0
ROOM: Final = 256


class OfflineQueue:
    """First in, first out; `waiting` is empty in a lane that has no offline queries."""

    __slots__ = ("completed", "handed_back", "started", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[Request] = deque()
        self.started = self.completed = self.handed_back = 0

    @property
    def running(self) -> int:
        return self.started - self.completed

    def push(self, request: Request) -> Refusal | None:
        """Have one more wait; gives why it may not."""
        if len(self.waiting) >= ROOM:
            self.handed_back += 1
            return Refusal(reasons.NO_SPARE_TIME, f"{ROOM} offline queries wait already; ask again later")
        self.waiting.append(request)
        return None

    def take(self, now: float, most: int) -> list[Request]:
        """Give those that run next, which are under way from now on."""
        batch = list(islice(self.waiting, most))
        del batch[fitting(batch) :]
        for request in batch:
            self.waiting.popleft()
            request.entered = request.started = now
        self.started += len(batch)
        return batch

    def put_back(self, request: Request) -> None:
        """Have one wait again whose worker was lost, before all others."""
        self.waiting.appendleft(request)

    def hand_back(self, now: float) -> Iterable[tuple[Request, Refusal]]:
        """Give those that have waited for too long."""
        late = [each for each in self.waiting if not each.deaths and each.arrived + HELD_SECONDS <= now]
        if late:
            gone = {id(each) for each in late}
            self.waiting = deque(each for each in self.waiting if id(each) not in gone)
            self.handed_back += len(late)
        return [(each, held_too_long()) for each in late]

    def next_expiry(self) -> float | None:
        """When there is something to hand back."""
        return min((each.arrived + HELD_SECONDS for each in self.waiting if not each.deaths), default=None)

    def remove(self, unwanted: Callable[[Request], bool]) -> list[Request]:
        gone = [each for each in self.waiting if unwanted(each)]
        if gone:
            self.waiting = deque(each for each in self.waiting if not unwanted(each))
        return gone


def held_too_long() -> Refusal:
    return Refusal(reasons.NO_SPARE_TIME, f"no worker had time to spare for {HELD_SECONDS:g} s; ask again later")
