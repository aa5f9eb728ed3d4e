"""How a stateful stage may be replicated, as a table of properties. `nspb` is HAMS; the others are its rivals.

| mode | after HAMS' | what it does |
|---|---|---|
| nspb | section IV | outputs leave at once, the state is copied while the next batch computes, the gate holds replies |
| s1 | VI-D, HAMS-S1 | nspb, but outputs leave only when their version is complete |
| s2 | VI-D, HAMS-S2 | nspb, but the next batch waits for the copy |
| remus | VI-A | both: stop, copy, and hold outputs until the version is complete |
| lineage-stash | VI-A | the order of batches is logged, the state is copied every so many requests; recovery replays |
| kafka-eos | none | outputs, state and manifest of a batch are one Kafka transaction; the next batch waits for it |

`none` is no mode of a reign: such a stage keeps its state in memory alone, and loses it with its process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CHECKPOINT_EVERY: Final = 150  # requests between two copies in lineage-stash (HAMS, section VI-A)


@dataclass(frozen=True, slots=True)
class Mode:
    """What a primary does beside the order of writing, which is the same for all (`spillway.checkpoint.reign`)."""

    name: str
    stops: bool = False  # the next batch computes only when the copy of the state before is made
    holds: bool = False  # outputs leave only when a version that covers them is complete; its manifest contains them
    logs: bool = False  # a version is complete with the record of its batches; the state is copied now and then
    transacts: bool = False  # all that a version writes is one transaction, and the next batch waits for it


MODES: Final = {
    mode.name: mode
    for mode in (
        Mode("nspb"),
        Mode("s1", holds=True),
        Mode("s2", stops=True),
        Mode("remus", stops=True, holds=True),
        Mode("lineage-stash", logs=True),
        Mode("kafka-eos", stops=True, holds=True, transacts=True),
    )
}
NSPB: Final = MODES["nspb"]
