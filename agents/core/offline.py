"""Offline queries of one lane: they wait beside its queue, and run while no online query waits (INFaaS, section 6.3.2).

Policies do not see them. They have no deadline, do not count as load, and their batches teach the estimates nothing. A
running batch is not interrupted, so an online query waits for the end of one at most. Their room is separate from the
queue's, so they never stop the stage's reading. Input offsets are committed in order, so an offline query waits for
`HELD_SECONDS` at most. After that, or if there is no room, it is handed back to its sender, which asks again
(`reasons.NO_SPARE_TIME`). A query whose worker died is not handed back while there are workers: it runs again, alone,
to find out whether it killed the worker. It waits as long for that, and then runs before online ones.
"""

from __future__ import annotations

from collections import deque
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Final

from spillway.agents.core.policy import Refusal
from spillway.agents.core.workers import fitting
from spillway.lineage import reasons

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spillway.agents.core.request import Request

HELD_SECONDS: Final = 10.0
UNSERVED_SECONDS: Final = 200.0  # without a worker, of one whose worker died; more than a worker takes to load
ROOM: Final = 256
_NEVER: Final = float("inf")


class OfflineQueue:
    """First in, first out; `waiting` is empty in a lane that has no offline queries."""

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
        alone = self.waiting[0].deaths > 0
        batch = list(islice(self.waiting, 1 if alone else most))
        del batch[fitting(batch) :]
        if not alone:  # nor with one that a worker died of
            batch = list(takewhile(lambda each: not each.deaths, batch))
        for request in batch:
            self.waiting.popleft()
            request.entered = request.started = now
        self.started += len(batch)
        return batch

    def put_back(self, now: float, request: Request) -> None:
        """Have one wait again whose worker was lost, before all others."""
        request.entered = now
        self.waiting.appendleft(request)

    def bring_overdue(self, now: float) -> bool:
        """Have one be the next whose worker died and that has found no time since; whether there is one."""
        late = next((each for each in self.waiting if each.deaths and each.entered + HELD_SECONDS <= now), None)
        if late is not None:
            self.waiting.remove(late)
            self.waiting.appendleft(late)
        return late is not None

    def hand_back(self, now: float, *, served: bool) -> Iterable[tuple[Request, Refusal]]:
        """Give those that have waited for too long; `served`: whether there is a worker."""
        late = [each for each in self.waiting if _until(each, served=served) <= now]
        if late:
            gone = {id(each) for each in late}
            self.waiting = deque(each for each in self.waiting if id(each) not in gone)
            self.handed_back += len(late)
        return [(each, held_too_long()) for each in late]

    def next_expiry(self, *, served: bool) -> float | None:
        """When there is something to hand back."""
        soonest = min((_until(each, served=served) for each in self.waiting), default=_NEVER)
        return None if soonest == _NEVER else soonest

    def remove(self, unwanted: Callable[[Request], bool]) -> list[Request]:
        gone = [each for each in self.waiting if unwanted(each)]
        if gone:
            self.waiting = deque(each for each in self.waiting if not unwanted(each))
        return gone


def _until(request: Request, *, served: bool) -> float:
    """Until when one may wait."""
    if not request.deaths:
        return request.arrived + HELD_SECONDS
    return _NEVER if served else request.entered + UNSERVED_SECONDS


def held_too_long() -> Refusal:
    return Refusal(reasons.NO_SPARE_TIME, f"no worker had time to spare for {HELD_SECONDS:g} s; ask again later")
