"""The versions of one reign on their way to the log of a run: chunks, then their manifest; and what may go."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from spillway.agents.proof.shards.world.records import Logged, keyed, state_of, versions_of
from spillway.checkpoint.chunks import decode_key, encode_key, expendable
from spillway.lineage.replication import ChunkKey, Contents, Manifest
from spillway.lineage.values.replication import ReplicationDecoder, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.memory.broker import Place
    from spillway.agents.proof.shards.member.host import Host
    from spillway.agents.proof.shards.world.records import Record
    from spillway.checkpoint.reign import Write
    from spillway.lineage.marks import Version
    from spillway.lineage.replication import Output

_DECODER = ReplicationDecoder()


class RunWriter:
    """Writes the versions of one epoch (`spillway.agents.run.shard_context.ReignWriter`)."""

    def __init__(self, process: Host, epoch: int, base: Version, completed: Callable[[Version], None]) -> None:
        self._process, self._world, self._place = process, process.world, process.place
        self._epoch, self._completed = epoch, completed
        self._chain = process.logs.log(self._place).history.links
        self._held: dict[int, tuple[ChunkKey, str]] = {}  # by part: what this epoch has written
        self._needed: dict[Version, set[ChunkKey]] = {}
        self._state_n = base.n
        self._order: Write[Any] | None = None
        self._missing = 0  # chunks that are not acknowledged
        self._sealed = False
        self._outputs: tuple[Output, ...] = ()
        self._chunks: list[tuple[Place, Record]] = []
        self._closed = False

    def write(self, order: Write[Any], outputs: tuple[Output, ...]) -> None:
        world, process, mode = self._world, self._process, self._world.scenario.mode
        self._order, self._sealed, self._outputs, self._chunks = order, False, outputs, []
        world.result.counts["written"] += 1
        world.result.counts["coalesced"] += len(order.batches) - 1
        process.point("chunks.before")
        if order.what is not None:
            self._state_n = order.state_n
            for part, value in enumerate(order.what.parts):
                if part not in self._held or self._held[part][1] != value:
                    key = ChunkKey(world.scenario.guards.chunk_epoch(order.version.epoch), order.version.n, part)
                    self._held[part] = key, value
                    self._chunks.append((state_of(self._place), keyed(encode_key(key), value)))
        self._needed[order.version] = {key for key, _ in self._held.values()}
        self._missing = 0
        if not mode.transacts:
            self._missing = len(self._chunks)
            for place, record in self._chunks:
                seconds = world.random.expovariate(1.0) * world.scenario.write_seconds
                process.wire.send(place, record, partial(self._chunk_acked, order), seconds)
        self._look()

    def seal(self, _version: Version) -> None:
        self._sealed = True
        self._process.point("outputs.after")
        self._look()

    def close(self) -> None:
        self._closed = True

    def _chunk_acked(self, order: Write[Any]) -> None:
        if self._closed or order is not self._order:
            return
        self._missing -= 1
        if not self._missing:
            self._process.point("chunks.after")
        self._look()

    def _look(self) -> None:
        """Append the manifest, once all else is there."""
        order, process, place = self._order, self._process, self._place
        if order is None or self._missing or not self._sealed:
            return
        self._order = None
        process.point("manifest.before")
        manifest = Manifest(order.version, self._chain, order.requires, process.name)
        transacts = self._world.scenario.mode.transacts
        contents = _DECODER.contents(encode(Contents(batches=order.batches, inputs=order.inputs)))  # as a reader has it
        if not transacts:
            contents = replace(contents, outputs=self._outputs)
        named = tuple((encode_key(key), value) for _, (key, value) in sorted(self._held.items()))
        body = Logged(manifest, contents, named, self._state_n)
        last = versions_of(place), keyed(self._world.scenario.guards.version_key(manifest), body)
        with_it = ()
        if transacts:
            sent: Any = tuple(((one.topic, one.partition), one.value) for one in self._outputs)
            with_it = (*self._chunks, *sent)
        process.wire.send_together((last, *with_it), partial(self._acked, order.version))

    def _acked(self, version: Version) -> None:
        self._process.point("manifest.after")
        if not self._closed:
            self._completed(version)

    # What may go -----------------------------------------------------------------------------------------------

    def durable(self, _version: Version) -> None:
        """Tombstone what the newest durable version has made superfluous (rule 4)."""
        process, place, logs = self._process, self._place, self._process.logs
        durable: Version = self._world.scenario.guards.keeps(logs, place)
        if durable.epoch != self._epoch or durable not in self._needed:
            return
        retention, chunks = process.member.retention, process.standby.chunks
        going = retention.obsolete(logs.log(place).history, durable)
        if going:
            process.point("tidy")
        for name in going:
            retention.tombstoned(name)
            process.wire.send(versions_of(place), keyed(name, None))
        self._needed = {version: keys for version, keys in self._needed.items() if version.n >= durable.n}
        for key in expendable([decode_key(key) for key in chunks], self._epoch, durable, self._needed):
            chunks.pop(encode_key(key), None)
            process.wire.send(state_of(place), keyed(encode_key(key), None))
