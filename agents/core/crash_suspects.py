"""Which records a stage's process may die of, and with how much care they are run from then on.

A model can end its process (a segmentation fault, memory, `os._exit`) or hang in it. The processes after it read the
same records and would end the same way, for ever. What a process had under way when it died is its *testimony*
(`spillway.agents.live.stage.crash_watch`); from two of them on a record is run alone, in a child process where its
stage can have one. Where it cannot, as the model's state is in the process itself, it is alone in the process, and two
more deaths of that are the proof that a child would have given.

Invariant: no record fails for its neighbours: it fails only after it has died alone. A process may be killed for other
reasons, too; that costs the records it had under way some care, and no outcome.

Memory: the places that the testimonies name.
"""

from __future__ import annotations

from collections import Counter
from enum import Enum
from typing import TYPE_CHECKING, Final

from spillway.agents.core.workers import Batch

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from spillway.agents.core.request import Request


# Which queries may be the ones that a stateful model's update raises for, or that its process dies of.
#
# A batch whose update raises leaves the state half changed when its results have left already. So the shard begins a
# new reign, from the newest complete version, and meets the same queries again. They are *suspects* now:
#
# raised once      a batch with one of them is tried on a copy first, and those that raise there fail
# raised twice     although each went well alone: it is computed and updated in a batch of its own
# raised again     alone, after going well on a copy: no query is to blame, and the member has to end
#
# What members died of is known to those after them: such a query goes alone, too.
#
# Invariants:
#
# * A query is never failed for its neighbours: only what raises alone, on a copy of the state, does. And no batch
#   raises more than three times, as each time its queries are looked at more closely.
# * A query is a suspect until what became of it is durable: until then another new reign may bring it again.
# * After a query was found guilty, the next `WATCHED` ones are tried too, before anything of them leaves: where many
#   raise, each costs a copy, and not a reign, which adds to the history that every manifest carries.
# * Memory: at most `most` queries; beyond that the oldest are forgotten, and would be met as new ones.

WATCHED: Final = 200  # queries
MOST: Final = 4_096
_ALONE = 2  # times that a query's batch has raised, from which on it goes alone


class Suspects:
    """The suspects of one member, whatever reign it is in."""

    def __init__(self, most: int = MOST) -> None:
        self._raised: dict[str, int] = {}  # how often a batch with it has raised, oldest first
        self._watch = 0  # queries still to be tried
        self._most = most
        self.deaths = Crashes()  # of the stage's processes; replaced by the owner as it learns of them

    def __bool__(self) -> bool:
        return bool(self._raised) or self._watch > 0

    def raised(self, requests: Sequence[str]) -> bool:
        """Note that the update of a batch raised; False if a new reign would not help."""
        helps = True
        for request in requests:
            times = self._raised.pop(request, 0) + 1
            helps = helps and times <= _ALONE
            self._raised[request] = times
        while len(self._raised) > self._most:
            del self._raised[next(iter(self._raised))]
        self._watch = WATCHED
        return helps

    def apart(self, batch: Batch) -> list[Batch]:
        lone = [each for each in batch.requests if self._goes_alone(each)]
        if not lone:
            return [batch]
        together = [each for each in batch.requests if not self._goes_alone(each)]
        parts = [*([together] if together else []), *([each] for each in lone)]
        return [Batch(batch.worker, part, batch.started, batch.expected_end) for part in parts]

    def _goes_alone(self, request: Request) -> bool:
        raised = self._raised.get(request.request_id, 0) >= _ALONE
        return raised or (bool(self.deaths) and self.deaths.care(request) is not Care.NONE)

    def tries(self, requests: Sequence[str]) -> bool:
        """Whether a batch that is computed next is to be tried on a copy first."""
        watched = self._watch > 0
        self._watch = max(0, self._watch - len(requests))
        return watched or any(request in self._raised for request in requests)

    def guilty(self) -> None:
        """Note that a query's update raised on a copy, so that it failed: others like it may follow."""
        self._watch = WATCHED

    def durable(self, requests: Iterable[str]) -> None:
        for request in requests:
            self._raised.pop(request, None)


Place = tuple[int, int]  # of a record in a stage's input: partition, offset

ALONE_FROM: Final = 2  # deaths
LONE_DEATHS: Final = 2  # after which a record that was alone in its process is guilty


class Care(Enum):
    """How a record is run."""

    NONE = "none"  # with others
    ALONE = "alone"
    FAIL = "fail"  # not at all: it has died alone


class Crashes:
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
