"""Marks: which states of which stateful shards a message rests on (HAMS, section IV-D, Algorithm 1; bounded here).

A shard's state after its n-th changing batch is a version; its epoch is the number of the primary's reign in which it
was made, as n alone repeats after a failover. A message carries one mark for each version that its request was recorded
in, unless a later one stands for it. Invariants:

* A stateful stage sends its own mark instead of all that came, also where it only read its state: its manifest requires
  those, so that its version is durable only after them, and dead with them. A stateless stage passes on what came.
* Of one shard and one epoch the higher n stands for the lower: a later version of a reign contains the earlier ones.
  Of two epochs both stay: a version of an older epoch may have been cut off, and then a message that rests on it is
  dead, whatever else it rests on.
* So a message carries at most one mark per stateful stage on its way and epoch in flight (a request keeps its
  partition, hence its shard). Marks are in order of stage, shard and epoch.
* The initial state cannot be lost, so no mark names it: epochs and n of marks begin at 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

Place = tuple[str, int]  # a stateful stage and one of its shards


@dataclass(slots=True, frozen=True)
class Version:
    """A shard's state after its n-th changing batch, made in a reign. Not ordered: only a history tells what is later.

    n goes on over epochs: the first version of an epoch has the n of the version that the epoch started from, plus 1.
    """

    epoch: int
    n: int

    def __str__(self) -> str:
        return f"e{self.epoch}.v{self.n}"


INITIAL: Final = Version(0, 0)  # what `initialize()` gives: complete and durable by definition


@dataclass(slots=True, frozen=True)
class Mark:
    """A version that a message rests on."""

    stage: str
    shard: int
    version: Version

    @property
    def place(self) -> Place:
        return self.stage, self.shard

    def __str__(self) -> str:
        return f"{self.stage}/{self.shard} {self.version}"


def order(mark: Mark) -> tuple[str, int, int]:
    """Give what marks are kept in order of; no two of a message's marks have the same."""
    return mark.stage, mark.shard, mark.version.epoch


def merged(parts: Iterable[Sequence[Mark]]) -> tuple[Mark, ...]:
    """Join the marks of several messages; also what a manifest requires, from the messages of its batches."""
    newest: dict[tuple[str, int, int], Mark] = {}
    for marks in parts:
        for mark in marks:
            key = order(mark)
            known = newest.get(key)
            if known is None or known.version.n < mark.version.n:
                newest[key] = mark
    return tuple(newest[key] for key in sorted(newest))


def foreign(marks: Iterable[Mark], places: Collection[Place]) -> Mark | None:
    """Give a mark of a shard that is none of these: nobody could ever say what became of that version.

    Without places there is none: nobody asks what marks rest on.
    """
    return next((mark for mark in marks if mark.place not in places), None) if places else None
