"""What the clients for threads and for asyncio have in common: what they are made of, and how a query is sent."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from spillway.producers.client.exchange import ALL, Exchange, Replies
from spillway.producers.client.feedback import Learners
from spillway.producers.client.queries import CONNECT_SECONDS, GRACE, IN_FLIGHT, Prepared, QueryMaker, asked
from spillway.producers.connection import ClientSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spillway.lineage.errors import SpillwayError
    from spillway.lineage.message import Outcome, Value
    from spillway.topology.load import Pipeline
    from spillway.topology.spec import PipelineSpec

_Answer = TypeVar("_Answer")


class Promise:
    """A waiter with a future, which gives its room in flight back when it ends."""

    stays = False

    def __init__(self, query: Prepared, release: Callable[[], object]) -> None:
        self.future: Future[Outcome] = Future()
        self.future.set_running_or_notify_cancel()  # from here on it cannot be cancelled
        self._query = query
        self._release = release

    def answered(self, outcome: Outcome, at: float) -> None:
        self._release()
        self.future.set_result(self._query.received(outcome, at))

    def failed(self, error: SpillwayError) -> None:
        self._release()
        self.future.set_exception(error)


class Base(ABC, Generic[_Answer]):
    """A pipeline's client, as `Client` has it."""

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
        if not isinstance(settings, ClientSettings):  # an address, or None for what the environment names
            settings = ClientSettings.load(settings)
        self._settings = settings
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

    @abstractmethod
    def predict(self, *args: Any, **kwargs: Any) -> _Answer:
        """Run one query and return its outcome."""

    def online_query(
        self,
        inputs: Mapping[str, Value],
        *,
        app: str | None = None,
        latency: float | str | None = None,
        accuracy: float | str | None = None,
        model: str | None = None,
        variant: str | None = None,
        request_id: str | None = None,
        key: str | None = None,
    ) -> _Answer:
        """Run one query of an application with variants, by what it needs; returns its outcome as `predict` does.

        `latency` (seconds, or text as "50ms"; it becomes the deadline) and `accuracy` (at least; a share, or text as
        "95%"), or a `model` (an architecture), or one `variant`. The outcome's flags, under the stage's name, say which
        variant answered, its accuracy, what was asked, and whether it was `met`.

        Raises UsageError for needs that cannot be, and what `predict` raises.
        """
        parameters, deadline = asked(app, latency, accuracy, model, variant)
        return self.predict(inputs, parameters, deadline=deadline, request_id=request_id, key=key)

    def _send(self, exchange: Exchange, query: Prepared, release: Callable[[], object]) -> Promise:
        """Send a query, and return who waits for it: somebody else, where its id was sent in the meantime."""
        promise = Promise(query, release)
        there = exchange.send(query, promise)
        if there is not promise:
            release()
        if not isinstance(there, Promise):
            raise TypeError(f"{there!r} waits for {query.request_id!r}, but is not a promise of this client")
        return there
