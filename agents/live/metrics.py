"""What a stage, or the gate, counts; read by Prometheus on a loopback port, found through a file in the run directory.

The hot path adds to plain Python numbers, which costs a tenth of prometheus-client's own counters; a collector turns
them into metric families when somebody asks.
"""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Final

from prometheus_client.registry import Collector

from agents.core.calibration import FATES, TERMS, Budgets, Calibration, Histogram
from agents.core.estimates.transfer import Transfer
from agents.live.families import Distribution, Families
from agents.live.plan_metrics import plan_families
from agents.live.state_metrics import state_families
from lineage import metric_names as names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client import Metric

    from agents.core.board import Board
    from agents.core.policy import StageFacts
    from agents.live.state_metrics import StateFigures


# What a process says of its partitions that stand still: that they wait by right, and for how long it may be believed.
#
# The loop that does the work says so, and a thread that goes on when the loop hangs is asked by the watchdog: so what
# was said counts for some seconds only. A process that hangs falls silent, and is judged by what it commits.

LOOK_SECONDS: Final = 1.0
BELIEVED_SECONDS: Final = 5.0


class WaitsTold:
    """The newest word of a process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said: tuple[float, frozenset[int]] = (clock(), frozenset())  # replaced whole: it is read by a thread

    @property
    def due(self) -> bool:
        return self._clock() - self._said[0] >= LOOK_SECONDS

    def say(self, partitions: frozenset[int]) -> None:
        self._said = (self._clock(), partitions)

    @property
    def partitions(self) -> frozenset[int]:
        at, said = self._said
        return said if self._clock() - at <= BELIEVED_SECONDS else frozenset()

    def family(self, make: Families) -> Metric:
        text = "1 where a partition waits for other stages' versions"
        return make.partitions(names.WAITS, text, dict.fromkeys(self.partitions, 1))


class StageMetrics(Collector):
    """One stage replica's numbers. The driver adds to the attributes; they are read from another thread."""

    role = "stage"
    label = ""  # the process's name, where that is not stage and replica

    def __init__(self, pipeline: str, stage: str, replica: int, *, queue_limit: int = 0, instances: int = 1) -> None:
        self.pipeline = pipeline
        self.stage = stage
        self.replica = replica
        self.queue_limit = queue_limit
        self.instances = instances
        self.received: Callable[[], int] = int
        self.duplicates: Callable[[], int] = int
        self.depth: Callable[[], int] = int  # asked when somebody reads the metrics
        self.batches = 0
        self.batched = 0
        self.busy = 0.0
        self.emitted = 0
        self.clock_skew = 0
        self.outcomes: Counter[tuple[str, ...]] = Counter()  # by (kind, reason)
        self.dead_letters: Counter[tuple[str, ...]] = Counter()  # by (reason,)
        self.committed: dict[int, int] = {}
        self.waits = WaitsTold()
        self.stopped: dict[int, int] = {}  # by partition that lost what comes next: the position
        self.queued = Distribution()
        self.waited = Distribution()
        self.executed = Distribution()
        self.intake = Distribution()
        self.transfer = Transfer()
        self.handoff = Distribution()
        self.overhead = Distribution()
        self.calibration = Calibration()
        self.budgets = Budgets()
        self.plan: Board | None = None  # what is known of all replicas, and what was planned of their stages
        self.plan_facts: Mapping[str, StageFacts] = {}
        self.plan_unsaid = 0
        self.plan_age = Distribution()
        self.plan_delay = Distribution()
        self.state: StateFigures | None = None  # of a member of a stateful shard
        self.marks: Histogram | None = None  # bytes in the messages that are sent; None where nothing rests on a state

    def collect(self) -> Iterator[Metric]:
        make = Families(self.pipeline, self.stage, self.replica)
        yield make.counter(names.RECEIVED_TOTAL, "Messages taken from the stage's input", self.received())
        yield make.counter(names.DUPLICATES_TOTAL, "Repeated messages that were suppressed", self.duplicates())
        yield make.counter(names.BATCHES_TOTAL, "Batches executed", self.batches)
        yield make.counter(names.BATCHED_QUERIES_TOTAL, "Queries in executed batches", self.batched)
        yield make.counter(names.BUSY_SECONDS_TOTAL, "Seconds of model execution, summed over instances", self.busy)
        yield make.counter(names.EMITTED_TOTAL, "Messages produced to the next topics", self.emitted)
        yield make.counter(
            names.CLOCK_SKEW_TOTAL, "Queries whose sender's clock was more than 1 s off", self.clock_skew
        )
        outcomes = dict(self.outcomes)
        yield make.counters(names.OUTCOMES_TOTAL, "Queries that ended here", ("kind", "reason"), outcomes)
        yield make.counters(
            names.DEAD_LETTERS_TOTAL, "Messages that could not be taken", ("reason",), dict(self.dead_letters)
        )
        yield make.gauge(names.QUEUE_DEPTH, "Queries that wait", self.depth())
        yield make.gauge(names.QUEUE_LIMIT, "Queries that may wait", self.queue_limit)
        yield make.gauge(names.MODEL_INSTANCES, "Model instances in this process", self.instances)
        yield make.distribution(names.QUEUE_SECONDS, "From arrival to entering a batch", self.queued)
        yield make.distribution(names.BATCH_WAIT_SECONDS, "From entering a batch to its start", self.waited)
        yield make.distribution(names.EXECUTION_SECONDS, "Execution of a batch", self.executed)
        yield make.distribution(names.INTAKE_SECONDS, "From a message's timestamp to the stage's queue", self.intake)
        yield make.distribution(
            names.HANDOFF_SECONDS, "From the end of a batch's execution to its messages' production", self.handoff
        )
        yield make.distribution(
            names.OVERHEAD_SECONDS, "By which a batch took its instance up for longer than the model", self.overhead
        )
        yield from self._estimates(make)
        yield from self._plan(make)
        if self.state is not None:
            yield from state_families(make, self.state)
        if self.marks is not None:
            yield make.distribution(names.HOPS_MARKS_BYTES, "Bytes of marks in a message's hops header", self.marks)
        yield make.partitions(names.COMMITTED_OFFSET, "Next offset to read after a restart", self.committed)
        yield make.partitions(names.STOPPED_AT_OFFSET, "Partitions whose log lost this next offset", self.stopped)
        yield self.waits.family(make)

    def _estimates(self, make: Families) -> Iterator[Metric]:
        told, budgets = self.calibration, self.budgets
        yield make.distributions(
            names.ESTIMATE_ERROR_SECONDS,
            "What happened less what the others were told",
            (names.TERM,),
            {(term,): errors for term, errors in told.errors.items()},
        )
        for name, text, totals in (
            (names.TOLD_SECONDS_TOTAL, "Seconds that the others were told to expect", told.told_total),
            (names.HAPPENED_SECONDS_TOTAL, "Seconds that it took", told.happened_total),
        ):
            yield make.counters(name, text, (names.TERM,), {(term,): totals[term] for term in TERMS})
        left: dict[tuple[str, ...], Histogram] = {(fate,): budgets.left[fate] for fate in FATES}
        yield make.distributions(names.BUDGET_SECONDS, "Left to the deadline when judged", (names.FATE,), left)
        yield make.distribution(
            names.SHORTFALL_SECONDS, "By how much estimates of dropped ones missed it", budgets.shortfall
        )
        yield make.distribution(names.CONSUMED_SECONDS, "From arrival to the end of the batch", budgets.consumption)

    def _plan(self, make: Families) -> Iterator[Metric]:
        if self.plan is None:
            return
        yield from plan_families(make, self.plan, self.plan_facts, time.time())
        yield make.counter(names.PLAN_UNSAID_TOTAL, "Words not said, the one before being under way", self.plan_unsaid)
        yield make.distribution(names.PLAN_AGE_SECONDS, "Age of others' words at their merging", self.plan_age)
        yield make.distribution(names.PLAN_DELAY_SECONDS, "From saying a word to hearing it", self.plan_delay)


class GateMetrics(Collector):
    """The gate's numbers, the pipeline's score among them."""

    role = "gate"
    stage = "gate"
    label = ""

    def __init__(self, pipeline: str, replica: int = 0) -> None:
        self.pipeline = pipeline
        self.replica = replica
        self.received = 0
        self.duplicates: Callable[[], int] = int
        self.held: Callable[[], int] = int
        self.good = 0
        self.late = 0
        self.emitted = 0
        self.outcomes: Counter[tuple[str, ...]] = Counter()  # by (kind, reason)
        self.dead_letters: Counter[tuple[str, ...]] = Counter()  # by (reason,)
        self.committed: dict[int, int] = {}
        self.waits = WaitsTold()
        self.stopped: dict[int, int] = {}  # by partition that lost what comes next: the position
        self.latency = Distribution()
        self.intake = Distribution()
        self.transfer = Transfer()  # from an outcome's timestamp to its commit
        self.transaction = Distribution()
        self.hold: Distribution | None = None  # None where no outcome rests on a state

    def collect(self) -> Iterator[Metric]:
        make = Families(self.pipeline, self.stage, self.replica)
        yield make.counter(names.RECEIVED_TOTAL, "Messages taken from the outcomes topic", self.received)
        yield make.counter(names.DUPLICATES_TOTAL, "Repeated messages that were suppressed", self.duplicates())
        yield make.counter(names.EMITTED_TOTAL, "Outcomes released to egress", self.emitted)
        yield make.counter(names.GOOD_TOTAL, "Predictions within the SLO", self.good)
        yield make.counter(names.LATE_TOTAL, "Predictions after their deadline", self.late)
        outcomes = dict(self.outcomes)
        yield make.counters(names.OUTCOMES_TOTAL, "Outcomes released", ("kind", "reason"), outcomes)
        yield make.counters(
            names.DEAD_LETTERS_TOTAL, "Messages that could not be taken", ("reason",), dict(self.dead_letters)
        )
        yield make.gauge(names.HELD, "Outcomes held back", self.held())
        yield make.distribution(names.LATENCY_SECONDS, "From the query's sending to its release", self.latency)
        yield make.distribution(names.INTAKE_SECONDS, "From an outcome's timestamp to the gate", self.intake)
        yield make.distribution(names.TRANSACTION_SECONDS, "Commit of a transaction", self.transaction)
        if self.hold is not None:
            yield make.distribution(names.STATE_HOLD_SECONDS, "That outcomes waited for durable versions", self.hold)
        yield make.partitions(names.COMMITTED_OFFSET, "Next offset to read after a restart", self.committed)
        yield make.partitions(names.STOPPED_AT_OFFSET, "Partitions whose log lost this next offset", self.stopped)
        yield self.waits.family(make)
