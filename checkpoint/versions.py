"""A shard's history: which of its versions lie on the chain that goes on, and which a newer reign has cut off.

Every reign (epoch) starts from a version of an earlier one, its base. The chain is the way from the newest epoch down
to the initial state. Invariants (rules 1 and 7 of stateful fault tolerance; HAMS, section IV-E):

* A version is alive if it lies on the chain: of the newest epoch, above its base; or of an epoch further down, above
  that epoch's base and at or below the base of the next one on the chain. Along the chain n rises.
* A version of an epoch that is not the newest is *not* dead for that: it is cut off if and only if the chain left its
  epoch below it, or passes its epoch by. What is cut off stays so, as a new base lies on the chain.
* Of a version of an epoch that the history has not reached, nothing can be said: the log must be read further.
* Nobody generated a version at or below the base of its own epoch, so such a one is never alive.
* Of a version whose link was left out (`shortened`), nothing can be said either: it is neither alive nor cut off.

Why links may be left out. Every manifest carries the chain, so it must not grow with every reign for ever. A link is
needed by whoever meets a mark of its epoch. Two kinds of records bear marks. (1) Manifests stay for ever in compacted
logs: a new base keeps the links of all epochs that any manifest requires which stands in any version log, as its
claimant has read them all to their ends. (2) Messages go by the retention of their topics. A stage puts a mark on what
it sends only while the version is not durable, as far as it knows; so once an epoch was followed by another one, and
versions of that are durable, no new message bears its marks. Links are therefore left out only below the epoch of the
newest durable version, and only `LINK_SECONDS` after the fence of the epoch that followed: longer than any message is
kept in topics as they are made (a day, in segments of a week). `MOST_LINKS` bounds the rest, and is more than the
reigns of a day where members are restarted every 30 s. Safety rests on none of these times: a mark that is older than
the chain knows is found neither durable nor dead, so what rests on it waits, and is neither released nor discarded.
"""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Final

from spillway.lineage.errors import CheckpointError
from spillway.lineage.marks import INITIAL, Mark, Place, Version
from spillway.lineage.replication import Link

if TYPE_CHECKING:
    from collections.abc import Collection

__all__ = ["INITIAL", "History", "Link", "Mark", "Place", "Version"]

LINK_SECONDS: Final = 8 * 86_400.0
MOST_LINKS: Final = 8_192


class History:
    """The chain of one shard. Immutable; a manifest carries its links."""

    __slots__ = ("_gaps", "_spans", "links")

    def __init__(self, links: tuple[Link, ...] = ()) -> None:
        """`links`: the epochs on the chain and their bases, oldest first.

        Raises CheckpointError where they do not meet.
        """
        self.links = links
        self._spans: dict[int, tuple[int, float]] = {}  # epoch on the chain -> above which n, up to which n
        self._gaps: list[tuple[int, int]] = []  # from which epoch to which one nothing can be said
        below, low = 0, -1
        for epoch, base in links:
            meets = below <= base.epoch < epoch and base.n > low
            if not meets or (base.epoch == 0) != (base == INITIAL):
                raise CheckpointError(f"not a valid history of a shard: {self}; its versions cannot be judged")
            if base.epoch > below:
                self._gaps.append((below, base.epoch))
            elif below:
                self._spans[below] = (low, base.n)
            below, low = epoch, base.n
        if links:
            self._spans[below] = (low, inf)

    @property
    def epoch(self) -> int:
        return self.links[-1][0] if self.links else 0

    @property
    def base(self) -> Version:
        return self.links[-1][1] if self.links else INITIAL

    def begun(self, epoch: int, base: Version) -> History:
        """Give the history after a new epoch has started from `base`.

        Raises CheckpointError for an epoch that is not newer, or a base that is not alive.
        """
        if epoch <= self.epoch:
            raise CheckpointError(f"epoch {epoch} cannot follow epoch {self.epoch}")
        if not self.alive(base):
            raise CheckpointError(f"epoch {epoch} cannot start from {base}, which is not on the chain {self}")
        return type(self)((*(link for link in self.links if link[0] <= base.epoch), (epoch, base)))

    def shortened(self, needed: Collection[int], recent: int) -> History:
        """Give the history without the links below the epoch `recent`, but for those that judge the epochs `needed`."""
        links = self.links
        recent = max(recent, links[-MOST_LINKS:][0][0]) if links else recent
        return type(self)(
            tuple(
                link
                for at, link in enumerate(links)
                if link[0] >= recent or link[0] in needed or (at and links[at - 1][0] in needed)
            )
        )

    def shortens(self, other: History) -> bool:
        """Whether this is the other history with some links left out, or all of it."""
        return self.links[-1:] == other.links[-1:] and set(self.links) <= set(other.links)

    def forgotten(self, version: Version) -> bool:
        if not self._gaps or version == INITIAL:
            return False
        return any(first <= version.epoch <= last for first, last in self._gaps)

    def alive(self, version: Version) -> bool:
        if version == INITIAL:
            return True
        span = self._spans.get(version.epoch)
        return span is not None and span[0] < version.n <= span[1]

    def beyond(self, version: Version) -> bool:
        return version.epoch > self.epoch

    def cut(self, version: Version) -> bool:
        return not (self.beyond(version) or self.alive(version) or self.forgotten(version))

    def contains(self, one: Version, other: Version) -> bool:
        """Whether the state `one` is `other`, or has come from it: whatever makes `other` dead makes `one` dead."""
        return self.alive(one) and self.alive(other) and other.n <= one.n

    def __eq__(self, other: object) -> bool:
        return self.links == other.links if isinstance(other, History) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.links)

    def __repr__(self) -> str:
        return f"History({', '.join(f'{epoch} from {base}' for epoch, base in self.links)})"
