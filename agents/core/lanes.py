"""Several lanes behind one stage: a facade with the surface of `Batcher`, built only where a stage has a route.

A lane is a `Batcher` of its own: its policy and view, limit, delay, durations and workers. A query joins those that the
route names, with a *ticket* for each, and counts once, whatever its tickets. Rules:

* A ticket ends with a result, or as it is refused: by the lane's policy, as the lane is full (which stops nothing
  else), or as the lane has lost its last worker. Where all of a query's tickets have ended and none has an answer, the
  route is asked once more, about the lanes that were not asked yet.
* A query that nothing is left for is over (`over`); one that was only ever refused is dropped (`drops`).
* A query that is settled, revoked or dead loses the tickets that wait; those at workers only free them. What they
  bring is late.
* A lane with a cache (`spillway.agents.core.lane`) is asked it first: a ticket whose answer is known waits for nobody,
  and one that equals a ticket under way there waits for that one's answer. Neither takes room, and no policy sees them.
* An offline query waits beside the queue of its lane, asks no cache, and counts in nothing that others hear.
* A query that finds no lane with a worker waits for one. A lane that has lost its last worker is as if it had not been
  asked, where nothing else is left.

A worker's number tells its lane: `number_of(lane, n)`. Lanes come and go while the stage serves (`add`, `retire`): one
that is retired is asked nothing more, and is forgotten when its workers are gone (`forget`).
`now` is in unix seconds and does not decrease.
"""

from __future__ import annotations

import heapq
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.core.lane import Lane, Ticket
from spillway.agents.core.policy import Load, Refusal
from spillway.agents.core.query import Query
from spillway.lineage import reasons

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from spillway.agents.core.actions import Failed, Ok
    from spillway.agents.core.batching import Batch, Batcher
    from spillway.agents.core.cache import PredictionCache
    from spillway.agents.core.policy import Policy, StageState
    from spillway.agents.core.query import Route
    from spillway.agents.core.request import Request

_STRIDE: Final = 1 << 20  # workers that a lane can have, ever
_NEVER: Final = float("inf")


def number_of(lane: int, worker: int) -> int:
    """The number that worker `worker` of the lane with number `lane` has in the stage."""
    return lane * _STRIDE + worker


def parts_of(worker: int) -> tuple[int, int]:
    """The lane and the number in it of a stage's worker."""
    return divmod(worker, _STRIDE)


class Lanes:
    """The lanes of one stage process. The caller drains `known`, `starts`, `drops` and `over` after every call."""

    timed = True  # `next_wake` may be anything

    def __init__(
        self,
        lanes: Mapping[str, Batcher],
        route: Route,
        room: int,
        caches: Mapping[str, PredictionCache[Ticket]] | None = None,
        key_of: Callable[[Request], bytes] | None = None,
    ) -> None:
        """`lanes` have no workers yet; each takes `room` queries that wait. The first one's view is the stage's.

        `caches`: of the lanes that have one, each for one model; then `key_of` gives the key of a query's inputs.
        """
        self._route = route
        self._key_of = key_of
        self._room = room
        self._lanes: dict[str, Lane] = {}
        self._numbers: dict[int, Lane] = {}  # those that are retired, too, as long as a worker of theirs runs
        self._count = 0
        self._open: dict[int, Query] = {}  # by the request's id()
        self._idle: dict[int, Query] = {}  # of these, those without tickets: no lane has a worker
        self.known: list[tuple[Ticket, Ok]] = []  # to be answered with what a cache had
        self._dues: list[tuple[float, int, Query]] = []  # a heap, as `wait` may change
        self._pushed = count()
        self.starts: list[Batch] = []
        self.drops: list[tuple[Request, Refusal]] = []
        self.over: list[Query] = []
        self.arrived = self.dropped = 0
        self.refused: dict[tuple[str, ...], int] = {}  # tickets, by lane and reason
        for name, batcher in lanes.items():
            self.add(name, batcher, (caches or {}).get(name))
        self.policy: Policy = next(iter(lanes.values())).policy

    # Lanes come and go ------------------------------------------------------------------------------------------

    def add(self, name: str, batcher: Batcher, cache: PredictionCache[Ticket] | None = None) -> int:
        """Have one more lane, with a cache of its own or none; its number."""
        if name in self._lanes:
            raise ValueError(f"lane {name!r} is there already")
        lane = Lane(name, self._count, batcher, cache)
        self._count += 1
        self._lanes[name] = self._numbers[lane.number] = lane
        return lane.number

    def retire(self, now: float, name: str, *, finishes: bool = False) -> Lane:
        """Ask a lane nothing more. Its workers are to be drained.

        What waits there is refused; unless it `finishes`: then they are to be drained when it has (`Lane.finished`).
        """
        lane = self._lanes.pop(name)
        lane.retired, lane.finishes = True, finishes
        self._clear(now, lane)
        self._sweep(now)
        return lane

    def forget(self, number: int) -> None:
        """Let go of a lane that is retired and whose workers have all gone."""
        if (lane := self._numbers.get(number)) is not None and lane.retired:
            del self._numbers[number]

    # What happens -----------------------------------------------------------------------------------------------

    def push(self, now: float, request: Request) -> None:
        due = _NEVER if request.offline else now + self._route.wait
        query = Query(request, due, self._route.rules)
        self._open[id(request)] = query
        if query.due < _NEVER:
            heapq.heappush(self._dues, (query.due, next(self._pushed), query))
        known = len(self.known)
        self._enter(now, query)
        if not query.tickets or len(query.tickets) > len(self.known) - known:  # else it keeps nobody busy
            self.arrived += not request.offline
        self._sweep(now)

    def find(self, request: Request) -> Query | None:
        return self._open.get(id(request))

    def held_back(self) -> frozenset[int]:
        """The partitions with a query that waits in a lane whose workers run, or for a lane to have a worker.

        Other lanes' answers wait behind it to be committed; how long one batch takes, the workers' timeouts bound.
        """
        at_work = {lane for lane in self._numbers.values() if lane.batcher.load().running}
        return frozenset(
            query.request.partition
            for query in self._open.values()
            if not query.tickets or any(each.home in at_work for each in query.tickets.values())
        )

    def complete(self, now: float, worker: int, executed: float | None = None) -> Batch:
        """As `Batcher.complete`; what came of the batch's tickets `answered` and `failed` are told."""
        batch = self._of(worker).batcher.complete(now, worker, executed)
        self._sweep(now)
        return batch

    def answered(self, now: float, ticket: Ticket, answer: Any) -> bool:
        """Take the answer to a ticket; False if it is late."""
        query: Query = ticket.query
        if query.tickets.get(ticket.lane) is not ticket:
            return False
        del query.tickets[ticket.lane]
        query.asked_at = now
        if not ticket.started:  # a cache had it
            ticket.entered = ticket.started = now
        if not query.answers:
            query.request.entered, query.request.started = ticket.entered, ticket.started
        query.answers[ticket.lane] = answer
        if not query.tickets or now >= query.due:
            self.close(now, [query])
            self.over.append(query)
        return True

    def failed(self, now: float, ticket: Ticket, why: Refusal | Failed) -> None:
        """Take note that a ticket ends without an answer."""
        query: Query = ticket.query
        ticket.home.pass_on(now, ticket)
        if query.tickets.get(ticket.lane) is ticket:
            query.lost(ticket.lane, why)
            self._look(now, query)
        self._sweep(now)

    def close(self, now: float, queries: Iterable[Query]) -> None:
        """Take back the tickets of queries that are over."""
        lanes: dict[Lane, set[int]] = {}
        for query in queries:
            self._open.pop(id(query.request), None)
            self._idle.pop(id(query.request), None)
            for ticket in query.tickets.values():
                if not ticket.started:
                    lanes.setdefault(ticket.home, set()).add(id(ticket))
            query.tickets = {}
        for lane, unwanted in lanes.items():
            lane.remove(now, lambda ticket, unwanted=unwanted: id(ticket) in unwanted)  # type: ignore[misc]
        if lanes:
            self._sweep(now)

    def remove(self, now: float, unwanted: Callable[[Request], bool]) -> list[Request]:
        """Forget the queries that are not over and that `unwanted` picks, at workers or not; their requests."""
        queries = [query for query in self._open.values() if unwanted(query.request)]
        self.close(now, queries)
        return [query.request for query in queries]

    def advance(self, now: float) -> None:
        for lane in self._numbers.values():
            lane.batcher.advance(now)
        self._sweep(now)
        late = []
        while self._dues and (self._dues[0][0] <= now or self._settled(self._dues[0][2])):
            query = heapq.heappop(self._dues)[2]
            if query.answers and not self._settled(query):
                late.append(query)
        self.close(now, late)
        self.over += late

    def next_wake(self, now: float) -> float | None:
        wakes = [wake for lane in self._numbers.values() if (wake := lane.batcher.next_wake(now)) is not None]
        while self._dues and self._settled(self._dues[0][2]):
            heapq.heappop(self._dues)
        if self._dues:
            wakes.append(max(now, self._dues[0][0]))
        return min(wakes, default=None)

    # Workers come and go ----------------------------------------------------------------------------------------

    def attach(self, now: float, worker: int) -> None:
        lane = self._of(worker)
        lane.batcher.attach(now, worker)
        if not lane.retired:
            for query in list(self._idle.values()):
                self._enter(now, query)
        self._sweep(now)

    def drain(self, now: float, worker: int) -> bool:
        lane = self._of(worker)
        gone = lane.batcher.drain(now, worker)
        self._clear(now, lane)
        self._sweep(now)
        return gone

    def lose(self, now: float, worker: int) -> Batch | None:
        lane = self._of(worker)
        batch = lane.batcher.lose(now, worker)
        self._clear(now, lane)
        self._sweep(now)
        return batch

    def requeue(self, now: float, requests: Iterable[Request]) -> None:
        """Have tickets wait again, if their queries are not over."""
        for ticket in requests:
            assert isinstance(ticket, Ticket)  # nothing else is in a lane
            current = ticket.query.tickets.get(ticket.lane) is ticket
            if current and ticket.home.serves:
                ticket.started = 0.0
                ticket.home.batcher.requeue(now, [ticket])
                continue
            ticket.home.pass_on(now, ticket)
            if current:
                self._leave(ticket)
                self._look(now, ticket.query)
        self._sweep(now)

    # What others hear -------------------------------------------------------------------------------------------

    @property
    def depth(self) -> int:
        """How many queries wait in a lane or for one, at most; each counts once."""
        waiting = sum(lane.batcher.depth for lane in self._numbers.values()) + len(self._idle)
        return min(waiting, len(self._open))

    @property
    def under_way(self) -> int:
        """How many queries are not over, and lanes have something to do, or are to be forgotten."""
        return len(self._open) + sum(lane.retired or not lane.finished for lane in self._numbers.values())

    @property
    def aside(self) -> int:
        return sum(lane.batcher.aside for lane in self._numbers.values())

    @property
    def idle(self) -> Collection[int]:
        """The id() of each request that waits without a lane."""
        return self._idle.keys()

    @property
    def room(self) -> bool:
        """Whether any lane that serves has room for one more."""
        depths = [lane.batcher.depth for name, lane in self._lanes.items() if self._serves(name)]
        return min(depths, default=len(self._idle)) < self._room

    @property
    def workers(self) -> int:
        return sum(lane.batcher.workers for lane in self._lanes.values())

    @property
    def limit(self) -> int:
        return max((lane.batcher.limit for lane in self._lanes.values()), default=0)

    @property
    def unmet(self) -> bool:
        return any(lane.batcher.unmet for lane in self._lanes.values())

    @property
    def reports(self) -> bool:
        return any(lane.batcher.reports for lane in self._lanes.values())

    def report(self, now: float) -> StageState | None:
        """One word for all: the slowest lane's, with a duration of `wait` at most."""
        told = [state for lane in self._lanes.values() if (state := lane.batcher.report(now)) is not None]
        if not told:
            return None
        slowest, wait = max(told, key=lambda state: state.duration), self._route.wait
        return replace(
            slowest,
            duration=min(slowest.duration, wait),
            recent_duration=min(slowest.recent_duration, wait),
            queueing=min(slowest.queueing, wait),
            waits=[min(each, wait) for each in slowest.waits],
            utilisation=max(state.utilisation for state in told),
            slower=max(state.slower for state in told),
        )

    def load(self) -> Load:
        """Queries, counted once, and all lanes' batches; the duration is the slowest lane's, `wait` at most."""
        loads = [lane.batcher.load() for lane in self._numbers.values()]
        under_way = sum(not query.request.offline for query in self._open.values())
        depth, closed = min(self.depth, under_way), self.arrived - under_way - self.dropped
        return Load(
            arrived=self.arrived,
            dropped=self.dropped,
            started=closed,
            completed=closed,
            batches=sum(load.batches for load in loads),
            busy=sum(load.busy for load in loads),
            queued=depth,
            forming=0,
            running=under_way - depth,
            duration=min(self._route.wait, max((load.duration for load in loads), default=0.0)),
            profiled=sum(load.profiled for load in loads),
            workers=sum(load.workers for load in loads),
        )

    def tick(self, now: float, states: Mapping[str, Sequence[StageState]]) -> None:
        for lane in self._numbers.values():
            lane.batcher.tick(now, states)
        self._sweep(now)

    def waits(self, now: float) -> dict[str, float]:
        """Seconds that a query would wait in each lane that has a worker, as expected."""
        return {name: lane.batcher.wait(now) for name, lane in self._lanes.items() if lane.batcher.workers}

    def ask_again(self, now: float) -> None:
        """Ask the route again about the queries that wait without a lane, as others may answer them now."""
        for query in list(self._idle.values()):
            self._enter(now, query)
        self._sweep(now)

    def ready(self) -> dict[str, int]:
        """The workers that each lane has."""
        return {name: lane.batcher.workers for name, lane in self._lanes.items()}

    def caches(self) -> dict[str, PredictionCache[Ticket]]:
        return {name: lane.cache for name, lane in self._lanes.items() if lane.cache is not None}

    # Inside -----------------------------------------------------------------------------------------------------

    def _of(self, worker: int) -> Lane:
        return self._numbers[parts_of(worker)[0]]

    def _serves(self, name: str) -> bool:
        lane = self._lanes.get(name)
        return lane is not None and lane.serves

    def _settled(self, query: Query) -> bool:
        return id(query.request) not in self._open or self._open[id(query.request)] is not query

    def _enter(self, now: float, query: Query) -> None:
        """Have a query join lanes; without any with a worker it waits."""
        gone = [name for name in query.asked if name in query.left or not self._serves(name)]
        for name in set(gone).difference(query.failed):
            del query.asked[name]
        query.left.clear()
        if self._join(now, query):
            self._idle.pop(id(query.request), None)
        elif query.asked or query.refused is not None:
            if query.refused is not None:
                query.lost("", query.refused)
            self._finish(query)
        else:
            self._idle[id(query.request)] = query

    def _join(self, now: float, query: Query) -> bool:
        while True:
            others = [name for name in self._lanes if self._serves(name) and name not in query.asked]
            query.asked_at = now
            chosen = self._route.select(query, others)
            if not chosen:
                return False
            query.asked |= chosen
            for lane in [self._lanes[name] for name in chosen]:
                key = self._key(query, lane)
                full = lane.batcher.depth >= self._room and not query.request.offline
                if full and not lane.knows(key):
                    refusal = Refusal(reasons.LANE_FULL, f"lane {lane.name!r} has {self._room} waiting")
                    self._refuse(query, lane.name, refusal)
                else:
                    query.tickets[lane.name] = self._ticket(now, query, lane, key)
            if query.tickets:
                for ticket in list(query.tickets.values()):
                    known = ticket.home.push(now, ticket)
                    if known is not None:
                        self.known.append((ticket, known))
                return True

    def _key(self, query: Query, lane: Lane) -> bytes:
        if lane.cache is None or self._key_of is None or query.request.offline:
            return b""
        query.key = query.key or self._key_of(query.request)
        return query.key

    @staticmethod
    def _ticket(now: float, query: Query, lane: Lane, key: bytes) -> Ticket:
        of = query.request
        return Ticket(
            of.request_id, of.partition, of.sent, of.deadline, of.arrived if of.offline else now, of.parts, of.path,
            deaths=query.deaths.get(lane.name, 0), offline=of.offline, query=query, lane=lane.name, home=lane, key=key,
        )  # fmt: skip

    def _refuse(self, query: Query, lane: str, refusal: Refusal) -> None:
        which = lane, refusal.reason
        self.refused[which] = self.refused.get(which, 0) + 1
        query.lost(lane, refusal)

    def _look(self, now: float, query: Query) -> None:
        """Go on with a query of which a ticket has ended without an answer."""
        if query.tickets or self._settled(query):
            return
        if query.answers:
            self._finish(query)
        else:
            self._enter(now, query)

    def _finish(self, query: Query) -> None:
        self._open.pop(id(query.request), None)
        self._idle.pop(id(query.request), None)
        if not query.answers and isinstance(query.ended, Refusal):
            self.dropped += not query.request.offline
            self.drops.append((query.request, query.ended))
        else:
            self.over.append(query)

    def _leave(self, ticket: Ticket) -> None:
        """Take a ticket out of a lane that may be asked anew."""
        query: Query = ticket.query
        self._refuse(query, ticket.lane, Refusal(reasons.NO_WORKER, f"lane {ticket.lane!r} has no worker"))
        query.deaths[ticket.lane] = ticket.deaths
        query.left.add(ticket.lane)

    def _clear(self, now: float, lane: Lane) -> None:
        """Empty a lane that nobody serves."""
        if lane.serves:
            return
        for ticket in lane.remove(now, lambda _: True):
            assert isinstance(ticket, Ticket)  # nothing else is in a lane
            if ticket.query.tickets.get(ticket.lane) is ticket:
                self._leave(ticket)
                self._look(now, ticket.query)

    def _sweep(self, now: float) -> None:
        """Gather what the lanes decided, until nothing follows from it any more."""
        more = True
        while more:
            more = False
            for lane in list(self._numbers.values()):
                batcher = lane.batcher
                if batcher.starts:
                    self.starts += batcher.starts
                    batcher.starts.clear()
                if batcher.drops:
                    drops, batcher.drops = batcher.drops, []
                    more = True
                    for ticket, refusal in drops:
                        assert isinstance(ticket, Ticket)  # nothing else is in a lane
                        lane.pass_on(now, ticket)
                        if ticket.query.tickets.get(lane.name) is ticket:
                            self._refuse(ticket.query, lane.name, refusal)
                            self._look(now, ticket.query)
