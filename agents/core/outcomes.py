"""What comes to the gate, what leaves it, and what it counts."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from spillway.agents.core.joins import REUSE_SECONDS
from spillway.agents.core.request import Received
from spillway.lineage.flags import bounded, merge
from spillway.lineage.message import PREDICTION, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.agents.core.request import Delivery
    from spillway.lineage.message import OutcomeKind, StageTiming, Value


# What the gate has decided: the memory that makes an outcome the only one of its query.
#
# Deduplication by hops tells copies of one message. It cannot tell two *different* reports of one query that reach the
# gate by different ways: a stage that crashed after it had sent a request on may drop the same request when it takes it
# again, as it is late by then. So the gate remembers the queries themselves: for a time in which no stage should be
# away that long, and for a number that bounds memory.
#
# Invariants:
#
# * `knows` is true of a query from the moment its outcome is decided until it was released and then, by the append
#   times of committed input, `seconds` have passed since its egress record was written, or more than `limit` have been
#   released since. However long an outcome is held, its age begins with its release. Only `undecide` ends that sooner.
# * `egress` is a position in the egress partition, at or below which nothing that is remembered has been written: a
#   gate that reads from there on, and calls `recall`, knows what its predecessor knew, each outcome from the same
#   moment on. In particular everything released whose input is not yet committed is read again, so nothing is released
#   twice after a crash. What was decided and not released is decided again, from input that is not committed.
# * An id that was sent at another time is another query.

RELEASED_SECONDS = 300.0
RELEASED_LIMIT = 20_000  # per partition


@dataclass(slots=True)
class _Decided:
    request_id: str
    sent: float
    appended: float  # of the newest input that decided it; once it is released of its egress record, if that is later
    egress: int = -1  # where its egress record lies, once it is released


class ReleasedMemory:
    """The queries of one partition whose outcome is decided."""

    def __init__(self, egress: int, seconds: float = RELEASED_SECONDS, limit: int = RELEASED_LIMIT) -> None:
        self.egress_next = egress  # nothing is written at or above it yet, as far as is known
        self._seconds = seconds
        self._limit = limit
        self._released: deque[_Decided] = deque()  # in the egress's order
        self._ids: dict[str, _Decided] = {}  # those, and what is decided and not yet released
        self._ahead: deque[tuple[int, float]] = deque()  # (offset, appended) of input that is not yet committed
        self._newest = float("-inf")  # the highest append time of committed input

    def knows(self, request_id: str, sent: float) -> bool:
        decided = self._ids.get(request_id)
        return decided is not None and abs(decided.sent - sent) <= REUSE_SECONDS

    def taken(self, offset: int, appended: float) -> None:
        """Note that an input record was taken; time goes by these, once they are committed."""
        self._ahead.append((offset, appended))

    def decide(self, request_id: str, sent: float, appended: float) -> None:
        """Note that the outcome of a query is decided, from input that was appended at `appended` at the latest."""
        self._ids[request_id] = _Decided(request_id, sent, appended)

    def undecide(self, request_id: str, sent: float) -> None:
        """Forget an outcome that was held and turned out dead: it was never written, and the live one is awaited."""
        decided = self._ids.get(request_id)
        if decided is not None and abs(decided.sent - sent) <= REUSE_SECONDS:
            del self._ids[request_id]

    def written(self, offset: int, request_id: str, sent: float, appended: float) -> None:
        """Note that a decided outcome is released: its record lies at `offset` of the egress partition."""
        decided = self._ids.get(request_id)
        if decided is None or decided.sent != sent:  # its id was used again meanwhile, for another query
            decided = _Decided(request_id, sent, appended)
        self._release(decided, offset, appended)

    def recall(self, offset: int, request_id: str, sent: float, appended: float) -> None:
        self._ids[request_id] = decided = _Decided(request_id, sent, appended)
        self._release(decided, offset, appended)

    def committed(self, offset: int) -> None:
        """Forget what is old, or over the limit; never what input at or above the committed `offset` can bring."""
        ahead = self._ahead
        while ahead and ahead[0][0] < offset:
            self._newest = max(self._newest, ahead.popleft()[1])
        released, ids = self._released, self._ids
        while released:
            first = released[0]
            old = first.appended < self._newest - self._seconds
            if not old and not (len(released) > self._limit and first.appended < self._newest):
                return
            released.popleft()
            if ids.get(first.request_id) is first:
                del ids[first.request_id]

    @property
    def egress(self) -> int:
        return self._released[0].egress if self._released else self.egress_next

    def __len__(self) -> int:
        return len(self._released)

    def _release(self, decided: _Decided, offset: int, appended: float) -> None:
        decided.egress, decided.appended = offset, max(decided.appended, appended)
        self._released.append(decided)
        self.egress_next = max(self.egress_next, offset + 1)


@dataclass(slots=True)
class Release:
    """One query's outcome, to be written to the egress."""

    request_id: str
    partition: int
    outcome: Outcome
    source: Delivery  # the report that decided it: its headers go on, and its very value unless `own`
    own: bool  # the outcome is the gate's making (merged, or the gate's failure): encode it
    parts: tuple[Delivery, ...]
    offsets: tuple[int, ...]  # the input records that it settles
    latency: float = 0.0  # from the query's sending to its release, seconds
    good: bool = False  # a prediction within its deadline
    case: Any = None  # what waits for the versions that it rests on (`spillway.agents.core.speculation`)
    message: Any = None  # what the driver makes of it beforehand

    @property
    def size(self) -> int:
        """Bytes that its reports take in memory."""
        parts = self.parts
        return parts[0].size if len(parts) == 1 else sum(part.size for part in parts)


@dataclass(slots=True)
class GateStats(Received):
    """What a gate's core counted since it began."""

    outcomes: dict[tuple[OutcomeKind, str], int] = field(default_factory=dict)  # by kind and reason
    good: int = 0
    late: int = 0  # predictions after their deadline

    def score(self, now: float, release: Release) -> None:
        source, outcome = release.source, release.outcome
        release.latency = now - source.sent
        key = (outcome.kind, outcome.reason)
        self.outcomes[key] = self.outcomes.get(key, 0) + 1
        if outcome.kind == PREDICTION:
            release.good = now <= source.deadline
            self.good += release.good
            self.late += not release.good


def merged(reports: Sequence[tuple[str, Outcome]]) -> Outcome:
    """Join the predictions of several sinks: each output is called `<sink>.<name>`; flags are merged.

    Timings are those of all branches; a stage before the branches parted counts once. The order of the sinks' names
    decides the order of outputs, whatever came first.
    """
    outputs: dict[str, Value] = {}
    timings: list[StageTiming] = []
    seen: set[str] = set()
    for sink, outcome in sorted(reports, key=lambda report: report[0]):
        outputs |= {f"{sink}.{name}": value for name, value in outcome.outputs.items()}
        timings += [timing for timing in outcome.timings if timing.stage not in seen]
        seen.update(timing.stage for timing in outcome.timings)
    flags = merge(outcome.flags for _, outcome in reports)
    return Outcome(PREDICTION, outputs=outputs, timings=timings, flags=bounded(flags, "gate") if flags else flags)
