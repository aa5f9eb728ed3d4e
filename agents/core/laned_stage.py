"""The core of a stage with several lanes: its queries are answered by what the route makes of their tickets' answers.

    admission -> route -> lanes -> ... -> a ticket's answer -> (all have come, or time is up) -> combined -> emitted

A query is settled once. All its tickets have ended, or `wait` is over and one has an answer, or its last moment has
come (`agents.core.last_moments`): then what the route makes of it comes as a hit (`StageCore.take_hits`), for the
driver to encode. Without any answer at its last moment it has the stage's default, if there is one, else the first
answer that comes. Where nothing is left that may answer, it has failed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from agents.core.actions import Failed, Ok, Work
from agents.core.lanes import Lanes, Route, Ticket
from agents.core.stage import StageCore
from lineage import reasons

if TYPE_CHECKING:
    from agents.core.actions import Result
    from agents.core.lanes import Query
    from agents.core.request import Request
    from topology.routing import Graph


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
        """`options`: of `StageCore`, without a cache or a dispatch."""
        super().__init__(graph, stage, lanes, **(options | {"holds": True}))  # type: ignore[arg-type] # a facade
        self.lanes = lanes
        self._route = route

    @property
    def room(self) -> bool:
        """Whether more records may be delivered: a lane that is full stops only what it is asked."""
        return self.lanes.room and self._few_under_way

    def _settle(self, now: float, request: Request, result: Result) -> None:
        if not isinstance(request, Ticket):
            super()._settle(now, request, result)
        elif isinstance(result, Ok):
            counts = self.lanes.answered(now, request, result.value)
            self._route.heard(request.lane, result.value, late=not counts)
        else:
            self.lanes.failed(now, request, result)

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
        elif work.dead or not work.share.live or not super()._spare(work):
            failed = query.ended if isinstance(query.ended, Failed) else None
            self._end(work, failed or Failed(reasons.NO_WORKER, f"stage {self.stage!r} had nobody to ask"))

    def _combine(self, query: Query) -> None:
        work = query.request
        assert isinstance(work, Work)  # the core pushed it
        made = self._route.combine(query)
        if isinstance(made, Failed):
            self._end(work, made)
            return
        work.due = True
        self._hits.append((work, made))
