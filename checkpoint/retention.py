"""Which manifests of a version log its owner may tombstone (rule 4), so that the log stays short.

Invariants:

* Only the owner of the current epoch tombstones, and only once a version of its own epoch is durable: before, the
  newest durable version is another reign's, and what it needs is not the owner's to judge. (A new primary first writes
  one version in full, so that from then on nothing of older epochs is needed.)
* What goes is below the newest durable version on the chain, or off the chain. So whoever finds a manifest missing
  knows that it was durable, or dead: every question about it has the same answer as before.
* Fences and bases stay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.checkpoint.version_log import key
from spillway.lineage.replication import Manifest

if TYPE_CHECKING:
    from collections.abc import Collection

    from spillway.checkpoint.version_log import Record
    from spillway.checkpoint.versions import History
    from spillway.lineage.marks import Version
    from spillway.lineage.replication import ChunkKey


# Which older versions the owner of an epoch keeps whole, beside the newest durable one, for operators to go back to.
#
# Invariants: only versions that were durable are kept, newest first, `retain` of them; what a kept version names is not
# tombstoned, nor is its manifest. A version whose names are not known (another reign's, unless told) is not kept.


class Rewindable:
    """What is kept in one reign, whose n rises."""

    def __init__(self, retain: int) -> None:
        """`retain`: how many versions, beside the newest durable one."""
        self._retain = retain
        self._named: dict[Version, frozenset[ChunkKey]] = {}  # oldest first

    def complete(self, version: Version, named: Collection[ChunkKey]) -> None:
        self._named[version] = frozenset(named)

    def durable(self, version: Version) -> dict[Version, frozenset[ChunkKey]]:
        """Note that a version is durable; the older ones to keep, and what they name."""
        older = [one for one in self._named if one.n < version.n]
        going = older[: max(0, len(older) - self._retain)]
        for one in going:
            del self._named[one]
        return {one: self._named[one] for one in older[len(going) :]}


class Retention:
    """The manifests that stand in one shard's log. One entry for each, until it is tombstoned."""

    def __init__(self) -> None:
        self._standing: dict[str, Version] = {}

    def appended(self, record: Record) -> None:
        if isinstance(record, Manifest):
            self._standing[key(record)] = record.version

    def tombstoned(self, name: str) -> None:
        self._standing.pop(name, None)

    def obsolete(self, history: History, durable: Version) -> list[str]:
        """Give the keys that the owner of the history's newest epoch may tombstone.

        `durable`: the newest durable version; none may go while it is another epoch's.
        """
        if not durable.epoch or durable.epoch != history.epoch:
            return []
        return [
            name
            for name, version in self._standing.items()
            if not history.beyond(version) and (version.n < durable.n or not history.alive(version))
        ]

    def __len__(self) -> int:
        return len(self._standing)
