"""Whether an input partition still has what its reader needs: the position against the log's first offset and its end.

A reader's position is the next offset that it needs: every record below it is done with. It is the committed offset of
a stage or the gate, the durable position of a stateful shard's member, or the fetch position while reading. The cases:

* No position: nothing was promised yet. Reading starts at the log's first offset.
* Within the log, both ends included: fine. An idle topic that retention has emptied begins and ends at the position.
* Above the end: records were cut off, or the topic was deleted and made again. Lost: what comes next would get offsets
  that count as done already.
* Below the first offset: records were deleted before they were read. Lost.

Two things are no loss. Records *below* the position, which a note's spans name, serve deduplication alone: retention
may take them, and memory is rebuilt from what is left. And where transactions write the input, their markers take
offsets that no reader gets to see: after the last record a position stays below the markers, so a start above it may
mean that nothing but markers was deleted.

One loss cannot be seen by offsets: a log that was cut, or made again, and has grown past the position before its reader
looks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from spillway.lineage.errors import CheckpointError

if TYPE_CHECKING:
    from spillway.lineage.ports import Bounds


class WaysOut(NamedTuple):
    """What an operator can do who cannot restore the topic, as the end of a sentence after "or"."""

    deleted: str  # where records were deleted before they were read
    shortened: str  # where the log ends below the position


class InputLostError(CheckpointError):
    """An input partition does not have the records that its reader needs next."""

    def __init__(self, topic: str, partition: int, position: int, bounds: Bounds, ways_out: WaysOut) -> None:
        if position > bounds.end:
            what = f"the log ends at {bounds.end}: it lost records, or was deleted and created again"
            way_out = ways_out.shortened
        else:
            count = bounds.start - position
            what = f"the log begins at {bounds.start}: {count} offsets were deleted before they were read"
            way_out = ways_out.deleted
        super().__init__(
            f"{topic}[{partition}] is stopped: the next offset to read is {position}, but {what}. The other partitions "
            f"go on. Restore the topic and start this process again; or {way_out}"
        )


def is_lost(position: int | None, bounds: Bounds, *, markers: bool = False) -> bool:
    """Whether the log does not have what comes at `position` (None: nothing was read yet).

    `markers`: transactions write this input, so that offsets may have no record.
    """
    if position is None:
        return False
    return position > bounds.end or (position < bounds.start and not markers)
