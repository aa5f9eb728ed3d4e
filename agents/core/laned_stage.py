"""The core of a stage with several lanes: its queries are answered by what the route makes of their tickets' answers.

    admission -> route -> lanes -> ... -> a ticket's answer -> (all have come, or time is up) -> combined -> emitted

A query is settled once. All its tickets have ended, or `wait` is over and one has an answer, or its last moment has
come (`spillway.agents.core.deadlines`): then what the route makes of it comes as a hit (`StageCore.take_hits`), for
the driver to encode. Without any answer at its last moment it has the stage's default, if there is one, else the first
answer that comes. Where nothing is left that may answer, it has failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from spillway.agents.core.actions import Failed, Ok, Work
from spillway.agents.core.lane import Ticket
from spillway.agents.core.offline import HELD_SECONDS, held_too_long
from spillway.agents.core.query import Route
from spillway.agents.core.stage import UNSERVED_SECONDS, StageCore
from spillway.lineage import reasons

if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from spillway.agents.core.actions import Result
    from spillway.agents.core.crash_suspects import Place
    from spillway.agents.core.lanes import Lanes
    from spillway.agents.core.query import Query
    from spillway.agents.core.request import Request
    from spillway.topology.routing import Graph

_AGAIN: Final = 1.0  # seconds after which the route is asked again about what waits without a lane


class Combines(Route, Protocol):
    """A route that makes an answer of several."""

    def combine(self, query: Query, /) -> Any | Failed:
        """Make the stage's answer of those that have come, at least one."""
        ...

    def heard(self, lane: str, answer: Any, /, *, late: bool) -> None:
        """Hear of a lane's answer, which changes nothing any more if it is `late`."""
        ...


class LanedCore(StageCore):
    """One replica of one stage with several lanes."""

    def __init__(self, graph: Graph, stage: str, lanes: Lanes, route: Combines, **options: Any) -> None:
        """`options`: of `StageCore`, whose `steps` are to have last moments, and no cache, which is the lanes'."""
        super().__init__(graph, stage, lanes, **options)  # type: ignore[arg-type] # a facade
        self.lanes = lanes
        self._route = route
        self._asked_again = 0.0

    @property
    def room(self) -> bool:
        """Whether more records may be delivered: a lane that is full stops only what it is asked."""
        return self.lanes.room and self._few_under_way(self.parked)

    def waits(self, busy: Container[Place] = ()) -> frozenset[int]:
        """The same, and those of queries that wait in a lane that is at work."""
        return super().waits(busy) | self.lanes.held_back()

    def retire(self, now: float, names: Iterable[str]) -> None:
        """Ask these lanes nothing more; what waits there goes to others."""
        for name in names:
            self.lanes.retire(now, name)
        self.lanes.ask_again(now)
        self._drain(now)

    def next_wake(self, now: float) -> float | None:
        wake = super().next_wake(now)
        if not self.lanes.idle:
            return wake
        return now + _AGAIN if wake is None else min(wake, now + _AGAIN)

    def _fail_unserved(self, now: float) -> None:
        """The same of what waits without a lane, whoever serves; the route is asked about it again meanwhile."""
        super()._fail_unserved(now)
        lanes = self.lanes
        if not lanes.idle or now < self._asked_again + _AGAIN:
            return
        self._asked_again = now
        lanes.ask_again(now)
        waiting = set(lanes.idle)
        for request in lanes.remove(
            now, lambda request: id(request) in waiting and request.deadline + UNSERVED_SECONDS < now
        ):
            text = f"stage {self.stage!r} had no worker for the variant or members that the query needs"
            self._settle(now, request, Failed(reasons.NO_WORKER, text))
        lanes.drops += [
            (request, held_too_long())
            for request in lanes.remove(
                now, lambda each: each.offline and id(each) in waiting and each.arrived + HELD_SECONDS <= now
            )
        ]

    def _settle(self, now: float, request: Request, result: Result) -> None:
        if not isinstance(request, Ticket):
            super()._settle(now, request, result)
        elif isinstance(result, Ok):
            for ticket in (request, *request.home.landed(request, result)):
                self._answered(now, ticket, result)
        else:
            self.lanes.failed(now, request, result)

    def _answered(self, now: float, ticket: Ticket, result: Ok) -> None:
        counts = self.lanes.answered(now, ticket, result.value)
        self._route.heard(ticket.lane, result.value, late=not counts)

    def _spare(self, work: Work) -> bool:
        query = self.lanes.find(work)
        if query is not None and query.answers:
            self._combine(query)
            return True
        if query is not None:
            query.due = 0.0  # whatever comes first is the best
        return super()._spare(work)

    def _drain(self, now: float) -> None:
        lanes = self.lanes
        while lanes.known:
            known, lanes.known = lanes.known, []
            for ticket, result in known:
                self._answered(now, ticket, result)
        super()._drain(now)
        while lanes.over:
            over, lanes.over = lanes.over, []
            for query in over:
                self._finish(query)

    def _finish(self, query: Query) -> None:
        work = query.request
        assert isinstance(work, Work)  # the core pushed it
        if query.answers:
            self._combine(query)
        elif isinstance(query.refused, Failed) or work.dead or not work.share.live or not super()._spare(work):
            failed = query.ended if isinstance(query.ended, Failed) else None
            self._end(work, failed or Failed(reasons.NO_WORKER, f"stage {self.stage!r} had no worker to ask"))

    def _combine(self, query: Query) -> None:
        work = query.request
        assert isinstance(work, Work)  # the core pushed it
        made = self._route.combine(query)
        if isinstance(made, Failed):
            self._end(work, made)
            return
        work.due = True
        self.hit(work, made)
