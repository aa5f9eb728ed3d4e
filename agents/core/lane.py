"""One lane of a stage (`spillway.agents.core.lanes`): a batcher, and the cache, if any, that is asked before it.

The cache belongs to this lane, and so to one version of one model: a lane that is added again starts with an empty
cache. It holds only answers of workers. Its rules are those of the stage's cache (`spillway.agents.core.cache`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spillway.agents.core.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.core.actions import Ok
    from spillway.agents.core.batching import Batcher
    from spillway.agents.core.cache import PredictionCache


@dataclass(slots=True)
class Ticket(Request):
    """A query in one lane; policies and drivers see the Request."""

    query: Any = None
    lane: str = ""
    home: Any = None  # the lane itself
    key: bytes = b""  # of its inputs, where the lane has a cache


@dataclass(slots=True, eq=False)
class Lane:
    """A name, a number and what waits there."""

    name: str
    number: int
    batcher: Batcher
    cache: PredictionCache[Ticket] | None = None
    retired: bool = False
    finishes: bool = False  # what it has, where it is retired

    @property
    def serves(self) -> bool:
        """Whether what waits here is run."""
        return self.batcher.workers > 0 and (self.finishes or not self.retired)

    @property
    def finished(self) -> bool:
        """Whether nothing waits or runs here."""
        load = self.batcher.load()
        offline = self.batcher.offline
        return not (load.queued or load.forming or load.running or offline.waiting or offline.running)

    def knows(self, key: bytes) -> bool:
        """Whether a ticket with this key takes no room."""
        return self.cache is not None and self.cache.knows(key)

    def push(self, now: float, ticket: Ticket) -> Ok | None:
        """Take a ticket; gives its answer where it is known. Else it waits, or follows one that is under way."""
        if self.cache is None or ticket.offline:
            self.batcher.push(now, ticket)
            return None
        evaluate, known = self.cache.ask(ticket)
        if evaluate:
            self.batcher.push(now, ticket)
            return None
        answer: Ok | None = known
        return answer

    def landed(self, ticket: Ticket, answer: Ok) -> list[Ticket]:
        """Keep a worker's answer to a ticket, which may be settled already; gives those that follow it."""
        if self.cache is None or ticket.offline:
            return []
        self.cache.store(ticket.key, answer, answer.size)
        return self.cache.land(ticket)

    def pass_on(self, now: float, ticket: Ticket) -> None:
        """Have the next follower of a ticket that ends without an answer evaluated in its place."""
        follower = None if self.cache is None or ticket.offline else self.cache.leave(ticket)
        if follower is not None:
            self.batcher.push(now, follower)

    def remove(self, now: float, unwanted: Callable[[Request], bool]) -> list[Request]:
        """Take out what waits here, or follows, and `unwanted` picks; gives it."""
        gone: list[Request] = [] if self.cache is None else [*self.cache.forget(unwanted)]
        for ticket in self.batcher.remove(now, unwanted):
            self.pass_on(now, ticket)  # type: ignore[arg-type]  # nothing else is in a lane
            gone.append(ticket)
        return gone
