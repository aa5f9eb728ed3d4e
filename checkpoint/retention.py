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

from checkpoint.version_log import key
from lineage.replication import Manifest

if TYPE_CHECKING:
    from checkpoint.version_log import Record
    from checkpoint.versions import History, Version


class Retention:
    """The manifests that stand in one shard's log. One entry for each, until it is tombstoned."""

    __slots__ = ("_standing",)

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
