"""A state from the records of the state topic: verified, and in bounded memory (rule 16).

Invariants:

* Every chunk's size and digest are those that the manifest says, or nothing is given out: a missing or damaged chunk
  raises `ChunkError`, which names it. Nobody falls back to an older version on his own: another member's copy is taken
  (`add` once more), else the operator is told.
* Memory beside the state's own: one chunk, whoever feeds it; `add` copies into place. Chunks come in any order.
* What comes out is `spillway.checkpoint.state.unflatten` of what went in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spillway.checkpoint import arrays
from spillway.checkpoint.blocks import digest_of
from spillway.checkpoint.chunks import encode_key
from spillway.checkpoint.layout import spans_of
from spillway.checkpoint.pages import PageReader
from spillway.checkpoint.state import unflatten
from spillway.lineage.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.checkpoint.layout import Span
    from spillway.lineage.replication import ChunkKey, ChunkRef, Contents

MAX_BYTES: Final = 1 << 40  # of a state


class ChunkError(CheckpointError):
    """A chunk is missing or damaged. `key` says which."""

    def __init__(self, key: ChunkKey, what: str, where: str) -> None:
        super().__init__(
            f"the chunk {encode_key(key).decode()} of the state{where} {what}: use another member's copy; if no "
            "member has one, rewind to an older version (spillway state rewind)"
        )
        self.key = key


class Tensors:
    """The tensors of one layout."""

    def __init__(self, contents: Contents) -> None:
        entries = [entry for entry in contents.entries if entry.dtype]
        self.spans: tuple[Span, ...] = spans_of(contents.entries, contents.chunk_bytes, contents.own_bytes)
        self.arrays: list[arrays.Array] = [arrays.empty(entry) for entry in entries]
        self._flat = [array.reshape(-1).view(np.uint8) for array in self.arrays]

    def put(self, place: int, data: Any) -> None:
        source = np.frombuffer(data, np.uint8)
        for tensor, start, stop, at in self.spans[place].pieces:
            np.copyto(self._flat[tensor][start:stop], source[at : at + stop - start])

    def get(self, place: int) -> bytes:
        span = self.spans[place]
        gathered = np.zeros(span.size, np.uint8)
        for tensor, start, stop, at in span.pieces:
            gathered[at : at + stop - start] = self._flat[tensor][start:stop]
        return gathered.tobytes()


def check_size(contents: Contents) -> None:
    """Raise CheckpointError for a state of more than `MAX_BYTES`; a damaged manifest must not ask for more."""
    size = sum(arrays.nbytes(entry) for entry in contents.entries if entry.dtype) + sum(contents.pages)
    if size > MAX_BYTES:
        raise CheckpointError(f"the state has {size} bytes, over the limit of {MAX_BYTES}")


def check_chunks(contents: Contents, tensors: Tensors) -> None:
    """Raise CheckpointError unless the contents name the chunks that their entries and pages make."""
    sizes = [*(span.size for span in tensors.spans), *(stop - start for _, start, stop in _page_spans(contents))]
    if [chunk.size for chunk in contents.chunks] != sizes:
        raise CheckpointError(
            f"the manifest names {len(contents.chunks)} chunks, but its entries need {len(sizes)}, or the sizes "
            "differ; it is damaged: use another member's copy of the version log"
        )


class Assembler:
    """Puts one version together. Raises CheckpointError where its contents contradict themselves."""

    def __init__(self, contents: Contents) -> None:
        check_size(contents)
        self._contents = contents
        self._entries = [entry for entry in contents.entries if entry.dtype]
        self._tensors = Tensors(contents)
        self._pages = _page_spans(contents)
        check_chunks(contents, self._tensors)
        self._page_data = [bytearray(size) for size in contents.pages]
        self._open: dict[ChunkKey, list[int]] = {}
        for at, chunk in enumerate(contents.chunks):
            self._open.setdefault(chunk.key, []).append(at)
        for key, value in inline_chunks(contents).items():
            self.add(key, value)

    def missing(self) -> list[ChunkKey]:
        """The chunks that are still needed, each once."""
        return list(self._open)

    def add(self, key: ChunkKey, value: Any) -> bool:
        """Take a record's value; False if it is not needed. Raises ChunkError where it is not what it should be."""
        places = self._open.get(key)
        if places is None:
            return False
        for place in places:
            chunk = self._contents.chunks[place]
            check(chunk, value, self._where(place))
            self._put(place, value)
        del self._open[key]
        return True

    def finish(self) -> tuple[dict[Any, Any], dict[str, dict[Any, Any]] | None]:
        """The state, and, where it has pages, its keyed part. Raises ChunkError while chunks are missing."""
        for key, (place, *_) in self._open.items():
            raise ChunkError(key, "is missing", self._where(place))
        state = unflatten(self._contents.entries, self._tensors.arrays, self._contents.values)
        if not self._contents.pages:
            return state, None
        reader = PageReader()
        keyed: dict[str, dict[Any, Any]] = {}
        for page, data in enumerate(self._page_data):
            keyed.update(reader.read(bytes(data), page))
        return state, keyed

    def _put(self, place: int, data: Any) -> None:
        count = len(self._tensors.spans)
        if place < count:
            self._tensors.put(place, data)
            return
        page, start, stop = self._pages[place - count]
        self._page_data[page][start:stop] = data

    def _where(self, place: int) -> str:
        count = len(self._tensors.spans)
        if place < count:
            pieces = self._tensors.spans[place].pieces
            first, last = (self._entries[piece.tensor].name for piece in (pieces[0], pieces[-1]))
            return f" (in {first!r:.80})" if first == last else f" (in {first!r:.80} to {last!r:.80})"
        return f" (in page {self._pages[place - count][0]} of the keyed state)"


def check(chunk: ChunkRef, value: Any, where: str = "") -> None:
    """Raise ChunkError unless a record's value is what a manifest says."""
    if value is None:
        raise ChunkError(chunk.key, "is missing", where)
    size = memoryview(value).nbytes
    if size != chunk.size:
        raise ChunkError(chunk.key, f"has {size} bytes instead of {chunk.size}", where)
    if digest_of(value) != chunk.digest:
        raise ChunkError(chunk.key, "has bytes that differ from those written", where)


def inline_chunks(contents: Contents) -> dict[ChunkKey, bytes]:
    """The chunks that travel in a version's contents. Raises ChunkError for one that is cut short."""
    chunks, at = {}, 0
    if contents.data:
        for chunk in sorted({chunk.key: chunk for chunk in contents.chunks}.values()):
            chunks[chunk.key] = contents.data[at : at + chunk.size]
            check(chunk, chunks[chunk.key], " (in its contents)")
            at += chunk.size
    return chunks


def assemble(
    contents: Contents, fetch: Callable[[ChunkKey], bytes | None]
) -> tuple[dict[Any, Any], dict[str, dict[Any, Any]] | None]:
    """The state that contents describe, one chunk after the other from `fetch` (None: there is none)."""
    assembler = Assembler(contents)
    for key in assembler.missing():
        assembler.add(key, fetch(key))
    return assembler.finish()


def _page_spans(contents: Contents) -> list[tuple[int, int, int]]:
    step = contents.chunk_bytes
    return [
        (page, start, min(start + step, size))
        for page, size in enumerate(contents.pages)
        for start in range(0, size, step)
    ]
