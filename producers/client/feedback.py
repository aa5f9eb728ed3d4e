"""Feedback: truths for a pipeline's learners, each sent once under an id of its own and acknowledged once."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from spillway.lineage.errors import BrokerError, SpillwayError, UsageError
from spillway.lineage.flags import KEYS, REQUEST
from spillway.lineage.headers import decode
from spillway.lineage.message import PREDICTION, Outcome
from spillway.lineage.tokens import Token
from spillway.producers.client.exchange import ClientClosedError, Exchange, Replies
from spillway.producers.client.queries import QueryMaker
from spillway.producers.kafka.records import header_pairs
from spillway.topology import names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.lineage.message import Value
    from spillway.producers.connection import ClientSettings
    from spillway.topology.spec import PipelineSpec

_DEADLINE: Final = 10.0  # of an observation, which no learner drops
_STORED: Final = 30.0  # seconds for the broker to take one
_POLL: Final = 0.01


class Feedback:
    """One observation that the broker has; a learner takes it once, however often it is sent."""

    stays = False

    def __init__(self, learner: str, request_id: str) -> None:
        self.learner = learner
        self.id = request_id
        self.has = threading.Event()  # the broker has it, or never will
        self._future: Future[tuple[Outcome, Token | None]] = Future()
        self._token: Token | None = None

    def outcome(self, timeout: float | None = None) -> Outcome:
        """What the learner answered; waits for it. Raises OutcomeTimeoutError as a query does: for a repeat, always."""
        return self._future.result(timeout)[0]

    def token(self, timeout: float | None = None) -> Token:
        """The version of the learner's state that has it, for queries `after` it; waits as `outcome` does.

        Raises SpillwayError where the learner did not take it.
        """
        outcome, token = self._future.result(timeout)
        if outcome.kind != PREDICTION or token is None:
            raise SpillwayError(
                f"{self.learner} did not accept {self.id}: {outcome.kind}, {outcome.reason} {outcome.text}"
            )
        return token

    def failure(self) -> BaseException | None:
        return self._future.exception() if self._future.done() else None

    # The exchange's waiter

    def stored(self) -> None:
        self.has.set()

    def released(self, message: Any) -> None:
        hop = decode(header_pairs(message) or []).hop
        marks = () if hop is None else hop.marks
        self._token = next((Token(self.learner, mark.shard, *_pair(mark.version)) for mark in marks), None)

    def answered(self, outcome: Outcome, at: float) -> None:  # noqa: ARG002 - the load generator wants `at`
        self._future.set_result((outcome, self._token))
        self.has.set()

    def failed(self, error: SpillwayError) -> None:
        self._future.set_exception(error)
        self.has.set()


def _pair(version: Any) -> tuple[int, int]:
    return version.epoch, version.n


class Learners:
    """A client's ways to the learners of its pipeline, each connected when it is first used. For any threads."""

    def __init__(
        self,
        pipeline: str | PipelineSpec,
        settings: ClientSettings,
        *,
        grace: float,
        timeout: float,
        replies: Replies,
    ) -> None:
        self._pipeline = pipeline
        self._settings = settings
        self._grace = grace
        self._timeout = timeout
        self._replies = replies
        self._lock = threading.Lock()
        self._ways: dict[str, tuple[QueryMaker, Exchange]] = {}
        self._closed = False

    def send(
        self,
        learner: str,
        of: Outcome | str,
        truth: Value,
        *,
        inputs: Mapping[str, Value] | None,
        feedback_id: str | None,
    ) -> Feedback:
        """See `Client.feedback`."""
        key, request_id, told = _about(learner, of)
        queries, exchange = self._way(learner)
        chosen = feedback_id or (f"{request_id}/{learner}" if request_id else None)
        query = queries.prepare({**told, **(inputs or {}), "truth": truth}, None, None, chosen, key, None, None)
        mine = Feedback(learner, query.request_id.decode())
        feedback = exchange.send(query.headers, query.key, query.value, expires=query.expires, waiter=mine)
        if not isinstance(feedback, Feedback):
            raise TypeError(f"{feedback!r} waits for {query.request_id!r}, but is not feedback")
        until = time.monotonic() + _STORED
        while not feedback.has.is_set() and time.monotonic() < until:
            exchange.serve(_POLL)
        if (failure := feedback.failure()) is not None:
            raise failure
        if not feedback.has.is_set():
            raise BrokerError(f"no broker accepted {feedback.id} within {_STORED:g} s")
        return feedback

    def close(self) -> None:
        with self._lock:
            self._closed = True
            ways, self._ways = self._ways, {}
        for _, exchange in ways.values():
            exchange.close()

    def _way(self, learner: str) -> tuple[QueryMaker, Exchange]:
        with self._lock:
            if self._closed:
                raise ClientClosedError("the client is closed")
            if learner not in self._ways:
                queries = self._queries(learner)
                exchange = Exchange(
                    self._settings,
                    queries.pipeline,
                    timeout=self._timeout,
                    limits=queries.limits,
                    reports=True,
                    replies=self._replies,
                )
                self._ways[learner] = queries, exchange
            return self._ways[learner]

    def _queries(self, learner: str) -> QueryMaker:
        pipeline = self._pipeline
        if isinstance(pipeline, str):
            return QueryMaker(names.learner(pipeline, learner), slo=_DEADLINE, grace=self._grace)
        known = [each.name for each in pipeline.learners]
        if learner not in known:
            raise UsageError(
                f"pipeline {pipeline.name!r} has no learner {learner!r:.80}; {names.meant(learner, known)}"
            )
        own = pipeline.model_copy(update={"name": names.learner(pipeline.name, learner)})
        return QueryMaker(own, slo=_DEADLINE, grace=self._grace)


def _about(learner: str, of: Outcome | str) -> tuple[str, str, dict[str, Any]]:
    """Whose state an observation is about, which query's outcome it is on, and what the learner hears of that."""
    if isinstance(of, str):
        return of, "", {}
    for said in of.flags.values():
        keys = said.get(KEYS) if isinstance(said, dict) else None
        if isinstance(keys, dict) and learner in keys:
            return str(keys[learner]), str(said.get(REQUEST, "")), {"outputs": of.outputs, "flags": of.flags}
    raise UsageError(
        f"the outcome does not mention {learner!r}: no stage that made it reads a table of that learner; give the key"
    )
