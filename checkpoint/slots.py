"""The three places for captured versions at a primary (rule 6; HAMS, section IV-B).

* `durable`: the newest version that is known to be durable.
* `written`: the version that is being written, or is complete and waits for what it rests on.
* `captured`: the newest version captured since. A newer one takes its place: they coalesce, and the manifest of the
  newer covers the batches of both.

Invariants:

* `captured` is the newest version there is, or else `written` is, or else `durable`: coalescing never loses the newest.
* n rises from `durable` over `written` to `captured`; a version is in one place at most.
* `durable` changes to `written` only, when that is durable: never to one that could still die.
* One version at a time is written: the next begins when that is durable. Nothing is dropped: what waits is in
  `captured` (or was covered by it), and its outputs' replies wait at the gate.
* What leaves a place is handed back to be released, once.

A rollback is a new reign, with places of its own: what it starts from is read from the log, so that it is the same
whichever member does it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from lineage.errors import CheckpointError

if TYPE_CHECKING:
    from lineage.marks import Version

T = TypeVar("T")


@dataclass(slots=True, frozen=True)
class Held(Generic[T]):
    """A version and what was captured of it."""

    version: Version
    what: T


class Slots(Generic[T]):
    """The places of one primary in one epoch."""

    __slots__ = ("captured", "coalesced", "complete", "durable", "written")

    def __init__(self, base: Held[T] | None = None) -> None:
        """`base`: what the epoch starts from, if it is in memory. It is durable, as nothing newer of its chain is."""
        self.durable = base
        self.written: Held[T] | None = None
        self.captured: Held[T] | None = None
        self.complete = False  # whether the written one's manifest is acknowledged
        self.coalesced = 0  # versions that were never written as such

    @property
    def newest(self) -> Held[T] | None:
        """The newest version in memory."""
        return self.captured or self.written or self.durable

    def capture(self, held: Held[T]) -> Held[T] | None:
        """Take a new version; the one that it coalesces with, to be released."""
        newest = self.newest
        if newest is not None and held.version.n <= newest.version.n:
            raise CheckpointError(f"{held.version} was captured after {newest.version}")
        before, self.captured = self.captured, held
        self.coalesced += before is not None
        return before

    def begin(self) -> Held[T] | None:
        """The version to write now, if none is being written and there is one."""
        if self.written is not None or self.captured is None:
            return None
        self.written, self.captured, self.complete = self.captured, None, False
        return self.written

    def completed(self, version: Version) -> None:
        if self.written is None or self.written.version != version:
            raise CheckpointError(f"the manifest of {version} is acknowledged, but it was not being written")
        self.complete = True

    def made_durable(self, version: Version) -> Held[T] | None:
        """Note that a version, and so all before it, is durable; what is no longer rolled back to, to be released."""
        if self.written is None or not self.complete or self.written.version.n > version.n:
            return None
        before, self.durable, self.written = self.durable, self.written, None
        return before
