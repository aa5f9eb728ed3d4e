"""What a front shows of its ensemble's members (`spillway.lineage.metric_names`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spillway.agents.metrics import by_one
from spillway.lineage import metric_names as names

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client import Metric

    from spillway.agents.core.lanes import Lanes
    from spillway.agents.core.routes.ensemble import Shares
    from spillway.agents.live.stage.members import Members
    from spillway.agents.metrics import Families

_OF = (names.MEMBER,)


@dataclass(frozen=True, slots=True)
class MemberMetrics:
    """Where the figures come from."""

    lanes: Lanes
    counts: Shares
    members: Members

    def __call__(self, make: Families) -> Iterator[Metric]:
        told = self.counts
        for name, text, value in (
            (names.COMBINED_TOTAL, "Queries whose members' answers were combined", told.combined),
            (names.PARTIAL_TOTAL, "Combined queries without the answers of all members asked", told.partial),
            (names.DECLINED_TOTAL, "Combined queries below the confidence threshold", told.declined),
            (names.MEMBERS_LATE_TOTAL, "Answers of members that came too late", told.late),
        ):
            yield make.counter(name, text, value)
        ready = dict.fromkeys(self.members.wanted(), 0) | self.lanes.ready()
        yield make.gauges(names.MEMBER_WORKERS, "Workers of a member", _OF, by_one(ready))
        text = "Workers that a member is to have"
        yield make.gauges(names.MEMBER_WANTED, text, _OF, by_one(self.members.wanted()))
        troubles: dict[tuple[str, ...], float] = dict.fromkeys(self.members.troubles.items(), 1.0)
        yield make.gauges(names.MEMBER_TROUBLE, "Why a member does not serve", (*_OF, names.WHY), troubles)
        if (record := self.members.record) is not None:
            who = (names.WHO, names.WHY)
            text = "When its members and its selection were ordered, unix seconds"
            yield make.gauges(names.ENSEMBLE_ORDER, text, who, {(record.who, record.why): record.at})
        yield make.counters(names.MEMBER_ASKED_TOTAL, "Queries routed to a member", _OF, by_one(told.asked))
        text = "Combined queries without a member's answer"
        yield make.counters(names.MEMBER_MISSING_TOTAL, text, _OF, by_one(told.missing))
        text = "Queries that a member's lane refused"
        yield make.counters(names.MEMBER_REFUSED_TOTAL, text, (*_OF, names.REASON), dict(self.lanes.refused))
        yield from self._caches(make)

    def _caches(self, make: Families) -> Iterator[Metric]:
        caches = self.lanes.caches()
        if not caches:
            return
        hits = {name: cache.hits for name, cache in caches.items()}
        shared = {name: cache.shared for name, cache in caches.items()}
        misses = {name: cache.misses for name, cache in caches.items()}
        for which, text, counts in (
            (names.MEMBER_CACHE_HITS_TOTAL, "Queries that a member's cache answered", hits),
            (names.MEMBER_CACHE_SHARED_TOTAL, "Cache hits that shared another query's evaluation", shared),
            (names.MEMBER_CACHE_MISSES_TOTAL, "Queries that a member with a cache evaluated", misses),
        ):
            yield make.counters(which, text, _OF, by_one(counts))
        sizes = {name: cache.bytes for name, cache in caches.items()}
        yield make.gauges(names.MEMBER_CACHE_BYTES, "Bytes of answers in a member's cache", _OF, by_one(sizes))
