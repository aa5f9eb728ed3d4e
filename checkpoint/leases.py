"""A primary's right to emit: it ends before anybody may take its silence for death, by its own clock (rule 13).

A primary sends heartbeats, and reads them back. A beat that came back was in the log for all to read, so whoever counts
its silence begins later than when that beat was sent; the right lasts `lease - margin` from there. Invariants:

* `may_emit(now)` is false from `lease - margin` after the last beat that came back was sent, whether or not anything
  has called in between: a process that was stopped finds it false when it goes on.
* A right that has lapsed does not come back with the next beat alone: somebody else may reign by now. First a beat must
  come back, then the version log be read up to the end that it had after that; if there is no newer fence in it, the
  primary goes on. (A broker that was away for some seconds so costs no failover.)
* A newer fence ends the right for good.

This keeps a zombie from doing needless harm. What keeps its harm from counting is the fence
(`spillway.checkpoint.version_log`). `now` is in seconds of a clock that never goes back; all times are the caller's.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import inf

BEAT_SECONDS = 0.1
LEASE_SECONDS = 1.0  # the shortest that may be configured: gaps up to 300 ms were measured while state streams
MARGIN_SECONDS = 0.2  # of the lease; for clocks that run apart, and for what is under way when the right ends


class Right(Enum):
    """Whether a primary may emit."""

    HELD = "held"
    LAPSED = "lapsed"  # no beat came back for too long
    CHECKING = "checking"  # beats come back; the log is being read for a newer fence
    ENDED = "ended"  # there was one


class Turn(Enum):
    """What happens to the right."""

    BEAT = "a beat came back in time"
    OVER = "time is over"
    CHECKED = "the log has no newer fence"
    FENCED = "a newer fence"


class Order(Enum):
    """What the driver has to do."""

    STOP = "stop emitting"
    CHECK = "look where the version log ends, read up to there, then call `checked`"
    GO_ON = "emit again"
    STAND_DOWN = "be a backup"


_H, _L, _C, _E = Right.HELD, Right.LAPSED, Right.CHECKING, Right.ENDED
# What is missing changes nothing.
TABLE: dict[tuple[Right, Turn], tuple[Right, Order]] = {
    (_H, Turn.OVER): (_L, Order.STOP),
    (_H, Turn.FENCED): (_E, Order.STAND_DOWN),
    (_L, Turn.BEAT): (_C, Order.CHECK),
    (_L, Turn.FENCED): (_E, Order.STAND_DOWN),
    (_C, Turn.OVER): (_L, Order.STOP),
    (_C, Turn.CHECKED): (_H, Order.GO_ON),
    (_C, Turn.FENCED): (_E, Order.STAND_DOWN),
}


@dataclass(slots=True, frozen=True)
class Lease:
    """Durations in seconds. Raises ValueError for a lease that ordinary gaps between beats would end."""

    seconds: float = LEASE_SECONDS
    margin: float = MARGIN_SECONDS
    beat: float = BEAT_SECONDS

    def __post_init__(self) -> None:
        if self.seconds < LEASE_SECONDS or not 0 < self.margin <= self.seconds / 2 or not 0 < self.beat <= self.margin:
            raise ValueError(
                f"a lease of {self.seconds} s with a margin of {self.margin} s and heartbeats every {self.beat} s: "
                f"the lease must be {LEASE_SECONDS} s or more, the margin at most half the lease, the heartbeat "
                "interval at most the margin"
            )


class Emission:
    """One primary's right to emit, in one epoch."""

    table = TABLE

    def __init__(self, lease: Lease, epoch: int, sent: float | None = None) -> None:
        """`sent`: when the newest of the member's beats was sent that has come back by now; None if none has.

        Call it when the member's own base has been read: then there is nothing to check.
        """
        self.epoch = epoch
        self.right = Right.LAPSED if sent is None else Right.HELD
        self.checks = 0  # the number of the newest check; an older one's answer comes too late
        self._lease = lease
        self._until = -inf if sent is None else sent + lease.seconds - lease.margin

    def may_emit(self, now: float) -> bool:
        return self.right is Right.HELD and now < self._until

    def beat_returned(self, now: float, sent: float) -> list[Order]:
        """Learn that a beat was read back; `sent`: the time that was taken before it was handed over to be sent."""
        orders = self.advance(now)
        self._until = max(self._until, sent + self._lease.seconds - self._lease.margin)
        return orders if now >= self._until else orders + self._turn(Turn.BEAT)

    def advance(self, now: float) -> list[Order]:
        return self._turn(Turn.OVER) if now >= self._until else []

    def checked(self, now: float, check: int) -> list[Order]:
        """Note that the log was read to where it ended when `checks` became `check`, and has no newer fence."""
        orders = self.advance(now)
        return orders if check != self.checks else orders + self._turn(Turn.CHECKED)

    def fenced(self, epoch: int) -> list[Order]:
        return self._turn(Turn.FENCED) if epoch > self.epoch else []

    def next_wake(self) -> float | None:
        return self._until if self.right in (Right.HELD, Right.CHECKING) else None

    def _turn(self, turn: Turn) -> list[Order]:
        found = self.table.get((self.right, turn))
        if found is None:
            return []
        self.right, order = found
        self.checks += order is Order.CHECK
        return [order]
