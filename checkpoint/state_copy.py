"""A backup's copy of a state, brought from one version to the next by the chunks that differ (rules 6 and 16).

Invariants:

* Nothing of the copy is touched before every chunk that a version needs is there with the size and the digest that its
  contents say; else `ChunkError` names the first that is not, and the copy stays the version that it was.
* A chunk that the copy has already, by digest, is not asked for, whatever key it stands under now: so the first version
  of a new reign, which is written in full, costs nothing but looking.
* Of a keyed state only the pages that differ are read again; the states of all other keys stay the same objects. A
  page that has another number, as there are more pages now, is the same page.
* The state that is given out is the copy itself, no copy of it: it is given once, and the copy then knows nothing more.

Work of `apply`: the bytes that differ, and a comparison of digests for each chunk.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spillway.checkpoint.assembly import Tensors, check, check_chunks, check_size
from spillway.checkpoint.blocks import Held
from spillway.checkpoint.pages import PageReader
from spillway.checkpoint.state import unflatten
from spillway.lineage.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from spillway.lineage.marks import Version
    from spillway.lineage.replication import ChunkKey, ChunkRef, Contents

    Fetch = Callable[[ChunkKey], Held | None]
    Keep = Callable[[ChunkKey, Callable[[], bytes]], object]


# What a backup holds of its shard's partition of the state topic, beside the state that it has applied.
#
# Invariants:
#
# * Held are the chunks that a complete version names which was not applied yet, and those of versions to come: chunks
#   newer than every manifest of their epoch, as a manifest follows its chunks. Both as long as no tombstone says else.
# * What no known version names is kept up to `spare_bytes`, oldest first to go: a later version may name it again, as
#   long as it was not tombstoned. What was dropped and is named after all has to be read from the topic once more.
# * What lies in the applied state is not held beside it, unless it comes again while a version wants it: it is looked
#   for then, as the copy could not give its bytes (of a page of one chunk it has the states alone).
# * Of versions to come at most `future_bytes` are held; beyond that the oldest go, and are read again.
# * The digest of what will be needed is computed when it comes, so that a promotion need not wait for it.
# * Every key that the partition holds is known, held or not: the next owner tombstones by them.

SPARE_BYTES: Final = 64 << 20
FUTURE_BYTES: Final = 4 << 30
_KEPT_SHARE: Final = 4  # of the spare bytes, for one version: where everything changes, copying it all is of no use


class _Bounded:
    """Chunks up to so many bytes; the first that came is the first to go."""

    def __init__(self, most: int) -> None:
        self.chunks: dict[ChunkKey, Held] = {}
        self.nbytes = 0
        self.most = most

    def add(self, key: ChunkKey, held: Held) -> None:
        self.chunks[key] = held
        self.nbytes += len(held.data)
        while self.nbytes > self.most:
            self.pop(next(iter(self.chunks)))

    def pop(self, key: ChunkKey) -> None:
        gone = self.chunks.pop(key, None)
        if gone is not None:
            self.nbytes -= len(gone.data)

    def clear(self) -> None:
        self.chunks, self.nbytes = {}, 0


class HeldChunks:
    """The chunks of one partition."""

    def __init__(self, *, spare_bytes: int = SPARE_BYTES, future_bytes: int = FUTURE_BYTES) -> None:
        self.present: set[ChunkKey] = set()
        self._named: dict[ChunkKey, Held] = {}
        self._future = _Bounded(future_bytes)
        self._spare = _Bounded(spare_bytes)
        self._wanted: frozenset[ChunkKey] = frozenset()
        self._applied: frozenset[ChunkKey] = frozenset()
        self._passed: dict[int, int] = {}  # epoch -> the n of its newest manifest
        self._epoch = 0
        self._kept = 0  # bytes of spare chunks kept since `settle`

    def take(self, key: ChunkKey, value: bytes | None) -> None:
        """Take a record of the partition; None is a tombstone."""
        self._forget(key)
        if value is None:
            self.present.discard(key)
            return
        self.present.add(key)
        if key in self._wanted or key not in self._applied:
            self._hold(key, Held(value))

    def keep(self, key: ChunkKey, make: Callable[[], bytes]) -> None:
        """Keep a chunk that is replaced in the applied state, if it still stands in the topic and there is room."""
        if key not in self.present or (key not in self._wanted and self._kept > self._spare.most // _KEPT_SHARE):
            return
        value = make()
        self._kept += len(value)
        self._applied -= {key}
        self._hold(key, Held(value))

    def get(self, key: ChunkKey) -> Held | None:
        return self._named.get(key) or self._future.chunks.get(key) or self._spare.chunks.get(key)

    def manifest(self, version: Version) -> None:
        """Note the manifest of a version: what is older, and not named, is of no version to come."""
        self._epoch = max(self._epoch, version.epoch)
        self._passed[version.epoch] = max(self._passed.get(version.epoch, 0), version.n)

    def fenced(self, epoch: int) -> None:
        self._epoch = max(self._epoch, epoch)

    def want(self, keys: Iterable[ChunkKey]) -> None:
        """Hold these, whether they have come or not, for a version that was not applied."""
        fresh = frozenset(keys) - self._wanted
        self._wanted |= fresh
        for key in fresh:
            held = self._future.chunks.get(key) or self._spare.chunks.get(key)
            if held is not None:
                self._forget(key)
                self._hold(key, held)

    def settle(self, wanted: Iterable[ChunkKey], applied: Iterable[ChunkKey]) -> None:
        """Hold what is `wanted` by versions that were not applied; what `applied` names lies in the state itself."""
        self._wanted, self._applied = frozenset(wanted), frozenset(applied)
        self._kept = 0
        held = {**self._spare.chunks, **self._future.chunks, **self._named}
        self._named = {}
        self._spare.clear()
        self._future.clear()
        for key in sorted(held.keys() - self._applied):
            self._hold(key, held[key])

    @property
    def nbytes(self) -> int:
        return sum(len(held.data) for held in self._named.values()) + self._future.nbytes + self._spare.nbytes

    def _hold(self, key: ChunkKey, held: Held) -> None:
        if key in self._wanted:
            self._named[key] = held
        elif key.epoch >= self._epoch and key.version > self._passed.get(key.epoch, 0):
            self._future.add(key, held)
        else:
            self._spare.add(key, held)
            return
        _ = held.digest

    def _forget(self, key: ChunkKey) -> None:
        self._named.pop(key, None)
        self._future.pop(key)
        self._spare.pop(key)


State = dict[Any, Any]


class _Page(NamedTuple):
    """A page of a keyed state, read."""

    digests: tuple[bytes, ...]
    data: bytes  # of a page of several chunks, where one may change without the others; else empty
    states: dict[str, State]


class StateCopy:
    """One state, at the version whose contents were applied last."""

    def __init__(self) -> None:
        self.contents: Contents | None = None
        self.copied = 0  # bytes that the last `apply` has put in
        self._tensors: Tensors | None = None
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
            check_size(contents)
            tensors = Tensors(contents)
        count = len(tensors.spans)
        check_chunks(contents, tensors)
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
            raise CheckpointError("there is no copy of a state to continue from: no version was applied")
        state = unflatten(contents.entries, tensors.arrays, contents.values)
        keyed: dict[str, State] | None = {} if contents.pages else None
        if keyed is not None:
            for page in self._pages:
                keyed.update(page.states)
        self.contents, self._tensors, self._pages = None, None, []
        return state, keyed

    def _read_pages(self, contents: Contents, chunks: Sequence[ChunkRef], seek: _Seek) -> list[_Page]:
        pages: list[_Page] = []
        known = {page.digests: page for page in self._pages}
        following = iter(chunks)
        for number, size in enumerate(contents.pages):
            own = [next(following) for _ in range(0, size, contents.chunk_bytes)]
            digests = tuple(chunk.digest for chunk in own)
            if digests in known:
                pages.append(known[digests])
                continue
            data = b"".join([seek.bytes_of(chunk, f" (in page {number} of the keyed state)") for chunk in own])
            seek.paged += len(data)
            pages.append(_Page(digests, data if len(own) > 1 else b"", self._reader.read(data, number)))
        return pages


class _Seek:
    """Finds chunks: among those that were fetched, else, by digest, in the copy as it is."""

    def __init__(
        self, fetch: Fetch, contents: Contents | None, tensors: Tensors | None, pages: Sequence[_Page]
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
            return bytes(held.data)
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
