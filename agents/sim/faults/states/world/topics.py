"""The imagined broker with compacted topics: version logs, states, claims; and a topic of heartbeats.

A keyed record has its key where others have their request's id, and None as its body where it is a tombstone. As in
Kafka, compaction looks only at records that are older than the lag: of these the newest of each key stays, unless it is
a tombstone. Nothing says when it happens.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from agents.sim.faults.broker import EGRESS, Broker, Record

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.sim.faults.broker import Place

CONTROL: Place = ("control", 0)
VERSIONS, STATE, BEATS = ".versions", ".state", ".beat"


def versions_of(place: Place) -> Place:
    return place[0] + VERSIONS, place[1]


def state_of(place: Place) -> Place:
    return place[0] + STATE, place[1]


def beats_of(place: Place) -> Place:
    """Give where a shard's heartbeats are. Live, one topic has those of all shards."""
    return place[0] + BEATS, place[1]


def keyed(key: Any, body: Any) -> Record:
    return Record(key, body, 0.0, 0.0)


class StateBroker(Broker):
    """A broker that forgets nothing for the oracle, and what it should for everybody else."""

    def __init__(self, clock: Callable[[], float], wake: Callable[[Place], None], gap: Callable[[], int]) -> None:
        """`gap` gives how many offsets stand between two records of an input, whatever has taken them."""
        super().__init__(clock, wake)
        self._gap = gap
        self.whole: dict[Place, list[Record]] = {}
        self.compacted = 0  # records that went

    def append(self, place: Place, record: Record) -> int:
        self.whole.setdefault(place, []).append(record)
        if not (place == CONTROL or place[0].endswith((VERSIONS, STATE, BEATS)) or place[0] == EGRESS):
            self._ends[place] = self._ends.get(place, 0) + self._gap()
        return super().append(place, record)

    def compact(self, place: Place, before: int) -> None:
        log = self.logs.get(place, [])
        old = bisect_left(log, before, key=lambda record: record.offset)
        newest = {record.request_id: record for record in log[:old]}
        kept = [r for r in log[:old] if newest[r.request_id] is r and r.body is not None]
        self.compacted += old - len(kept)
        if len(kept) < old:
            self.logs[place] = kept + log[old:]
