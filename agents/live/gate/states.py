"""What the gate knows of states: the version logs, heard between two rounds.

The gate's thread waits for outcomes in short stretches while it holds some, so that what makes them durable is heard
within a millisecond. The logs are read to their ends whenever partitions come to the gate, after their committed
offsets were read: what the owner before knew to be dead, and committed past, must not count as taken.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from spillway.agents.live.clock import since_boot
from spillway.agents.live.states.worker import Mailbox
from spillway.agents.run.log_reader import LogsFeed
from spillway.lineage.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from spillway.agents.live.states.worker import Post
    from spillway.checkpoint.logs import Logs
    from spillway.lineage.errors import SpillwayError
    from spillway.lineage.marks import Place
    from spillway.lineage.ports import Log

_POLL: Final = 0.002
_WITHIN: Final = 120.0  # seconds for reading all logs to their ends


class GateStates:
    """The version logs of a pipeline, as its gate has heard them."""

    def __init__(
        self,
        log: Callable[[Post], Log],
        pipeline: str,
        places: Iterable[Place],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        """`log`: of whoever is told by a post."""
        self._sleep = sleep
        self._mailbox = Mailbox()
        self._changed = False
        self._failure: SpillwayError | None = None
        self._feed = LogsFeed(log(self._mailbox.post), pipeline, places, self._change, self._fail, now=since_boot)

    @property
    def logs(self) -> Logs:
        return self._feed.logs

    def news(self) -> bool:
        """Hear what was read; whether it may decide anything. Raises SpillwayError where nothing can be read any more.

        Call it in the gate's thread, between two rounds.
        """
        self._feed.reader.tick()
        self._mailbox.deliver()
        if self._failure is not None:
            raise self._failure
        changed, self._changed = self._changed, False
        return changed

    async def await_ends(self, stopping: Callable[[], bool]) -> None:
        """Read the logs to where they end now. Raises BrokerError where that takes too long."""
        await self._await(lambda: self._feed.ready or stopping())

    async def read_to_ends(self) -> None:
        """Read the logs to the ends that they have from now on. Raises BrokerError as `await_ends` does."""
        reached: list[bool] = []
        self._feed.reader.read_to_ends(lambda: reached.append(True))
        await self._await(lambda: bool(reached))

    def close(self) -> None:
        self._feed.reader.close()

    async def _await(self, done: Callable[[], bool]) -> None:
        until = time.monotonic() + _WITHIN
        while not done():
            if time.monotonic() >= until:
                raise BrokerError(f"the version logs could not be read to their ends within {_WITHIN:.0f} s")
            await self._sleep(_POLL)
            self.news()
        self._changed = True

    def _change(self) -> None:
        self._changed = True

    def _fail(self, error: SpillwayError) -> None:
        self._failure = error
