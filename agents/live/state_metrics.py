"""What a member of a stateful shard tells of its state, for its metrics; and what the others tell of marks.

The member sets the attributes as things happen; they are read from another thread. Versions are told by their n, as the
epoch is told beside them.
"""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING, Final

from agents.core.calibration import POSITIVE, Histogram
from lineage import metric_names as names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import Metric

    from agents.live.families import Families

_BYTES: Final = (16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0)


class DurableLag:
    """For how long the oldest version of a reign that is not durable has been recorded."""

    __slots__ = ("_clock", "_oldest", "_waiting")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: deque[tuple[int, float]] = deque()  # versions, and since when
        self._oldest: float | None = None

    def note(self, recorded: int, durable: int) -> None:
        """Note the newest version that is recorded, and the newest that is durable, by their n."""
        waiting = self._waiting
        if recorded > (waiting[-1][0] if waiting else durable):
            waiting.append((recorded, self._clock()))
        while waiting and waiting[0][0] <= durable:
            waiting.popleft()
        self._oldest = waiting[0][1] if waiting else None

    def clear(self) -> None:
        self._waiting.clear()
        self._oldest = None

    def seconds(self) -> float:
        """Give it; 0 where all is durable. From any thread."""
        oldest = self._oldest
        return 0.0 if oldest is None else max(0.0, self._clock() - oldest)


class StateFigures:
    """A member's numbers."""

    __slots__ = ("captures", "durable", "epoch", "lag", "moved", "role", "sent", "version", "written")

    def __init__(self) -> None:
        self.role = "backup"  # checkpoint.promotion.Role's values
        self.epoch = 0  # the newest that it knows
        self.version: Callable[[], int] = int  # the n that its own copy of the state is at
        self.durable = 0  # the n of the shard's newest durable version
        self.lag = DurableLag()  # of a primary
        self.written = 0  # bytes of chunks and manifests
        self.sent: Callable[[], int] = int  # bytes that the broker has acknowledged to the newest reign, as they come
        self.moved = 0  # bytes that went to the log or came from it, as they move; said by the loop while it goes on
        self.captures = Histogram(POSITIVE)  # seconds that copying a state took

    @property
    def backup_lag(self) -> int:
        return max(0, self.durable - self.version()) if self.role == "backup" else 0


def marks_histogram() -> Histogram:
    """For the bytes of marks in each message's hops header."""
    return Histogram(_BYTES)


def state_families(make: Families, state: StateFigures) -> Iterator[Metric]:
    """Give the metric families of a member."""
    yield make.gauges(names.STATE_ROLE, "The member's role", (names.ROLE,), {(state.role,): 1.0})
    for name, text, value in (
        (names.STATE_EPOCH, "The newest epoch that the member knows", state.epoch),
        (names.STATE_VERSION, "The version that its own state is at", state.version()),
        (names.STATE_DURABLE_VERSION, "The newest durable version of the shard", state.durable),
        (names.STATE_BACKUP_LAG_VERSIONS, "Durable versions that a backup has not applied", state.backup_lag),
        (names.STATE_DURABLE_LAG_SECONDS, "Age of the oldest version that is not durable", state.lag.seconds()),
    ):
        yield make.gauge(name, text, value)
    written, moved = "Bytes of chunks and manifests of complete versions", "Bytes written to the log or read of it"
    yield make.counter(names.STATE_WRITTEN_BYTES_TOTAL, written, state.written)
    yield make.counter(names.STATE_MOVED_BYTES_TOTAL, f"{moved}, as they move", state.moved)
    yield make.distribution(names.STATE_CAPTURE_SECONDS, "Copying a state", state.captures)
