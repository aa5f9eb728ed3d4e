"""What a gate reads when partitions come to it: where its predecessor stopped, and what that one has released.

Nothing but Kafka is asked, so any gate can go on where another was killed. The order of the steps is what makes it
safe, for partitions that another gate may have written a moment ago:

1. The committed offsets are read as *stable* ones: the broker withholds them while a transaction that moves them is
   open. From here on an older owner cannot commit for these partitions (the group's generation has moved on).
2. The version logs, where there are any, are read to the ends that they have *after* that: the older owner may have
   known a copy to be dead, and committed past it, before this gate has read so.
3. The end of each egress partition is taken after 1 too, and everything below it is read as committed records; a
   transaction that is still open below it is waited for.
4. The core is told what its predecessor had released, then the input below the committed offset that still matters.
"""

from __future__ import annotations

import logging
from itertools import zip_longest
from typing import TYPE_CHECKING

from spillway.lineage.ports import Bounds, Commit

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from spillway.agents.core.gate import GateCore
    from spillway.agents.run.gate_context import GateContext

log = logging.getLogger(__name__)

_NOTHING = Bounds(0, 0)


async def load(context: GateContext, core: GateCore, partitions: Collection[int]) -> dict[int, Commit]:
    """Assign partitions to a core, memory and all, and return where each one is to be read from, with its note.

    One whose log lost what comes next is stopped: it is neither assigned nor returned. Raises OustedError where the
    group does not answer, after which another consumer may do it, and another BrokerError where something else does
    not come in time.
    """
    topics, spans = context.topics, context.spans
    places = await context.input.positions(partitions)
    if context.versions is not None:
        await context.versions.read_to_ends()
    inputs = await spans.bounds(topics.outcomes, partitions)
    outputs = await spans.bounds(topics.egress, partitions)
    starts: dict[int, Commit] = {}
    released: dict[int, Bounds] = {}  # of the egress
    below: list[list[Bounds]] = []  # of the input, for each of `starts`
    for partition in partitions:
        place, there = places.get(partition), inputs[partition]
        if not context.inputs.admits(partition, None if place is None else place.offset, there):
            continue
        start = Commit(there.start, "") if place is None else Commit(max(place.offset, there.start), place.metadata)
        earlier, egress = core.assign(partition, *start)
        starts[partition] = start
        released[partition] = _within(Bounds(egress, outputs[partition].end), outputs[partition])
        below.append([_within(Bounds(*span), there) for span in earlier])
    await _recall(context, core, released)
    await _remember(context, core, list(starts), below)
    return starts


async def _recall(context: GateContext, core: GateCore, released: Mapping[int, Bounds]) -> None:
    """Pass the core what has been released."""
    egress = context.topics.egress
    async for records in context.spans.read(egress, released, values=False):
        for record in records:
            found = context.wire.released(record)
            if found is None:
                log.warning("%s[%d] holds a foreign record at %d", egress, record.partition, record.offset)
            else:
                core.recall(record.partition, record.offset, *found, record.timestamp / 1000)


async def _remember(
    context: GateContext, core: GateCore, partitions: Sequence[int], below: Sequence[Sequence[Bounds]]
) -> None:
    """Pass the core what was taken below the committed offsets, in stretches by partition."""
    for nth in zip_longest(*below, fillvalue=_NOTHING):
        wanted = dict(zip(partitions, nth, strict=True))
        async for records in context.spans.read(context.topics.outcomes, wanted, values=False):
            for record in records:
                delivery = context.wire.envelope(record)
                if delivery is not None:
                    core.remember(delivery)


def _within(span: Bounds, there: Bounds) -> Bounds:
    return Bounds(max(span.start, there.start), min(span.end, there.end))
