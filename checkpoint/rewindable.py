"""Which older versions the owner of an epoch keeps whole, beside the newest durable one, for operators to go back to.

Invariants: only versions that were durable are kept, newest first, `retain` of them; what a kept version names is not
tombstoned, nor is its manifest. A version whose names are not known (another reign's, unless told) is not kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from lineage.marks import Version
    from lineage.replication import ChunkKey


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
