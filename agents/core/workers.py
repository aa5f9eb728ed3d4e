"""Workers as a lane sees them: copies of a model, each with what it runs and what forms for it.

A worker's life is the table `LIFE`. A lane knows those that are ready, busy or draining; who starts and ends them knows
the loading ones, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.agents.core.durations import Duration
    from spillway.agents.core.limits import Limit
    from spillway.agents.core.request import Request

IDLE: Final = float("-inf")  # the expected end of a worker that runs nothing


class Phase(StrEnum):
    """Where a worker is in its life."""

    LOADING = "loading"
    READY = "ready"
    BUSY = "busy"
    DRAINING = "draining"  # it runs its last batch, or is told Bye at once
    GONE = "gone"


# (phase, event) -> the next phase. What is not here cannot happen.
LIFE: Final[dict[tuple[Phase, str], Phase]] = {
    (Phase.LOADING, "hello"): Phase.READY,
    (Phase.LOADING, "drain"): Phase.GONE,
    (Phase.LOADING, "lost"): Phase.GONE,
    (Phase.READY, "batch"): Phase.BUSY,
    (Phase.READY, "drain"): Phase.GONE,
    (Phase.READY, "lost"): Phase.GONE,
    (Phase.BUSY, "answer"): Phase.READY,
    (Phase.BUSY, "drain"): Phase.DRAINING,
    (Phase.BUSY, "lost"): Phase.GONE,
    (Phase.DRAINING, "answer"): Phase.GONE,
    (Phase.DRAINING, "drain"): Phase.DRAINING,
    (Phase.DRAINING, "lost"): Phase.GONE,
}


@dataclass(slots=True, eq=False)
class Batch:
    """Requests that one worker runs together, from `started` to, as far as is known then, `expected_end`."""

    worker: int
    requests: list[Request]
    started: float
    expected_end: float
    outputs: Any = None  # the driver's: what the model made of the requests, where a dispatch may need it
    offline: bool = False  # it has nothing but offline queries (`spillway.agents.core.offline`)


BATCH_BYTES: Final = 256 << 20  # of what its requests came in: half of what a frame to a worker process may have


def fitting(requests: Sequence[Request]) -> int:
    """Return how many of these make a batch within `BATCH_BYTES`: one at least."""
    left = BATCH_BYTES
    for count, request in enumerate(requests):
        for part in request.parts:
            left -= part.size
        if left < 0 and count:
            return count
    return len(requests)


class Worker:
    """One worker of a lane.

    `limit` is the most that it is given at once, now; `adaptive` gives the next one, where it adapts.
    """

    __slots__ = ("adaptive", "draining", "duration", "ends", "forming", "limit", "number", "opened", "running")

    def __init__(self, number: int, limit: Limit | int, duration: Duration) -> None:
        """`duration` is what a batch of n is expected to take here."""
        self.number = number
        self.limit = limit if isinstance(limit, int) else limit.size
        self.adaptive = None if isinstance(limit, int) else limit
        self.duration = duration
        self.running: Batch | None = None
        self.ends = IDLE  # expected end of the running batch
        self.forming: list[Request] = []
        self.opened = 0.0  # when the first of `forming` entered; meaningless while that is empty
        self.draining = False
