"""What is told of a version: its contents, its digest, and the manifest that makes it complete.

Order of writing (rules 4 and 5): the records of `ChunkLog.write`, then those that `seal` gives; when all of them and
the outputs of the batches are acknowledged, the manifest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from checkpoint.assembly import check
from checkpoint.blocks import digest_of
from lineage.replication import Contents
from lineage.values.replication import ReplicationDecoder, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from checkpoint.capture import Captured
    from checkpoint.chunks import Chunk, Writing
    from checkpoint.copying import Copying
    from lineage.replication import Batch, ChunkKey, InputPlace, Manifest, Output

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
    )


def version_digest(contents: Contents) -> bytes:
    """The digest of a version's state: of its bytes and their layout, wherever its chunks were written.

    Equal states of equal layouts have equal digests; `checkpoint.state.digest` compares states whatever their layout.
    """
    layout = encode(replace(contents, chunks=(), batches=(), outputs=(), inputs=(), later=0))
    return digest_of(layout + b"".join([chunk.digest for chunk in contents.chunks]))


def seal(
    manifest: Manifest, contents: Contents, writing: Writing | Copying, *, inline_bytes: int = INLINE_BYTES
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
