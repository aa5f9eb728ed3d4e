"""How many connections are open, and which one has to go where they are too many.

A connection that stands idle, or whose request does not come to its end, gives way to others: those that were never
answered first, then those whose last answer is the oldest. One whose request has come is let be.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from spillway.agents.gateway.receiving import READ
from spillway.agents.gateway.statuses import TOO_MANY, RefusedError

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECTIONS: Final = 1_000
_PERIOD: Final = 0.5
_FILES: Final = 4 * CONNECTIONS  # open ones: more may come within a period, and Kafka has some


class Connections:
    """The connections of one server, counted twice a second."""

    def __init__(self, most: int = CONNECTIONS) -> None:
        self._most = most
        self._requests: dict[Any, web.Request] = {}  # by connection
        self._answered: dict[Any, float] = {}  # when each connection last had an answer
        self._watching: asyncio.Task[None] | None = None

    @contextmanager
    def answering(self, request: web.Request) -> Iterator[None]:
        """Count a request while it is read and answered. Raises RefusedError where there are too many."""
        if len(self._requests) >= self._most:
            raise RefusedError(TOO_MANY, f"{self._most} requests are being answered; try again later")
        connection = request.protocol
        self._requests[connection] = request
        try:
            yield
        finally:
            del self._requests[connection]
            if request.transport is not None:
                self._answered[connection] = time.monotonic()

    def watch(self, runner: web.AppRunner) -> None:
        """Keep a server's connections within their bound from now on."""
        self._watching = asyncio.create_task(self._watch(runner))

    def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self, runner: web.AppRunner) -> None:
        while runner.server is not None:
            self.shed(runner.server.connections)
            await asyncio.sleep(_PERIOD)

    def shed(self, connections: list[Any]) -> None:
        """Close those of the connections, oldest first, that have to give way."""
        there = set(connections)
        self._answered = {each: at for each, at in self._answered.items() if each in there}
        idle = [each for each in connections if READ not in self._requests.get(each, ())]
        idle.sort(key=lambda each: self._answered.get(each, 0.0))
        for connection in idle[: max(0, len(connections) - self._most)]:
            connection.force_close()


def allow_files() -> None:
    """Raise this process's limit of open files to what its connections need; the usual 1,024 are too few."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def quiet_logger() -> logging.Logger:
    """Return aiohttp's logger, without a traceback for each request that is not HTTP."""
    logger = logging.getLogger("aiohttp.server")
    logger.addFilter(_is_ours)
    return logger


def _is_ours(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError | ConnectionError)
