"""What can be seen of a stage's core from outside: how much waits and is under way. Looking changes nothing.

The driver reads it for back-pressure, metrics and what is told to the other stages; it is in no journal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.core.waits import Waits

if TYPE_CHECKING:
    from collections.abc import Container

    from agents.core.batching import Batcher
    from agents.core.deaths import Place
    from agents.core.outbox import Outbox
    from agents.core.policy import Load
    from agents.core.share import Share

_UNSETTLED_PER_QUEUED = 4  # requests that may be under way in all, per place in the queue


class Gauges:
    """The readings of one replica of one stage."""

    def __init__(self, batcher: Batcher, outbox: Outbox, shares: dict[int, Share], queue_limit: int) -> None:
        """Look at these parts, which the core goes on to use. `queue_limit`: requests that may wait."""
        self._batcher = batcher
        self._outbox = outbox
        self._shares = shares
        self._waits = Waits()
        self.queue_limit = queue_limit
        self.stats = outbox.stats

    @property
    def room(self) -> bool:
        """Whether more records may be delivered. They may, in any case: nothing is lost, the bound is just passed."""
        limit = self.queue_limit
        outbox = self._outbox
        parked = self.parked
        under_way = outbox.unsettled + outbox.resting + parked
        return self._batcher.depth + parked < limit and under_way < _UNSETTLED_PER_QUEUED * limit

    @property
    def depth(self) -> int:
        return self._batcher.depth

    @property
    def unsettled(self) -> int:
        """How many requests are under way: parked, queued, running, or with messages not yet acknowledged."""
        return self._outbox.unsettled + self.parked

    @property
    def parked(self) -> int:
        return sum(len(share.refetch) for share in self._shares.values())

    @property
    def resting(self) -> int:
        """How many requests wait for nothing but the states that they rest on to be durable."""
        return self._outbox.resting

    @property
    def waiting(self) -> int:
        return sum(share.waiting for share in self._shares.values())

    @property
    def partitions(self) -> tuple[int, ...]:
        return tuple(self._shares)

    def waits(self, busy: Container[Place] = ()) -> frozenset[int]:
        """The partitions that have stood still by right since this was asked before; `busy`: what models run."""
        return self._waits.look(self._shares, room=self.room, busy=busy)

    @property
    def evicted(self) -> int:
        """How many times memory was bounded at the cost of recognising a repetition."""
        return sum(share.evicted for share in self._shares.values())

    @property
    def reports(self) -> bool:
        return self._batcher.reports

    def load(self) -> Load:
        return self._batcher.load()
