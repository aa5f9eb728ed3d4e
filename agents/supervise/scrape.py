"""What a process counts, read from its metrics page."""

from __future__ import annotations

import math
import time
import urllib.request
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from prometheus_client.parser import text_string_to_metric_families

from spillway.agents.supervise.registry import entries
from spillway.lineage import metric_names as names
from spillway.lineage.message import DROPPED, PREDICTION
from spillway.lineage.metric_names import STATE_BACKUP_LAG_VERSIONS
from spillway.topology.sizes import FROM_FILE

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from spillway.agents.supervise.registry import Entry, ServeEntry
    from spillway.lineage.message import OutcomeKind


PRIMARY, BACKUP = "primary", "backup"
Standing = tuple["Entry", "Snapshot"]


def members(run_dir: Path, pipeline: str, stage: str, shard: int = 0) -> dict[str, Standing]:
    """The living members of a shard by role; of several backups one that has all durable versions, if there is one."""
    found: dict[str, Standing] = {}
    for entry in entries(run_dir, pipeline):
        if entry.stage != stage or not entry.name.startswith(f"{stage}.{shard}.") or not entry.alive():
            continue
        snapshot = scrape(entry, time.monotonic())
        if snapshot is not None and snapshot.role:
            known = found.get(snapshot.role)
            if known is None or known[1].value(STATE_BACKUP_LAG_VERSIONS) > snapshot.value(STATE_BACKUP_LAG_VERSIONS):
                found[snapshot.role] = entry, snapshot
    return found


@dataclass(frozen=True)
class Figures:
    """One process: rates and means over the last interval, counts since its start. Durations in seconds.

    Means are NaN where nothing happened in the interval. `queue` is what waits: at the gate, what it holds back.
    `latency` is, for a stage, a query's mean time in it; at the gate, the median from the query's sending to its
    release, with `latency_p99` beside it.
    """

    name: str
    role: str
    rate: float
    queue: int
    queue_limit: int
    batch: float
    queued: float
    executed: float
    latency: float
    latency_p99: float
    received: int  # messages: at a join, the parts of a query
    queries: int  # that a batch had, or that were dropped before one; at the gate, messages
    duplicates: int
    outcomes: Mapping[str, Mapping[str, int]]  # kind -> reason -> count
    dead_letters: Mapping[str, int]
    good: int
    late: int
    aborted: int = 0  # transactions of the gate
    defaults: int = 0  # queries that got the default outputs
    combined: int = 0  # queries of an ensemble
    partial: int = 0  # of them, those without all members
    hold: float = math.nan  # of the gate: the median for which outcomes waited for versions to be durable
    hold_p99: float = math.nan
    marks: float = math.nan  # mean bytes of marks in a message
    state_role: str = ""  # of a member of a stateful shard
    moved: int = 0  # bytes of its state that went to the log or came from it
    waits: tuple[int, ...] = ()  # partitions that stand still for other stages' versions
    stopped: Mapping[int, int] = field(default_factory=dict)  # partition whose log lost what comes next -> offset
    uncoded: str = ""  # why coding pauses, where it does
    agreement: float = math.nan  # the share of made answers that agree with the exact ones
    graded: int = 0  # made answers
    workers: int = 0  # that are ready; at the gate none
    wanted: int = 0  # by the table of sizes
    batch_limit: int = 0
    batch_unmet: bool = False  # whether one query alone often takes longer than the objective of batches
    order: str = ""  # of its stage's workers: by whom, when and why, where that is not the pipeline file
    members: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # of an ensemble: workers, ready and wanted
    troubles: Mapping[str, str] = field(default_factory=dict)  # why members do not serve
    ensemble: str = ""  # by whom, when and why it was changed, where that is not the pipeline file
    tuning: Mapping[str, str] = field(default_factory=dict)  # of a tuner: by stage, what it does about it
    caches: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by member: hits and misses
    versions: Mapping[str, int] = field(default_factory=dict)  # of the model: workers that have it

    def count(self, kind: OutcomeKind) -> int:
        return sum(self.outcomes.get(kind, {}).values())

    def as_json(self) -> dict[str, Any]:
        return {key: None if value != value else value for key, value in asdict(self).items()}  # noqa: PLR0124 - NaN


def figures(entry: Entry, now: Snapshot, before: Snapshot | None) -> Figures:
    """Put two readings together; with one alone, the interval is since the process started."""
    gate = entry.role == "gate"
    queries = _queries(now) if not gate else now.value(names.RECEIVED_TOTAL)
    earlier = 0.0 if before is None else _queries(before) if not gate else before.value(names.RECEIVED_TOTAL)
    seconds = now.at - before.at if before is not None else math.nan
    latency = _since(now, before, names.LATENCY_SECONDS)
    hold = _since(now, before, names.STATE_HOLD_SECONDS)
    spent = [_since(now, before, name).mean() for name in _STAGE_TIMES]
    return Figures(
        name=entry.name,
        role=entry.role,
        rate=(queries - earlier if queries >= earlier else queries) / seconds if seconds > 0 else math.nan,
        queue=int(now.value(names.HELD if gate else names.QUEUE_DEPTH)),
        queue_limit=int(now.value(names.QUEUE_LIMIT)),
        batch=_ratio(_delta(now, before, names.BATCHED_QUERIES_TOTAL), _delta(now, before, names.BATCHES_TOTAL)),
        queued=spent[0],
        executed=spent[2],
        latency=latency.quantile(0.5) if gate else sum(spent),
        latency_p99=latency.quantile(0.99) if gate else math.nan,
        received=int(now.value(names.RECEIVED_TOTAL)),
        queries=int(queries),
        duplicates=int(now.value(names.DUPLICATES_TOTAL)),
        outcomes=_by_kind(now),
        dead_letters={reason: int(count) for reason, count in now.dead_letters.items()},
        good=int(now.value(names.GOOD_TOTAL)),
        late=int(now.value(names.LATE_TOTAL)),
        aborted=int(now.value(names.ABORTED_TOTAL)),
        defaults=int(now.value(names.DEFAULTS_TOTAL)),
        combined=int(now.value(names.COMBINED_TOTAL)),
        partial=int(now.value(names.PARTIAL_TOTAL)),
        hold=hold.quantile(0.5),
        hold_p99=hold.quantile(0.99),
        marks=_since(now, before, names.HOPS_MARKS_BYTES).mean(),
        state_role=now.role,
        moved=int(now.value(names.STATE_MOVED_BYTES_TOTAL)),
        waits=tuple(sorted(now.waits)),
        stopped=now.stopped,
        uncoded=now.uncoded,
        agreement=now.counters.get(names.CODING_AGREEMENT, math.nan),
        graded=int(now.value(names.CODING_GRADED_TOTAL)),
        workers=int(now.value(names.MODEL_INSTANCES)),
        wanted=int(now.value(names.MODEL_INSTANCES_WANTED)),
        batch_limit=int(now.value(names.BATCH_LIMIT)),
        batch_unmet=bool(now.value(names.BATCH_UNMET)),
        order=now.order,
        members=now.ensemble.members,
        troubles=now.ensemble.troubles,
        ensemble=now.ensemble.order,
        tuning=now.tuning,
        caches=now.caches,
        versions=now.versions,
    )


_STAGE_TIMES = (names.QUEUE_SECONDS, names.BATCH_WAIT_SECONDS, names.EXECUTION_SECONDS)


def _queries(snapshot: Snapshot) -> float:
    """A stage's queries that ran or were dropped; with an ensemble each counts once, not once for each member."""
    ran = names.COMBINED_TOTAL if names.COMBINED_TOTAL in snapshot.counters else names.BATCHED_QUERIES_TOTAL
    return snapshot.value(ran) + snapshot.outcomes_of(DROPPED)


def _by_kind(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    kinds: dict[str, dict[str, int]] = {}
    for (kind, reason), count in sorted(snapshot.outcomes.items()):
        kinds.setdefault(kind, {})[reason] = int(count)
    return kinds


def _delta(now: Snapshot, before: Snapshot | None, name: str) -> float:
    difference = now.value(name) - (before.value(name) if before is not None else 0.0)
    return difference if difference >= 0 else now.value(name)  # it was restarted in between


def _since(now: Snapshot, before: Snapshot | None, name: str) -> Distribution:
    current = now.distribution(name)
    if before is None or current.count < before.distribution(name).count:
        return current
    return current.since(before.distribution(name))


def _ratio(total: float, count: float) -> float:
    return total / count if count else math.nan


_TIMEOUT_SECONDS = 1.0
# What `figures` does not read: four lines in five of a stage's page, and their parsing costs the supervisor most.
NO_FIGURES = (
    *(names.ESTIMATE_ERROR_SECONDS, names.BUDGET_SECONDS, names.SHORTFALL_SECONDS, names.CONSUMED_SECONDS),
    *(names.PLAN_WORD, names.PLAN_SILENT, names.PLAN_AGE_SECONDS, names.PLAN_DELAY_SECONDS),
    *(names.INTAKE_SECONDS, names.HANDOFF_SECONDS, names.OVERHEAD_SECONDS, names.TRANSACTION_SECONDS),
    *(names.TOLD_SECONDS_TOTAL, names.HAPPENED_SECONDS_TOTAL, names.STATE_CAPTURE_SECONDS),
)


@dataclass(frozen=True)
class Distribution:
    """A histogram: cumulative counts by upper bound, and the sum of the values."""

    buckets: tuple[tuple[float, float], ...] = ()
    total: float = 0.0

    @property
    def count(self) -> float:
        return self.buckets[-1][1] if self.buckets else 0.0

    def since(self, earlier: Distribution) -> Distribution:
        before = dict(earlier.buckets)
        return Distribution(
            tuple((bound, count - before.get(bound, 0.0)) for bound, count in self.buckets), self.total - earlier.total
        )

    def mean(self) -> float:
        return self.total / self.count if self.count else math.nan

    def quantile(self, share: float) -> float:
        """An estimate, linear within the bucket that it falls into; NaN where there is no value."""
        if not self.count:
            return math.nan
        rank, low, below = share * self.count, 0.0, 0.0
        for bound, count in self.buckets:
            if count >= rank:
                inside = count - below
                return low if math.isinf(bound) or not inside else low + (bound - low) * (rank - below) / inside
            low, below = bound, count
        return low


@dataclass(slots=True)
class Variant:
    """One variant of a stage, as its front shows it; a state of "" is not known."""

    ready: int = 0
    wanted: int = 0
    asked: int = 0
    state: str = ""


_OF_VARIANTS = {names.VARIANT_WORKERS: "ready", names.VARIANT_WANTED: "wanted", names.VARIANT_ASKED_TOTAL: "asked"}


@dataclass(slots=True)
class Ensemble:
    """The members of a stage, as its front shows them."""

    ready: dict[str, int] = field(default_factory=dict)
    wanted: dict[str, int] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)  # why members do not serve
    order: str = ""  # by whom, when and why it was changed, where that is not the pipeline file
    at: float = 0.0  # since when it is as it is, unix seconds

    @property
    def members(self) -> dict[str, tuple[int, int]]:
        """Workers, ready and wanted."""
        return {name: (self.ready.get(name, 0), count) for name, count in self.wanted.items()}

    def take(self, name: str, labels: Mapping[str, str], value: float) -> None:
        if name == names.ENSEMBLE_ORDER:
            self.order, self.at = _order(labels, value), value
        elif name == names.MEMBER_TROUBLE:
            self.troubles[labels[names.MEMBER]] = labels[names.WHY]
        else:
            counts = self.ready if name == names.MEMBER_WORKERS else self.wanted
            counts[labels[names.MEMBER]] = int(value)


_OF_ENSEMBLES = (names.ENSEMBLE_ORDER, names.MEMBER_TROUBLE, names.MEMBER_WORKERS, names.MEMBER_WANTED)


@dataclass(frozen=True)
class Snapshot:
    """One process's numbers at one moment; counters run from its start."""

    at: float  # seconds on a clock of the reader's
    counters: Mapping[str, float] = field(default_factory=dict)  # metrics without labels of their own
    outcomes: Mapping[tuple[str, str], float] = field(default_factory=dict)  # (kind, reason) -> count
    dead_letters: Mapping[str, float] = field(default_factory=dict)  # reason -> count
    committed: Mapping[int, int] = field(default_factory=dict)  # partition -> offset
    stopped: Mapping[int, int] = field(default_factory=dict)  # partition whose log lost what comes next -> offset
    distributions: Mapping[str, Distribution] = field(default_factory=dict)
    plan: Mapping[tuple[str, int], Mapping[str, float]] = field(default_factory=dict)  # replica -> its newest word
    silent: Mapping[tuple[str, int], bool] = field(default_factory=dict)  # replica -> whether that has aged out
    role: str = ""  # of a member of a stateful shard
    waits: frozenset[int] = frozenset()  # partitions that stand still for other stages' versions
    uncoded: str = ""  # why coding pauses, where it does
    flapping: frozenset[str] = frozenset()  # of a supervisor: the names of places that die again and again
    order: str = ""
    tuning: Mapping[str, str] = field(default_factory=dict)
    caches: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by member: hits and misses
    versions: Mapping[str, int] = field(default_factory=dict)  # of the model: workers that have it
    variants: Mapping[str, Variant] = field(default_factory=dict)  # of a front of a stage with variants
    ensemble: Ensemble = field(default_factory=Ensemble)

    def value(self, name: str) -> float:
        return self.counters.get(name, 0.0)

    def distribution(self, name: str) -> Distribution:
        return self.distributions.get(name, Distribution())

    def outcomes_of(self, kind: str) -> float:
        return sum(count for (of_kind, _), count in self.outcomes.items() if of_kind == kind)


def scrape(entry: Entry | ServeEntry, now: float, without: tuple[str, ...] = ()) -> Snapshot | None:
    """Read a process's metrics but those `without`; None where it does not answer."""
    try:
        with urllib.request.urlopen(f"http://{entry.host}:{entry.port}/metrics", timeout=_TIMEOUT_SECONDS) as page:
            text = page.read().decode()
            return parse(shortened(text, without) if without else text, now)
    except (OSError, ValueError):  # gone, hung, or another server took the port meanwhile
        return None


_WORD_IN = {names.STATE_ROLE: names.ROLE, names.CODING_PAUSED: names.WHY}  # the label that the one with 1 tells


def shortened(text: str, without: tuple[str, ...]) -> str:
    """A page less the metrics whose names begin with one of `without`."""
    comments = tuple(f"# {kind} {name}" for kind in ("HELP", "TYPE") for name in without)
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith((*without, *comments)))


_CACHES = {names.MEMBER_CACHE_HITS_TOTAL: "hits", names.MEMBER_CACHE_MISSES_TOTAL: "misses"}
_TUNING = {names.TUNER_TUNES: ("not tuned", "tuned")}


def parse(text: str, at: float) -> Snapshot:  # noqa: C901, PLR0912, PLR0915 - a table of kinds
    counters: dict[str, float] = {}
    outcomes: defaultdict[tuple[str, str], float] = defaultdict(float)
    dead: defaultdict[str, float] = defaultdict(float)
    offsets: dict[str, dict[int, int]] = {names.COMMITTED_OFFSET: {}, names.STOPPED_AT_OFFSET: {}}
    distributions: dict[str, Distribution] = {}
    plan: defaultdict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    silent: dict[tuple[str, int], bool] = {}
    words = dict.fromkeys(_WORD_IN, "")
    flapping: set[str] = set()
    order = ""
    tuning: dict[str, str] = {}
    caches: defaultdict[str, dict[str, int]] = defaultdict(dict)
    ensemble = Ensemble()
    versions: dict[str, int] = {}
    waits: set[int] = set()
    variants: defaultdict[str, Variant] = defaultdict(Variant)
    for family in text_string_to_metric_families(text):
        if family.type == "histogram":
            distributions[family.name] = _distribution(family.samples)
            continue
        for sample in family.samples:
            if sample.name == names.OUTCOMES_TOTAL:
                outcomes[sample.labels[names.KIND], sample.labels.get(names.REASON, "")] += sample.value
            elif sample.name == names.DEAD_LETTERS_TOTAL:
                dead[sample.labels.get(names.REASON, "")] += sample.value
            elif sample.name == names.PLAN_WORD:
                plan[_whose(sample.labels)][sample.labels[names.WHAT]] = sample.value
            elif sample.name == names.PLAN_SILENT:
                silent[_whose(sample.labels)] = bool(sample.value)
            elif sample.name in words:
                words[sample.name] = sample.labels[_WORD_IN[sample.name]] if sample.value else words[sample.name]
            elif sample.name == names.WAITS:
                waits |= {int(sample.labels[names.PARTITION])} if sample.value else set()
            elif sample.name == names.PLACE_FLAPPING:
                flapping |= {sample.labels[names.PLACE]} if sample.value else set()
            elif sample.name == names.MODEL_INSTANCES_ORDER:
                order = _order(sample.labels, sample.value)
            elif sample.name in _OF_VARIANTS:
                setattr(variants[sample.labels[names.VARIANT]], _OF_VARIANTS[sample.name], int(sample.value))
            elif sample.name == names.VARIANT_STATE:
                variants[sample.labels[names.VARIANT]].state = sample.labels[names.STATE]
            elif sample.name in _OF_ENSEMBLES:
                ensemble.take(sample.name, sample.labels, sample.value)
            elif sample.name in _TUNING:
                tuning[sample.labels[names.OF_STAGE]] = _TUNING[sample.name][bool(sample.value)]
            elif sample.name == names.MODEL_VERSION:
                versions[sample.labels[names.VERSION]] = int(sample.value)
            elif sample.name in _CACHES:
                caches[sample.labels[names.MEMBER]][_CACHES[sample.name]] = int(sample.value)
            elif sample.name in offsets:
                offsets[sample.name][int(sample.labels[names.PARTITION])] = int(sample.value)
            else:
                counters[sample.name] = counters.get(sample.name, 0.0) + sample.value
    committed, stopped = offsets.values()
    return Snapshot(
        *(at, counters, dict(outcomes), dict(dead), committed, stopped, distributions, dict(plan), silent),
        role=words[names.STATE_ROLE],
        waits=frozenset(waits),
        uncoded=words[names.CODING_PAUSED],
        flapping=frozenset(flapping),
        order=order,
        tuning=tuning,
        caches=dict(caches),
        versions=versions,
        variants=dict(variants),
        ensemble=ensemble,
    )


def _order(labels: Mapping[str, str], at: float) -> str:
    """Who ordered workers, when and why; nothing of what the pipeline file says."""
    if labels[names.WHY] == FROM_FILE:
        return ""
    why = f": {labels[names.WHY]}" if labels[names.WHY] else ""
    return f"{labels[names.WHO]}, {datetime.fromtimestamp(at).astimezone():%H:%M:%S}{why}"


def _whose(labels: Mapping[str, str]) -> tuple[str, int]:
    return labels[names.OF_STAGE], int(labels[names.OF_REPLICA])


def _distribution(samples: Iterable[object]) -> Distribution:
    buckets: defaultdict[float, float] = defaultdict(float)
    total = 0.0
    for sample in samples:
        name, labels, value = sample.name, sample.labels, sample.value  # type: ignore[attr-defined]
        if labels.get(names.KIND, PREDICTION) != PREDICTION:
            continue  # latency is that of predictions
        if name.endswith("_bucket"):
            buckets[float(labels["le"])] += value
        elif name.endswith("_sum"):
            total += value
    return Distribution(tuple(sorted(buckets.items())), total)
