"""One partition that a `KafkaLog` reads: what its follower is told, and what the log's thread knows of it.

A follower is called through its `post`, in order; without one it is called on the thread. Only the thread uses what
begins with `t_`.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from confluent_kafka import OFFSET_BEGINNING

from spillway.lineage.errors import BrokerError
from spillway.lineage.ports import Following

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway.lineage.ports import Bounds, Record, Since, Slot

    Post = Callable[..., object]  # (call, *arguments): makes the call later, in order, on the follower's thread

log = logging.getLogger(__name__)


def weight(records: Sequence[Record]) -> int:
    """Return how much records take of what may wait to be accepted: 1 each, and 1 for each 8 KiB."""
    return sum(1 + (len(record.value or b"") >> 13) for record in records)


class Thread(Protocol):
    """The calls that a following makes on the log's thread."""

    def call(self, call: Callable[[], object]) -> None: ...
    def stop(self, following: KafkaFollowing) -> None: ...
    def release(self, following: KafkaFollowing) -> None: ...
    def pause(self, following: KafkaFollowing, *, paused: bool) -> None: ...
    def wait(self, following: KafkaFollowing, then: Callable[[int], object]) -> None: ...
    def accepted(self, following: KafkaFollowing, weight: int) -> None: ...


class KafkaFollowing(Following):
    """One partition that is followed."""

    def __init__(
        self,
        thread: Thread,
        post: Post | None,
        slot: Slot,
        start: int | Since | None,
        accept: Callable[[Sequence[Record]], object],
        cut: Callable[[Bounds], object] | None,
        trouble: Callable[[BrokerError], object] | None,
    ) -> None:
        self.slot, self.start = slot, start
        self.position = start if isinstance(start, int) else 0
        self.stopped = False
        self.t_read: int = start if isinstance(start, int) else OFFSET_BEGINNING
        self.t_open = False  # whether the consumer reads it
        self.t_waiting = 0  # the weight of what was handed over and not accepted yet
        self.t_held = False  # whether nothing more is read until these are accepted
        self.t_paused = False
        self.t_error: BrokerError | None = None  # why it is not read, where time does not heal it
        self._waiters: list[tuple[int, Callable[[int], object]]] = []  # with the end to reach
        self._reported = ""
        self._thread = thread
        self._post = post
        self._accept = accept
        self._cut = cut
        self._trouble = trouble

    def when_read(self, then: Callable[[int], object]) -> None:
        self._thread.call(partial(self._thread.wait, self, then))

    def stop(self) -> None:
        if not self.stopped:
            self.stopped = True
            self._thread.call(partial(self._thread.stop, self))
            self._thread.release(self)

    def pause(self) -> None:
        self._thread.call(partial(self._thread.pause, self, paused=True))

    def resume(self) -> None:
        self._thread.call(partial(self._thread.pause, self, paused=False))

    # The thread's ----------------------------------------------------------------------------------------------

    def t_hand_over(self, records: Sequence[Record]) -> None:
        """Pass a bunch, which may be empty, to the follower, and call those who waited for it."""
        self.t_waiting += weight(records)
        self._reported, self.t_error = "", None
        self._tell(self._take, records, self.t_read)
        for end, then in tuple(self._waiters):
            if self.t_read >= end:
                self._waiters.remove((end, then))
                self._tell(then, end)

    def t_reach(self, end: int, then: Callable[[int], object]) -> None:
        if self.t_read >= end:
            self._tell(then, end)
        else:
            self._waiters.append((end, then))

    def t_refuse(self, then: Callable[[int], object]) -> None:
        """Call a waiter whose end is not going to be read with the position, unless that is for an error."""
        if self.t_error is None:
            self._tell(lambda: then(self.position))

    def t_end(self) -> None:
        """Refuse all waiters, as nothing more is read."""
        for _, then in self._waiters:
            self.t_refuse(then)
        self._waiters.clear()

    def t_lacks(self, bounds: Bounds) -> None:
        """Report that the log does not have the next offset."""
        if self._cut is not None:
            self._tell(self._deliver, self._cut, bounds)
            return
        topic, partition = self.slot
        self.t_fail(BrokerError(f"{topic}[{partition}] has offsets {bounds.start} to {bounds.end}, not {self.t_read}"))

    def t_fail(self, error: BrokerError) -> None:
        """Report an error that time does not heal; who waits, or will wait, is not called."""
        self.t_report(error)
        self.t_error = error
        self._waiters.clear()

    def t_report(self, error: BrokerError) -> None:
        """Report what keeps the partition from being read, unless it was reported last."""
        if self._trouble is not None and str(error) != self._reported:
            self._reported = str(error)
            self._tell(self._deliver, self._trouble, error)

    def _tell(self, call: Callable[..., object], *arguments: Any) -> None:
        if self._post is None:
            call(*arguments)
            return
        try:
            self._post(call, *arguments)
        except RuntimeError as error:  # the follower's loop is closed
            log.debug("the follower of %s is gone: %s", self.slot[0], error)

    # Through `post` --------------------------------------------------------------------------------------------

    def _take(self, records: Sequence[Record], position: int) -> None:
        try:
            if not self.stopped:
                if records:
                    self._accept(records)
                self.position = max(self.position, position)
        finally:
            self._thread.call(partial(self._thread.accepted, self, weight(records)))

    def _deliver(self, call: Callable[[Any], object], what: Any) -> None:
        if not self.stopped:
            call(what)
