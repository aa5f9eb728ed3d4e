"""The open-loop load generator: every query leaves when it is due, whatever has become of those before it.

Latency counts from when a query was due, not from when it left, so a generator that falls behind, or a pipeline that
stalls it, cannot hide it (no coordinated omission); how far it fell behind is the schedule slip.
"""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lineage.headers import Headers, encode
from lineage.trace import new_trace
from producers.load.tally import LoadResult, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lineage.message import Outcome
    from producers.client.exchange import Exchange
    from producers.load.shots import Load, Shot

_AHEAD = 512  # queries made before they are due
_MARGIN = 0.001  # seconds before a query is due in which none is made ahead
_NAP = 0.05  # at most, so that progress goes on
_SWITCH_SECONDS = 0.001  # how long the reply thread may keep the interpreter from the sending one
_LEAD = 1.0  # seconds from the call to the start of the schedule: time to make queries and to be let in
_SETTLE = 0.2


@dataclass(slots=True, frozen=True)
class Pace:
    """How a load is run. `slo`: deadline of queries without their own; `grace`: how long after it one is awaited."""

    slo: float
    grace: float = 10.0
    settle: float = _SETTLE  # seconds after the last outcome in which duplicates are still counted
    progress: Callable[[int, int], None] = field(default=lambda _sent, _ended: None)  # several times a second
    observe: Callable[[int, Outcome], None] | None = None  # every outcome with its query's index; in another thread


def run_load(exchange: Exchange, load: Load, pace: Pace) -> LoadResult:
    """Send a load and return what became of it, when every query has ended or waited for too long.

    Queries wait for nothing but their time: neither for outcomes nor for room. Blocks; raises what making a query
    raises.
    """
    tally = Tally(load.due, pace.observe)
    run = _Run(exchange, load, pace, tally)
    with _short_turns():
        run.send_all()
        run.await_all()
    return tally.result()


class _Run:
    def __init__(self, exchange: Exchange, load: Load, pace: Pace, tally: Tally) -> None:
        self._exchange = exchange
        self._load = load
        self._pace = pace
        self._tally = tally
        self._prefix = os.urandom(12).hex()
        self._ahead: deque[Shot] = deque()
        self._made = 0
        self._told = 0.0
        self._latest_expiry = 0.0

    def send_all(self) -> None:
        due = self._load.due.tolist()
        self._make_one(len(due))  # what is wrong with the queries shows before any is sent
        unix = time.time() + _LEAD
        start = time.monotonic() + _LEAD
        self._tally.start = start
        for index, seconds in enumerate(due):
            self._wait_until(start + seconds, len(due))
            self._send(index, self._ahead.popleft(), start + seconds, unix + seconds)

    def await_all(self) -> None:
        while not self._tally.done.wait(_NAP) and time.monotonic() < self._latest_expiry + 1:
            self._tell(time.monotonic(), len(self._load.due))
        time.sleep(self._pace.settle)
        self._told = 0.0
        self._tell(time.monotonic(), len(self._load.due))

    def _wait_until(self, at: float, total: int) -> None:
        while True:
            now = time.monotonic()
            left = at - now
            self._tell(now, self._made - len(self._ahead))
            if left <= 0 and self._ahead:
                return
            if self._made < total and (not self._ahead or (left > _MARGIN and len(self._ahead) < _AHEAD)):
                self._make_one(total)
            elif left > 0:
                time.sleep(min(left, _NAP))

    def _make_one(self, total: int) -> None:
        if self._made < total:
            self._ahead.append(self._load.shot(self._made))
            self._made += 1

    def _send(self, index: int, shot: Shot, due: float, unix_due: float) -> None:
        request_id = f"{self._prefix}-{index}"
        budget = self._pace.slo if shot.budget is None else shot.budget
        pairs = encode(
            Headers(
                request_id,
                time.time_ns() // 1000,
                int((unix_due + budget) * 1e6),
                trace=new_trace(request_id),
                extra=list(shot.extra),
            )
        )
        expires = due + budget + self._pace.grace
        self._latest_expiry = max(self._latest_expiry, expires)
        key = pairs[0][1] if shot.key is None else shot.key
        self._tally.sent(index, time.monotonic())
        self._exchange.send(pairs, key, shot.value, expires=expires, waiter=self._tally.waiter(index))

    def _tell(self, now: float, sent: int) -> None:
        if now - self._told >= 2 * _NAP:
            self._told = now
            self._pace.progress(sent, self._tally.ended)


@contextmanager
def _short_turns() -> Iterator[None]:
    """Let the interpreter switch threads more often: a query that is due must not wait for a batch of replies."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
