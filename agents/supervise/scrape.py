"""What a process counts, read from its metrics page."""

from __future__ import annotations

import math
import urllib.request
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from lineage import metric_names as names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from agents.supervise.registry import Entry, ServeEntry

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
    flapping: frozenset[str] = frozenset()  # of a supervisor: the names of places that die again and again

    def value(self, name: str) -> float:
        return self.counters.get(name, 0.0)

    def distribution(self, name: str) -> Distribution:
        return self.distributions.get(name, Distribution())

    def outcomes_of(self, kind: str) -> float:
        return sum(count for (of_kind, _), count in self.outcomes.items() if of_kind == kind)


def scrape(entry: Entry | ServeEntry, now: float) -> Snapshot | None:
    """Read a process's metrics; None where it does not answer."""
    try:
        with urllib.request.urlopen(f"http://{entry.host}:{entry.port}/metrics", timeout=_TIMEOUT_SECONDS) as page:
            return parse(page.read().decode(), now)
    except (OSError, ValueError):  # gone, hung, or another server took the port meanwhile
        return None


def parse(text: str, at: float) -> Snapshot:
    counters: dict[str, float] = {}
    outcomes: defaultdict[tuple[str, str], float] = defaultdict(float)
    dead: defaultdict[str, float] = defaultdict(float)
    offsets: dict[str, dict[int, int]] = {names.COMMITTED_OFFSET: {}, names.STOPPED_AT_OFFSET: {}}
    distributions: dict[str, Distribution] = {}
    plan: defaultdict[tuple[str, int], dict[str, float]] = defaultdict(dict)
    silent: dict[tuple[str, int], bool] = {}
    role = ""
    flapping: set[str] = set()
    waits: set[int] = set()
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
            elif sample.name == names.STATE_ROLE:
                role = sample.labels[names.ROLE] if sample.value else role
            elif sample.name == names.WAITS:
                waits |= {int(sample.labels[names.PARTITION])} if sample.value else set()
            elif sample.name == names.PLACE_FLAPPING:
                flapping |= {sample.labels[names.PLACE]} if sample.value else set()
            elif sample.name in offsets:
                offsets[sample.name][int(sample.labels[names.PARTITION])] = int(sample.value)
            else:
                counters[sample.name] = counters.get(sample.name, 0.0) + sample.value
    committed, stopped = offsets.values()
    return Snapshot(
        *(at, counters, dict(outcomes), dict(dead), committed, stopped, distributions, dict(plan), silent, role),
        waits=frozenset(waits),
        flapping=frozenset(flapping),
    )


def _whose(labels: Mapping[str, str]) -> tuple[str, int]:
    return labels[names.OF_STAGE], int(labels[names.OF_REPLICA])


def _distribution(samples: Iterable[object]) -> Distribution:
    buckets: defaultdict[float, float] = defaultdict(float)
    total = 0.0
    for sample in samples:
        name, labels, value = sample.name, sample.labels, sample.value  # type: ignore[attr-defined]
        if name.endswith("_bucket"):
            buckets[float(labels["le"])] += value
        elif name.endswith("_sum"):
            total += value
    return Distribution(tuple(sorted(buckets.items())), total)
