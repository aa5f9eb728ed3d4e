"""The asyncio client of a pipeline; see `spillway.producers.client`, which also exports it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Coroutine
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from spillway.producers.client.base import Base, Promise
from spillway.producers.client.exchange import NO_ROOM, ClientClosedError, TooManyInFlightError
from spillway.producers.client.feedback import Truth
from spillway.producers.client.queries import WINDOW, asked, keyed
from spillway.producers.offline.job import CHUNK, Job

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping
    from concurrent.futures import Future

    from spillway.lineage.message import Outcome, Value
    from spillway.lineage.tokens import Token
    from spillway.lineage.trace import TraceContext
    from spillway.producers.client.exchange import Exchange
    from spillway.producers.client.feedback import Feedback
    from spillway.producers.offline.job import Progress


class _CancelledError(Exception):
    """The task that waits for an offline job was cancelled."""


class AsyncClient(Base[Coroutine[Any, Any, "Outcome"]]):
    """A pipeline's client on an asyncio event loop; the same as `Client` otherwise. An async context manager.

        async with AsyncClient("hello", settings, slo=0.4) as client:
            outcome = await client.predict({"name": "Ada"})

    It connects, without blocking the loop, when it is entered.
    """

    def _begin(self, in_flight: int) -> None:
        self._room = asyncio.Semaphore(in_flight)
        self._exchange: Exchange | None = None

    async def predict(
        self,
        inputs: Mapping[str, Value],
        parameters: Mapping[str, Value] | None = None,
        *,
        deadline: float | None = None,
        request_id: str | None = None,
        key: str | None = None,
        trace: TraceContext | None = None,
        headers: Mapping[str, str] | None = None,
        after: Token | None = None,
    ) -> Outcome:
        """Run one query and return its outcome; see `Client.predict`. Many may run at a time, as tasks.

        Waits for room while `in_flight` queries are out. A task that is cancelled stops waiting; its query goes on.
        """
        if self._exchange is None:
            raise ClientClosedError("use the client in an 'async with' block")
        query = self._queries.prepare(inputs, parameters, deadline, request_id, key, trace, headers, after)
        there = self._exchange.flying(query.request_id)
        if not isinstance(there, Promise):
            if self._room.locked():
                await self._wait_for_room(query.expires)
            else:
                await self._room.acquire()  # at once, and without a timer
            # Nothing else has run on this loop since `flying` but `acquire`, which may have waited.
            there = self._send(self._exchange, query, partial(self._release, asyncio.get_running_loop()))
        return await asyncio.wrap_future(there.future)

    async def offline_query(
        self,
        inputs_file: str | Path,
        outputs_file: str | Path,
        *,
        app: str | None = None,
        accuracy: float | str | None = None,
        model: str | None = None,
        variant: str | None = None,
        chunk: int = CHUNK,
        progress: Callable[[Progress], None] = lambda _: None,
    ) -> Progress:
        """Answer a file of queries in the time that online ones leave; see `Client.offline_query`.

        `progress` is called on the loop. A task that is cancelled ends the job; called again, it goes on where it was.
        """
        self._queries.require_home()
        parameters, _ = asked(app, None, accuracy, model, variant)
        loop, over = asyncio.get_running_loop(), threading.Event()

        def submit(inputs: Mapping[str, Value], parameters: Mapping[str, Value], /, **options: Any) -> Future[Outcome]:
            return asyncio.run_coroutine_threadsafe(self.predict(inputs, parameters, **options), loop)

        def heard(at: Progress) -> None:
            if over.is_set():
                raise _CancelledError
            loop.call_soon_threadsafe(progress, at)

        where = self._queries.pipeline, self._settings, self._queries.limits, submit
        job = Job(*where, parameters=parameters, chunk=chunk, progress=heard)
        running = asyncio.create_task(asyncio.to_thread(job.run, Path(inputs_file), Path(outputs_file)))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            over.set()
            with contextlib.suppress(_CancelledError):
                await running
            raise

    async def outcomes(
        self,
        queries: Iterable[Mapping[str, Value]],
        *,
        key: Callable[[Mapping[str, Value]], str] | None = None,
        deadline: float | None = None,
        window: int = WINDOW,
    ) -> AsyncIterator[tuple[int, Outcome]]:
        """Run many queries, `window` at a time; yield each one's index and outcome. See `Client.outcomes`."""
        running: set[asyncio.Task[tuple[int, Outcome]]] = set()
        waiting = keyed(queries, key)

        async def run(index: int, inputs: Mapping[str, Value], key: str | None) -> tuple[int, Outcome]:
            return index, await self.predict(inputs, deadline=deadline, key=key)

        try:
            while True:
                for each in islice(waiting, max(1, window) - len(running)):
                    running.add(asyncio.create_task(run(*each)))
                if not running:
                    return
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        finally:
            for task in running:
                task.cancel()

    async def feedback(
        self,
        learner: str,
        of: Outcome | str,
        truth: Value,
        *,
        inputs: Mapping[str, Value] | None = None,
        feedback_id: str | None = None,
    ) -> Feedback:
        """Send a learner a truth; see `Client.feedback`."""
        self._queries.require_home()
        return await asyncio.to_thread(self._learners.send, learner, Truth(of, truth, inputs, feedback_id))

    async def feedback_many(self, learner: str, truths: Iterable[Truth | tuple[Any, ...]]) -> list[Feedback]:
        """Send a learner many truths; see `Client.feedback_many`."""
        self._queries.require_home()
        return await asyncio.to_thread(self._learners.send_many, learner, truths)

    async def close(self) -> None:
        """Let the cluster go; whoever still waits gets `ClientClosedError`. Closing twice, or in a fork, is fine."""
        if self._queries.forked:
            return
        await asyncio.to_thread(self._learners.close)
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            await asyncio.to_thread(exchange.close)

    async def __aenter__(self) -> Self:
        if self._exchange is None:
            self._queries.begin()  # whichever process it was made in
            self._learners.open()
        self._queries.require_home()
        self._exchange = await asyncio.to_thread(self._connect)
        self._queries.landing = self._exchange.landing
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()

    async def _wait_for_room(self, until: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, until - time.monotonic())):
                await self._room.acquire()
        except TimeoutError as error:
            raise TooManyInFlightError(NO_ROOM) from error

    def _release(self, loop: asyncio.AbstractEventLoop) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has closed: nobody is left who could wait
            loop.call_soon_threadsafe(self._room.release)
