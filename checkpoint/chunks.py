"""A captured version as records of the state topic, and which of those may go (rules 4 and 5).

Invariants:

* A chunk's key is (epoch, version, part), written `5/17/3`: the version that it was first written for. No key is ever
  written twice with different bytes, and none by two epochs: a zombie's late record replaces nothing.
* Only what the log does not hold is written: a chunk whose bytes it has, by digest, is named by the key that it has.
  What counts as held was written in this epoch and acknowledged; so the first version of an epoch is written in full.
* A small version writes no chunks: they travel in its contents, all of them, so nothing else has to be kept for it.
* Records are made one by one, as they are asked for: their values are the captured memory itself, no copy. A version's
  table of chunks is known when all were asked for.
* A key is expendable only to the owner of the current epoch, once a version of its epoch is durable, and only if
  neither that nor a newer version names it, one half written included, nor one that is retained.

One version is written at a time; `durable` is called where `records` is asked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from spillway.checkpoint.blocks import digest_of
from spillway.lineage.errors import CheckpointError
from spillway.lineage.replication import ChunkKey, ChunkRef

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from spillway.checkpoint.capture import Captured
    from spillway.lineage.marks import Version

SMALL_BYTES: Final = 8 << 10
"""A state up to this size travels in its version's contents: one record and one wait less for each version."""
_KEY: Final = re.compile(rb"(0|[1-9]\d{0,18})/(0|[1-9]\d{0,18})/(0|[1-9]\d{0,9})")

Chunk = tuple[bytes, Any]  # a record's key, and its value as a buffer


def encode_key(key: ChunkKey) -> bytes:
    return b"%d/%d/%d" % key


def decode_key(key: bytes) -> ChunkKey:
    """The chunk's key in a record's. Raises CheckpointError."""
    match = _KEY.fullmatch(key)
    if match is None:
        raise CheckpointError(f"{key[:80]!r} is not a key of a state chunk; find out what else writes to this topic")
    return ChunkKey(*map(int, match.groups()))


class Parts:
    """What is written of one version, under keys of its own."""

    def __init__(self, version: Version) -> None:
        self.version = version
        self.written_bytes = 0
        self.keys: set[ChunkKey] = set()  # of the records that were made
        self.spilled: tuple[ChunkRef, ...] = ()
        self._parts = 0

    def spill(self, contents: bytes, chunk_bytes: int) -> Iterator[Chunk]:
        """Contents that are too large for a manifest, as records behind the chunks'."""
        for at in range(0, len(contents), chunk_bytes):
            piece = contents[at : at + chunk_bytes]
            key = self._new(len(piece))
            self.keys.add(key)
            self.spilled += (ChunkRef(key, len(piece), digest_of(piece)),)
            yield encode_key(key), piece

    def _new(self, size: int) -> ChunkKey:
        self._parts += 1
        self.written_bytes += size
        return ChunkKey(self.version.epoch, self.version.n, self._parts - 1)


class Writing(Parts):
    """The records of a captured version: made by `ChunkLog.write`."""

    def __init__(self, version: Version, captured: Captured, held: Mapping[bytes, ChunkKey], small: int) -> None:
        super().__init__(version)
        self._captured = captured
        self._held = held
        self._fresh: dict[bytes, ChunkKey] = {}
        self._chunks: list[ChunkRef] = []
        self._done = False
        size = sum(len(block.data) for block in self._blocks())
        self._small: list[bytes] | None = [] if 0 < size <= small else None

    def records(self) -> Iterator[Chunk]:
        """The chunks that the log does not hold, one by one. To be asked for once."""
        for block in self._blocks():
            digest = block.digest
            key = self._fresh.get(digest) or (self._held.get(digest) if self._small is None else None)
            if key is None:
                key = self._fresh[digest] = self._new(len(block.data))
                if self._small is None:
                    self.keys.add(key)
                    yield encode_key(key), memoryview(block.data)
                else:
                    self._small.append(bytes(block.data))
            self._chunks.append(ChunkRef(key, len(block.data), digest))
        self._done = True

    @property
    def chunks(self) -> tuple[ChunkRef, ...]:
        """What the version consists of. Raises CheckpointError before all records were made."""
        if not self._done:
            raise CheckpointError(f"the chunks of {self.version} are not complete yet: take all records first")
        return tuple(self._chunks)

    @property
    def data(self) -> bytes:
        """The chunks of a small version; else empty."""
        return b"".join(self._small or ())

    def acknowledged(self) -> dict[bytes, ChunkKey]:
        """What the log holds from now on, as all records are acknowledged: keys by digest."""
        return dict(self._fresh) if self.chunks and self._small is None else {}

    def named(self) -> frozenset[ChunkKey]:
        """Every record that the version names, as far as they were made."""
        chunks = self._chunks if self._small is None else ()
        return frozenset(chunk.key for chunk in (*chunks, *self.spilled))

    def _blocks(self) -> Iterator[Any]:
        yield from self._captured.blocks
        for page in self._captured.pages:
            yield from page.blocks


class ChunkLog:
    """What the owner of an epoch has in its partition of the state topic."""

    def __init__(self, epoch: int, present: Iterable[ChunkKey] = (), *, small: int = SMALL_BYTES) -> None:
        """`present`: the keys of older epochs that its partition holds; they are needed until `durable`.

        `small`: bytes of a state that is written without chunks of its own.
        """
        self.epoch = epoch
        self._held: dict[bytes, ChunkKey] = {}
        self._present: set[ChunkKey] = set(present)
        self._needed: dict[Version, frozenset[ChunkKey]] = {}
        self._small = small
        self._last = -1
        self._writing: Writing | None = None

    def write(self, version: Version, captured: Captured) -> Writing:
        """Begin to write a version. Raises CheckpointError for one of another epoch, or not newer than the last."""
        if version.epoch != self.epoch or version.n <= self._last:
            raise CheckpointError(f"{version} cannot be written in epoch {self.epoch} after n = {self._last}")
        if self._writing is not None:
            raise CheckpointError(
                f"{version} cannot be written while {self._writing.version} is being written: write one at a time"
            )
        self._last = version.n
        self._writing = Writing(version, captured, self._held, self._small)
        return self._writing

    def acknowledged(self, writing: Writing) -> None:
        """Note that all records of a version are acknowledged: later versions build on them."""
        self._writing = None
        self._held.update(writing.acknowledged())
        self._present |= writing.keys
        self._needed[writing.version] = writing.named()

    def durable(
        self, version: Version, retained: Mapping[Version, Collection[ChunkKey]] | None = None
    ) -> list[ChunkKey]:
        """The keys to tombstone, now that a version is durable; nothing builds on them any more.

        `retained`: older versions that an operator may want to go back to, and what they name.
        """
        ours = [one for one in self._needed if one.n <= version.n]
        if version.epoch != self.epoch or not ours:
            return []
        newest = max(ours, key=lambda one: one.n)
        self._needed = {one: keys for one, keys in self._needed.items() if one.n >= newest.n}
        needed = {**self._needed, **(retained or {})}
        if self._writing is not None:
            needed[self._writing.version] = self._writing.named()
        going = expendable(self._present, self.epoch, newest, needed)
        self._present.difference_update(going)
        for digest in [digest for digest, key in self._held.items() if key not in self._present]:
            del self._held[digest]  # for what is being written, too
        return going

    def __len__(self) -> int:
        return len(self._present)


def expendable(
    present: Iterable[ChunkKey], epoch: int, durable: Version, needed: Mapping[Version, Collection[ChunkKey]]
) -> list[ChunkKey]:
    """Which keys the owner of `epoch` may tombstone (rule 4), in order.

    `durable`: its newest durable version. `needed`: what each version names that is durable, newer, or retained; the
    durable one must be among them. Nothing before a version of the epoch is durable, nothing newer than that version
    (it may be half written), nothing of a newer epoch (then the caller is a zombie), nothing that is needed.
    """
    if durable.epoch != epoch:
        return []
    if durable not in needed:
        raise CheckpointError(f"the chunks that {durable} needs are not known, so none can be tombstoned")
    kept = {key for keys in needed.values() for key in keys}
    return sorted(
        key
        for key in present
        if key not in kept and (key.epoch < epoch or (key.epoch == epoch and key.version <= durable.n))
    )
