"""What the gate counts. Its figures are the clients': an outcome counts when clients could read it."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.core.estimates.observed import Transfer
from spillway.agents.metrics import Distribution, Families, ProcessMetrics, WaitsTold, by_one
from spillway.lineage import metric_names as names
from spillway.lineage.flags import is_cut
from spillway.lineage.message import DROPPED, FAILED, PREDICTION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from prometheus_client import Metric

    from spillway.agents.core.outcomes import Release
    from spillway.agents.live.gate.trace_exporter import TraceExporter
    from spillway.lineage.message import Outcome

_MOST_RECENT: Final = 50
_MOST_TEXT: Final = 200  # characters


class GateMetrics(ProcessMetrics):
    """The gate's numbers, the pipeline's score among them."""

    role = "gate"
    stage = "gate"

    def __init__(self, pipeline: str, replica: int = 0, slo: float = 1.0) -> None:
        self.pipeline = pipeline
        self.replica = replica
        self.received = 0
        self.duplicates: Callable[[], int] = int
        self.held: Callable[[], int] = int
        self.good = 0
        self.late = 0
        self.flags_cut = 0
        self.emitted = 0
        self.aborted = 0
        self.outcomes: Counter[tuple[str, ...]] = Counter()  # by (kind, reason)
        self.dead_letters: Counter[tuple[str, ...]] = Counter()  # by (reason,)
        self.committed: dict[int, int] = {}
        self.waits = WaitsTold()
        self.stopped: dict[int, int] = {}
        self.latency = {kind: Distribution(slo) for kind in (PREDICTION, DROPPED, FAILED)}
        self.intake = Distribution()
        self.transfer = Transfer()  # from an outcome's timestamp to its commit
        self.transaction = Distribution()
        self.hold: Distribution | None = None  # None where no outcome rests on a state
        self.traces: TraceExporter | None = None  # None where no traces are exported
        self._unanswered: deque[tuple[float, str, str, str, str, str]] = deque(maxlen=_MOST_RECENT)

    def accepted(self, way: float) -> None:
        """Count a report that took so many seconds to the gate."""
        self.received += 1
        self.intake.observe(way)

    def transferred(self, now: float, ways: Sequence[float]) -> None:
        """Learn how long reports took until their transaction was over."""
        for way in ways:
            self.transfer.hear(now, way)

    def released(self, now: float, releases: Sequence[Release], seconds: float, gathered: float) -> None:
        """Count outcomes that readers see from `now` on, after a transaction of so many seconds and a gathering."""
        self.transaction.observe(seconds)
        self.emitted += len(releases)
        for release in releases:
            outcome, online = release.outcome, not release.source.offline
            self.outcomes[outcome.kind, outcome.reason] += 1
            if online:
                self.latency[outcome.kind].observe(max(0.0, now - release.source.sent))
            if self.hold is not None:
                until = now - seconds - gathered
                self.hold.observe(max(0.0, until - max(part.payload.taken for part in release.parts)))
            if outcome.kind == PREDICTION:
                good = now <= release.source.deadline
                self.good += good and online
                self.late += not good and online
                self.flags_cut += is_cut(outcome.flags)
            else:
                self.note(now, release.request_id, outcome)

    def wrote_letters(self, reasons: Sequence[str]) -> None:
        self.dead_letters.update((reason,) for reason in reasons)

    def report_waits(self, waits: Callable[[], frozenset[int]]) -> None:
        """Ask which partitions stand still for other stages' versions, now and then."""
        if self.waits.due:
            self.waits.say(waits())

    def note(self, now: float, request_id: str, outcome: Outcome) -> None:
        """Keep a drop or failure for `recent`."""
        text = outcome.text if len(outcome.text) <= _MOST_TEXT else f"{outcome.text[:_MOST_TEXT]}..."
        self._unanswered.append((now, request_id, outcome.kind, outcome.reason, outcome.stage, text))

    def recent(self) -> list[dict[str, Any]]:
        """Return the last drops and failures as JSON, the newest first; called from another thread."""
        keys = ("at", "request_id", "kind", "reason", "stage", "text")
        return [dict(zip(keys, each, strict=True)) for each in reversed(tuple(self._unanswered))]

    def collect(self) -> Iterator[Metric]:
        make = Families(self.pipeline, self.stage, self.replica)
        yield make.counter(names.RECEIVED_TOTAL, "Messages taken from the outcomes topic", self.received)
        yield make.counter(names.DUPLICATES_TOTAL, "Repeated messages that were suppressed", self.duplicates())
        yield make.counter(names.EMITTED_TOTAL, "Outcomes released to egress", self.emitted)
        yield make.counter(names.GOOD_TOTAL, "Predictions that could be read by their deadline", self.good)
        yield make.counter(names.LATE_TOTAL, "Predictions that could be read only after it", self.late)
        yield make.counter(names.FLAGS_CUT_TOTAL, "Outcomes that lost flags on their way", self.flags_cut)
        outcomes = dict(self.outcomes)
        yield make.counters(names.OUTCOMES_TOTAL, "Outcomes released", ("kind", "reason"), outcomes)
        yield make.counters(
            names.DEAD_LETTERS_TOTAL, "Messages that could not be accepted", ("reason",), dict(self.dead_letters)
        )
        yield make.gauge(names.HELD, "Outcomes held back", self.held())
        yield make.distributions(
            names.LATENCY_SECONDS,
            "From the query's sending until its outcome could be read",
            (names.KIND,),
            {(kind,): values for kind, values in self.latency.items()},
        )
        yield make.distribution(names.INTAKE_SECONDS, "From an outcome's timestamp to the gate", self.intake)
        yield make.distribution(names.TRANSACTION_SECONDS, "Commit of a transaction", self.transaction)
        yield make.counter(names.ABORTED_TOTAL, "Transactions that were aborted, and decided again", self.aborted)
        if self.hold is not None:
            yield make.distribution(
                names.STATE_HOLD_SECONDS, "Time that outcomes waited for durable versions", self.hold
            )
        if self.traces is not None:
            yield make.counter(names.TRACES_SENT_TOTAL, "Traces that the collector took", self.traces.sent)
            lost = by_one(self.traces.lost)
            yield make.counters(names.TRACES_LOST_TOTAL, "Traces that were not exported", (names.REASON,), lost)
        yield make.partitions(names.COMMITTED_OFFSET, "Next offset to read after a restart", self.committed)
        yield make.partitions(names.STOPPED_AT_OFFSET, "Partitions whose log lost this next offset", self.stopped)
        yield self.waits.family(make)
