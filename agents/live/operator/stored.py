"""What a version consists of, read from its manifest and from the state topic, and verified (rule 16).

Nothing is given out unless size and digest of every chunk are as the manifest says; a chunk that is damaged or missing
is named. Where a key was written more than once, any record with the right bytes will do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents.live.operator.partitions import Partitions
from checkpoint.assembly import Assembler, ChunkError, check
from checkpoint.chunks import decode_key
from checkpoint.manifests import open_contents
from topology import topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lineage.marks import Place
    from lineage.replication import ChunkKey, Contents, Manifest
    from lineage.values.replication import ReplicationDecoder
    from producers.connection import ClientSettings

State = tuple[dict[Any, Any], dict[str, dict[Any, Any]] | None]


class Store:
    """One shard's partition of the state topic."""

    def __init__(self, settings: ClientSettings, pipeline: str, place: Place) -> None:
        self._settings = settings
        self._partition = (topics.state(pipeline, place[0]), place[1])

    def feed(self, wanted: Iterable[ChunkKey], add: Callable[[ChunkKey, bytes], object]) -> None:
        """Give every wanted chunk to `add`, one by one; it raises ChunkError for one that it finds damaged.

        What is missing is left to the caller. Raises ChunkError where no copy of a chunk was good.
        """
        left = set(wanted)
        damaged: dict[ChunkKey, ChunkError] = {}
        if not left:
            return
        with Partitions(self._settings, [self._partition]) as partitions:
            for message in partitions.to_the_end():
                if message.value() is None:
                    continue
                key = decode_key(message.key() or b"")
                if key not in left:
                    continue
                try:
                    add(key, message.value())
                except ChunkError as error:
                    damaged[key] = error
                    continue
                left.discard(key)
                damaged.pop(key, None)
                if not left:
                    return
        for found in damaged.values():
            raise found

    def contents(self, manifest: Manifest, decoder: ReplicationDecoder) -> Contents:
        """The contents of a version, wherever they lie. Raises ChunkError, WireError."""
        pieces: dict[ChunkKey, bytes] = {}
        named = {chunk.key: chunk for chunk in manifest.spilled}

        def add(key: ChunkKey, value: bytes) -> None:
            check(named[key], value, " (its contents)")
            pieces[key] = value

        self.feed(named, add)
        return open_contents(manifest, pieces.get, decoder)

    def state(self, contents: Contents) -> State:
        """The state that contents describe, and, of a keyed one, those of its keys. Raises ChunkError."""
        assembler = Assembler(contents)
        self.feed(assembler.missing(), assembler.add)
        return assembler.finish()
