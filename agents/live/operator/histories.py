"""What all version logs of a pipeline say: which versions each shard has, and what has become of them.

The logs of all stateful stages are read, whichever stage is asked about, as a version of one may wait for another's
(`spillway.checkpoint.logs`). A manifest that was tombstoned is not listed: what it names may be gone. One that is
listed is retained, and an operator can look at it, export it, or go back to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spillway.agents.run.log_reader import CONTROL, LogRecords
from spillway.checkpoint.claims import Claims
from spillway.checkpoint.damage import Damage
from spillway.checkpoint.logs import Fate, Logs
from spillway.lineage.errors import CheckpointError, UsageError
from spillway.lineage.marks import INITIAL, Mark, Version
from spillway.lineage.replication import Base, Claim, Fence, Manifest
from spillway.lineage.values.replication import ReplicationDecoder
from spillway.producers.kafka.reading import Reading
from spillway.producers.schema_log import known_schemas
from spillway.topology import topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spillway.agents.run.log_reader import Read
    from spillway.checkpoint.version_log import Record
    from spillway.lineage.marks import Place
    from spillway.lineage.ports import Record as Stored
    from spillway.lineage.ports import Slot
    from spillway.producers.connection import ClientSettings
    from spillway.topology.spec import PipelineSpec


# What an operator may name: a stage with a state, one of its shards, a version that is retained.
#
# Every error says what there is instead.

_VERSION: Final = re.compile(r"e?(\d{1,18})\.v?(\d{1,18})", re.ASCII)
_SHOWN: Final = 20


def stage_of(spec: PipelineSpec, name: str) -> str:
    """`name`, if it is a stage whose state is in a log. Raises UsageError."""
    kept = [stage.name for stage in spec.stages if stage.replicated]
    there = f"; those with a state in a log are: {', '.join(kept)}" if kept else "; no stage of this pipeline has one"
    found = [stage for stage in spec.stages if stage.name == name]
    if not found:
        raise UsageError(f"pipeline {spec.name!r} has no stage {name!r}{there}")
    if not found[0].stateful:
        raise UsageError(f"stage {name!r} keeps no state{there}")
    if not found[0].replicated:
        raise UsageError(f"stage {name!r} keeps its state only in its process (replication: none){there}")
    return name


def place_of(spec: PipelineSpec, name: str, shard: int | None) -> Place:
    """The shard that is meant. Raises UsageError where several could be."""
    count = spec.stage(stage_of(spec, name)).shards
    if shard is None:
        if count > 1:
            raise UsageError(f"stage {name!r} has {count} shards: say which with --shard, 0 to {count - 1}")
        return name, 0
    if not 0 <= shard < count:
        raise UsageError(f"stage {name!r} has no shard {shard}; it has 0 to {count - 1}")
    return name, shard


def version_of(text: str) -> Version:
    """A version as it is shown, `e5.v17`, or as `5.17`. Raises UsageError."""
    match = _VERSION.fullmatch(text)
    if match is None:
        raise UsageError(
            f"{text!r:.40} is not a version: write it as e5.v17, epoch and number, as 'state list' shows it"
        )
    return Version(int(match[1]), int(match[2]))


def kept_version(histories: Histories, place: Place, text: str | None) -> Kept:
    """The version that is named; without a name, the newest durable one. Raises UsageError that lists what there is."""
    kept = histories.kept(place)
    where = f"{place[0]}/{place[1]}"
    if not kept:
        raise UsageError(f"{where} has no version yet: its state is still what the model's initialize() gives")
    if text is None:
        durable = [each for each in kept if each.standing is Fate.DURABLE]
        if not durable:
            raise UsageError(f"{where} has no durable version yet; name one of {_listed(kept)}")
        return max(durable, key=lambda each: each.version.n)
    version = version_of(text)
    for each in kept:
        if each.version == version:
            return each
    raise UsageError(f"{where} does not retain {version}; it has {_listed(kept)}")


def _listed(kept: Sequence[Kept]) -> str:
    shown = [f"{each.version} ({each.standing.value})" for each in kept[-_SHOWN:]]
    return ", ".join(shown) + (f" and {len(kept) - _SHOWN} older" if len(kept) > _SHOWN else "")


@dataclass(frozen=True, slots=True)
class Kept:
    """A version whose manifest is in the log."""

    place: Place
    manifest: Manifest
    standing: Fate  # OPEN: complete, but waiting for versions of other stages; DEAD: cut off, or resting on such a one

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
    def partitions(self) -> list[Slot]:
        return [*self._places, (self._control, 0)]

    def take(self, stored: Stored) -> tuple[Claim | Record, bool] | None:
        """Take a record that was read; say what it is and whether it counts. Raises CheckpointError."""
        read = self._records.read(stored)
        if read is None:
            return None
        try:
            if read.place == CONTROL:
                return (read.record, self.claims.take(read.record)) if isinstance(read.record, Claim) else None
            return self._record(read)
        except CheckpointError as error:
            raise CheckpointError(f"{read.where}: {error}") from error

    def reached(self, ended: Iterable[Slot]) -> None:
        for partition in ended:
            if partition in self._places:
                self.logs.caught_up(self._places[partition])

    def kept(self, place: Place) -> list[Kept]:
        """The versions in a shard's log, oldest first."""
        return [
            Kept(place, manifest, self._judge(place, manifest.version) if counts else Fate.DEAD)
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
            "from it: it was deleted; compare the members' states before you go on"
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

    def _judge(self, place: Place, version: Version) -> Fate:
        fate = self.logs.fate(Mark(*place, version))
        return Fate.OPEN if fate is Fate.UNREAD else fate


def read_histories(settings: ClientSettings, spec: PipelineSpec) -> Histories:
    """All version logs of a pipeline, up to where they end now. Raises BrokerError, TopicError, CheckpointError."""
    histories = Histories(spec, ReplicationDecoder(known_schemas(settings, spec.name)))
    with Reading(settings, histories.partitions) as reading:
        for record in reading.to_the_end():
            histories.take(record)
    histories.reached(histories.partitions)
    return histories
