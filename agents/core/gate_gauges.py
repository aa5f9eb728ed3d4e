"""What can be seen of the gate's core from outside: how much is decided, held and waits. Looking changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.core.outcomes import GateStats
from agents.core.waits import Waits

if TYPE_CHECKING:
    from agents.core.gate_share import GateShare
    from agents.core.outcomes import Release

HELD_LIMIT = 20_000


class GateGauges:
    """The readings of one gate."""

    def __init__(self) -> None:
        self.stats = GateStats()
        self._shares: dict[int, GateShare] = {}
        self._waits = Waits()
        self._decided: list[Release] = []  # not collected: new, or held for no version

    @property
    def pending(self) -> int:
        return len(self._decided) + self.held

    @property
    def held(self) -> int:
        return sum(share.held for share in self._shares.values())

    @property
    def waiting(self) -> int:
        return sum(share.waiting for share in self._shares.values())

    @property
    def room(self) -> bool:
        """Whether more reports should be delivered. Waiting for a sink takes no room: only reading ends it."""
        return self.pending + sum(len(share.refetch) for share in self._shares.values()) < HELD_LIMIT

    def waits(self) -> frozenset[int]:
        """The partitions that have stood still for other stages' versions since this was asked before."""
        return self._waits.look(self._shares, room=self.room)

    @property
    def evicted(self) -> int:
        return sum(share.evicted + share.released.evicted for share in self._shares.values())
