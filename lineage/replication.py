"""What a stateful shard writes of itself: manifests and their contents, fences, claims, beats, and what is said to it.

Plain slotted classes as they stand on the wire, made by `spillway.lineage.values.replication`, which bounds them;
nothing here validates. What they mean for a shard's history is judged by `spillway.checkpoint.version_log`.

A manifest is a small head, which the gate and the neighbours read, and its contents, which only the shard's members
read: encoded bytes that ride in the manifest, or, where they are large, chunks in the state topic that it names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from spillway.lineage.marks import INITIAL, Mark, Version

if TYPE_CHECKING:
    from spillway.lineage.message import Value

Link = tuple[int, Version]  # an epoch, and the version that it started from

DIGEST_BYTES: Final = 16  # of blake2b: 128 bits, against accidents
NUMPY: Final = "numpy"
TORCH: Final = "torch"
SCALAR: Final = "scalar"  # of numpy's: a tensor of rank 0 on the log
VALUE: Final = "value"  # no tensor: a small value, which stands in the contents themselves


class Entry(NamedTuple):
    """One leaf of a state: where it stands and what it is. Of a value, dtype and shape are empty."""

    name: str  # its path in the state (see spillway.checkpoint.names)
    kind: str  # NUMPY, TORCH, SCALAR or VALUE
    dtype: str  # numpy's name, or bfloat16
    shape: tuple[int, ...]


class ChunkKey(NamedTuple):
    """Under what a chunk stands in the state topic. The epoch is part of it: no zombie overwrites a newer record."""

    epoch: int
    version: int  # the n of the version that it was first written for
    part: int


class ChunkRef(NamedTuple):
    """A chunk that a version consists of, wherever it was written first."""

    key: ChunkKey
    size: int  # bytes
    digest: bytes  # DIGEST_BYTES of blake2b of the record's value


class InputRecord(NamedTuple):
    """One input record: whose request, and where it stands in the stage's input."""

    request: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What became of the inputs that one version took, in the order in which they were taken."""

    n: int  # the version after this batch
    taken: tuple[InputRecord, ...] = ()
    dropped: tuple[InputRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class Output:
    """A message that a version's batches produced, where the manifest contains it."""

    topic: str
    partition: int
    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()


class InputPlace(NamedTuple):
    """How far a version has got on one partition of its stage's input. Coverage is a set (rule 10)."""

    partition: int
    position: int  # every offset below it is covered
    note: str = ""  # what to read again below it (spillway.checkpoint.notes)
    covered: tuple[tuple[int, int], ...] = ()  # above it: runs from an offset to before another, in order, apart


@dataclass(frozen=True, slots=True)
class Contents:
    """What a version consists of and what it rests on, for the shard's members.

    The chunks are those of the tensors, in the layout that `chunk_bytes` and `own_bytes` give the entries
    (`spillway.checkpoint.layout`), then those of the keyed pages, each page's in order.
    """

    entries: tuple[Entry, ...] = ()
    values: dict[str, Value] = field(default_factory=dict)  # of the entries that are no tensors, by name
    chunk_bytes: int = 1
    own_bytes: int = 0
    chunks: tuple[ChunkRef, ...] = ()
    pages: tuple[int, ...] = ()  # bytes of each page of a keyed state, empty pages included
    batches: tuple[Batch, ...] = ()  # since the version before, oldest first
    outputs: tuple[Output, ...] = ()
    inputs: tuple[InputPlace, ...] = ()
    later: int = 0  # how many of the last batches are not in the chunks: a recovery computes them again
    data: bytes = b""  # of a small state: its chunks themselves, each once, by their parts; none is in the state topic


@dataclass(frozen=True, slots=True)
class Manifest:
    """A complete version of a shard: once it stands in the version log, so do all its chunks."""

    version: Version
    chain: tuple[Link, ...] = ()  # of every epoch up to this one, ascending
    requires: tuple[Mark, ...] = ()  # of all batches since the version before
    claimant: str = ""
    at_us: int = 0  # unix microseconds, by its writer's clock
    state_bytes: int = 0
    written_bytes: int = 0  # of chunks, for this version
    batches: int = 0
    requests: int = 0
    digest: bytes = b""  # of the state (spillway.checkpoint.manifests); empty: not told
    contents: bytes = b""  # encoded; empty where they are spilled
    spilled: tuple[ChunkRef, ...] = ()  # the chunks that hold the encoded contents, in order


@dataclass(frozen=True, slots=True)
class Fence:
    """The start of an epoch in a version log: records of older epochs behind it are void."""

    epoch: int
    claimant: str
    at_us: int = 0


@dataclass(frozen=True, slots=True)
class Base:
    """The claimant's decision, after it has read up to its fence: the version that its epoch starts from."""

    epoch: int
    claimant: str
    version: Version
    chain: tuple[Link, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """Somebody's wish to be a shard's primary in an epoch; the first of an epoch in the control log has it."""

    stage: str
    shard: int
    epoch: int
    claimant: str
    at_us: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Beat:
    """A member's heartbeat. `sequence` counts them since the member began."""

    stage: str
    shard: int
    member: str
    epoch: int  # the newest that it knows
    role: str  # primary, backup, ...
    sequence: int
    at_us: int
    version: Version = INITIAL  # the newest that it has


@dataclass(frozen=True, slots=True)
class Report:
    """Somebody's word, mostly a supervisor's, that processes have ended: no silence need be waited for."""

    stage: str
    shard: int
    members: tuple[str, ...]  # by the names that their claims and beats have; each is one process, and never another
    at_us: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Yield:
    """The wish that the primary of an epoch be followed by another member; of an older epoch it means nothing."""

    stage: str
    shard: int
    epoch: int
    by: str  # who asks: an operator, or the primary itself
    at_us: int = 0
    reason: str = ""
