"""Which partitions of an input are stopped because its log lost what they need; said once, and shown in the metrics.

`spillway.checkpoint.inputs` decides. A partition is judged whenever it is assigned, and when the broker answers that
the position is out of range. One that is stopped is not read, so its position stays where it is, whoever is its next
owner.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from spillway.checkpoint.inputs import InputLostError, WaysOut, is_lost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping

    from spillway.lineage.ports import Bounds
    from spillway.topology.spec import PipelineSpec

log = logging.getLogger(__name__)

_RESET = (
    "stop the pipeline and skip the lost records: kafka-consumer-groups.sh --group {group} --topic {topic} "
    "--reset-offsets --to-earliest --execute"
)
_ANEW = (
    "stop the pipeline, delete its topics and consumer groups, and serve it again (resetting only the group's offsets "
    "is not enough: later stages would discard the lower offsets as duplicates and lose queries)"
)
_STATE = (
    "stop the pipeline, keep the state (spillway state export), delete the pipeline's topics and consumer groups, and "
    "import the state into the new topics (spillway state import)"
)
OF_STATES = WaysOut(_STATE, _STATE)  # a shard's position is in its versions, so offsets of a group do not move it


def of_stage(group: str, topic: str) -> WaysOut:
    return WaysOut(_RESET.format(group=group, topic=topic), _ANEW)


def of_gate(group: str, topic: str) -> WaysOut:
    return WaysOut(*[_RESET.format(group=group, topic=topic)] * 2)


def writes_transactions(spec: PipelineSpec, stages: Iterable[str]) -> bool:
    """Whether one of these stages writes in transactions, whose markers take offsets of what comes behind it."""
    return any(
        spec.stage(stage).replicated and spec.stage(stage).required_state.replication == "kafka-eos" for stage in stages
    )


class Inputs:
    """The partitions of one input topic, as one process reads them."""

    def __init__(self, topic: str, ways_out: WaysOut, stopped: dict[int, int], *, markers: bool = False) -> None:
        """`stopped`: the metrics' own, the position by stopped partition. `markers`: transactions write the topic."""
        self._topic = topic
        self._ways_out = ways_out
        self._markers = markers
        self.stopped = stopped
        self.bounds: Callable[[frozenset[int]], Awaitable[Mapping[int, Bounds]]]  # given by the transport
        self.durable: Callable[[int], int] = _nothing  # below which offset of a partition nothing is needed

    def admits(self, partition: int, position: int | None, bounds: Bounds) -> bool:
        """Whether a partition can be read from a position (None: from its first record); if not, it is stopped."""
        needed = None if position is None else max(position, self.durable(partition))
        if needed is None or not is_lost(needed, bounds, markers=self._markers):
            self.stopped.pop(partition, None)
            return True
        if self.stopped.get(partition) != needed:
            log.error("%s", InputLostError(self._topic, partition, needed, bounds, self._ways_out))
        self.stopped[partition] = needed
        return False

    async def starts(self, positions: Mapping[int, int | None]) -> dict[int, int]:
        """Judge the partitions that are ours now; give where each one that is not stopped is read on."""
        for partition in self.stopped.keys() - positions.keys():
            del self.stopped[partition]
        bounds = await self.bounds(frozenset(positions))
        return {
            partition: max(position or 0, bounds[partition].start)
            for partition, position in positions.items()
            if self.admits(partition, position, bounds[partition])
        }


def _nothing(_partition: int) -> int:
    return 0
