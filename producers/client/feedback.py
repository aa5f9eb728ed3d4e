"""Feedback: truths for a pipeline's learners, each sent once under an id of its own and acknowledged once."""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from concurrent.futures import Future
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from spillway.lineage.errors import BrokerError, SpillwayError, UsageError, WireError
from spillway.lineage.flags import KEYS, REQUEST
from spillway.lineage.headers import MOST_TRUTHS, TRUTHS, decode
from spillway.lineage.ids import MAX_REQUEST_ID, is_request_id
from spillway.lineage.keys import partition_for
from spillway.lineage.message import PREDICTION, Outcome
from spillway.lineage.tokens import Token
from spillway.producers.client.exchange import (
    NO_ROOM,
    ClientClosedError,
    Exchange,
    OutcomeTimeoutError,
    Replies,
    TooManyInFlightError,
)
from spillway.producers.client.queries import QueryMaker
from spillway.producers.kafka.records import header_pairs
from spillway.topology import names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spillway.lineage.message import Value
    from spillway.producers.connection import ClientSettings
    from spillway.topology.spec import PipelineSpec

_DEADLINE: Final = 10.0  # of an observation, which no learner drops
_STORED: Final = 30.0  # seconds for the broker to take one
_POLL: Final = 0.01
_MESSAGES: Final = 64  # of many truths that wait for their outcomes, of one client


class Feedback:
    """One observation that the broker has; a learner takes it once, however often it is sent."""

    stays = False

    def __init__(self, learner: str, request_id: str) -> None:
        self.learner = learner
        self.id = request_id
        self.has = threading.Event()  # the broker has it, or never will
        self._stored = False
        self._future: Future[tuple[Outcome, Token | None]] = Future()
        self._token: Token | None = None

    def accepted(self, timeout: float = _STORED) -> None:
        """Wait until the broker has it. Raises BrokerError, or why it was never sent."""
        if not self.has.wait(timeout):
            raise BrokerError(f"no broker accepted {self.id} within {_STORED:g} s")
        if not self._stored and self._future.done() and (failure := self._future.exception()) is not None:
            raise failure

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

    # The exchange's waiter

    def stored(self) -> None:
        self._stored = True
        self.has.set()

    def released(self, message: Any) -> None:
        self.rests_on(_token_in(self.learner, message))

    def rests_on(self, token: Token | None) -> None:
        self._token = token
        self.stored()

    def answered(self, outcome: Outcome, at: float) -> None:  # noqa: ARG002 - the load generator wants `at`
        self._future.set_result((outcome, self._token))
        self.has.set()

    def failed(self, error: SpillwayError) -> None:
        self._future.set_exception(error)
        self.has.set()


def _token_in(learner: str, message: Any) -> Token | None:
    hop = decode(header_pairs(message) or []).hop
    marks = () if hop is None else hop.marks
    return next((Token(learner, mark.shard, mark.version.epoch, mark.version.n) for mark in marks), None)


class Truth(NamedTuple):
    """What `Client.feedback` sends, as one of many; a plain tuple is one as well."""

    of: Outcome | str
    truth: Value
    inputs: Mapping[str, Value] | None = None
    feedback_id: str | None = None


class _Ready(NamedTuple):
    """A truth that can be sent, and its place in the call."""

    place: int
    feedback: Feedback
    wire: dict[str, Any]  # as `spillway.agents.run.truths` has it


class _Message:
    """The waiter for the outcome of a message of many truths."""

    stays = False

    def __init__(
        self, learner: str, truths: Sequence[_Ready], room: threading.Semaphore, decode: Callable[[bytes], Outcome]
    ) -> None:
        self._learner, self._truths, self._room, self._decode = learner, truths, room, decode

    def stored(self) -> None:
        for each in self._truths:
            each.feedback.stored()

    def released(self, message: Any) -> None:
        token = _token_in(self._learner, message)
        for each in self._truths:
            each.feedback.rests_on(token)

    def answered(self, outcome: Outcome, at: float) -> None:
        self._room.release()
        results: Any = outcome.outputs.get("results")
        for number, each in enumerate(self._truths):
            try:
                if results is not None and not results[number]:
                    text = f"{each.feedback.id} was sent before: it counts once, and is not acknowledged anew"
                    raise OutcomeTimeoutError(text, each.feedback.id)
                own = replace(outcome) if results is None else self._decode(results[number])
            except SpillwayError as error:
                each.feedback.failed(error)
                continue
            if own.kind != PREDICTION:
                own.text = f"truths[{each.place}]: {own.text}"
            each.feedback.answered(own, at)

    def failed(self, error: SpillwayError) -> None:
        self._room.release()
        for each in self._truths:
            each.feedback.failed(error)


class Learners:
    """A client's ways to the learners of its pipeline, each connected when it is first used. For any threads."""

    def __init__(
        self, pipeline: str | PipelineSpec, settings: ClientSettings, *, grace: float, timeout: float, replies: Replies
    ) -> None:
        self._pipeline = pipeline
        self._settings = settings
        self._grace = grace
        self._options: dict[str, Any] = {"timeout": timeout, "reports": True, "replies": replies}
        self._lock = threading.Lock()
        self._ways: dict[str, tuple[QueryMaker, Exchange]] = {}
        self._connecting: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)  # to a learner
        self._closed = False
        self._room = threading.Semaphore(_MESSAGES)

    def send(self, learner: str, each: Truth) -> Feedback:
        """See `Client.feedback`."""
        key, chosen, inputs = _about(learner, each)
        queries, exchange = self._way(learner)
        query = queries.prepare(inputs, None, None, chosen, key, None, None)
        mine = Feedback(learner, query.request_id.decode())
        feedback = exchange.send(query, mine)
        if not isinstance(feedback, Feedback):
            raise TypeError(f"{feedback!r} waits for {query.request_id!r}, but is not feedback")
        until = time.monotonic() + _STORED
        while not feedback.has.is_set() and time.monotonic() < until:
            exchange.serve(_POLL)
        feedback.accepted(0.0)
        return feedback

    def send_many(self, learner: str, truths: Iterable[Truth | tuple[Any, ...]]) -> list[Feedback]:
        """See `Client.feedback_many`."""
        queries, exchange = self._way(learner)
        sent: list[Feedback] = []
        waiting: defaultdict[int, list[_Ready]] = defaultdict(list)  # by partition, as a message has only one
        for place, each in enumerate(truths):
            feedback = Feedback(learner, "")
            sent.append(feedback)
            try:
                wire = _wire(queries, feedback, Truth(*each))
                together = waiting[partition_for(wire["key"].encode(), exchange.partitions)]
            except (SpillwayError, TypeError, ValueError) as error:
                feedback.failed(UsageError(f"truths[{place}]: {error}"))
                continue
            together.append(_Ready(place, feedback, wire))
            if len(together) == MOST_TRUTHS:
                self._send_message(queries, exchange, together.copy())
                together.clear()
        for together in filter(None, waiting.values()):
            self._send_message(queries, exchange, together)
        return sent

    def _send_message(self, queries: QueryMaker, exchange: Exchange, truths: Sequence[_Ready]) -> None:
        """Send a message of truths; of what is too large, or cannot travel, each half by itself."""
        first = truths[0]
        try:
            inputs: dict[str, Any] = {"truths": [each.wire for each in truths]}
            query = queries.prepare(inputs, None, None, None, first.wire["key"], None, None)
        except WireError as error:
            half = len(truths) // 2
            for part in (truths[:half], truths[half:]) if half else ():
                self._send_message(queries, exchange, part)
            if not half:
                first.feedback.failed(UsageError(f"truths[{first.place}]: {error}"))
            return
        query.headers.append((TRUTHS, " ".join(each.feedback.id for each in truths).encode()))
        if not self._room.acquire(timeout=max(0.0, query.expires - time.monotonic())):
            for each in truths:
                each.feedback.failed(TooManyInFlightError(NO_ROOM))
            return
        waiter = _Message(first.feedback.learner, truths, self._room, exchange.decode)
        try:
            exchange.send(query, waiter)
        except SpillwayError as error:
            waiter.failed(error)

    def open(self) -> None:
        """Connect again where it is needed, after `close`."""
        with self._lock:
            self._closed = False

    def close(self) -> None:
        with self._lock:
            self._closed = True
            ways, self._ways = self._ways, {}
        for _, exchange in ways.values():
            exchange.close()

    def _way(self, learner: str) -> tuple[QueryMaker, Exchange]:
        if (way := self._ways.get(learner)) is not None:
            return way
        with self._lock:
            connecting = self._connecting[learner]
        with connecting:  # others are on their way meanwhile
            with self._lock:
                self._require_open()
                if (way := self._ways.get(learner)) is not None:
                    return way
            queries = self._queries(learner)
            way = queries, Exchange(self._settings, queries.pipeline, limits=queries.limits, **self._options)
            try:
                with self._lock:
                    self._require_open()
                    self._ways[learner] = way
            except ClientClosedError:
                way[1].close()
                raise
            return way

    def _require_open(self) -> None:
        if self._closed:
            raise ClientClosedError("the client is closed")

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


def _wire(queries: QueryMaker, feedback: Feedback, each: Truth) -> dict[str, Any]:
    """Return a truth of many as it travels, with its id. Raises UsageError, TypeError or ValueError."""
    key, chosen, inputs = _about(feedback.learner, each)
    feedback.id = chosen or queries.new_id(key)
    if not is_request_id(feedback.id):
        raise UsageError(f"an id has 1 to {MAX_REQUEST_ID} visible ASCII characters: {feedback.id!r:.200}")
    flags = inputs.pop("flags", None)
    wire: dict[str, Any] = {"key": key, "inputs": inputs}
    return wire if flags is None else {**wire, "flags": json.dumps(flags, ensure_ascii=False, separators=(",", ":"))}


def _about(learner: str, each: Truth) -> tuple[str, str | None, dict[str, Any]]:
    """Whose state a truth is about, its id, if it has one, and what the learner's model is given."""
    own = {**(each.inputs or {}), "truth": each.truth}
    if isinstance(each.of, str):
        return each.of, each.feedback_id or None, own
    outputs, flags = each.of.outputs, each.of.flags
    for said in flags.values():
        keys = said.get(KEYS) if isinstance(said, dict) else None
        if isinstance(keys, dict) and learner in keys:
            request_id = said.get(REQUEST)
            chosen = each.feedback_id or (f"{request_id}/{learner}" if request_id else None)
            return str(keys[learner]), chosen, {"outputs": outputs, "flags": flags, **own}
    raise UsageError(
        f"the outcome does not mention {learner!r}: no stage that made it reads a table of that learner; give the key"
    )
