"""One egress partition as the gate knows it: a share of the reports, what was decided of it, and what is held.

Invariant: what is held is decided, and never released before all that it was decided by is durable. A query that is
held is found by its id, as reports of it that come by other ways are kept until it is known whether it stands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.core.joins import REUSE_SECONDS
from agents.core.share import Share

if TYPE_CHECKING:
    from agents.core.joins import JoinTable
    from agents.core.outcomes import Release
    from agents.core.released import ReleasedMemory
    from agents.core.request import Delivery


class GateShare(Share):
    """What the gate knows of one partition."""

    __slots__ = ("_queries", "held", "released", "settled")

    def __init__(
        self,
        partition: int,
        committed: int,
        joins: JoinTable | None,
        released: ReleasedMemory,
        *,
        settled: bool,
    ) -> None:
        super().__init__(partition, committed, joins)
        self.released = released
        self.settled = settled
        self.held = 0  # outcomes that are decided and rest on what is not durable
        self._queries: dict[str, Release] = {}  # the same, the newest of an id

    def confirm(self, offset: int) -> bool:
        """Note that the broker has the commit of `offset`; False if that is no news."""
        self.settled = True
        news = super().confirm(offset)
        if news:
            self.released.committed(offset)
        return news

    def hold(self, release: Release) -> None:
        self.held += 1
        self._queries[release.request_id] = release

    def let_go(self, release: Release) -> None:
        self.held -= 1
        if self._queries.get(release.request_id) is release:
            del self._queries[release.request_id]

    def parks(self, delivery: Delivery) -> bool:
        """Keep another report of a decided query in case that does not stand; False if it stands."""
        release = self._queries.get(delivery.request_id)
        if self.speculation is None or release is None or abs(release.source.sent - delivery.sent) > REUSE_SECONDS:
            return False
        self.speculation.park(release.case, delivery)
        return True
