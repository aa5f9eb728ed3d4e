"""What is not decided yet: copies of messages, and the requests made of them (`agents.core.speculation`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from checkpoint.awaited import Resting

if TYPE_CHECKING:
    from agents.core.joins import Entry
    from agents.core.request import Delivery
    from checkpoint.dedup import Said
    from lineage.marks import Mark

    Key = tuple[str, Said]  # a predecessor, and what it says


class Copy(Resting):
    """One record, and what it rests on."""

    __slots__ = ("admitted", "case", "delivery", "key")

    def __init__(self, delivery: Delivery, key: Key | None, *, admitted: bool = True) -> None:
        super().__init__()
        self.delivery = delivery
        self.key = key
        self.admitted = admitted  # whether deduplication took it; if not, it is kept for when the first copy dies
        self.case: Case | None = None  # whose it is; None once its offset is let go

    @property
    def marks(self) -> tuple[Mark, ...]:
        hop = self.delivery.hop
        return () if hop is None else hop.marks

    def let_go(self) -> None:
        """Note that its fate concerns nobody any more.

        Nothing may lead back to it then: cycles are looked for so rarely that messages would fill the memory.
        """
        self.case = None
        self.delivery.copy = None


class Case:
    """A request as far as it rests on what is not durable."""

    __slots__ = ("closed", "dead", "entry", "heard", "later", "owner")

    def __init__(self, entry: Entry | None = None) -> None:
        self.entry = entry  # where its parts met
        self.heard: list[Copy] = []  # what it is decided by
        self.later: list[Copy] = []  # what is kept for when one of those dies
        self.owner: Any = None  # the work, or the gate's release, that was made of it and is not final
        self.closed = False  # whether it waits for no more parts
        self.dead = False  # given up

    @property
    def open(self) -> bool:
        return any(copy.open for copy in self.heard)


class Changes:
    """What a look at the durability brought."""

    __slots__ = ("again", "cancelled", "dead", "settled")

    def __init__(self) -> None:
        self.settled: list[Any] = []  # the owners of requests that are final now
        self.cancelled: list[Any] = []  # the owners of requests that were given up
        self.again: list[Copy] = []  # what comes again, in the order of offsets
        self.dead = 0  # records
