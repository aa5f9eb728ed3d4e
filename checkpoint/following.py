"""How far one log is known: whether it was read to an end that it had, and how long ago that was so.

A reader asks now and then where the log ends, and reads on. Everything that was appended before it asked is known once
that end is reached. Invariants:

* "Caught up" is said when the first end that was asked for is reached, and anew after each "behind".
* "Behind" is said once more than `away` seconds lie between now and the asking for the newest end that was reached:
  what was appended since may have been compacted meanwhile, if `away` is no less than min.compaction.lag.ms. It is said
  before anything that is read after such a gap is handed on.

`now` is in seconds of a clock that never goes back. An end is asked for by `wants_end`, a few times in `away`, so that
an idle log is told from a broker that is away.
"""

from __future__ import annotations

from typing import Final

_LOOKS: Final = 5  # in `away`


class Following:
    """One log's reading."""

    def __init__(self, away: float, now: float) -> None:
        """`away`: seconds; less than the log's min.compaction.lag.ms."""
        self.current = False
        self._away = away
        self._known = now  # everything appended before it was read; counts once current
        self._asked_at = -float("inf")  # of the newest end that was reached

    def wants_end(self, now: float) -> bool:
        return now - self._asked_at >= self._away / _LOOKS

    def behind(self, now: float) -> bool:
        """Whether to say "behind"; to be asked before what was read is handed on."""
        if not self.current or now - self._known <= self._away:
            return False
        self.current = False
        return True

    def reached(self, asked_at: float) -> bool:
        """Learn that all was read and handed on up to the end that was asked for then; return if "caught up" is due."""
        self._asked_at = self._known = max(asked_at, self._asked_at)
        caught_up, self.current = not self.current, True
        return caught_up
