"""What the processes of stages have in common when they begin, and how they say why they cannot go on."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import KafkaException

from spillway.agents.live.consumer.app import FaustInput
from spillway.agents.live.groups import Membership
from spillway.agents.run.inputs import writes_transactions
from spillway.agents.workers.forks import ours_of_loop
from spillway.lineage.errors import BrokerError, SpillwayError

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.live.consumer.app import StageApp
    from spillway.agents.live.stage.config import StageProcessConfig


log = logging.getLogger(__name__)

POLL: Final = 0.02  # seconds between two looks at what is left
_LAST_COMMIT: Final = 5.0
_LEFT: Final = 2.0  # seconds for what the interpreter waits for at its end
END: Final = 10.0  # seconds for everything after draining; then the process ends in any case


def ending(code: int) -> int:
    """Return an exit code, and see that the process ends with it, whatever threads and children a model has left."""
    _end_within(_LEFT, code)
    return code


def _end_within(seconds: float, code: int) -> None:
    timer = threading.Timer(seconds, os._exit, (code,))
    timer.daemon = True
    timer.start()


class Serving:
    """How the process of a stage serves until it is told to stop, finishes what it took, and leaves its group."""

    def __init__(self, config: StageProcessConfig) -> None:
        self._config = config
        self._stop = asyncio.Event()
        self._stop_now = asyncio.Event()
        self._bounded = False

    def _membership(self, group: str, instance: str, reads: Callable[[int], bool] | None = None) -> Membership:
        config, count = self._config, self._config.pipeline.spec.partitions

        def reads_planned(partition: int) -> bool:
            """Whether it is to be read: what came by a partition that was added since could be sent nowhere."""
            if partition < count:
                return reads is None or reads(partition)
            log.error(
                "%s[%d] is not read: the pipeline has %d partitions; delete its topics, with all that is in them "
                "('spillway broker topics delete'), or serve it under another name",
                *(config.topic, partition, count),
            )
            return False

        return Membership(
            group=group,
            instance=instance,
            settings=config.settings,
            committed_alone=transacted(config),
            session=config.session,
            heartbeat=config.heartbeat,
            reads=reads_planned,
        )

    def _bound(self) -> None:
        """End the process in time, whatever hangs from now on: its orchestrator counts on it."""
        if not self._bounded:
            self._bounded = True
            _end_within(self._config.drain + END, 1)

    def _hear_signals(self) -> None:
        loop = asyncio.get_running_loop()
        ours_of_loop(loop)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._told_to_stop)

    def _told_to_stop(self) -> None:
        if self._stop.is_set():
            self._stop_now.set()
        self._stop.set()

    async def _until_stopped(
        self, app: StageApp, starting: asyncio.Task[None], failed: asyncio.Future[None], began: Callable[[], None]
    ) -> None:
        """Serve, calling `began` when that begins. Raises SpillwayError where something cannot go on.

        So does what a callback of the loop raises: asyncio would log it and go on, and what it was to do never be done.
        """

        def broken(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            loop.default_exception_handler(context)
            if "handle" in context and not failed.done():
                failed.set_exception(context["exception"])

        asyncio.get_running_loop().set_exception_handler(broken)
        stop = asyncio.create_task(self._stop.wait())
        crash = asyncio.create_task(app._crashed.wait())  # noqa: SLF001 - mode offers no other way to hear of it
        try:
            await asyncio.wait([starting, stop, crash, failed], return_when=asyncio.FIRST_COMPLETED)
            if starting.done() and not starting.cancelled() and starting.exception() is None:
                began()
                await asyncio.wait([stop, crash, failed], return_when=asyncio.FIRST_COMPLETED)
            for what in (failed, starting):
                if what.done() and not what.cancelled() and (error := what.exception()) is not None:
                    raise as_failure(error)
            if crash.done():
                raise as_failure(app.crash_reason)
        finally:
            for task in (stop, crash):
                task.cancel()

    async def _finish(
        self,
        app: StageApp,
        failed: asyncio.Future[None],
        *,
        stop_taking: Callable[[], None],
        settled: Callable[[], bool],
    ) -> bool:
        """Take nothing more, finish what was taken, and commit it, within the bound; False if something is left."""
        self._bound()
        until = time.monotonic() + self._config.drain
        stop_taking()
        app.stage_consumer.close_flow()
        while not settled() and not self._stop_now.is_set() and time.monotonic() < until:
            await asyncio.sleep(POLL)
            if failed.done():
                raise as_failure(failed.exception())
        drained = settled()
        with contextlib.suppress(TimeoutError):  # what is not committed is done again
            await asyncio.wait_for(app.stage_consumer.force_commit(), _LAST_COMMIT)
        return drained

    async def _end_app(self, app: StageApp) -> None:
        """Stop reading. A process that stops for good leaves its group; one that failed keeps its place in it."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(FaustInput(app).close(leave=self._stop.is_set()), END / 2)


# A stage keeps tens of thousands of small objects (ids of queries, offsets) and makes hardly any cycles; with Python's
# own thresholds a quarter of its time goes into looking through them.
_GC_THRESHOLDS = (10_000, 20, 50)


def nothing_taken(_number: int, _frame: object) -> None:
    """End at once: before the process joins its group there is nothing to drain."""
    raise SystemExit(0)


def look_through_rarely() -> None:
    """What has been loaded stays: no collection of garbage need look at it again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def as_failure(error: BaseException | None) -> SpillwayError:
    if isinstance(error, SpillwayError):
        return error
    if isinstance(error, KafkaException):
        return BrokerError(f"Kafka: {error.args[0].str()}")
    return SpillwayError(f"{type(error).__name__}: {error}")


def transacted(config: StageProcessConfig) -> bool:
    return writes_transactions(config.pipeline.spec, config.pipeline.graph.predecessors[config.stage])
