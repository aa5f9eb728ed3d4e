"""How a primary writes a version: the changed parts as chunks, and when all is acknowledged the manifest (rule 5)."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from agents.sim.faults.processes.messages import told
from agents.sim.faults.shard.standby import Logged
from agents.sim.faults.world.broker import keyed, state_of, versions_of
from checkpoint.chunks import decode_key, encode_key, expendable
from lineage.replication import ChunkKey, Contents, Manifest
from lineage.values.replication import ReplicationDecoder, encode

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.core.stateful_stage import StatefulCore
    from agents.sim.faults.shard.host import Host, Outgoing
    from agents.sim.faults.world.broker import Place, Record
    from agents.sim.faults.world.world import StateWorld
    from checkpoint.logs import Logs
    from checkpoint.orders import Write
    from lineage.marks import Version
    from lineage.replication import Link

_DECODER = ReplicationDecoder()


class Written(Protocol):
    """The reign whose versions are written."""

    process: Host
    world: StateWorld
    place: Place
    epoch: int
    base: Version
    chain: tuple[Link, ...]
    core: StatefulCore
    logs: Logs
    outgoing: Outgoing

    def send(self, place: Place, record: Record, acked: Callable[[], None], takes: float = 0.0) -> None:
        """Send a record, if and when the lease allows it."""

    def completed(self, version: Version) -> None:
        """Note that a version's manifest is acknowledged."""


class Writer:
    """The versions of one reign; one at a time."""

    def __init__(self, primary: Written) -> None:
        self.primary = primary
        self.world = primary.world
        self._held: dict[int, tuple[ChunkKey, str]] = {}  # by part: what this epoch has written
        self._needed: dict[Version, set[ChunkKey]] = {}
        self._state_n = primary.base.n
        self._order: Write[Any] | None = None
        self._missing = 0  # chunks that are not acknowledged
        self._sealed = False
        self._outputs: list[tuple[Place, Record]] = []
        self._chunks: list[tuple[Place, Record]] = []

    def begin(self, order: Write[Any]) -> None:
        primary, mode = self.primary, self.world.scenario.mode
        self._order, self._sealed, self._chunks = order, False, []
        self.world.result.count("written")
        self.world.result.counts["coalesced"] = self.world.result.counts.get("coalesced", 0) + len(order.batches) - 1
        primary.process.point("chunks.before")
        if order.what is not None:
            self._state_n = order.state_n
            for part, value in enumerate(order.what.parts):
                if part not in self._held or self._held[part][1] != value:
                    epoch = self.world.scenario.guards.chunk_epoch(order.version.epoch)
                    key = ChunkKey(epoch, order.version.n, part)
                    self._held[part] = key, value
                    self._chunks.append((state_of(primary.place), keyed(encode_key(key), value)))
        self._needed[order.version] = {key for key, _ in self._held.values()}
        self._outputs = []
        if mode.holds:
            self._outputs = [told(e, *primary.place, primary.epoch) for e in primary.core.withheld(order.version)]
        self._missing = 0
        if not mode.transacts:
            self._missing = len(self._chunks)
            for place, record in self._chunks:
                seconds = self.world.random.expovariate(1.0) * self.world.scenario.write_seconds
                primary.send(place, record, partial(self._chunk_acked, order), seconds)
        self._look()

    def sealed(self) -> None:
        self._sealed = True
        self.primary.process.point("outputs.after")
        self._look()

    def _chunk_acked(self, order: Write[Any]) -> None:
        if order is self._order:
            self._missing -= 1
            if not self._missing:
                self.primary.process.point("chunks.after")
            self._look()

    def _look(self) -> None:
        """Append the manifest, once all else is there."""
        order, primary = self._order, self.primary
        if order is None or self._missing or not self._sealed:
            return
        self._order = None
        primary.process.point("manifest.before")
        manifest = Manifest(order.version, primary.chain, order.requires, primary.process.name)
        transacts = self.world.scenario.mode.transacts
        contents = _sent(Contents(batches=order.batches, inputs=order.inputs))
        if not transacts:
            contents = replace(contents, outputs=tuple(self._outputs))  # type: ignore[arg-type]
        named = tuple((encode_key(key), value) for _, (key, value) in sorted(self._held.items()))
        body = Logged(manifest, contents, named, self._state_n)
        record = keyed(self.world.scenario.guards.version_key(manifest), body)
        done = partial(self._completed, order.version)
        last = (versions_of(primary.place), record)
        if transacts:
            primary.outgoing.send((last, *self._chunks, *self._outputs), done)
        else:
            primary.send(*last, done)

    def _completed(self, version: Version) -> None:
        self.primary.process.point("manifest.after")
        self.primary.completed(version)

    # What may go -----------------------------------------------------------------------------------------------

    def tidy(self) -> None:
        """Tombstone what the newest durable version has made superfluous (rule 4)."""
        primary = self.primary
        durable: Version = self.world.scenario.guards.keeps(primary.logs, primary.place)
        if durable.epoch != primary.epoch or durable not in self._needed:
            return
        retention = primary.process.standby.retention
        going = retention.obsolete(primary.logs.log(primary.place).history, durable)
        if going:
            primary.process.point("tidy")
        for name in going:
            retention.tombstoned(name)
            primary.send(versions_of(primary.place), keyed(name, None), _nothing)
        self._needed = {version: keys for version, keys in self._needed.items() if version.n >= durable.n}
        present = [decode_key(key) for key in primary.process.standby.chunks]
        for key in expendable(present, primary.epoch, durable, self._needed):
            primary.process.standby.chunks.pop(encode_key(key), None)
            primary.send(state_of(primary.place), keyed(encode_key(key), None), _nothing)


def _sent(contents: Contents) -> Contents:
    """Give what a reader gets of what a version consists of. Raises WireError for what cannot be written."""
    return _DECODER.contents(encode(contents))


def _nothing() -> None:
    """Nothing follows from it."""
