"""What a stage, or the gate, counts; read by Prometheus on a loopback port, found through a file in the run directory.

The hot path adds to plain Python numbers, a tenth of what prometheus-client's counters cost; a collector reads them.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from math import inf
from statistics import median
from typing import TYPE_CHECKING, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from spillway.agents.core.calibration import FATES, POSITIVE, TERMS, Budgets, Calibration, Histogram
from spillway.agents.core.estimates.observed import Transfer
from spillway.lineage import metric_names as names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from prometheus_client import Metric

    from spillway.agents.core.actions import Work
    from spillway.agents.core.board import Board, Heard
    from spillway.agents.core.cache import PredictionCache
    from spillway.agents.core.dispatch import Dispatch
    from spillway.agents.core.policy import StageFacts
    from spillway.topology.sizes import Size


_OF_SLO = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0)


class Distribution(Histogram):
    """A histogram of seconds, none below 0. `slo`: buckets are shares and multiples of it."""

    def __init__(self, slo: float | None = None) -> None:
        super().__init__(POSITIVE if slo is None else tuple(float(f"{share * slo:.6g}") for share in _OF_SLO))

    def observe(self, seconds: float) -> None:
        seconds = max(seconds, 0.0)
        if seconds < inf:
            self.counts[bisect_left(self.bounds, seconds)] += 1
            self.total += seconds


def by_one(counts: Mapping[str, float]) -> dict[tuple[str, ...], float]:
    """Values by their one label, as they are now: others may change them meanwhile."""
    return {(name,): count for name, count in dict(counts).items()}


class Families:
    """Builds metric families that share the three labels."""

    def __init__(self, pipeline: str, stage: str, replica: int) -> None:
        self.labels = (pipeline, stage, str(replica))

    def counter(self, name: str, text: str, value: float) -> Metric:
        return self.counters(name, text, (), {(): value})

    def counters(self, name: str, text: str, extra: tuple[str, ...], values: Mapping[tuple[str, ...], float]) -> Metric:
        family = CounterMetricFamily(name.removesuffix("_total"), text, labels=(*names.LABELS, *extra))
        for labels, value in sorted(values.items()):
            family.add_metric((*self.labels, *labels), value)
        return family

    def gauge(self, name: str, text: str, value: float) -> Metric:
        return self.gauges(name, text, (), {(): value})

    def gauges(self, name: str, text: str, extra: tuple[str, ...], values: Mapping[tuple[str, ...], float]) -> Metric:
        family = GaugeMetricFamily(name, text, labels=(*names.LABELS, *extra))
        for labels, value in values.items():
            family.add_metric((*self.labels, *labels), value)
        return family

    def partitions(self, name: str, text: str, values: Mapping[int, int]) -> Metric:
        told = sorted(dict(values).items())
        return self.gauges(name, text, (names.PARTITION,), {(str(partition),): value for partition, value in told})

    def distribution(self, name: str, text: str, values: Histogram) -> Metric:
        return self.distributions(name, text, (), {(): values})

    def distributions(
        self, name: str, text: str, extra: tuple[str, ...], values: Mapping[tuple[str, ...], Histogram]
    ) -> Metric:
        family = HistogramMetricFamily(name, text, labels=(*names.LABELS, *extra))
        for labels, histogram in values.items():
            family.add_metric((*self.labels, *labels), histogram.buckets(), histogram.total)
        return family


QUEUEING, BATCH, RECENT_BATCH = "queueing", "batch", "recent-batch"
PROFILE, DURATION, LOAD, HBF, AGE = "profile", "duration", "load", "hbf", "age"
ARRIVALS, COMPLETIONS, DROPS, BACKLOG, TRANSFER = "arrivals", "completions", "drops", "backlog", "transfer"

_REPLICA = (names.OF_STAGE, names.OF_REPLICA)
_ORDER = (names.WHO, names.WHY)


def plan_families(make: Families, board: Board, facts: Mapping[str, StageFacts], now: float) -> Iterator[Metric]:
    heard = board.heard(now)
    loads = _loads(heard, facts)
    words: dict[tuple[str, ...], float] = {}
    silent: dict[tuple[str, ...], float] = {}
    for one in heard:
        whose = (one.state.stage, str(one.state.replica))
        silent[whose] = float(one.silent)
        words.update({(*whose, what): value for what, value in _told(one, facts, loads).items()})
    yield make.gauges(names.PLAN_WORD, "The latest status of each replica", (*_REPLICA, names.WHAT), words)
    yield make.gauges(names.PLAN_SILENT, "1 where a replica's status is too old to use", _REPLICA, silent)
    yield make.counter(names.PLAN_WORDS_TOTAL, "Status messages of replicas that were accepted", board.words)
    refused: dict[tuple[str, ...], float] = {(reason,): count for reason, count in board.refused.copy().items()}
    yield make.counters(
        names.PLAN_REFUSED_TOTAL, "Status messages of replicas that were refused", (names.REASON,), refused
    )


def _told(one: Heard, facts: Mapping[str, StageFacts], loads: Mapping[str, float]) -> dict[str, float]:
    state = one.state
    planned = facts.get(state.stage)
    return {
        QUEUEING: state.queueing,
        BATCH: state.batch,
        RECENT_BATCH: state.recent_batch,
        PROFILE: planned.duration(planned.batch) if planned is not None else 0.0,
        DURATION: state.duration,
        LOAD: loads.get(state.stage, 0.0),
        HBF: float(state.hbf),
        AGE: one.age,
        ARRIVALS: state.arrival_rate,
        COMPLETIONS: state.completion_rate,
        DROPS: state.drop_rate,
        BACKLOG: state.backlog,
        TRANSFER: median(state.hops) if state.hops else 0.0,
    }


def _loads(heard: Sequence[Heard], facts: Mapping[str, StageFacts]) -> dict[str, float]:
    """By stage, mu of the last period: what arrived at its replicas by what its workers can take (T_in / T_m)."""
    arrivals: defaultdict[str, float] = defaultdict(float)
    durations: dict[str, float] = {}
    for one in heard:
        if not one.silent:
            arrivals[one.state.stage] += one.state.arrival_rate
            durations[one.state.stage] = max(one.state.duration, durations.get(one.state.stage, 0.0))
    loads = {}
    for stage, rate in arrivals.items():
        planned = facts.get(stage)
        if planned is not None:
            seconds = durations[stage] or planned.duration(planned.batch)
            loads[stage] = rate * seconds / (planned.workers * planned.batch)
    return loads


# What a member of a stateful shard tells of its state, for its metrics; and what the others tell of marks.
#
# The member sets the attributes as things happen; they are read from another thread. Versions are told by their n, as
# the epoch is told beside them.

_BYTES: Final = (16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 4096.0)


class DurableLag:
    """For how long the oldest version of a reign that is not durable has been recorded."""

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


class StateMetrics:
    """A member's numbers."""

    def __init__(self) -> None:
        self.role = "backup"  # spillway.checkpoint.promotion.Role's values
        self.epoch = 0  # the newest that it knows
        self.version: Callable[[], int] = int  # the n that its own copy of the state is at
        self.durable = 0  # the n of the shard's newest durable version
        self.lag = DurableLag()  # of a primary
        self.written = 0  # bytes of chunks and manifests
        self.sent: Callable[[], int] = int  # bytes that the broker has acknowledged to the newest reign, as they come
        self.moved = 0  # bytes that went to the log or came from it, as they move; said by the loop while it goes on
        self.unpublished: Callable[[], int] = int  # of a primary: keys whose newest state cannot be published
        self.captures = Histogram(POSITIVE)  # seconds that copying a state took

    @property
    def backup_lag(self) -> int:
        return max(0, self.durable - self.version()) if self.role == "backup" else 0


def marks_histogram() -> Histogram:
    """For the bytes of marks in each message's hops header."""
    return Histogram(_BYTES)


def state_families(make: Families, state: StateMetrics) -> Iterator[Metric]:
    yield make.gauges(names.STATE_ROLE, "The member's role", (names.ROLE,), {(state.role,): 1.0})
    for name, text, value in (
        (names.STATE_EPOCH, "The newest epoch that the member knows", state.epoch),
        (names.STATE_VERSION, "The version of the member's own state", state.version()),
        (names.STATE_DURABLE_VERSION, "The newest durable version of the shard", state.durable),
        (names.STATE_BACKUP_LAG_VERSIONS, "Durable versions that a backup has not applied", state.backup_lag),
        (names.STATE_DURABLE_LAG_SECONDS, "Age of the oldest version that is not durable", state.lag.seconds()),
        (names.STATE_UNPUBLISHED, "Keys whose newest state cannot be published", state.unpublished()),
    ):
        yield make.gauge(name, text, value)
    written, moved = "Bytes of chunks and manifests of complete versions", "Bytes written to the log or read from it"
    yield make.counter(names.STATE_WRITTEN_BYTES_TOTAL, written, state.written)
    yield make.counter(names.STATE_MOVED_BYTES_TOTAL, f"{moved}, as they move", state.moved)
    yield make.distribution(names.STATE_CAPTURE_SECONDS, "Copying a state", state.captures)


def dispatch_families(make: Families, dispatch: Dispatch) -> Iterator[Metric]:
    told, paused = dispatch.stats, dispatch.paused
    for name, text, value in (
        (names.EXTRAS_TOTAL, "Copies of batches, and parity batches, given to workers", told.started),
        (names.EXTRAS_SHED_TOTAL, "Copies and parity batches skipped for lack of workers or budget", told.shed),
        (names.RECOVERED_TOTAL, "Queries answered first by a copy or a reconstructed answer", told.recovered),
        (
            names.CODING_PAUSED_GROUPS_TOTAL,
            "Groups of batches without a parity batch, as coding is paused",
            told.paused,
        ),
    ):
        yield make.counter(name, text, value)
    agreement = dispatch.agreement
    if agreement is not None:
        suspended = "Times that coding was paused because its answers agreed too rarely"
        yield make.counter(names.CODING_SUSPENDED_TOTAL, suspended, agreement.pauses)
        yield make.counter(
            names.CODING_GRADED_TOTAL, "Reconstructed answers that were compared with exact ones", agreement.graded
        )
        if (share := agreement.share) is not None:
            yield make.gauge(names.CODING_AGREEMENT, "Share of reconstructed answers that agree with exact ones", share)
    yield make.gauges(names.CODING_PAUSED, "Why coding is paused", (names.WHY,), {(paused,): 1.0} if paused else {})


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


class ProcessMetrics(Collector):
    """A process's collector, which knows whose it is."""

    pipeline: str
    stage: str
    replica: int
    role: str
    label = ""  # the process's name, where that is not stage and replica
    stopped: Mapping[int, int] = {}  # by partition that lost what comes next: the position


class StageMetrics(ProcessMetrics):
    """One stage replica's numbers. The driver adds to the attributes; they are read from another thread."""

    role = "stage"

    def __init__(self, pipeline: str, stage: str, replica: int, *, queue_limit: int = 0, instances: int = 1) -> None:
        self.pipeline = pipeline
        self.stage = stage
        self.replica = replica
        self.queue_limit = queue_limit
        self.instances = instances
        self.wanted = instances
        self.order: Size | None = None  # of the whole stage, by the table of sizes
        self.received: Callable[[], int] = int
        self.duplicates: Callable[[], int] = int
        self.depth: Callable[[], int] = int  # asked when somebody reads the metrics
        self.limit: Callable[[], int] = int
        self.unmet: Callable[[], bool] = bool
        self.batched = 0
        self.offline = 0
        self.emitted = 0
        self.clock_skew = 0
        self.outcomes: Counter[tuple[str, ...]] = Counter()  # by (kind, reason)
        self.dead_letters: Counter[tuple[str, ...]] = Counter()  # by (reason,)
        self.committed: dict[int, int] = {}
        self.waits = WaitsTold()
        self.stopped: dict[int, int] = {}
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
        self.plan_now: Callable[[], float] = time.monotonic  # the clock by which the board tells ages
        self.plan_unsaid = 0
        self.plan_age = Distribution()
        self.plan_delay = Distribution()
        self.cache: PredictionCache[Work] | None = None
        self.dispatch: Dispatch | None = None
        self.lanes: Callable[[Families], Iterator[Metric]] | None = None  # of an ensemble's members, or of variants
        self.versions: Callable[[], Mapping[str, int]] = dict  # of the model: workers that have it
        self.defaults: Callable[[], int] | None = None  # where the stage has a default
        self.state: StateMetrics | None = None  # of a member of a stateful shard
        self.marks: Histogram | None = None  # bytes in the messages that are sent; None where nothing rests on a state

    def collect(self) -> Iterator[Metric]:
        make = Families(self.pipeline, self.stage, self.replica)
        yield make.counter(names.RECEIVED_TOTAL, "Messages taken from the stage's input", self.received())
        yield make.counter(names.DUPLICATES_TOTAL, "Repeated messages that were suppressed", self.duplicates())
        yield make.counter(names.BATCHES_TOTAL, "Batches executed", self.executed.count)
        yield make.counter(names.BATCHED_QUERIES_TOTAL, "Queries in executed batches", self.batched)
        yield make.counter(names.OFFLINE_QUERIES_TOTAL, "Offline queries that were run", self.offline)
        yield make.counter(
            names.BUSY_SECONDS_TOTAL, "Seconds of model execution, summed over instances", self.executed.total
        )
        yield make.counter(names.EMITTED_TOTAL, "Messages produced to the next topics", self.emitted)
        yield make.counter(
            names.CLOCK_SKEW_TOTAL, "Queries whose sender's clock was more than 1 s off", self.clock_skew
        )
        outcomes = dict(self.outcomes)
        yield make.counters(names.OUTCOMES_TOTAL, "Queries that ended here", ("kind", "reason"), outcomes)
        yield make.counters(
            names.DEAD_LETTERS_TOTAL, "Messages that could not be accepted", ("reason",), dict(self.dead_letters)
        )
        yield make.gauge(names.QUEUE_DEPTH, "Queries that wait", self.depth())
        yield make.gauge(names.QUEUE_LIMIT, "Most queries that may wait", self.queue_limit)
        yield make.gauge(names.MODEL_INSTANCES, "Model instances in this process", self.instances)
        yield make.gauge(names.MODEL_INSTANCES_WANTED, "Model instances that this process should have", self.wanted)
        versions: dict[tuple[str, ...], float] = {(each,): count for each, count in self.versions().items()}
        yield make.gauges(names.MODEL_VERSION, "Workers with a version of the model", (names.VERSION,), versions)
        if self.order is not None:
            who = (f"{self.order.who}, held" if self.order.held else self.order.who, self.order.why)
            yield make.gauges(
                names.MODEL_INSTANCES_ORDER, "When they were ordered, unix seconds", _ORDER, {who: self.order.at}
            )
        if self.cache is not None:
            yield make.counter(names.CACHE_HITS_TOTAL, "Queries answered from the prediction cache", self.cache.hits)
            yield make.counter(
                names.CACHE_SHARED_TOTAL, "Cache hits that shared another query's evaluation", self.cache.shared
            )
            yield make.counter(names.CACHE_MISSES_TOTAL, "Queries that were evaluated and then kept", self.cache.misses)
            yield make.gauge(names.CACHE_BYTES, "Bytes of answers in the prediction cache", self.cache.bytes)
        if self.defaults is not None:
            yield make.counter(names.DEFAULTS_TOTAL, "Queries that got the default outputs", self.defaults())
        if self.dispatch is not None:
            yield from dispatch_families(make, self.dispatch)
        if self.lanes is not None:
            yield from self.lanes(make)
        yield make.gauge(names.BATCH_LIMIT, "Largest batch that a worker is given", self.limit())
        yield make.gauge(names.BATCH_UNMET, "1 if one query alone often takes longer than the objective", self.unmet())
        yield make.distribution(names.QUEUE_SECONDS, "From arrival to entering a batch", self.queued)
        yield make.distribution(names.BATCH_WAIT_SECONDS, "From entering a batch to its start", self.waited)
        yield make.distribution(names.EXECUTION_SECONDS, "Execution of a batch", self.executed)
        yield make.distribution(names.INTAKE_SECONDS, "From a message's timestamp to the stage's queue", self.intake)
        yield make.distribution(
            names.HANDOFF_SECONDS, "From the end of a batch's execution to its messages' production", self.handoff
        )
        yield make.distribution(
            names.OVERHEAD_SECONDS,
            "Time that a batch occupied its instance beyond the model's execution",
            self.overhead,
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
            "Observed duration minus the duration announced to other stages",
            (names.TERM,),
            {(term,): errors for term, errors in told.errors.items()},
        )
        for name, text, totals in (
            (names.TOLD_SECONDS_TOTAL, "Seconds announced to other stages", told.told_total),
            (names.HAPPENED_SECONDS_TOTAL, "Seconds observed", told.happened_total),
        ):
            yield make.counters(name, text, (names.TERM,), {(term,): totals[term] for term in TERMS})
        left: dict[tuple[str, ...], Histogram] = {(fate,): budgets.left[fate] for fate in FATES}
        yield make.distributions(
            names.BUDGET_SECONDS, "Time left to the deadline at the drop decision", (names.FATE,), left
        )
        yield make.distribution(
            names.SHORTFALL_SECONDS, "How late dropped queries were expected to be", budgets.shortfall
        )
        yield make.distribution(names.CONSUMED_SECONDS, "From arrival to the end of the batch", budgets.consumption)

    def _plan(self, make: Families) -> Iterator[Metric]:
        if self.plan is None:
            return
        yield from plan_families(make, self.plan, self.plan_facts, self.plan_now())
        yield make.counter(
            names.PLAN_UNSAID_TOTAL,
            "Status messages skipped because the previous one was still being sent",
            self.plan_unsaid,
        )
        yield make.distribution(
            names.PLAN_AGE_SECONDS, "Age of other replicas' status messages when used", self.plan_age
        )
        yield make.distribution(
            names.PLAN_DELAY_SECONDS, "From sending a status message to receiving it", self.plan_delay
        )
