"""The prediction cache of a stage, or of one lane of it: what was answered, and who waits for an answer that is made.

Clipper, section 3.4 of Crankshaw's thesis ("Caching"): a function cache over (model, query), asked before the queue.
Least recently used entries leave first. Beside it, identical queries that are under way at the same time share one
evaluation: the first one leads, the others follow. Only predictions that a worker made are stored.

A request's key is the driver's affair; it is in `Work.key` or `Ticket.key`. Rules:

* A leader that is answered answers its followers. One that fails, is dropped, is revoked or turns out dead leaves the
  lead to the next follower, which enters the queue and is judged as it would have been.
* A follower counts as under way, not as waiting: no policy sees it, and no batch has room for it.
* What a worker answers to a leader that is gone is stored all the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from spillway.agents.core.actions import Ok
from spillway.agents.core.step import Step
from spillway.agents.recent import Recent
from spillway.lineage.flags import is_workers_own

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from spillway.agents.core.actions import Result, Work


class Keyed(Protocol):
    """A request of which equal ones have the same key."""

    key: bytes


Asks = TypeVar("Asks", bound=Keyed)


@dataclass(slots=True)
class _Flight(Generic[Asks]):
    leader: Asks
    followers: list[Asks] = field(default_factory=list)


class PredictionCache(Generic[Asks]):
    """Bounded in bytes. Not for several threads."""

    def __init__(self, max_bytes: int) -> None:
        self._known = Recent(max_bytes)
        self._flights: dict[Hashable, _Flight[Asks]] = {}
        self.hits = self.misses = self.shared = 0  # `shared`: of the hits, those that followed another query

    @property
    def bytes(self) -> int:
        return self._known.bytes

    def knows(self, key: Hashable) -> bool:
        """Whether a request with this key need not be evaluated, as far as is known now."""
        return key in self._known or key in self._flights

    def ask(self, work: Asks) -> tuple[bool, Any]:
        """Whether a request must be evaluated, else its answer; (False, None) for one that follows another."""
        key = work.key
        if key in self._known:
            self.hits += 1
            return False, self._known.get(key)
        flight = self._flights.get(key)
        if flight is not None:
            flight.followers.append(work)
            return False, None
        self._flights[key] = _Flight(work)
        self.misses += 1
        return True, None

    def store(self, key: Hashable, value: Any, size: int) -> None:
        """Keep a worker's answer, which takes `size` bytes, if it fits at all."""
        self._known.put(key, value, size)

    def land(self, work: Asks) -> list[Asks]:
        """Take note that an answer to `work` is known; its followers, if it led any, get the same."""
        flight = self._flights.get(work.key)
        if flight is None or flight.leader is not work:
            return []
        del self._flights[work.key]
        self.hits += len(flight.followers)
        self.shared += len(flight.followers)
        return flight.followers

    def leave(self, work: Asks) -> Asks | None:
        """Take note that `work` ends without an answer; give the follower that is to be evaluated in its place."""
        flight = self._flights.get(work.key)
        if flight is None or flight.leader is not work:
            return None
        if not flight.followers:
            del self._flights[work.key]
            return None
        flight.leader = flight.followers.pop(0)
        self.misses += 1
        return flight.leader

    def forget(self, unwanted: Callable[[Asks], bool]) -> list[Asks]:
        """Take out the followers that `unwanted` picks; gives them. Leaders are in the queue or at a worker."""
        gone = []
        for flight in self._flights.values():
            out = [work for work in flight.followers if unwanted(work)]
            if out:
                gone += out
                flight.followers = [work for work in flight.followers if not unwanted(work)]
        return gone

    def __len__(self) -> int:
        return len(self._known)


class CacheStep(Step):
    """The cache of a stage, as its step. Offline queries pass by: none is to wait, and their like do not come again."""

    def __init__(self, cache: PredictionCache[Work], key_of: Callable[[Work], bytes]) -> None:
        self.cache = cache
        self._key_of = key_of

    def admit(self, now: float, work: Work) -> None:
        if work.offline:
            self._onward(now, work)
            return
        work.key = self._key_of(work)
        evaluate, value = self.cache.ask(work)
        if evaluate:
            self._onward(now, work)
        elif value is not None:
            self._hit(work, value)

    def executed(self, now: float, work: Work, result: Result) -> None:
        """Learn what a worker answered, even to a query that is gone."""
        if not work.key:
            return
        if not (isinstance(result, Ok) and is_workers_own(result.flags)):
            self.left(now, work)
            return
        self.cache.store(work.key, result.value, result.size)
        for follower in self.cache.land(work):
            self._hit(follower, result.value)

    def left(self, now: float, work: Work) -> None:
        follower = self.cache.leave(work) if work.key else None
        if follower is not None:
            self._onward(now, follower)

    def remove(self, unwanted: Callable[[Work], bool]) -> int:
        return len(self.cache.forget(unwanted))

    def _hit(self, work: Work, value: Any) -> None:
        work.key = b""
        self._stage.hit(work, value)
