"""What all version logs of a pipeline say: which versions each shard has, and what has become of them.

The logs of all stateful stages are read, whichever stage is asked about, as a version of one may wait for another's
(`checkpoint.logs`). A manifest that was tombstoned is not listed: what it names may be gone. One that is listed is
retained, and an operator can look at it, export it, or go back to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

from agents.live.operator.partitions import Partitions
from agents.live.states.log_reader import CONTROL, LogRecords
from checkpoint.claims import Claims
from checkpoint.damage import Damage
from checkpoint.logs import Fate, Logs
from lineage.errors import CheckpointError
from lineage.marks import INITIAL, Mark
from lineage.replication import Base, Claim, Fence, Manifest
from lineage.values.replication import ReplicationDecoder
from producers.schema_log import SchemaLog
from topology import topics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agents.live.operator.partitions import Partition
    from agents.live.states.log_reader import Read
    from checkpoint.version_log import Record
    from lineage.marks import Place, Version
    from producers.connection import ClientSettings
    from topology.spec import PipelineSpec


class Standing(Enum):
    """What a version is worth."""

    DURABLE = "durable"
    OPEN = "open"  # complete, but it waits for versions of other stages
    DEAD = "dead"  # cut off, or resting on a version that was


@dataclass(frozen=True, slots=True)
class Kept:
    """A version whose manifest is in the log."""

    place: Place
    manifest: Manifest
    standing: Standing

    @property
    def version(self) -> Version:
        return self.manifest.version


class Histories:
    """The version logs of a pipeline and its control log, as far as they were read."""

    def __init__(self, spec: PipelineSpec, decoder: ReplicationDecoder) -> None:
        self.logs = Logs(spec.places)
        self.claims = Claims()
        self.decoder = decoder
        self._control = topics.control(spec.name)
        self._places = {(topics.versions(spec.name, stage), shard): (stage, shard) for stage, shard in spec.places}
        self._records = LogRecords({**self._places, (self._control, 0): CONTROL}, decoder)
        self._standing: dict[Place, dict[str, tuple[Manifest, bool]]] = {place: {} for place in spec.places}

    @property
    def partitions(self) -> list[Partition]:
        return [*self._places, (self._control, 0)]

    def take(self, message: Any) -> tuple[Claim | Record, bool] | None:
        """Take a record that was read; say what it is and whether it counts. Raises CheckpointError."""
        read = self._records.read(message)
        if read is None:
            return None
        try:
            if read.place == CONTROL:
                return (read.record, self.claims.take(read.record)) if isinstance(read.record, Claim) else None
            return self._record(read)
        except CheckpointError as error:
            raise CheckpointError(f"{read.where}: {error}") from error

    def reached(self, ended: Iterable[Partition]) -> None:
        for partition in ended:
            if partition in self._places:
                self.logs.caught_up(self._places[partition])

    def kept(self, place: Place) -> list[Kept]:
        """The versions in a shard's log, oldest first."""
        return [
            Kept(place, manifest, self._judge(place, manifest.version) if counts else Standing.DEAD)
            for manifest, counts in self._standing[place].values()
        ]

    def manifest(self, place: Place, version: Version) -> Manifest | None:
        """The manifest of a version that counts; None for the initial one. Raises CheckpointError where it is gone."""
        if version == INITIAL:
            return None
        for manifest, counts in self._standing[place].values():
            if counts and manifest.version == version:
                return manifest
        raise CheckpointError(
            f"the manifest of {version} of {place[0]}/{place[1]} is not in its version log, though the shard starts "
            "from it: somebody has deleted it; compare the members' states before you go on"
        )

    def _record(self, read: Read) -> tuple[Record, bool] | None:
        place, record, standing = read.place, read.record, self._standing[read.place]
        if record is None:
            standing.pop(read.key, None)
            self.logs.tombstoned(place, read.raw_key)
        elif isinstance(record, Damage):
            self.logs.take(place, record)
        elif isinstance(record, Fence | Base | Manifest):
            counts = self.logs.take(place, record)
            if isinstance(record, Manifest) and (counts or read.key not in standing):
                standing[read.key] = (record, counts)
            return record, counts
        return None

    def _judge(self, place: Place, version: Version) -> Standing:
        fate = self.logs.fate(Mark(*place, version))
        return {Fate.DURABLE: Standing.DURABLE, Fate.DEAD: Standing.DEAD}.get(fate, Standing.OPEN)


def read_histories(settings: ClientSettings, spec: PipelineSpec) -> Histories:
    """All version logs of a pipeline, up to where they end now. Raises BrokerError, TopicError, CheckpointError."""
    schemas = SchemaLog(settings, spec.name)
    schemas.relearn()
    histories = Histories(spec, ReplicationDecoder(schemas.book))
    with Partitions(settings, histories.partitions) as partitions:
        for message in partitions.to_the_end():
            histories.take(message)
    histories.reached(histories.partitions)
    return histories
