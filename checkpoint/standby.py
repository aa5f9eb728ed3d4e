"""A backup's side of replication: the versions that are complete, their chunks, and the copy of the newest durable one.

Fed with the records of the shard's partition of the state topic (`chunk`), and with those of its version log that count
(`manifest`, `fenced`, `based`). Invariants:

* `apply` takes versions that the caller knows to be durable, or the base that it was promoted from, and goes forward
  only: what is durable is never taken back, so no copy of an older version is needed.
* A complete version's contents and chunks are held until it, or a later one, is applied, or a base has cut it off.
* `apply` raises ChunkError where a chunk is missing or damaged, and nothing has changed. `Search` says what its caller
  does then; in the end the operator is told: never an older version on its own.
* A chunk that is missing may have been tombstoned and compacted while this backup was away, or slow: then a newer
  version is durable (rule 4), and the copy goes on with that one. It is damage only where the version logs, read to
  their ends after it was missed, have none, or one that needs the same chunk.
* `give` hands over the copy itself, with what the next reign has to know of the log.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from spillway.checkpoint.assembly import ChunkError, inline_chunks
from spillway.checkpoint.blocks import Held
from spillway.checkpoint.manifests import open_contents
from spillway.checkpoint.state_copy import FUTURE_BYTES, SPARE_BYTES, HeldChunks, StateCopy
from spillway.lineage.errors import CheckpointError
from spillway.lineage.marks import INITIAL

if TYPE_CHECKING:
    from spillway.checkpoint.versions import History
    from spillway.lineage.marks import Version
    from spillway.lineage.replication import ChunkKey, Contents, Manifest


class Given(NamedTuple):
    """What a promoted member goes on with."""

    version: Version
    contents: Contents | None  # None: the initial version, which `initialize` gives
    state: dict[Any, Any] | None
    keyed: dict[str, dict[Any, Any]] | None
    present: frozenset[ChunkKey]  # every chunk that the partition holds
    named: frozenset[ChunkKey]  # those that the version needs, its spilled contents included


class Step(Enum):
    """What is done next for a chunk that is not held."""

    READ_ON = "read the partition on to its end: chunks are read later than their manifest"
    READ_AGAIN = "read the partition once more from its start: what was dropped for a bound is kept this time"
    ASK = "read the version logs to their ends: a newer version may be durable, and this one's chunks gone"
    REPORT = "tell the operator: it is damage"


class Search:
    """What was done so far for the chunks of one version that is to be applied."""

    def __init__(self, version: Version, before: Search | None = None) -> None:
        """`before`: for the version that was to be applied before, if it was not."""
        self.version = version
        self.asked_for: ChunkKey | None = before.asked_for if before is not None else None
        self._asked = False
        self._read_on = False
        self._read_again: set[bool] = set()  # with the contents known, or not

    def step(self, missing: ChunkKey, *, opened: bool) -> Step:
        """Give what to do for a chunk that is missing; `opened`: whether the version's contents are known."""
        if not self._read_on:
            self._read_on = True
            return Step.READ_ON
        if opened not in self._read_again:
            self._read_again.add(opened)
            return Step.READ_AGAIN
        # A chunk that the newest durable version needs is not tombstoned, so one that was missed before is damage.
        if self._asked or missing == self.asked_for:
            return Step.REPORT
        self._asked, self.asked_for = True, missing
        return Step.ASK


class _Complete:
    """A complete version; its contents once they could be opened."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.contents: Contents | None = None

    @property
    def named(self) -> frozenset[ChunkKey]:
        chunks = self.contents.chunks if self.contents is not None and not self.contents.data else ()
        return frozenset(chunk.key for chunk in (*self.manifest.spilled, *chunks))


class Standby:
    """One backup's copy."""

    def __init__(self, *, spare_bytes: int = SPARE_BYTES, future_bytes: int = FUTURE_BYTES) -> None:
        self.held = HeldChunks(spare_bytes=spare_bytes, future_bytes=future_bytes)
        self.copy = StateCopy()
        self.applied: Version = INITIAL
        self._complete: dict[Version, _Complete] = {}  # newer than what is applied, oldest first
        self._last: frozenset[ChunkKey] = frozenset()  # what the applied version names

    def chunk(self, key: ChunkKey, value: bytes | None) -> None:
        """Take a record of the state topic; None is a tombstone."""
        self.held.take(key, value)

    def manifest(self, manifest: Manifest) -> None:
        """Take a manifest that counts. Raises WireError for contents that cannot be decoded."""
        one = self._complete[manifest.version] = _Complete(manifest)
        self.held.want(one.named)
        self._open(one)

    def fenced(self, epoch: int) -> None:
        self.held.fenced(epoch)

    def based(self, history: History) -> None:
        self._complete = {version: one for version, one in self._complete.items() if history.alive(version)}

    def apply(self, version: Version) -> bool:
        """Bring the copy to a version; False if it is there, or beyond.

        Raises ChunkError; CheckpointError for a version whose manifest was not read, or which contradicts itself.
        """
        if version.n <= self.applied.n:
            return False
        one = self._complete.get(version)
        if one is None:
            raise CheckpointError(
                f"the manifest of {version} is not in the version log, so its state cannot be applied"
            )
        contents = self._open(one) or open_contents(one.manifest, self._fetch)
        inline = {key: Held(data) for key, data in inline_chunks(contents).items()}
        self.copy.apply(contents, inline.get if inline else self.held.get, self.held.keep)
        self.applied = version
        self._last = one.named
        self._complete = {other: it for other, it in self._complete.items() if other.n > version.n}
        for it in self._complete.values():
            self._open(it)
        self.held.settle(frozenset().union(*(it.named for it in self._complete.values())), self._last)
        return True

    def opened(self, version: Version) -> bool:
        one = self._complete.get(version)
        return one is not None and self._open(one) is not None

    def newest(self, version: Version) -> Version | None:
        """The newest version with a manifest at or below a durable one, if it is not applied yet."""
        found = [other for other in self._complete if other.n <= version.n]
        return max(found, key=lambda other: other.n, default=None)

    def give(self) -> Given:
        contents = self.copy.contents
        present = frozenset(self.held.present)
        if contents is None:
            return Given(INITIAL, None, None, None, present, frozenset())
        return Given(self.applied, contents, *self.copy.give(), present, self._last)

    def _open(self, one: _Complete) -> Contents | None:
        if one.contents is None:
            try:
                one.contents = open_contents(one.manifest, self._fetch)
            except ChunkError:
                return None
            self.held.want(one.named)
            self.held.manifest(one.manifest.version)
        return one.contents

    def _fetch(self, key: ChunkKey) -> bytes | None:
        held = self.held.get(key)
        return None if held is None else held.data
