"""What the clients for threads and for asyncio have in common: what they are made of, and how a query is sent."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, TypeVar

from spillway.producers.client.exchange import ALL, Exchange, Replies, Waiter
from spillway.producers.client.feedback import Learners
from spillway.producers.client.queries import CONNECT_SECONDS, GRACE, IN_FLIGHT, Prepared, QueryMaker, cluster_of

if TYPE_CHECKING:
    import asyncio
    import threading

    from spillway.producers.connection import ClientSettings
    from spillway.topology.load import Pipeline
    from spillway.topology.spec import PipelineSpec

_Promise = TypeVar("_Promise", bound=Waiter)


class Base(ABC):
    """A pipeline's client, as `Client` has it."""

    _room: threading.Semaphore | asyncio.Semaphore

    def __init__(
        self,
        pipeline: str | Pipeline | PipelineSpec,
        settings: ClientSettings | str | None = None,
        *,
        slo: float | None = None,
        grace: float = GRACE,
        in_flight: int = IN_FLIGHT,
        linger: float = 0.0,
        timeout: float = CONNECT_SECONDS,
        replies: Replies = ALL,
    ) -> None:
        self._settings = settings = cluster_of(settings)
        self._queries = QueryMaker(pipeline, slo=slo, grace=grace)
        name, limits = self._queries.pipeline, self._queries.limits
        self._connect = functools.partial(
            Exchange, settings, name, linger=linger, timeout=timeout, limits=limits, replies=replies
        )
        own = self._queries.spec or name
        self._learners = Learners(own, settings, grace=grace, timeout=timeout, replies=replies)
        self._begin(in_flight)

    @abstractmethod
    def _begin(self, in_flight: int) -> None:
        """Make room for so many queries in flight."""

    def _send(self, exchange: Exchange, query: Prepared, promise: _Promise) -> _Promise:
        """Send a query, and return who waits for it: somebody else, where its id was sent in the meantime."""
        there = exchange.send(
            query.headers, query.key, query.value, expires=query.expires, waiter=promise, hint=query.hint
        )
        if there is not promise:
            self._room.release()
        if not isinstance(there, type(promise)):
            raise TypeError(f"{there!r} waits for {query.request_id!r}, but is not a promise of this client")
        return there
