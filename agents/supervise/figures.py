"""What a process did between two readings of its metrics, in the units that a person wants to see."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from lineage import metric_names as names
from lineage.message import DROPPED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agents.supervise.registry import Entry
    from agents.supervise.scrape import Distribution, Snapshot
    from lineage.message import OutcomeKind


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
    hold: float = math.nan  # of the gate: the median for which outcomes waited for versions to be durable
    hold_p99: float = math.nan
    marks: float = math.nan  # mean bytes of marks in a message
    state_role: str = ""  # of a member of a stateful shard
    moved: int = 0  # bytes of its state that went to the log or came from it
    waits: tuple[int, ...] = ()  # partitions that stand still for other stages' versions
    stopped: Mapping[int, int] = field(default_factory=dict)  # partition whose log lost what comes next -> offset

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
        hold=hold.quantile(0.5),
        hold_p99=hold.quantile(0.99),
        marks=_since(now, before, names.HOPS_MARKS_BYTES).mean(),
        state_role=now.role,
        moved=int(now.value(names.STATE_MOVED_BYTES_TOTAL)),
        waits=tuple(sorted(now.waits)),
        stopped=now.stopped,
    )


_STAGE_TIMES = (names.QUEUE_SECONDS, names.BATCH_WAIT_SECONDS, names.EXECUTION_SECONDS)


def _queries(snapshot: Snapshot) -> float:
    return snapshot.value(names.BATCHED_QUERIES_TOTAL) + snapshot.outcomes_of(DROPPED)


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
