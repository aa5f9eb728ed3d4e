"""One partition that a `KafkaLog` reads: what its follower is told, and what the log's thread knows of it.

What a follower is told goes through its `post`, in order; without one it is called on the thread. What begins with
`t_` is the thread's alone.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from confluent_kafka import OFFSET_BEGINNING

from spillway.lineage.errors import BrokerError
from spillway.lineage.ports import Following

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway.lineage.ports import Bounds, Record, Since, Slot

    Post = Callable[..., object]  # (call, *arguments): has it called, in order, by whom it is for

log = logging.getLogger(__name__)


class Wish(NamedTuple):
    """Who wants to know that a partition was read to the end that it has from now on."""

    then: Callable[[int], object]
    failed: Callable[[BrokerError], object]


class Thread(Protocol):
    """What a following asks of the log's thread, from any."""

    def call(self, call: Callable[[], object]) -> None: ...
    def stop(self, following: KafkaFollowing) -> None: ...
    def release(self, following: KafkaFollowing) -> None: ...
    def rest(self, following: KafkaFollowing, *, resting: bool) -> None: ...
    def wish(self, following: KafkaFollowing, wish: Wish) -> None: ...
    def accepted(self, following: KafkaFollowing) -> None: ...


class KafkaFollowing(Following):
    """One partition that is followed, by whoever `post` calls."""

    def __init__(
        self,
        thread: Thread,
        post: Post | None,
        slot: Slot,
        start: int | Since | None,
        accept: Callable[[Sequence[Record]], object],
        end: int | None,
        cut: Callable[[Bounds], object] | None,
        trouble: Callable[[BrokerError], object] | None,
    ) -> None:
        self.slot, self.start, self.end = slot, start, end
        self.position = start if isinstance(start, int) else 0
        self.stopped = False
        self.t_read: int = start if isinstance(start, int) else OFFSET_BEGINNING
        self.t_open = False  # whether the consumer reads it
        self.t_waiting = 0  # bunches that were handed over and not accepted yet
        self.t_held = False  # whether it is paused, as these wait
        self.t_resting = False
        self.t_error: BrokerError | None = None  # why it is not read, where time does not heal it
        self._wishes: list[tuple[int, Wish]] = []  # with the end to reach
        self._said = ""
        self._thread = thread
        self._post = post
        self._accept = accept
        self._cut = cut
        self._trouble = trouble

    def when_read(self, then: Callable[[int], object]) -> None:
        self._wish(Wish(then, lambda _error: None))

    async def caught_up(self) -> int:
        if self.stopped:
            return self.position
        read: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def reached(end: int) -> None:
            if not read.done():
                read.set_result(end)

        def failed(error: BrokerError) -> None:
            if not read.done():
                read.set_exception(error)

        self._wish(Wish(reached, failed))
        return await read

    def stop(self) -> None:
        if not self.stopped:
            self.stopped = True
            self._thread.call(partial(self._thread.stop, self))
            self._thread.release(self)

    def rest(self) -> None:
        self._thread.call(partial(self._thread.rest, self, resting=True))

    def look(self) -> None:
        self._thread.call(partial(self._thread.rest, self, resting=False))

    def _wish(self, wish: Wish) -> None:
        self._thread.call(partial(self._thread.wish, self, wish))

    # The thread's ----------------------------------------------------------------------------------------------

    def t_hand_over(self, records: Sequence[Record]) -> None:
        """Have a bunch accepted, which may be empty, and tell who waited for it."""
        self.t_waiting += 1
        self._said, self.t_error = "", None
        self._tell(self._take, records, self.t_read)
        for end, wish in tuple(self._wishes):
            if self.t_read >= end:
                self._wishes.remove((end, wish))
                self._tell(wish.then, end)

    def t_reach(self, end: int, wish: Wish) -> None:
        if self.t_read >= end:
            self._tell(wish.then, end)
        else:
            self._wishes.append((end, wish))

    def t_refuse(self, wish: Wish) -> None:
        """Answer a wish that no reading will: with what is wrong, or else with the position."""
        if self.t_error is None:
            self._tell(lambda: wish.then(self.position))
        else:
            self._tell(wish.failed, self.t_error)

    def t_end(self) -> None:
        """Answer all who wait, as nothing more is read."""
        for _, wish in self._wishes:
            self.t_refuse(wish)
        self._wishes.clear()

    def t_lacks(self, bounds: Bounds) -> None:
        """Say that the log does not have what comes next."""
        if self._cut is not None:
            self._tell(self._told, self._cut, bounds)
            return
        topic, partition = self.slot
        self.t_fail(BrokerError(f"{topic}[{partition}] has offsets {bounds.start} to {bounds.end}, not {self.t_read}"))

    def t_fail(self, error: BrokerError) -> None:
        """Say what keeps the partition from being read, and time does not heal, where somebody waits, or will."""
        self.t_say(error)
        self.t_error = error
        self.t_end()

    def t_say(self, error: BrokerError) -> None:
        """Say what keeps the partition from being read, unless that was said last."""
        if self._trouble is not None and str(error) != self._said:
            self._said = str(error)
            self._tell(self._told, self._trouble, error)

    def _tell(self, call: Callable[..., object], *arguments: Any) -> None:
        if self._post is None:
            call(*arguments)
            return
        try:
            self._post(call, *arguments)
        except RuntimeError as error:  # a loop that is closed
            log.debug("nobody hears of %s any more: %s", self.slot[0], error)

    # Through `post` --------------------------------------------------------------------------------------------

    def _take(self, records: Sequence[Record], position: int) -> None:
        try:
            if not self.stopped:
                if records:
                    self._accept(records)
                self.position = max(self.position, position)
        finally:
            self._thread.call(partial(self._thread.accepted, self))

    def _told(self, call: Callable[[Any], object], what: Any) -> None:
        if not self.stopped:
            call(what)
