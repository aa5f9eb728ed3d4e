"""Which partitions stand still by right: what holds their commit back waits for versions, or is in a long batch.

A record that rests on a version holds its input offset until that version is durable (`agents.core.speculation`), which
another stage sees to. Who judges a process by what it commits has to know that. A partition of which nothing is under
way stands still with the others where these fill the core, so that nothing more is read. A record that a model runs
holds its offset for as long as the batch takes, which has a time-out.

Work: a look asks about a partition only if its lowest offset has not moved since the look before; then it goes through
what is not decided on that partition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from agents.core.deaths import Place
    from agents.core.share import Share


class Waits:
    """What two looks, one after the other, say of a core's partitions."""

    def __init__(self) -> None:
        self._lowest: dict[int, int | None] = {}  # by partition, at the last look

    def look(self, shares: Mapping[int, Share], *, room: bool, busy: Container[Place] = ()) -> frozenset[int]:
        """The partitions that have stood still by right since the look before.

        `room`: whether more would be taken. `busy`: the records that are in batches under way.
        """
        lowest = {partition: share.offsets.lowest_unfinished for partition, share in shares.items()}
        before, self._lowest = self._lowest, lowest
        waiting = {
            partition
            for partition, offset in lowest.items()
            if offset is not None
            and before.get(partition) == offset
            and ((partition, offset) in busy or shares[partition].awaits(offset))
        }
        if waiting and not room:
            waiting |= {partition for partition, offset in lowest.items() if offset is None}
        return frozenset(waiting)
