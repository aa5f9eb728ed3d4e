"""Payloads of the parts that wait in joins: how many bytes are kept, and how the others come back.

The log is the buffer. Beyond `PAYLOAD_BYTES` a part that has to wait keeps its envelope (id, offset, hop, deadline) and
drops its payload. When its request closes, complete or not, the request is parked: the driver is asked for the payloads
by their offsets (`Fetch`), and the request goes on when the last of them is there. So what bounds a join is time, and
for how long the topic keeps its records. Invariants:

* A parked request is closed: what comes for it later is late. It holds its input offsets, and counts as under way.
* Whoever parks many is not given more records (`room`), so that what comes back finds room in the queue.
* A record that is gone is told as a loss; its request fails with that reason, whatever its join had made of it.
* A request of which a part turns out dead meanwhile is dropped here: its live parts were heard again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from agents.core.entries import Entry
    from agents.core.join_rules import Verdict
    from agents.core.loss import Loss
    from agents.core.request import Delivery

PAYLOAD_BYTES: Final = 32 << 20  # of the parts that wait in one process, with what they take beside their values


@dataclass(slots=True, frozen=True)
class Fetch:
    """One record of the input that is to be read again; `part` is what is left of it."""

    partition: int
    offset: int
    part: Delivery | None = field(default=None, compare=False, repr=False)


class PayloadRoom:
    """The bytes that waiting parts of one process may keep, and do."""

    __slots__ = ("held", "limit")

    def __init__(self, limit: int = PAYLOAD_BYTES) -> None:
        self.limit = limit
        self.held = 0

    def keep(self, entry: Entry, delivery: Delivery) -> None:
        """Keep the payload of a part that has to wait, or drop it where there is no room."""
        if delivery.dropped:
            return  # it has come again from its own join
        if self.held + delivery.size <= self.limit:
            self.held += delivery.size
            entry.held += delivery.size
        elif delivery.unusable is None:  # the text of a dead letter may still be needed
            delivery.payload = None
            delivery.dropped = True

    def free(self, entry: Entry) -> None:
        self.held -= entry.held
        entry.held = 0


class Parked:
    """A closed request of which payloads are missing; `loss` says why one of them will not come."""

    __slots__ = ("entry", "loss", "missing", "verdict")

    def __init__(self, verdict: Verdict, entry: Entry, missing: dict[int, Delivery]) -> None:
        self.verdict = verdict
        self.entry = entry
        self.missing = missing
        self.loss: Loss | None = None

    @property
    def dead(self) -> bool:
        """Whether a part of it has turned out dead, so that it was opened again."""
        return self.entry.case is not None and self.entry.case.dead


class Refetch:
    """The parked requests of one partition."""

    __slots__ = ("_parked", "_partition", "_wanted")

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._parked: dict[int, Parked] = {}  # by each offset that is missing
        self._wanted: list[Fetch] = []

    def park(self, verdict: Verdict, entry: Entry) -> bool:
        """Park a request that was closed; False if nothing of it is missing."""
        parts = [*entry.results, *(part for part, _ in entry.losses)]
        missing = {part.offset: part for part in parts if part.dropped}
        if not missing:
            return False
        self._parked |= dict.fromkeys(missing, Parked(verdict, entry, missing))
        self._wanted += [Fetch(self._partition, offset, part) for offset, part in missing.items()]
        return True

    def take(self) -> list[Fetch]:
        """Give the records that are to be read again; each is answered by `fetched`."""
        wanted, self._wanted = self._wanted, []
        return wanted

    def fetched(self, offset: int, payload: Any, loss: Loss | None) -> Parked | None:
        """Take a payload, with `loss` a stand-in for one that is gone; give the request if it was the last."""
        parked = self._parked.pop(offset, None)
        if parked is None:
            return None  # it was asked for twice, as its request was opened again meanwhile
        part = parked.missing.pop(offset)
        part.payload = payload
        part.dropped = loss is not None
        parked.loss = parked.loss or loss
        return None if parked.missing or parked.dead else parked

    def __len__(self) -> int:
        return len(self._parked)
