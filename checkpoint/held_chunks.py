"""What a backup holds of its shard's partition of the state topic, beside the state that it has applied.

Invariants:

* Held are the chunks that a complete version names which was not applied yet, and those of versions to come: chunks
  newer than every manifest of their epoch, as a manifest follows its chunks. Both as long as no tombstone says else.
* What no known version names is kept up to `spare_bytes`, oldest first to go: a later version may name it again, as
  long as it was not tombstoned. What was dropped and is named after all has to be read from the topic once more.
* Of versions to come at most `future_bytes` are held; beyond that the oldest go, and are read again.
* The digest of what will be needed is computed when it comes, so that a promotion need not wait for it.
* Every key that the partition holds is known, held or not: the next owner tombstones by them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from checkpoint.blocks import digest_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lineage.marks import Version
    from lineage.replication import ChunkKey

SPARE_BYTES: Final = 64 << 20
FUTURE_BYTES: Final = 4 << 30
_KEPT_SHARE: Final = 4  # of the spare bytes, for one version: where everything changes, copying it all is of no use


class Held:
    """A chunk's bytes."""

    __slots__ = ("_digest", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._digest: bytes | None = None

    @property
    def digest(self) -> bytes:
        """Computed once."""
        if self._digest is None:
            self._digest = digest_of(self.data)
        return self._digest


class _Bounded:
    """Chunks up to so many bytes; the first that came is the first to go."""

    def __init__(self, most: int) -> None:
        self.chunks: dict[ChunkKey, Held] = {}
        self.nbytes = 0
        self.dropped = 0
        self.most = most

    def add(self, key: ChunkKey, held: Held) -> None:
        self.chunks[key] = held
        self.nbytes += len(held.data)
        while self.nbytes > self.most:
            self.pop(next(iter(self.chunks)))
            self.dropped += 1

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

    def wanted(self, key: ChunkKey) -> bool:
        return key in self._wanted

    def settle(self, wanted: Iterable[ChunkKey], applied: Iterable[ChunkKey]) -> None:
        """Hold what is `wanted` by versions that were not applied; what `applied` names lies in the state itself."""
        self._wanted, self._applied = frozenset(wanted), frozenset(applied)
        self._kept = 0
        held = {**self._spare.chunks, **self._future.chunks, **self._named}
        self._named = {}
        self._spare.clear()
        self._future.clear()
        for key in sorted(held):
            self._hold(key, held[key])

    @property
    def nbytes(self) -> int:
        return sum(len(held.data) for held in self._named.values()) + self._future.nbytes + self._spare.nbytes

    @property
    def dropped(self) -> int:
        return self._future.dropped + self._spare.dropped

    def _hold(self, key: ChunkKey, held: Held) -> None:
        if key in self._applied:
            return
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
