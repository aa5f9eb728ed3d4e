"""What may leave the pipeline: an outcome is released once the states that it rests on would survive a crash.

Invariant: a released outcome never rests on a state that recovery does not reproduce. Pipelines without stateful
stages have no such states, so `Stateless` is all they need; with them, `spillway.checkpoint.logs` knows. The gate asks
the same questions of either, and so do the stages behind a stateful one.

Whoever answers keeps to this: an answer that is true once stays true; no version is both durable and dead; and of one
shard and one epoch, what is durable lies below what is not, and what is dead lies above what is not. (A later version
of a reign contains the earlier ones.) `Awaited` rests on the latter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from sortedcontainers import SortedDict

from spillway.lineage.marks import Mark, Version

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


# What waits for versions to become durable: found when they do, or turn out dead, without looking at the rest.
#
# What waits stands in one line per shard and epoch, ordered by n, and a look goes in from both ends only as far as
# something was decided. Work: O(log n) for each mark that is not durable when it is added, once; a look that finds
# nothing asks two questions per line. Memory: what is not decided; of a thing that rests on several versions and turned
# out dead, its other places stay until those are decided too.


class Resting:
    """Something that rests on versions. Both fields are kept by `Awaited`."""

    __slots__ = ("dead", "open")

    def __init__(self) -> None:
        self.open = 0  # of the versions that it rests on, how many are not known to be durable
        self.dead = False


class Awaited:
    """Things that rest on versions which are not decided."""

    def __init__(self, durability: Durability) -> None:
        self._durability = durability
        # stage, shard, epoch -> n -> what rests on that version
        self._lines: dict[tuple[str, int, int], SortedDict[int, list[Resting]]] = {}

    def dead(self, marks: Sequence[Mark]) -> bool:
        return any(self._durability.dead(mark) for mark in marks)

    def add(self, thing: Resting, marks: Sequence[Mark]) -> None:
        """Wait for those of the marks that are not durable; with none, `thing.open` stays 0. None of them is dead."""
        for mark in marks:
            if not self._durability.durable(mark):
                version = mark.version
                place = (mark.stage, mark.shard, version.epoch)
                line = self._lines.get(place)
                if line is None:
                    line = self._lines[place] = SortedDict()
                line.setdefault(version.n, []).append(thing)
                thing.open += 1

    def things(self) -> Iterator[Resting]:
        """Everything that waits, by shard and epoch from the oldest version on; a thing comes once per version."""
        for line in self._lines.values():
            for things in line.values():
                yield from things

    def decided(self) -> tuple[list[Resting], list[Resting]]:
        """Give what has become durable since the last time, all of it, and what has turned out dead."""
        durable: list[Resting] = []
        dead: list[Resting] = []
        for place in list(self._lines):
            line = self._lines[place]
            while line and self._durability.durable(_mark(place, line.peekitem(0)[0])):
                for thing in line.popitem(0)[1]:
                    thing.open -= 1
                    if not (thing.open or thing.dead):
                        durable.append(thing)
            while line and self._durability.dead(_mark(place, line.peekitem(-1)[0])):
                for thing in line.popitem(-1)[1]:
                    if not thing.dead:
                        thing.dead = True
                        dead.append(thing)
            if not line:
                del self._lines[place]
        return [thing for thing in durable if not thing.dead], dead


def _mark(place: tuple[str, int, int], n: int) -> Mark:
    return Mark(place[0], place[1], Version(place[2], n))


class Durability(Protocol):
    """Knows which state versions are durable."""

    def durable(self, mark: Mark) -> bool:
        """Whether one version is durable; once true, it stays true."""

    def dead(self, mark: Mark) -> bool:
        """Whether one version will not be reproduced by any recovery; once true, it stays true.

        What rests on it is discarded, and the live copy awaited. Where neither this nor `durable` is true, the answer
        is to wait.
        """


class Stateless:
    """No stage has state: everything may be released at once."""

    __slots__ = ()

    def durable(self, mark: Mark) -> bool:  # noqa: ARG002 (the protocol's parameter)
        return True

    def dead(self, mark: Mark) -> bool:  # noqa: ARG002 (the protocol's parameter)
        return False
