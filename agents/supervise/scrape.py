"""What a process counts, read from its HTTP port (`spillway.agents.live.registry`)."""

from __future__ import annotations

import json
import math
import time
import urllib.request
from dataclasses import dataclass, field, fields
from datetime import datetime
from http.client import HTTPException
from typing import TYPE_CHECKING, Any, NamedTuple

from spillway.agents.supervise.registry import entries
from spillway.lineage import metric_names as names
from spillway.lineage.message import DROPPED, PREDICTION
from spillway.lineage.metric_names import STATE_BACKUP_LAG_VERSIONS
from spillway.topology.sizes import FROM_FILE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
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


def _sum(metric: str) -> Any:
    """A field that is the whole sum of a metric."""
    return field(default=0, metadata={"metric": metric})


@dataclass(frozen=True, kw_only=True)
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
    queue_limit: int = _sum(names.QUEUE_LIMIT)
    batch: float
    queued: float
    executed: float
    latency: float
    latency_p99: float
    received: int = _sum(names.RECEIVED_TOTAL)  # messages: at a join, the parts of a query
    queries: int  # that a batch had, or that were dropped before one; at the gate, messages
    duplicates: int = _sum(names.DUPLICATES_TOTAL)
    outcomes: Mapping[str, Mapping[str, int]]  # kind -> reason -> count
    dead_letters: Mapping[str, int]
    good: int = _sum(names.GOOD_TOTAL)
    late: int = _sum(names.LATE_TOTAL)
    aborted: int = _sum(names.ABORTED_TOTAL)  # transactions of the gate
    defaults: int = _sum(names.DEFAULTS_TOTAL)  # queries that got the default outputs
    combined: int = _sum(names.COMBINED_TOTAL)  # queries of an ensemble
    partial: int = _sum(names.PARTIAL_TOTAL)  # of them, those without all members
    hold: float = math.nan  # of the gate: the median for which outcomes waited for versions to be durable
    hold_p99: float = math.nan
    marks: float = math.nan  # mean bytes of marks in a message
    state_role: str = ""  # of a member of a stateful shard
    moved: int = _sum(names.STATE_MOVED_BYTES_TOTAL)  # bytes of its state that went to the log or came from it
    waits: tuple[int, ...] = ()  # partitions that stand still for other stages' versions
    stopped: Mapping[int, int] = field(default_factory=dict)  # partition whose log lost what comes next -> offset
    uncoded: str = ""  # why coding pauses, where it does
    agreement: float = math.nan  # the share of made answers that agree with the exact ones
    graded: int = _sum(names.CODING_GRADED_TOTAL)  # made answers
    workers: int = _sum(names.MODEL_INSTANCES)  # that are ready; at the gate none
    wanted: int = _sum(names.MODEL_INSTANCES_WANTED)  # by the table of sizes
    batch_limit: int = _sum(names.BATCH_LIMIT)
    batch_unmet: bool = False  # whether one query alone often takes longer than the objective of batches
    order: str = ""  # of its stage's workers: by whom, when and why, where that is not the pipeline file
    members: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # of an ensemble: workers, ready and wanted
    troubles: Mapping[str, str] = field(default_factory=dict)  # why members do not serve
    ensemble: str = ""  # by whom, when and why it was changed, where that is not the pipeline file
    tuning: Mapping[str, str] = field(default_factory=dict)  # of a tuner: by stage, what it does about it
    caches: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by member: hits and misses
    versions: Mapping[str, int] = field(default_factory=dict)  # of the model: workers that have it
    goodput: float = math.nan  # of the gate: good predictions a second
    drops: float = math.nan  # a second

    def count(self, kind: OutcomeKind) -> int:
        return sum(self.outcomes.get(kind, {}).values())


def figures(entry: Entry, now: Snapshot, before: Snapshot | None) -> Figures:
    """Put two readings together; with one alone, the interval is since the process started."""
    gate = entry.role == "gate"
    queries = (lambda snapshot: snapshot.value(names.RECEIVED_TOTAL)) if gate else _queries
    latency = _since(now, before, names.LATENCY_SECONDS)
    hold = _since(now, before, names.STATE_HOLD_SECONDS)
    spent = [_since(now, before, name).mean() for name in _STAGE_TIMES]
    ensemble, tunes = now.ensemble, now.by(names.TUNER_TUNES, names.OF_STAGE)
    sums = {each.name: int(now.value(each.metadata["metric"])) for each in fields(Figures) if each.metadata}
    return Figures(
        name=entry.name,
        role=entry.role,
        rate=_rate(now, before, queries),
        queue=int(now.value(names.HELD if gate else names.QUEUE_DEPTH)),
        batch=_ratio(_delta(now, before, names.BATCHED_QUERIES_TOTAL), _delta(now, before, names.BATCHES_TOTAL)),
        queued=spent[0],
        executed=spent[2],
        latency=latency.quantile(0.5) if gate else sum(spent),
        latency_p99=latency.quantile(0.99) if gate else math.nan,
        queries=int(queries(now)),
        outcomes={kind: dict(sorted(reasons.items())) for kind, reasons in sorted(now.outcomes.items())},
        dead_letters=now.counts(names.DEAD_LETTERS_TOTAL, names.REASON),
        hold=hold.quantile(0.5),
        hold_p99=hold.quantile(0.99),
        marks=_since(now, before, names.HOPS_MARKS_BYTES).mean(),
        state_role=now.role,
        waits=tuple(sorted(map(int, now.marked(names.WAITS, names.PARTITION)))),
        stopped=now.stopped,
        uncoded="".join(now.marked(names.CODING_PAUSED, names.WHY)),
        agreement=now.value(names.CODING_AGREEMENT) if names.CODING_AGREEMENT in now.samples else math.nan,
        batch_unmet=bool(now.value(names.BATCH_UNMET)),
        order=now.order(names.MODEL_INSTANCES_ORDER),
        members=ensemble.members,
        troubles=ensemble.troubles,
        ensemble=ensemble.order,
        tuning={stage: "tuned" if on else "not tuned" for stage, on in tunes.items()},
        caches=now.caches,
        versions=now.counts(names.MODEL_VERSION, names.VERSION),
        goodput=_rate(now, before, lambda snapshot: snapshot.value(names.GOOD_TOTAL)) if gate else math.nan,
        drops=_rate(now, before, _dropped),
        **sums,
    )


_STAGE_TIMES = (names.QUEUE_SECONDS, names.BATCH_WAIT_SECONDS, names.EXECUTION_SECONDS)


def _queries(snapshot: Snapshot) -> float:
    """A stage's queries that ran or were dropped; with an ensemble each counts once, not once for each member."""
    ran = names.COMBINED_TOTAL if names.COMBINED_TOTAL in snapshot.samples else names.BATCHED_QUERIES_TOTAL
    return snapshot.value(ran) + _dropped(snapshot)


def _dropped(snapshot: Snapshot) -> float:
    return sum(snapshot.outcomes.get(DROPPED, {}).values())


def _rate(now: Snapshot, before: Snapshot | None, count: Callable[[Snapshot], float]) -> float:
    """Return how much a count grew a second; NaN without an earlier reading."""
    if before is None or now.at <= before.at:
        return math.nan
    current, earlier = count(now), count(before)
    return (current - earlier if current >= earlier else current) / (now.at - before.at)


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


class Ensemble(NamedTuple):
    """The members of a stage, as its front shows them."""

    members: Mapping[str, tuple[int, int]]  # workers, ready and wanted
    troubles: Mapping[str, str]  # why members do not serve
    order: str  # by whom, when and why it was changed, where that is not the pipeline file
    at: float  # since when it is as it is, unix seconds


@dataclass(frozen=True)
class Snapshot:
    """One process's numbers at one moment; counters run from its start."""

    at: float  # seconds on a clock of the reader's
    samples: Mapping[str, Sequence[tuple[Mapping[str, str], float]]] = field(default_factory=dict)
    """By metric: the labels and the value of each of its samples."""

    def value(self, name: str) -> float:
        return sum(value for _, value in self.samples.get(name, ()))

    def by(self, name: str, label: str) -> dict[str, float]:
        """Return a metric's sums by what one of its labels has."""
        sums: dict[str, float] = {}
        for labels, value in self.samples.get(name, ()):
            sums[labels[label]] = sums.get(labels[label], 0.0) + value
        return sums

    def counts(self, name: str, label: str) -> dict[str, int]:
        return {key: int(value) for key, value in self.by(name, label).items()}

    def marked(self, name: str, label: str) -> list[str]:
        """Return what a label has in each sample that is not 0."""
        return [labels[label] for labels, value in self.samples.get(name, ()) if value]

    def distribution(self, name: str) -> Distribution:
        """Return a histogram; of latencies that of predictions."""
        buckets: dict[float, float] = {}
        for labels, value in self.samples.get(f"{name}_bucket", ()):
            if labels.get(names.KIND, PREDICTION) == PREDICTION:
                bound = float(labels["le"])
                buckets[bound] = buckets.get(bound, 0.0) + value
        sums = self.samples.get(f"{name}_sum", ())
        total = sum(value for labels, value in sums if labels.get(names.KIND, PREDICTION) == PREDICTION)
        return Distribution(tuple(sorted(buckets.items())), total)

    def order(self, name: str) -> str:
        """Return who ordered it, when and why; nothing of what the pipeline file says."""
        for labels, at in self.samples.get(name, ()):
            if labels[names.WHY] != FROM_FILE:
                why = f": {labels[names.WHY]}" if labels[names.WHY] else ""
                return f"{labels[names.WHO]}, {datetime.fromtimestamp(at).astimezone():%H:%M:%S}{why}"
        return ""

    @property
    def outcomes(self) -> dict[str, dict[str, int]]:
        """By kind and reason."""
        kinds: dict[str, dict[str, int]] = {}
        for labels, value in self.samples.get(names.OUTCOMES_TOTAL, ()):
            kinds.setdefault(labels[names.KIND], {})[labels[names.REASON]] = int(value)
        return kinds

    @property
    def stopped(self) -> dict[int, int]:
        """By partition whose log lost what comes next: the offset."""
        return {int(partition): at for partition, at in self.counts(names.STOPPED_AT_OFFSET, names.PARTITION).items()}

    @property
    def role(self) -> str:
        """Of a member of a stateful shard."""
        return "".join(self.marked(names.STATE_ROLE, names.ROLE))

    @property
    def plan(self) -> dict[tuple[str, int], dict[str, float]]:
        """By replica: its newest status."""
        found: dict[tuple[str, int], dict[str, float]] = {}
        for labels, value in self.samples.get(names.PLAN_WORD, ()):
            found.setdefault(_whose(labels), {})[labels[names.WHAT]] = value
        return found

    @property
    def silent(self) -> set[tuple[str, int]]:
        """The replicas whose newest status has aged out."""
        return {_whose(labels) for labels, value in self.samples.get(names.PLAN_SILENT, ()) if value}

    @property
    def caches(self) -> dict[str, dict[str, int]]:
        """By member of an ensemble."""
        misses = self.counts(names.MEMBER_CACHE_MISSES_TOTAL, names.MEMBER)
        hits = self.counts(names.MEMBER_CACHE_HITS_TOTAL, names.MEMBER)
        return {member: {"hits": count, "misses": misses.get(member, 0)} for member, count in hits.items()}

    @property
    def ensemble(self) -> Ensemble:
        ready, wanted = (self.counts(name, names.MEMBER) for name in (names.MEMBER_WORKERS, names.MEMBER_WANTED))
        told = self.samples.get(names.MEMBER_TROUBLE, ())
        return Ensemble(
            {name: (ready.get(name, 0), count) for name, count in wanted.items()},
            {labels[names.MEMBER]: labels[names.WHY] for labels, _ in told},
            self.order(names.ENSEMBLE_ORDER),
            self.value(names.ENSEMBLE_ORDER),
        )


def _whose(labels: Mapping[str, str]) -> tuple[str, int]:
    return labels[names.OF_STAGE], int(labels[names.OF_REPLICA])


def scrape(entry: Entry | ServeEntry, now: float) -> Snapshot | None:
    """Read a process's figures; None where it does not answer."""
    told = _document(entry, "figures")
    return None if told is None else Snapshot(now, told)


def recent(entry: Entry) -> list[dict[str, Any]]:
    """Read a gate's last drops and failures; none where it does not answer."""
    return _document(entry, "recent") or []


def _document(entry: Entry | ServeEntry, name: str) -> Any:
    try:
        with urllib.request.urlopen(f"http://{entry.host}:{entry.port}/{name}", timeout=_TIMEOUT_SECONDS) as told:
            return json.load(told)
    except (OSError, ValueError, HTTPException):  # gone, hung, or another server took the port meanwhile
        return None
