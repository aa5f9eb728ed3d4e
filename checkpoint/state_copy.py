"""A backup's copy of a state, brought from one version to the next by the chunks that differ (rules 6 and 16).

Invariants:

* Nothing of the copy is touched before every chunk that a version needs is there with the size and the digest that its
  contents say; else `ChunkError` names the first that is not, and the copy stays the version that it was.
* A chunk that the copy has already, by digest, is not asked for, whatever key it stands under now: so the first version
  of a new reign, which is written in full, costs nothing but looking.
* Of a keyed state only the pages that differ are read again; the states of all other keys stay the same objects.
* The state that is given out is the copy itself, no copy of it: it is given once, and the copy then knows nothing more.

Work of `apply`: the bytes that differ, and a comparison of digests for each chunk.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from checkpoint import arrays
from checkpoint.assembly import check
from checkpoint.layout import Span, spans_of
from checkpoint.pages import PageReader
from checkpoint.state import unflatten
from lineage.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from checkpoint.arrays import Array
    from checkpoint.held_chunks import Held
    from lineage.replication import ChunkKey, ChunkRef, Contents

    Fetch = Callable[[ChunkKey], Held | None]
    Keep = Callable[[ChunkKey, Callable[[], bytes]], object]

State = dict[Any, Any]
_MAX_BYTES: Final = 1 << 40


class _Page(NamedTuple):
    """A page of a keyed state, read."""

    digests: tuple[bytes, ...]
    data: bytes  # of a page of several chunks, where one may change without the others; else empty
    states: dict[str, State]


class _Tensors:
    """The tensors of one layout."""

    def __init__(self, contents: Contents) -> None:
        entries = [entry for entry in contents.entries if entry.dtype]
        self.spans: tuple[Span, ...] = spans_of(contents.entries, contents.chunk_bytes, contents.own_bytes)
        self.arrays: list[Array] = [arrays.empty(entry) for entry in entries]
        self._flat = [array.reshape(-1).view(np.uint8) for array in self.arrays]

    def put(self, place: int, data: bytes) -> None:
        source = np.frombuffer(data, np.uint8)
        for tensor, start, stop, at in self.spans[place].pieces:
            np.copyto(self._flat[tensor][start:stop], source[at : at + stop - start])

    def get(self, place: int) -> bytes:
        span = self.spans[place]
        gathered = np.zeros(span.size, np.uint8)
        for tensor, start, stop, at in span.pieces:
            gathered[at : at + stop - start] = self._flat[tensor][start:stop]
        return gathered.tobytes()


class StateCopy:
    """One state, at the version whose contents were applied last."""

    def __init__(self, *, max_bytes: int = _MAX_BYTES) -> None:
        """`max_bytes`: of the state; a damaged manifest must not ask for more."""
        self.contents: Contents | None = None
        self.copied = 0  # bytes that the last `apply` has put in
        self._max_bytes = max_bytes
        self._tensors: _Tensors | None = None
        self._pages: list[_Page] = []
        self._reader = PageReader()

    def apply(self, contents: Contents, fetch: Fetch, keep: Keep = lambda _key, _make: None) -> None:
        """Go on to a version.

        `keep` is given the key of each chunk that the tensors will hold no longer, and what makes its bytes. Raises
        ChunkError, or CheckpointError where the contents contradict themselves; nothing has changed then.
        """
        before, tensors = self.contents, self._tensors
        if before is None or tensors is None or _layout(before) != _layout(contents):
            before = None
            self._check_size(contents)
            tensors = _Tensors(contents)
        count = len(tensors.spans)
        _check_chunks(contents, tensors)
        old = before.chunks if before is not None else ()
        changed = [at for at in range(count) if before is None or old[at].digest != contents.chunks[at].digest]
        seek = _Seek(fetch, self.contents, self._tensors, self._pages)
        fresh = {at: seek.bytes_of(contents.chunks[at], f" (in chunk {at} of its tensors)") for at in changed}
        pages = self._read_pages(contents, contents.chunks[count:], seek)
        if before is not None:
            named = {chunk.key for chunk in contents.chunks}
            for at in changed:
                if old[at].key not in named:
                    keep(old[at].key, partial(tensors.get, at))
        for at, data in fresh.items():
            tensors.put(at, data)
        self.copied = sum(map(len, fresh.values())) + seek.paged
        self.contents, self._tensors, self._pages = contents, tensors, pages

    def give(self) -> tuple[State, dict[str, State] | None]:
        """The state and, where it has pages, its keyed part, for good: the copy forgets them.

        Raises CheckpointError where no version was applied.
        """
        contents, tensors = self.contents, self._tensors
        if contents is None or tensors is None:
            raise CheckpointError("there is no copy of a state to go on with: no version was applied")
        state = unflatten(contents.entries, tensors.arrays, contents.values)
        keyed: dict[str, State] | None = {} if contents.pages else None
        if keyed is not None:
            for page in self._pages:
                keyed.update(page.states)
        self.contents, self._tensors, self._pages = None, None, []
        return state, keyed

    def _check_size(self, contents: Contents) -> None:
        size = sum(arrays.nbytes(entry) for entry in contents.entries) + sum(contents.pages)
        if size > self._max_bytes:
            raise CheckpointError(f"the state is of {size} bytes, over the limit of {self._max_bytes}")

    def _read_pages(self, contents: Contents, chunks: Sequence[ChunkRef], seek: _Seek) -> list[_Page]:
        pages: list[_Page] = []
        following = iter(chunks)
        for number, size in enumerate(contents.pages):
            own = [next(following) for _ in range(0, size, contents.chunk_bytes)]
            digests = tuple(chunk.digest for chunk in own)
            before = self._pages[number] if number < len(self._pages) else None
            if before is not None and before.digests == digests:
                pages.append(before)
                continue
            data = b"".join([seek.bytes_of(chunk, f" (in page {number} of the keyed state)") for chunk in own])
            seek.paged += len(data)
            pages.append(_Page(digests, data if len(own) > 1 else b"", self._reader.read(data, number)))
        return pages


class _Seek:
    """Finds chunks: among those that were fetched, else, by digest, in the copy as it is."""

    def __init__(
        self, fetch: Fetch, contents: Contents | None, tensors: _Tensors | None, pages: Sequence[_Page]
    ) -> None:
        self.paged = 0  # bytes of pages that were read
        self._fetch = fetch
        self._contents = contents
        self._tensors = tensors
        self._pages = pages
        self._own: dict[bytes, Callable[[], bytes]] | None = None

    def bytes_of(self, chunk: ChunkRef, where: str) -> bytes:
        """A chunk's bytes, with the size and the digest that it should have. Raises ChunkError."""
        held = self._fetch(chunk.key)
        if held is not None and len(held.data) == chunk.size and held.digest == chunk.digest:
            return held.data
        if self._own is None:
            self._own = self._copies()
        make = self._own.get(chunk.digest)
        data = make() if make is not None else held.data if held is not None else None
        check(chunk, data, where)
        return data or b""

    def _copies(self) -> dict[bytes, Callable[[], bytes]]:
        found: dict[bytes, Callable[[], bytes]] = {}
        if self._contents is None or self._tensors is None:
            return found
        step = self._contents.chunk_bytes
        for page in self._pages:
            if page.data:
                for at, digest in enumerate(page.digests):
                    found[digest] = partial(_slice, page.data, at * step, (at + 1) * step)
        for at in range(len(self._tensors.spans)):
            found[self._contents.chunks[at].digest] = partial(self._tensors.get, at)
        return found


def _slice(data: bytes, start: int, stop: int) -> bytes:
    return data[start:stop]


def _layout(contents: Contents) -> tuple[object, ...]:
    return contents.entries, contents.chunk_bytes, contents.own_bytes


def _check_chunks(contents: Contents, tensors: _Tensors) -> None:
    step = contents.chunk_bytes
    paged = (min(step, size - start) for size in contents.pages for start in range(0, size, step))
    sizes = [*(span.size for span in tensors.spans), *paged]
    if [chunk.size for chunk in contents.chunks] != sizes:
        raise CheckpointError(
            f"the manifest names {len(contents.chunks)} chunks where its entries make {len(sizes)}, or of other sizes; "
            "it is damaged: take another member's copy of the version log"
        )
