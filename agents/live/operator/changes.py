"""What an operator can make a shard's state: one from a file, or that of a version which is retained.

Both need that nobody serves the shard, and are one version of an operator's reign. Both
change the state alone (`spillway.checkpoint.manifests`): the positions in the inputs stay, so no query is asked again
and every released outcome stays released; what the model has learned otherwise since, it forgets.

Old versions are left where they are; the next primary tombstones them, once a version of its own is durable.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.live.operator.histories import Histories
from spillway.agents.live.operator.stored import Store
from spillway.agents.live.topics import ensure
from spillway.checkpoint.assembly import ChunkError
from spillway.checkpoint.capture import Capture
from spillway.checkpoint.chunks import ChunkLog
from spillway.checkpoint.claims import key as claim_key
from spillway.checkpoint.layout import CHUNK_BYTES
from spillway.checkpoint.leases import Lease
from spillway.checkpoint.logs import Fate
from spillway.checkpoint.manifests import Copying, describe, seal, successor, with_state_of
from spillway.checkpoint.pages import Pages
from spillway.checkpoint.promotion import Append, Load, Member, StandDown
from spillway.checkpoint.silence import Watch
from spillway.checkpoint.version_log import key as record_key
from spillway.lineage.errors import BrokerError, CheckpointError, UsageError, WireError
from spillway.lineage.marks import Mark
from spillway.lineage.replication import Base, Beat, Claim, Fence, Manifest
from spillway.lineage.values.replication import ReplicationDecoder, encode
from spillway.producers.cluster import idempotent_producer
from spillway.producers.kafka.reading import PATIENCE, Reading
from spillway.producers.schema_log import SchemaLog
from spillway.topology import topics
from spillway.topology.quantities import show_duration
from spillway.topology.topics import topic_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from spillway.agents.live.operator.histories import Kept
    from spillway.checkpoint.chunks import Chunk, Writing
    from spillway.checkpoint.promotion import Action
    from spillway.lineage.marks import Place, Version
    from spillway.lineage.ports import Record as Stored
    from spillway.lineage.replication import Contents
    from spillway.producers.connection import ClientSettings
    from spillway.topology.spec import PipelineSpec


# An operator's reign over one shard: claim, fence, base as any member's (`spillway.checkpoint.promotion`), then one
# version.
#
# Nothing here is an exception to the protocol: a claim in `<p>.control`, a fence, a base; chunks, then the manifest
# after all of them are acknowledged (rules 2 to 5). Whoever reads the logs afterwards finds a version like any other,
# and the next primary starts from it. A member that begins to serve meanwhile fences a newer epoch: then the version
# that is being written is void, nothing has changed, and the operator is told. A reign that ends before its manifest
# leaves the shard as it was, an epoch further.

_QUEUED_KILOBYTES: Final = 32 << 10  # of chunks on the way: memory stays bounded, however large the state


class Reign:
    """One attempt. Raises CheckpointError where somebody else takes the shard, BrokerError where the cluster fails."""

    def __init__(
        self, settings: ClientSettings, spec: PipelineSpec, place: Place, reason: str, *, past_damage: bool = False
    ) -> None:
        """Read all logs to their ends. `past_damage`: go on without what is damaged in the shard's version log."""
        self.place = place
        self.name = f"{spec.name}.{place[0]}.{place[1]}.operator-{os.urandom(6).hex()}"
        self._reason = reason
        self._control = topics.control(spec.name)
        self._versions = topics.versions(spec.name, place[0])
        self._state = topics.state(spec.name, place[0])
        self._failures: list[str] = []
        schemas = SchemaLog(settings, spec.name)
        self.histories = Histories(spec, ReplicationDecoder(schemas.open()))
        self._member = Member(place, self.name, self.histories.claims, self.histories.logs)
        self._counted: dict[str, bool] = {}  # of our own records in the version log, by key
        self._reading = Reading(settings, self.histories.partitions)
        options = {"linger.ms": 2, "queue.buffering.max.kbytes": _QUEUED_KILOBYTES}
        self._producer = idempotent_producer(settings, self._control, PATIENCE, options)
        try:
            for record in self._reading.to_the_end():
                self._take(record)
        except BaseException:
            self.close()
            raise
        self.histories.reached(self.histories.partitions)
        self._passed = self.histories.logs.accept(place) if past_damage else []

    def begin(self) -> Load:
        action = self._member.wanted()
        until = time.monotonic() + PATIENCE
        while not isinstance(action, Load):
            if isinstance(action, StandDown):
                raise self._overtaken("before the change began")
            if action is not None:
                self._append(action)
            action = self._next(until, "its own claim, fence and base")
        return action

    def write(self, chunks: Iterable[Chunk]) -> None:
        """Append records to the state topic; they may still be on their way when this returns."""
        for key, value in chunks:
            self._produce(self._state, self.place[1], key, bytes(value))

    def complete(self, manifest: Manifest) -> None:
        """Append the manifest once all else is acknowledged, and read it back: from then on the version is there."""
        self._acknowledged()
        links = self.histories.logs.log(self.place).history.links
        whole = replace(manifest, chain=links, claimant=self.name, at_us=_now_us())
        name = record_key(whole)
        self._produce(self._versions, self.place[1], name.encode(), encode(whole))
        self._acknowledged()
        until = time.monotonic() + PATIENCE
        action = None
        while name not in self._counted and not isinstance(action, StandDown):
            action = self._next(until, "its manifest")
        if not self._counted.get(name, False):  # a fence that was read first makes it void, wherever it is
            raise self._overtaken("before its version was complete")
        for damage in self._passed:  # from now on nobody has to wait for what it may have said
            self._produce(self._versions, self.place[1], damage.key, None)
        self._acknowledged()

    def close(self) -> None:
        self._producer.flush(1)
        self._reading.close()

    # Inside ----------------------------------------------------------------------------------------------------

    def _append(self, action: Action) -> None:
        assert isinstance(action, Append)
        record = action.record
        if isinstance(record, Claim):
            record = replace(record, at_us=_now_us(), reason=self._reason)
            self._produce(self._control, 0, claim_key(record).encode(), encode(record))
        else:
            record = replace(record, at_us=_now_us()) if isinstance(record, Fence) else record
            self._produce(self._versions, self.place[1], record_key(record).encode(), encode(record))
        self._acknowledged()

    def _next(self, until: float, what: str) -> Action | None:
        if time.monotonic() > until:
            raise BrokerError(f"{what} did not come back on {self._versions} or {self._control} in time")
        actions = [action for record in self._reading.read() if (action := self._take(record)) is not None]
        # Of a member there is one thing to do at a time; only being overtaken can come on top.
        return next((each for each in actions if isinstance(each, StandDown)), actions[-1] if actions else None)

    def _take(self, stored: Stored) -> Action | None:
        taken = self.histories.take(stored)
        if taken is None:
            return None
        record, counts = taken
        if isinstance(record, Claim):
            return self._member.heard_claim(record, won=counts)
        if (stored.topic, stored.partition) != (self._versions, self.place[1]):
            return None
        if isinstance(record, Base | Manifest) and record.claimant == self.name:
            self._counted[record_key(record)] = counts
        return self._member.heard(record, counts=counts)

    def _produce(self, topic: str, partition: int, key: bytes, value: bytes | None) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self._producer.produce(topic, value, key, partition, on_delivery=self._reported)
            except BufferError:
                if time.monotonic() > until:
                    raise self._lost("no acknowledgement in time") from None
                self._producer.poll(0.05)
                continue
            self._producer.poll(0)
            return

    def _acknowledged(self) -> None:
        left = self._producer.flush(PATIENCE)
        if left or self._failures:
            raise self._lost(self._failures[0] if self._failures else "no acknowledgement in time")

    def _reported(self, error: Any, _message: Any) -> None:
        if error is not None:
            self._failures.append(error.str())

    def _lost(self, why: str) -> BrokerError:
        return BrokerError(
            f"{self.place[0]}/{self.place[1]}: the cluster did not accept all records: {why}; before you try again, "
            "check with 'spillway state list' whether the version is there"
        )

    def _overtaken(self, when: str) -> CheckpointError:
        epoch = self.histories.claims.epoch(self.place)
        return CheckpointError(
            f"{self.place[0]}/{self.place[1]}: {self.histories.claims.winner(self.place)!r} took the shard over in "
            f"epoch {epoch} {when}, so nothing was changed; stop serving the pipeline first"
        )


def _now_us() -> int:
    return time.time_ns() // 1_000


# Whether a shard is served: its members' heartbeats tell, while our own probes come back (rule 13).
#
# The judgement is that of a backup over a silent primary (`spillway.checkpoint.silence`), over any member instead of
# one: a shard is not served if for a whole lease no member of it was heard while every probe came back in time. So a
# broker that stalls makes nobody look dead. A member that was stopped for longer than a lease looks dead as well, as it
# does to its own backups; what it appends when it goes on is void behind the operator's fence.

ROLE: Final = "operator"
_WAITING: Final = 120.0  # seconds for a lease in which all probes come back in time: a busy machine delays some
_MEMBERS: Final = "its members"  # whom we watch: all of them as one


def member_heard(settings: ClientSettings, spec: PipelineSpec, place: Place) -> Beat | None:
    """A heartbeat of a member of the shard; None after a lease without one.

    Raises BrokerError where probes do not come back in time, TopicError.
    """
    name, topic = f"operator-{os.urandom(6).hex()}", topics.beat(spec.name)
    decoder, lease = ReplicationDecoder(), Lease(spec.stage(place[0]).required_state.lease)
    with Reading(settings, [(topic, 0)], from_end=True) as reading, ExitStack() as stack:
        producer = idempotent_producer(settings, topic, PATIENCE, {"linger.ms": 0})
        stack.callback(producer.flush, 1)
        sequence, began = 0, time.monotonic()
        watch, due = Watch(lease, _MEMBERS, began), began
        while True:
            now = time.monotonic()
            if now - began > _WAITING + lease.seconds:
                raise BrokerError(f"{topic}: test records do not come back in time; is the broker overloaded?")
            if now >= due:
                due, sequence = now + lease.beat, sequence + 1
                probe = Beat(*place, name, 0, ROLE, sequence, time.time_ns() // 1_000)
                watch.probe_sent(now, sequence)
                producer.produce(topic, encode(probe), name, 0)
                producer.poll(0)
            for record in reading.read(min(0.02, lease.beat)):
                beat = _beat_in(record, decoder, place)
                if beat is not None and beat.role != ROLE:
                    return beat
                if beat is not None and beat.member == name and watch.probe_returned(time.monotonic(), beat.sequence):
                    return None


def _beat_in(record: Stored, decoder: ReplicationDecoder, place: Place) -> Beat | None:
    try:
        beat = decoder.beat(record.value or b"")
    except WireError:  # of another release, or none: nobody can say whose it is
        return None
    return beat if (beat.stage, beat.shard) == place else None


@dataclass(frozen=True, slots=True)
class Changed:
    """The version that was made."""

    place: Place
    version: Version
    base: Version  # what it follows
    durable: bool  # at once; otherwise it waits for other stages' versions, as its base does
    manifest: Manifest


def refuse_served(settings: ClientSettings, spec: PipelineSpec, place: Place) -> None:
    """Raise UsageError if the shard is served. Takes a lease."""
    beat = member_heard(settings, spec, place)
    if beat is not None:
        lease = show_duration(spec.stage(place[0]).required_state.lease)
        raise UsageError(
            f"{place[0]}/{place[1]} is served: its {beat.role} {beat.member!r} sends heartbeats. Stop serving the "
            f"pipeline, wait for its lease of {lease}, and try again"
        )


def import_state(
    settings: ClientSettings,
    spec: PipelineSpec,
    place: Place,
    state: Mapping[Any, Any],
    keyed: Mapping[str, Mapping[Any, Any]] | None,
    reason: str,
) -> Changed:
    """Make a state from elsewhere the newest version. Topics that are missing are created.

    Raises StateError for one that cannot be kept, UsageError for one of the other kind or a shard that is served.
    """
    wanted, given = spec.stage(place[0]).required_state.kind, "keyed" if keyed is not None else "shared"
    if given != wanted:
        raise UsageError(f"stage {place[0]!r} has a {wanted} state, but this is a {given} one")
    if keyed is not None and state:
        names = ", ".join(map(repr, list(state)[:3]))
        raise UsageError(f"stage {place[0]!r} has only states by key, but this one also has {names}: leave it out")
    pages = Pages(CHUNK_BYTES) if keyed is not None else None
    captured = Capture(pages=pages).take(state, keyed)
    ensure(settings, topic_plan(spec))

    def written(reign: Reign, epoch: int, version: Version) -> tuple[Writing, Contents]:
        writing = ChunkLog(epoch).write(version, captured)
        reign.write(writing.records())
        return writing, describe(captured, writing)

    return _change(settings, spec, place, written, reason)


def check_rewind(histories: Histories, kept: Kept) -> None:
    """Raise UsageError for a version that a shard cannot be rewound to.

    To the newest that can be read a shard is rewound only where a record of its version log is damaged.
    """
    if kept.standing is Fate.DEAD:
        raise UsageError(
            f"{kept.version} is dead: a later epoch did not continue from it, or it depends on another stage's "
            "version that was lost. To use that state anyway, export it and import the file"
        )
    if histories.logs.damage(kept.place) is None and histories.logs.candidate(kept.place) == kept.version:
        raise UsageError(f"{kept.version} is what {kept.place[0]}/{kept.place[1]} would start from anyway")


def rewind(settings: ClientSettings, spec: PipelineSpec, histories: Histories, kept: Kept, reason: str) -> Changed:
    """Make the state of a retained version the newest version. `histories`: in which it was found.

    Raises ChunkError, before anything is changed, where a chunk of it is damaged or missing.
    """
    check_rewind(histories, kept)
    store = Store(settings, spec.name, kept.place)
    contents = store.contents(kept.manifest, histories.decoder)
    trial = Copying(contents, kept.version)
    store.feed_all(contents, trial.add)
    _ = trial.chunks  # raises for one that is missing

    def written(reign: Reign, _epoch: int, version: Version) -> tuple[Copying, Contents]:
        copying = Copying(contents, version)
        store.feed_all(contents, lambda key, value: reign.write(copying.add(key, value) or ()))
        return copying, replace(contents, data=b"")

    return _change(settings, spec, kept.place, written, reason, past_damage=True)


def _change(
    settings: ClientSettings,
    spec: PipelineSpec,
    place: Place,
    written: Callable[[Reign, int, Version], tuple[Writing | Copying, Contents]],
    reason: str,
    **options: Any,
) -> Changed:
    """Make one version in a reign; `written` writes its state, and says what that is."""
    refuse_served(settings, spec, place)
    with closing(Reign(settings, spec, place, reason, **options)) as reign:
        begun = reign.begin()
        parts, state = written(reign, begun.epoch, successor(begun.epoch, begun.version))
        base = _base(settings, spec, reign, begun.version)
        manifest, spilled = seal(Manifest(parts.version), with_state_of(base, state, parts.chunks, state.data), parts)
        reign.write(spilled)
        reign.complete(manifest)
        fate = reign.histories.logs.fate(Mark(*place, manifest.version))
        return Changed(place, manifest.version, begun.version, fate is Fate.DURABLE, manifest)


def _base(settings: ClientSettings, spec: PipelineSpec, reign: Reign, base: Version) -> Contents | None:
    """The contents of what a reign starts from: of these, not of its state's chunks, the next version is made."""
    manifest = reign.histories.manifest(reign.place, base)
    if manifest is None:
        return None
    try:
        return Store(settings, spec.name, reign.place).contents(manifest, reign.histories.decoder)
    except ChunkError as error:
        raise CheckpointError(
            f"nothing can follow {base} of {reign.place[0]}/{reign.place[1]}, because its input offsets are not "
            f"known: {error}"
        ) from error
