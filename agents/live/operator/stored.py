"""Exported states on disk (layout: `spillway.checkpoint.state_files`): written whole or not at all, read as mapped."""

from __future__ import annotations

import importlib
import mmap
import os
from typing import TYPE_CHECKING, Any

from spillway.checkpoint import state_files
from spillway.checkpoint.assembly import Assembler, ChunkError, check, inline_chunks
from spillway.checkpoint.chunks import decode_key
from spillway.checkpoint.manifests import open_contents
from spillway.lineage.errors import CheckpointError, UsageError
from spillway.lineage.replication import TORCH
from spillway.producers.kafka.reading import Reading
from spillway.topology import topics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from spillway.agents.live.operator.histories import Kept
    from spillway.lineage.marks import Place
    from spillway.lineage.replication import ChunkKey, Contents, Manifest
    from spillway.lineage.values.replication import ReplicationDecoder
    from spillway.producers.connection import ClientSettings


# What a version consists of, read from its manifest and from the state topic, and verified (rule 16).
#
# Nothing is given out unless size and digest of every chunk are as the manifest says; a chunk that is damaged or
# missing is named. Where a key was written more than once, any record with the right bytes will do.

State = tuple[dict[Any, Any], dict[str, dict[Any, Any]] | None]


class Store:
    """One shard's partition of the state topic."""

    def __init__(self, settings: ClientSettings, pipeline: str, place: Place) -> None:
        self._settings = settings
        self._slot = (topics.state(pipeline, place[0]), place[1])

    def feed_all(self, contents: Contents, add: Callable[[ChunkKey, bytes], object]) -> None:
        """Give every chunk of a version to `add`, as `feed` does."""
        for key, value in inline_chunks(contents).items():
            add(key, value)
        if not contents.data:
            self.feed({chunk.key for chunk in contents.chunks}, add)

    def feed(self, wanted: Iterable[ChunkKey], add: Callable[[ChunkKey, bytes], object]) -> None:
        """Give every wanted chunk to `add`, one by one; it raises ChunkError for one that it finds damaged.

        What is missing is left to the caller. Raises ChunkError where no copy of a chunk was good.
        """
        left = set(wanted)
        damaged: dict[ChunkKey, ChunkError] = {}
        if not left:
            return
        with Reading(self._settings, [self._slot]) as reading:
            for record in reading.to_the_end():
                if record.value is None:
                    continue
                key = decode_key(record.key or b"")
                if key not in left:
                    continue
                try:
                    add(key, record.value)
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


def import_torch(contents: Contents | None = None) -> None:
    """Import torch, if it is installed, where a state may have tensors of its.

    Not imported, they come back as numpy's; not installed, they are refused where they are found.
    """
    if contents is None or contents.pages or any(entry.kind == TORCH for entry in contents.entries):
        try:
            importlib.import_module("torch")
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise


def write_file(path: Path, state: State, kept: Kept, pipeline: str) -> int:
    """Write a version's state to a new file; its bytes. Raises UsageError where one is there or cannot be made."""
    if path.exists():
        raise UsageError(f"{path} is there already; name another file")
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with partial.open("xb") as file:
            for piece in state_files.written(*state, _metadata(kept, pipeline)):
                file.write(piece)
            size = file.tell()
            file.flush()
            os.fsync(file.fileno())
        os.link(partial, path)  # unlike a rename, it replaces nothing
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
    return size


def read_file(path: Path) -> tuple[dict[Any, Any], dict[str, dict[Any, Any]] | None, dict[str, str]]:
    """The state in a file, the states of its keys if it has some, and what is told of it. Raises UsageError."""
    import_torch()
    try:
        with (
            path.open("rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
            memoryview(mapped) as view,
        ):
            return _read(path, view)
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise UsageError(f"{path} cannot be read: {error}") from error


def _read(path: Path, view: memoryview) -> tuple[dict[Any, Any], dict[str, dict[Any, Any]] | None, dict[str, str]]:
    try:
        return state_files.read(view)
    except CheckpointError as error:
        text = str(error)
    # Raised outside, as the error's frames hold views of the mapping, which could then not be closed.
    raise UsageError(f"{path}: {text}")


def _metadata(kept: Kept, pipeline: str) -> Mapping[str, str]:
    return {
        "pipeline": pipeline,
        "stage": kept.place[0],
        "shard": str(kept.place[1]),
        "version": str(kept.version),
        "digest": kept.manifest.digest.hex(),
    }
