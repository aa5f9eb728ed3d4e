"""Which replicas are wedged: alive, but without progress while there is work. Pure; seen from outside, at the broker.

A process that hangs cannot be asked, so it is judged by what its consumer group commits. A partition is stuck when its
committed offset has not moved for `stall` seconds while there were records after it. A replica that runs but has not
been a member of its group for `stall` seconds is wedged as well: the broker has put it out, and it does not come back.

A backup of a stateful shard commits the durable position that it follows, so a primary that stands still holds it up as
well. It is no worse than its shard as long as it says that it is a backup, and no other member has come further; then
its clock does not run, and it has the whole time anew when it is promoted.

Two things are told by a process itself, as nobody else can know them: that a partition waits for versions of another
stage to be durable, and how many bytes of its state it has moved to the log or from it. Such a partition's clock does
not run, nor does that of a process whose bytes go on, but for a partition that stood still while others were committed
`_STOOD_THROUGH` times: versions complete, and without it. One that hangs can say neither
(`spillway.agents.metrics`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping


# A version may be under way, and another captured, when a record comes: the third that completes has it.
_STOOD_THROUGH: Final = 3


@dataclass(frozen=True)
class PartitionSight:
    """One input partition: the next offset to commit, its end, and the replica that has it, if any."""

    committed: int
    end: int
    owner: int | None


@dataclass(frozen=True)
class GroupSight:
    """A stage's consumer group at one moment, as the broker tells it."""

    partitions: Mapping[int, PartitionSight]
    members: frozenset[int] = field(default_factory=frozenset)  # replicas

    @property
    def lag(self) -> int:
        return sum(max(0, sight.end - sight.committed) for sight in self.partitions.values())


def blame(owner: int | None, running: frozenset[int], members: frozenset[int]) -> frozenset[int]:
    """Whom a stuck partition is due to: its owner; else those who left the group; else all, as none of them takes it.

    Only running replicas can be blamed: one that starts, or backs off, is being dealt with.
    """
    if owner is not None:
        return running & {owner}
    return running - members or running


def keeps_up(sight: GroupSight, shard: Iterable[GroupSight]) -> bool:
    """Whether a member has come as far, on every partition, as any member of its shard."""
    return all(
        sight.partitions[partition].committed >= other.committed
        for one in shard
        for partition, other in one.partitions.items()
        if partition in sight.partitions
    )


class Movement:
    """When the bytes that each process has moved were last seen to change."""

    def __init__(self) -> None:
        self._moved: dict[str, tuple[int, float]] = {}

    def note(self, now: float, told: Mapping[str, int]) -> None:
        """Take what the processes tell, by name; of one that is new it counts from 0, and what falls has changed."""
        before = self._moved
        self._moved = {}
        for name, moved in told.items():
            known, at = before.get(name, (0, -math.inf))
            self._moved[name] = (moved, at if moved == known else now)

    def last(self, name: str) -> float:
        """When a process was last seen to have moved something; -infinity if never."""
        return self._moved[name][1] if name in self._moved else -math.inf


class Watchdog:
    """Judges the replicas of one stage, from what is seen of its group now and then."""

    def __init__(self, stall: float, longest_gap: float) -> None:
        """`longest_gap`: after seeing nothing for longer, as while the broker is away, all clocks start anew."""
        self._stall = stall
        self._longest_gap = longest_gap
        self._seen_at: float | None = None
        self._stuck: dict[int, tuple[int, float, int]] = {}  # partition -> offset, since when, advances
        self._committed: dict[int, int] = {}
        self._advances = 0  # looks that found anything committed since the one before
        self._absent: dict[int, float] = {}  # replica -> since when

    def observe(
        self,
        now: float,
        sight: GroupSight,
        running_since: Mapping[int, float],
        *,
        excused: bool = False,
        moving: bool = False,
        waits: Collection[int] = (),
    ) -> frozenset[int]:
        """The replicas to restart, of those that run (since when each has been ready is `running_since`).

        `excused`: what stands still is not theirs to move. `moving`: bytes of their states move, which the broker does
        not see. `waits`: the partitions of which their owners say so.
        """
        if excused or (self._seen_at is not None and now - self._seen_at > self._longest_gap):
            self._stuck.clear()
            self._absent.clear()
        if moving:
            self._stuck = {
                partition: (committed, since if self._advances - at >= _STOOD_THROUGH else now, at)
                for partition, (committed, since, at) in self._stuck.items()
            }
            self._absent.clear()
        for partition in waits:
            self._stuck.pop(partition, None)
        self._seen_at = now
        self._note(now, sight, running_since)
        ripe = frozenset(replica for replica, since in running_since.items() if now - since >= self._stall)
        wedged = {replica for replica, since in self._absent.items() if now - since >= self._stall}
        for partition, (_, since, _) in self._stuck.items():
            if now - since >= self._stall:
                wedged |= blame(sight.partitions[partition].owner, ripe, sight.members)
        wedged &= ripe
        for replica in wedged:  # it gets as long again after its restart
            self._absent.pop(replica, None)
        return frozenset(wedged)

    def _note(self, now: float, sight: GroupSight, running_since: Mapping[int, float]) -> None:
        committed = {p: seen.committed for p, seen in sight.partitions.items()}
        behind = {p: seen.committed for p, seen in sight.partitions.items() if seen.end > seen.committed}
        self._advances += any(offset > self._committed.get(p, offset) for p, offset in committed.items())
        self._committed = committed
        self._stuck = {
            partition: before
            if (before := self._stuck.get(partition)) and before[0] == stands
            else (stands, now, self._advances)
            for partition, stands in behind.items()
        }
        outside = running_since.keys() - sight.members
        self._absent = {replica: self._absent.get(replica, now) for replica in outside}
