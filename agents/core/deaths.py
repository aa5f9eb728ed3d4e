"""Which records a stage's process may die of, and with how much care they are run from then on.

A model can end its process (a segmentation fault, memory, `os._exit`) or hang in it. The processes after it read the
same records and would end the same way, for ever. What a process had under way when it died is its *testimony*
(`agents.live.underway`); from two of them on a record is run alone, in a child process where its stage can have one.
Where it cannot, as the model's state is in the process itself, it is alone in the process, and two more deaths of that
are the proof that a child would have given.

Invariant: no record fails for its neighbours: it fails only after it has died alone. A process may be killed for other
reasons, too; that costs the records it had under way some care, and no outcome.

Memory: the places that the testimonies name.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agents.core.request import Request

Place = tuple[int, int]  # of a record in a stage's input: partition, offset

ALONE_FROM: Final = 2  # deaths
LONE_DEATHS: Final = 2  # after which a record that was alone in its process is guilty


class Care(Enum):
    """How a record is run."""

    NONE = "none"  # with others
    ALONE = "alone"
    FAIL = "fail"  # not at all: it has died alone


class Deaths:
    """What the testimonies of a stage's dead processes come to."""

    def __init__(self, testimonies: Iterable[frozenset[Place]] = ()) -> None:
        self._deaths: Counter[Place] = Counter()
        self._lone: Counter[Place] = Counter()
        for places in testimonies:
            self._deaths.update(places)
            if len(places) == 1:
                self._lone.update(places)

    def __bool__(self) -> bool:
        return bool(self._deaths)

    def of(self, request: Request) -> int:
        return self._deaths[place_of(request)]

    def care(self, request: Request) -> Care:
        place = place_of(request)
        deaths = self._deaths[place]
        if deaths < ALONE_FROM:
            return Care.NONE
        if deaths >= ALONE_FROM + LONE_DEATHS and self._lone[place] >= LONE_DEATHS:
            return Care.FAIL
        return Care.ALONE


def place_of(request: Request) -> Place:
    parts = request.parts
    return request.partition, parts[0].offset if len(parts) == 1 else min(part.offset for part in parts)
