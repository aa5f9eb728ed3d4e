"""A version's chunks under the keys of another version: what rewinding a shard writes.

Chunks are copied as they are, checked by size and digest, one at a time and in whatever order they come: what went in
comes out to the bit, and memory beside the tables is one chunk. A version never names chunks of an older epoch than its
own reign's, as those are the next owner's to tombstone (`checkpoint.chunks`); so all of them are written anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from checkpoint.assembly import ChunkError, check
from checkpoint.blocks import digest_of
from checkpoint.chunks import encode_key
from lineage.errors import CheckpointError
from lineage.replication import ChunkKey, ChunkRef

if TYPE_CHECKING:
    from collections.abc import Iterator

    from checkpoint.chunks import Chunk
    from lineage.marks import Version
    from lineage.replication import Contents


class Copying:
    """The records of `version`, made from those of another one; `checkpoint.manifests.seal` takes it as a `Writing`."""

    def __init__(self, contents: Contents, version: Version) -> None:
        self.version = version
        self.written_bytes = 0
        self._spilled: list[ChunkRef] = []
        self._old = contents.chunks
        self._open = {chunk.key: chunk for chunk in contents.chunks}
        self._parts: dict[bytes, int] = {}  # digest -> the part that has these bytes from now on
        for chunk in contents.chunks:
            self._parts.setdefault(chunk.digest, len(self._parts))
        self._next = len(self._parts)
        self._made: set[int] = set()

    def missing(self) -> list[ChunkKey]:
        return list(self._open)

    def add(self, key: ChunkKey, value: Any) -> list[Chunk] | None:
        """The records to write for one that was read; None if it is not needed. Raises ChunkError for a damaged one."""
        chunk = self._open.get(key)
        if chunk is None:
            return None
        check(chunk, value)
        del self._open[key]
        part = self._parts[chunk.digest]
        if part in self._made:
            return []
        self._made.add(part)
        self.written_bytes += chunk.size
        return [(encode_key(self._key(part)), value)]

    @property
    def chunks(self) -> tuple[ChunkRef, ...]:
        """What the new version consists of. Raises ChunkError while a chunk has not come."""
        for key in self._open:
            raise ChunkError(key, "is missing", "")
        return tuple(chunk._replace(key=self._key(self._parts[chunk.digest])) for chunk in self._old)

    def spill(self, contents: bytes, chunk_bytes: int) -> Iterator[Chunk]:
        """Contents that are too large for a manifest, as records behind the chunks'."""
        if self._open:
            raise CheckpointError(f"the contents of {self.version} cannot be told before all its chunks were copied")
        for at in range(0, len(contents), chunk_bytes):
            piece = contents[at : at + chunk_bytes]
            key = self._key(self._next)
            self._next += 1
            self.written_bytes += len(piece)
            self._spilled.append(ChunkRef(key, len(piece), digest_of(piece)))
            yield encode_key(key), piece

    @property
    def spilled(self) -> tuple[ChunkRef, ...]:
        return tuple(self._spilled)

    def _key(self, part: int) -> ChunkKey:
        return ChunkKey(self.version.epoch, self.version.n, part)
