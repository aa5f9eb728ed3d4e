"""A member of a shard as what serves it sees it: its place, what it has read of its versions, and its reign."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spillway.agents.proof.shards.replica import Living
from spillway.agents.proof.shards.world.model import PARTS, State
from spillway.lineage.errors import CheckpointError
from spillway.lineage.marks import INITIAL, Version
from spillway.lineage.replication import Manifest

if TYPE_CHECKING:
    from spillway.agents.core.stateful_stage import StatefulCore
    from spillway.agents.memory.broker import Place
    from spillway.agents.proof.shards.world.records import Logged, Record
    from spillway.agents.run.shard_input import ShardInput
    from spillway.agents.run.shard_member import ShardMember
    from spillway.checkpoint.logs import Logs


# What a member holds of its shard's versions, ready to be promoted: the durable one applied, newer ones buffered.
#
# Invariants: what is applied is the newest durable version that could be read so far, never one that may die. A version
# is put together from its manifest's chunks and nothing else; a missing or different chunk is an error (rule 16).


class Standby:
    """One member's copy, of what it has read."""

    def __init__(self) -> None:
        self.applied: tuple[Version, State] = (INITIAL, State())
        self.entries: dict[Version, Logged] = {}
        self.chunks: dict[bytes, str] = {}

    def read_state(self, record: Record) -> None:
        key: Any = record.request_id  # of a keyed record, its key
        if record.body is None:
            self.chunks.pop(key, None)
        else:
            self.chunks[key] = record.body

    def read_version(self, body: Logged | None, *, counts: bool) -> None:
        if body is not None and counts and isinstance(body.record, Manifest):
            self.entries[body.record.version] = body

    def apply(self, durable: Version) -> bool:
        """Apply the newest durable version, if that is news and all of it has been read."""
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
        """Return the state that a version's chunks make. Raises CheckpointError."""
        if version == self.applied[0]:
            return self.applied[1]
        entry = self.entries.get(version)
        if entry is None:
            raise CheckpointError(f"the manifest of {version} is missing")
        return self.assemble(entry)


def _name(entry: Logged) -> str:
    assert isinstance(entry.record, Manifest)  # only these have contents
    return str(entry.record.version)


@dataclass(frozen=True)
class Reigning:
    """What the oracle and who serves a reign want to know of it."""

    core: StatefulCore
    base: Version
    machine: Any
    capture: Any

    @property
    def epoch(self) -> int:
        return self.core.epoch

    @property
    def recorded(self) -> Version:
        """The newest version that it has recorded."""
        version = Version(self.epoch, self.core.reign.recorded)
        return version if version.n > self.base.n else self.base


class Host(Living):
    """A process in which a reign may be."""

    place: Place
    name: str
    logs: Logs
    member: ShardMember
    input: ShardInput
    standby: Standby
    reigning: Reigning | None

    async def read_to_end(self) -> None:
        """Read the shard's version log to the end that it has now."""
        raise NotImplementedError
