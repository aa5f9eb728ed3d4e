"""What is told of a version: its contents, its digest, and the manifest that makes it complete.

Order of writing (rules 4 and 5): the records of `ChunkLog.write`, then those that `seal` gives; when all of them and
the outputs of the batches are acknowledged, the manifest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from spillway.checkpoint.assembly import ChunkError, check
from spillway.checkpoint.blocks import digest_of
from spillway.checkpoint.chunks import Parts, encode_key
from spillway.lineage.marks import Version
from spillway.lineage.replication import Contents
from spillway.lineage.values.replication import ReplicationDecoder, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spillway.checkpoint.capture import Captured
    from spillway.checkpoint.chunks import Chunk, Writing
    from spillway.lineage.replication import Batch, ChunkKey, ChunkRef, InputPlace, Manifest, Output


# The contents of a version that an operator makes: a state from elsewhere, and the rest of the version before.
#
# A version says more than its state: how far the shard's inputs are covered, what it remembers against repeats, what it
# has sent. An operator who puts another state in changes the state alone. Invariants:
#
# * Inputs, deduplication and outputs are those of the base. What was covered stays covered: no query is asked again, no
#   released outcome is taken back, and nothing is sent that was not.
# * It has no batches of its own, so it requires nothing beyond what its base does.
# * `n` goes on from the base, in the operator's own epoch: to everyone else it is a version like any other.


def successor(epoch: int, base: Version) -> Version:
    return Version(epoch, base.n + 1)


def with_state_of(base: Contents | None, state: Contents, chunks: tuple[ChunkRef, ...], data: bytes = b"") -> Contents:
    """The contents of `base` (None: of the initial version) with the state that `state` describes, in these chunks.

    `data`: of a small state, its chunks themselves.
    """
    return replace(
        base if base is not None else Contents(),
        entries=state.entries,
        values=state.values,
        chunk_bytes=state.chunk_bytes,
        own_bytes=state.own_bytes,
        chunks=chunks,
        pages=state.pages,
        batches=(),
        data=data,
    )


# A version's chunks under the keys of another version: what rewinding a shard writes.
#
# Chunks are copied as they are, checked by size and digest, one at a time and in whatever order they come: what went in
# comes out to the bit, and memory beside the tables is one chunk. A version never names chunks of an older epoch than
# its own reign's, as those are the next owner's to tombstone (`spillway.checkpoint.chunks`); so all of them are written
# anew.


class Copying(Parts):
    """The records of `version`, made from those of another one."""

    def __init__(self, contents: Contents, version: Version) -> None:
        super().__init__(version)
        self._old = contents.chunks
        self._open = {chunk.key: chunk for chunk in contents.chunks}
        self._copied: dict[bytes, ChunkKey] = {}  # digest -> the key of these bytes from now on

    def add(self, key: ChunkKey, value: Any) -> list[Chunk] | None:
        """The records to write for one that was read; None if it is not needed. Raises ChunkError for a damaged one."""
        chunk = self._open.get(key)
        if chunk is None:
            return None
        check(chunk, value)
        del self._open[key]
        if chunk.digest in self._copied:
            return []
        new = self._copied[chunk.digest] = self._new(chunk.size)
        return [(encode_key(new), value)]

    @property
    def chunks(self) -> tuple[ChunkRef, ...]:
        """What the new version consists of. Raises ChunkError while a chunk has not come."""
        for key in self._open:
            raise ChunkError(key, "is missing", "")
        return tuple(chunk._replace(key=self._copied[chunk.digest]) for chunk in self._old)


INLINE_BYTES: Final = 16 << 10
"""Contents up to this size ride in the manifest; larger ones go to the state topic, which only members read."""
_DECODER: Final = ReplicationDecoder()  # knows our own schemas alone


def describe(
    captured: Captured,
    writing: Writing,
    *,
    batches: Iterable[Batch] = (),
    outputs: Iterable[Output] = (),
    inputs: Iterable[InputPlace] = (),
    later: int = 0,
) -> Contents:
    return Contents(
        captured.entries,
        captured.values,
        captured.chunk_bytes,
        captured.own_bytes,
        writing.chunks,
        tuple(page.nbytes for page in captured.pages),
        tuple(batches),
        tuple(outputs),
        tuple(inputs),
        later,
        writing.data,
    )


def version_digest(contents: Contents) -> bytes:
    """The digest of a version's state: of its bytes and their layout, wherever its chunks were written.

    Equal states of equal layouts have equal digests; `spillway.checkpoint.state.digest` compares states whatever their
    layout.
    """
    layout = encode(replace(contents, chunks=(), batches=(), outputs=(), inputs=(), later=0, data=b""))
    return digest_of(layout + b"".join([chunk.digest for chunk in contents.chunks]))


def seal(
    manifest: Manifest, contents: Contents, writing: Parts, *, inline_bytes: int = INLINE_BYTES
) -> tuple[Manifest, list[Chunk]]:
    """The manifest, filled in from its contents, and the records to write before it where they are spilled.

    Raises WireError for contents that cannot be encoded.
    """
    encoded = encode(contents)
    records: list[Any] = []
    if len(encoded) > inline_bytes:
        records = list(writing.spill(encoded, contents.chunk_bytes))
    return (
        replace(
            manifest,
            version=writing.version,
            state_bytes=sum(chunk.size for chunk in contents.chunks),
            written_bytes=writing.written_bytes,
            batches=len(contents.batches),
            requests=sum(len(batch.taken) for batch in contents.batches),
            digest=version_digest(contents),
            contents=b"" if records else encoded,
            spilled=writing.spilled,
        ),
        records,
    )


def open_contents(
    manifest: Manifest, fetch: Callable[[ChunkKey], bytes | None], decoder: ReplicationDecoder = _DECODER
) -> Contents:
    """The contents of a version, from its manifest or from where they are spilled. Raises ChunkError, WireError."""
    encoded = manifest.contents
    if manifest.spilled:
        pieces = []
        for chunk in manifest.spilled:
            piece = fetch(chunk.key)
            check(chunk, piece, " (its contents)")
            pieces.append(piece or b"")
        encoded = b"".join(pieces)
    return decoder.contents(encoded)
