"""A planned switch of a shard's primary: an operator asks it to yield, and a backup takes over by the usual protocol.

A Yield in `<p>.control` names the epoch that is to end; the rest is the members' business
(`spillway.checkpoint.promotion`). Nothing is lost and nothing is decided here: the switch has happened when a newer
epoch's fence stands in the version log. It is refused where no backup is heard, as then nobody would take over.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from spillway.agents.live.operator.histories import place_of, read_histories
from spillway.checkpoint.claims import key as claim_key
from spillway.checkpoint.promotion import Role
from spillway.lineage.errors import BrokerError, SpillwayError, UsageError, WireError
from spillway.lineage.replication import Beat, Fence, Yield
from spillway.lineage.values.replication import ReplicationDecoder, encode
from spillway.producers.closing import Closing
from spillway.producers.cluster import idempotent_producer
from spillway.producers.kafka.reading import PATIENCE, Reading
from spillway.topology import topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.lineage.marks import Place
    from spillway.lineage.ports import Record
    from spillway.producers.connection import ClientSettings
    from spillway.topology.spec import PipelineSpec

_LEASES: Final = 3  # that a backup is listened for: it beats ten times in each


@dataclass(frozen=True, slots=True)
class Switched:
    """A switch that has happened."""

    place: Place
    old: str  # who was primary, in which epoch
    old_epoch: int
    new: str
    epoch: int
    seconds: float  # from the wish's leaving to the reading of the new epoch's fence


def check_place(spec: PipelineSpec, stage: str, shard: int) -> Place:
    """The shard, if it is one that another member could take over. Raises UsageError."""
    place = place_of(spec, stage, shard)
    if not spec.stage(stage).required_state.backups:
        raise UsageError(f"stage {stage!r} has no backups (backups: 0), so no other process can take over; give it one")
    return place


class Switch(Closing):
    """One planned switch of one shard. Raises SpillwayError, BrokerError, TopicError, CheckpointError."""

    def __init__(self, settings: ClientSettings, spec: PipelineSpec, place: Place) -> None:
        """Find out who is primary. What is appended from now on will be read."""
        self._spec, self._place = spec, place
        self._control = topics.control(spec.name)
        self._beats = topics.beat(spec.name)
        self._decoder = ReplicationDecoder()
        wanted = [(self._beats, 0), (topics.versions(spec.name, place[0]), place[1])]
        self._reading = Reading(settings, wanted, from_end=True)
        try:
            log = read_histories(settings, spec).logs.log(place)
            self.epoch, self.primary = log.epoch, log.claimant
            self._producer = idempotent_producer(settings, self._control, PATIENCE, {"linger.ms": 0})
        except BaseException:
            self._reading.close()
            raise
        self._heard: set[str] = set()  # the roles of the shard's members
        self._fence: Fence | None = None

    def await_backup(self) -> None:
        """Wait until a backup is heard. Raises SpillwayError where none is."""
        seconds = _LEASES * self._spec.stage(self._place[0]).required_state.lease
        self._read(lambda: Role.BACKUP.value in self._heard, seconds)
        name = f"{self._spec.name}/{self._place[0]}/{self._place[1]}"
        if not self._heard:
            raise SpillwayError(f"{name}: no member was heard in {seconds:g} s; is the pipeline served there?")
        if not self.epoch:
            raise SpillwayError(f"{name}: the shard has had no primary yet, so there is none to replace")
        if Role.BACKUP.value not in self._heard:
            raise SpillwayError(
                f"{name}: no backup was heard in {seconds:g} s, only {', '.join(sorted(self._heard))}: no member "
                "could take over; wait until 'spillway status' shows a backup"
            )

    def switch(self, by: str, reason: str, seconds: float) -> Switched:
        """Ask the primary to yield, and wait so long until somebody else has begun to reign."""
        wish = Yield(*self._place, self.epoch, by, time.time_ns() // 1_000, reason)
        began = time.monotonic()
        failures: list[str] = []
        self._producer.produce(
            *(self._control, encode(wish), claim_key(wish), 0),
            on_delivery=lambda error, _message: failures.append(error.str()) if error is not None else None,
        )
        if self._producer.flush(PATIENCE) or failures:
            raise BrokerError(
                f"{self._control} did not accept the request: {'; '.join(failures) or 'no answer in time'}"
            )
        self._read(lambda: self._fence is not None, seconds)
        if self._fence is None:
            raise SpillwayError(
                f"{self._spec.name}/{self._place[0]}/{self._place[1]}: the request was written, but in {seconds:g} s "
                f"no member took over from {self.primary!r}; its members' logs say why"
            )
        taken = time.monotonic() - began
        return Switched(self._place, self.primary, self.epoch, self._fence.claimant, self._fence.epoch, taken)

    def _read(self, until: Callable[[], bool], seconds: float) -> None:
        give_up = time.monotonic() + seconds
        while not until() and time.monotonic() < give_up:
            for record in self._reading.read(0.01):
                self._take(record)

    def _take(self, stored: Record) -> None:
        try:
            record = self._decoder.record(stored.value or b"")
        except WireError:  # of another release, or a tombstone: neither a beat nor a fence for us
            return
        if isinstance(record, Beat) and (record.stage, record.shard) == self._place:
            self._heard.add(record.role)
        elif isinstance(record, Fence) and record.epoch > self.epoch and stored.topic != self._beats:
            self._fence = record

    def close(self) -> None:
        self._producer.flush(1)
        self._reading.close()
