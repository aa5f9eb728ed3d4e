"""How far one log is known: whether it was read to an end that it had, and how long ago that was so.

A reader asks now and then where the log ends, and reads on. Everything that was appended before it asked is known once
that end is reached. Invariants:

* "Caught up" is said when the first end that was asked for is reached, and anew after each "behind".
* "Behind" is said once more than `away` seconds lie between now and the asking for the newest end that was reached:
  what was appended since may have been compacted meanwhile, if `away` is no less than min.compaction.lag.ms. It is said
  before anything that is read after such a gap is handed on.
* Whoever wants to be told at the end gets the end that was asked for after his wish.

`now` is in seconds of a clock that never goes back. An end is asked for by `wants_end`: at first, for a wish, and, so
that an idle log is told from a broker that is away, a few times in `away`.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

T = TypeVar("T")

_LOOKS: Final = 5  # in `away`


class Following(Generic[T]):
    """One log's reading. Ends are offsets: that of the next record to be written."""

    def __init__(self, away: float, now: float) -> None:
        """`away`: seconds; less than the log's min.compaction.lag.ms."""
        self.position = 0  # everything below it was read
        self.current = False
        self._away = away
        self._known = now  # everything appended before it was read; counts once current
        self._asked_at = -float("inf")
        self._ends: list[tuple[int, float, list[T]]] = []  # asked for and not reached: end, when, who wants to know
        self._wishes: list[T] = []

    def wish(self, who: T) -> None:
        """Note that somebody wants to be told when the log was read to the end that it has from now on."""
        self._wishes.append(who)

    def wants_end(self, now: float) -> bool:
        return bool(self._wishes) or (not self._ends and now - self._asked_at >= self._away / _LOOKS)

    def end(self, asked_at: float, end: int) -> None:
        """Note where the log ends, as it was asked at `asked_at`, which no wish so far came after."""
        self._asked_at = asked_at
        wishes, self._wishes = self._wishes, []
        self._ends.append((end, asked_at, wishes))

    def behind(self, now: float) -> bool:
        """Whether to say "behind"; to be asked before what was read is handed on."""
        if not self.current or now - self._known <= self._away:
            return False
        self.current = False
        return True

    def read(self, position: int) -> tuple[bool, list[T]]:
        """Note that everything below `position` was read and handed on.

        Returns whether to say "caught up", and whose wish is fulfilled.
        """
        self.position = max(self.position, position)
        reached = [one for one in self._ends if one[0] <= self.position]
        if not reached:
            return False, []
        self._ends = [one for one in self._ends if one[0] > self.position]
        self._known = max(asked_at for _, asked_at, _ in reached)
        caught_up, self.current = not self.current, True
        return caught_up, [who for _, _, wishes in reached for who in wishes]
