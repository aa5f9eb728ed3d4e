"""A primary's right to emit, kept by its heartbeats and looked after by the clock (`checkpoint.leases`).

Times are `loop.time()`'s, which is the monotonic clock that beats are told by.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from checkpoint.leases import Emission, Order

if TYPE_CHECKING:
    from collections.abc import Callable

    from checkpoint.leases import Lease

log = logging.getLogger(__name__)

_KEPT = 256  # beats on the way


class EmitRight:
    """One member's right, through all its reigns."""

    def __init__(
        self,
        name: str,
        lease: Lease,
        *,
        read_to_end: Callable[[Callable[[], object]], None],
        emit_again: Callable[[], None],
    ) -> None:
        """`read_to_end` has its argument called when the version log was read to the end that it has from now on."""
        self._name = name
        self._lease = lease
        self._read_to_end = read_to_end
        self._emit_again = emit_again
        self._loop = asyncio.get_running_loop()
        self._emission: Emission | None = None
        self._returned = -float("inf")  # when the newest beat was sent that has come back
        self._sent: dict[int, float] = {}  # beats on the way
        self._timer: asyncio.TimerHandle | None = None

    def may_emit(self) -> bool:
        """Whether messages may leave now. After a False `emit_again` is called once they may, unless the reign ends.

        So the right lapses here, where the loop was too busy to see its end: the next thing that it hears may be beats
        that came back in time, and were told late. They would prolong a right that nobody else knows to have lapsed.
        """
        emission = self._emission
        if emission is None:
            return False
        now = self._loop.time()
        self._obey(emission.advance(now))
        return emission.may_emit(now)

    def begin(self, epoch: int) -> None:
        """Begin a reign: its base was just read."""
        self._emission = Emission(self._lease, epoch, self._returned)
        self._wake_in_time()

    def end(self) -> None:
        """End the reign."""
        self._emission = None
        self._wake_in_time()

    def sent(self, at: float, sequence: int) -> None:
        """Note that a beat is about to be handed over."""
        self._sent[sequence] = at
        if len(self._sent) > _KEPT:
            del self._sent[next(iter(self._sent))]
        if self._emission is not None:
            self._emission.beat_sent(at, sequence)

    def returned(self, at: float, sequence: int) -> None:
        """Note that a beat was read back."""
        self._returned = max(self._returned, self._sent.pop(sequence, self._returned))
        if self._emission is not None:
            self._obey(self._emission.beat_returned(at, sequence))
            self._wake_in_time()

    def fenced(self, epoch: int) -> None:
        """Note a fence that counts."""
        if self._emission is not None:
            self._obey(self._emission.fenced(epoch))

    def _obey(self, orders: list[Order]) -> None:
        emission = self._emission
        for order in orders:
            if emission is None or emission is not self._emission:
                return
            if order is Order.CHECK:
                self._read_to_end(partial(self._checked, emission, emission.checks))
            elif order is Order.GO_ON:
                log.warning("%s: emits again, as the log has no newer reign", self._name)
                self._emit_again()
            elif order is Order.STOP:
                log.warning("%s: stops emitting, as its beats do not come back", self._name)

    def _checked(self, emission: Emission, check: int) -> None:
        if emission is self._emission:
            self._obey(emission.checked(self._loop.time(), check))

    def _wake_in_time(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wake = self._emission.next_wake() if self._emission is not None else None
        if wake is not None:
            self._timer = self._loop.call_at(wake, self._over)

    def _over(self) -> None:
        self._timer = None
        if self._emission is not None:
            self._obey(self._emission.advance(self._loop.time()))
            self._wake_in_time()
