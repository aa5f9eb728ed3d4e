"""A member of a shard as its reign sees it, and what its primary sends."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from spillway.agents.sim.faults.processes.living import Living
from spillway.agents.sim.faults.world.model import PARTS, State
from spillway.checkpoint.retention import Retention
from spillway.lineage.errors import CheckpointError
from spillway.lineage.marks import INITIAL, Version
from spillway.lineage.replication import Base, Contents, Fence, Manifest

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.memory.broker import Place
    from spillway.agents.sim.faults.shard.reading import ShardInput
    from spillway.agents.sim.faults.world.follower import Follower
    from spillway.agents.sim.faults.world.records import Record
    from spillway.checkpoint.logs import Logs


# What a member holds of its shard's versions, ready to be promoted: the durable one applied, newer ones buffered.
#
# Invariants: what is applied is the newest durable version that could be read so far, never one that may die. A version
# is put together from its manifest's chunks and nothing else; a missing or different chunk is an error (rule 16).


class Logged(NamedTuple):
    """The body of a record in a version log; of a manifest with its contents opened."""

    record: Fence | Base | Manifest
    contents: Contents = Contents()
    named: tuple[tuple[bytes, str], ...] = ()  # of each part, in order: the key of its record, and its digest
    state_n: int = 0  # the version that the chunks are of; where batches are logged, an older one


class Standby:
    """One member's copy."""

    def __init__(self) -> None:
        self.applied: tuple[Version, State] = (INITIAL, State())
        self.entries: dict[Version, Logged] = {}
        self.chunks: dict[bytes, str] = {}
        self.retention = Retention()

    def read_state(self, record: Record) -> None:
        key: Any = record.request_id  # of a keyed record, its key
        if record.body is None:
            self.chunks.pop(key, None)
        else:
            self.chunks[key] = record.body

    def read_version(self, record: Record, *, counts: bool) -> None:
        if record.body is None:
            self.retention.tombstoned(record.request_id)
            return
        manifest = record.body.record
        self.retention.appended(manifest)
        if counts and isinstance(manifest, Manifest):
            self.entries[manifest.version] = record.body

    def apply(self, place: Place, logs: Logs) -> bool:
        """Apply the newest durable version, if that is news and all of it has been read."""
        durable = logs.newest_durable(place)
        if durable == self.applied[0]:
            return False
        entry = self.entries.get(durable)
        if entry is None or any(key not in self.chunks for key, _ in entry.named):
            return False
        self.applied = durable, self.assemble(entry)
        self.entries = {version: one for version, one in self.entries.items() if version.n >= durable.n}
        return True

    def assemble(self, entry: Logged) -> State:
        if not (entry.named or entry.state_n):
            return State()  # only batches since the initial state are logged
        parts = []
        for key, digest in entry.named:
            value = self.chunks.get(key)
            if value is None:
                raise CheckpointError(f"the chunk {key!r} of {_name(entry)} is missing")
            if value != digest:
                raise CheckpointError(f"the chunk {key!r} of {_name(entry)} has another digest")
            parts.append(value)
        if len(parts) != PARTS:
            raise CheckpointError(f"{_name(entry)} has {len(parts)} parts")
        return State(tuple(parts))

    def state_of(self, version: Version) -> State:
        """Give the state that a version's chunks make. Raises CheckpointError."""
        if version == self.applied[0]:
            return self.applied[1]
        entry = self.entries.get(version)
        if entry is None:
            raise CheckpointError(f"the manifest of {version} is missing")
        return self.assemble(entry)


def _name(entry: Logged) -> str:
    assert isinstance(entry.record, Manifest)  # only these have contents
    return str(entry.record.version)


class Host(Living):
    """A process in which a reign may be."""

    place: Place
    name: str
    standby: Standby
    follower: Follower
    input: ShardInput

    def gives_way(self, epoch: int) -> None:
        """Have another member take over from the reign of an epoch, which rests on something dead."""
        raise NotImplementedError

    def may_emit(self) -> bool:
        raise NotImplementedError


class Outgoing:
    """The messages of one reign that were not handed over yet, in order."""

    def __init__(self, process: Host) -> None:
        self.closed = False
        self._process = process
        self._waiting: deque[Callable[[], None]] = deque()

    def send(self, records: tuple[tuple[Place, Record], ...], acked: Callable[[], None], takes: float = 0.0) -> None:
        """Send records, several of them all at once. `takes`: seconds beside the network's."""

        def heard() -> None:
            if not self.closed:
                acked()

        self._waiting.append(partial(self._process.wire.send_together, records, heard, takes))
        self.flush()

    def flush(self) -> None:
        while self._waiting and not self.closed and self._process.may_emit():
            self._waiting.popleft()()

    @property
    def waits(self) -> bool:
        return bool(self._waiting)
