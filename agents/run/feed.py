"""What a primary still has to take of its input: the tail of a promotion first, then what is read, in that order.

Records are decoded a few at a time, so that the loop gets to do something else, and only while the core and the
output have room. Nothing that waits here is lost with the reign: it lies in the member's tail as well, or can be read
again. Whoever reads for it asks how many bytes wait (`waiting`).
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from spillway.agents.run.emission import about
from spillway.agents.run.intake import PoisonError
from spillway.lineage import reasons

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spillway.agents.core.stage import StageCore
    from spillway.agents.metrics import StageMetrics
    from spillway.agents.run.intake import Intake
    from spillway.lineage.ports import Clock, Record

log = logging.getLogger(__name__)

_AT_ONCE = 32  # records decoded before the loop gets to do something else


class Feed:
    """Delivers records to one reign's core."""

    def __init__(
        self,
        core: StageCore,
        intake: Intake,
        *,
        clock: Clock,
        metrics: StageMetrics,
        reload_schemas: Callable[[], bool],
        may_take: Callable[[], bool],
        delivered: Callable[[], None],
        crashed: Callable[[BaseException], None],
    ) -> None:
        """`delivered` is called after each bunch; `reload_schemas` looks for unknown schemas, off the loop."""
        self._core = core
        self._intake = intake
        self._clock = clock
        self._metrics = metrics
        self._reload_schemas = reload_schemas
        self._may_take = may_take
        self._delivered = delivered
        self._crashed = crashed
        self._loop = asyncio.get_running_loop()
        self._queue: deque[Record] = deque()
        self.waiting = 0  # bytes of values
        self._scheduled = False
        self._retrying: asyncio.Task[None] | None = None
        self._stopped = False

    def add(self, records: Iterable[Record]) -> None:
        """Take records, each of a partition of the shard, in offset order within each."""
        for record in records:
            self._queue.append(record)
            self.waiting += len(record.value or b"")
        self.go_on()

    def go_on(self) -> None:
        """Deliver as far as there is room; called when there may be some again."""
        if self._queue and not self._scheduled and not self._stopped and self._retrying is None and self._may_take():
            self._scheduled = True
            self._loop.call_soon(self._deliver_some)

    def stop(self) -> None:
        self._stopped = True
        self._queue.clear()
        self.waiting = 0

    def __len__(self) -> int:
        return len(self._queue)

    def _deliver_some(self) -> None:
        self._scheduled = False
        queue = self._queue
        for _ in range(min(_AT_ONCE, len(queue))):
            if self._stopped or not self._may_take():
                break
            record = queue.popleft()
            self.waiting -= len(record.value or b"")
            if not self._deliver(record):
                self._retrying = self._loop.create_task(self._retry(record))
                break
        self._delivered()
        self.go_on()

    def _deliver(self, record: Record) -> bool:
        now = self._clock.now()
        try:
            self._core.deliver(now, self._intake.part(record) if record.stripped else self._intake.delivery(record))
        except PoisonError as poison:
            if poison.reason == reasons.UNKNOWN_SCHEMA:
                return False
            self._fail(record, poison)
        took = now - record.timestamp / 1000
        self._metrics.intake.observe(took)
        self._metrics.transfer.hear(now, took)
        return True

    async def _retry(self, record: Record) -> None:
        try:
            await self._loop.run_in_executor(None, self._reload_schemas)
            if self._stopped:
                return
            try:
                self._core.deliver(self._clock.now(), self._intake.delivery(record))
            except PoisonError as poison:
                self._fail(record, poison)
            self._retrying = None
            self._delivered()
            self.go_on()
        except Exception as error:  # noqa: BLE001 - without this record nothing behind it may be taken
            self._crashed(error)

    def _fail(self, record: Record, poison: PoisonError) -> None:
        where = f"{record.topic}[{record.partition}] offset {record.offset}"
        log.warning("%s is poison (%s): %s", where, poison.reason, poison, extra=about(poison.delivery))
        self._core.fail(self._clock.now(), poison.delivery, poison.reason, str(poison))
