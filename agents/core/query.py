"""A query of a stage with several lanes (`spillway.agents.core.lanes`), and the route that chooses its lanes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from spillway.agents.core.policy import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.agents.core.actions import Failed
    from spillway.agents.core.lane import Ticket
    from spillway.agents.core.request import Request


@dataclass(slots=True)
class Query:
    """A query, its tickets, and what has come of them."""

    request: Request
    due: float
    """From when on it is over as soon as it has any answer."""
    rules: Any = None
    """The route's, as they were when it came."""
    asked: dict[str, float] = field(default_factory=dict)
    """The lanes that it joined, or was refused by as full: with which probability each was asked."""
    tickets: dict[str, Ticket] = field(default_factory=dict)
    """Those that have not ended, by lane."""
    answers: dict[str, Any] = field(default_factory=dict)
    ended: Refusal | Failed | None = None
    """How a ticket without an answer ended last; a failure stands before any refusal."""
    failed: tuple[str, ...] = ()
    """The lanes that have failed it, which are not asked again."""
    left: set[str] = field(default_factory=set)
    """The lanes that lost their last worker with a ticket of it: they may be asked again, once they serve again."""
    deaths: dict[str, int] = field(default_factory=dict)
    note: Any = None
    """The route's."""
    asked_at: float = 0.0
    """When the route was asked, or an answer came, last."""
    refused: Refusal | Failed | None = None
    """Why the route lets nobody answer it, where that is so; a failure: as the route could not tell who may."""
    key: bytes = b""
    """Of its inputs, once a lane with a cache was asked."""

    def lost(self, lane: str, why: Refusal | Failed) -> None:
        self.tickets.pop(lane, None)
        failed = not isinstance(why, Refusal)
        if failed:
            self.failed = *self.failed, lane
        if self.ended is None or failed:
            self.ended = why


class Route(Protocol):
    """Which lanes a query joins."""

    @property
    def wait(self) -> float:
        """Seconds after which a query that comes now, and has any answer, waits for no other."""

    @property
    def rules(self) -> Any:
        """What else holds for a query that comes now, and stays so for that one."""

    def select(self, query: Query, lanes: Sequence[str]) -> Mapping[str, float]:
        """Name some of these lanes, all that have a worker, with the probability of each; none: no other."""
        ...
