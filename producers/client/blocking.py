"""The client of a pipeline: queries in, exactly one outcome each, for threads (`Client`) and asyncio (`AsyncClient`).

    with Client("hello", "127.0.0.1:9092", slo=0.4) as client:
        outcome = client.predict({"name": "Ada"})

A request id names a query: sent again within ten minutes it is the same query, which is not run again and has no second
outcome. So an id of your own makes a repetition safe while its first outcome is awaited (both get that one), whereas
one that comes later waits in vain. Without an id of its own every query has a new random one.
"""

from __future__ import annotations

import queue
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spillway.producers.client.base import Base, Promise
from spillway.producers.client.exchange import NO_ROOM, TooManyInFlightError
from spillway.producers.client.feedback import Truth
from spillway.producers.client.queries import WINDOW, asked, keyed
from spillway.producers.closing import Closing
from spillway.producers.offline.job import CHUNK, Job

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from concurrent.futures import Future

    from spillway.lineage.message import Outcome, Value
    from spillway.lineage.tokens import Token
    from spillway.lineage.trace import TraceContext
    from spillway.producers.client.feedback import Feedback
    from spillway.producers.client.queries import Prepared
    from spillway.producers.offline.job import Progress


class Client(Base["Outcome"], Closing):
    """A pipeline's client for any number of threads; it runs one of its own. A context manager.

    `pipeline` is a pipeline, its spec or its name. `settings` are a cluster's, or just its address; without them the
    environment names the cluster (`ClientSettings.load`). `slo` (by default the pipeline's) is the deadline in seconds
    of queries that bring none. A query's outcome is waited for until `grace` seconds after its deadline. At most
    `in_flight` queries wait at a time: `submit` and `predict` then block until one has ended. `linger` seconds of delay
    let more queries travel together. Making one connects, within `timeout` seconds, or raises `BrokerError` or
    `TopicError`. It works in the process that made it: in one that is forked from it, whatever asks raises
    `UsageError`.

    `replies`: "all" reads every client's outcomes and passes over the others'. Clients of a pipeline that have "shared"
    divide the egress among them: as many read as much together as one does alone. For replicas of a service.
    """

    def _begin(self, in_flight: int) -> None:
        self._room = threading.Semaphore(in_flight)
        self._exchange = self._connect()
        self._queries.landing = self._exchange.landing

    def predict(
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
        """Run one query and return its outcome: a prediction, a drop or a failure.

        `deadline`: seconds from now. `key`: queries with the same one (a user, a session) stay in order and meet the
        same state; by default the request id. `trace`: the caller's, by default a new one. `headers`: passed through to
        the egress; their names begin with `x-`. `after`: a token of feedback on the same key, which the answer is to
        rest on; where that takes too long, it is flagged `stale`.

        The outcome's `latency` is the seconds from sending the query until the outcome arrived here, and `late` says
        whether that was after its deadline.

        Raises `OutcomeTimeoutError` (a `TimeoutError`) without an outcome in time, `BrokerError` where the query could
        not be sent, `WireError` for inputs that cannot travel.
        """
        query = self._queries.prepare(inputs, parameters, deadline, request_id, key, trace, headers, after)
        return self._submit(query).result()

    def offline_query(
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
        """Answer a file of queries in the time that online ones leave; returns when each has its row.

        `inputs_file` has a query's inputs a line, as JSON, or is an .npz, whose arrays are cut along their first axis.
        `outputs_file` gets a line for each, in their order, with `row` and `outputs`, or `error`. `chunk` queries are
        under way at a time. Called again with the same files, it goes on where it was. `progress` is called ten times a
        second on this thread. The needs are those of `online_query`, without a latency; of a pipeline without variants
        there are none.

        Raises UsageError for needs or files that cannot be used, BrokerError where the cluster is away for long.
        """
        self._queries.require_home()
        parameters, _ = asked(app, None, accuracy, model, variant)
        where = self._queries.pipeline, self._settings, self._queries.limits, self.submit
        job = Job(*where, parameters=parameters, chunk=chunk, progress=progress)
        return job.run(Path(inputs_file), Path(outputs_file))

    def submit(
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
    ) -> Future[Outcome]:
        """Send one query, as `predict` does, and return the future of its outcome; it cannot be cancelled.

        Blocks only while `in_flight` queries wait, at most until the query's own time is over, and then raises
        `TooManyInFlightError`. For an id that is in flight, returns the future that is there.
        """
        return self._submit(self._queries.prepare(inputs, parameters, deadline, request_id, key, trace, headers, after))

    def _submit(self, query: Prepared) -> Future[Outcome]:
        there = self._exchange.flying(query.request_id)
        if isinstance(there, Promise):
            return there.future
        if not self._room.acquire(timeout=max(0.0, query.expires - time.monotonic())):
            raise TooManyInFlightError(NO_ROOM)
        return self._send(self._exchange, query, self._room.release).future

    def outcomes(
        self,
        queries: Iterable[Mapping[str, Value]],
        *,
        key: Callable[[Mapping[str, Value]], str] | None = None,
        deadline: float | None = None,
        window: int = WINDOW,
    ) -> Iterator[tuple[int, Outcome]]:
        """Run many queries, `window` at a time, and yield each one's index and outcome.

        They come in the order in which they end, not in that of `queries`: the index says which one it is. `key` gives
        the key of a query from its inputs, as `lambda inputs: inputs["user"]`; by default each has its own.

        Takes from `queries` only as there is room. Raises what `predict` would where a query has no outcome.
        """
        done: queue.SimpleQueue[Future[Outcome]] = queue.SimpleQueue()
        waiting: dict[Future[Outcome], int] = {}
        for index, inputs, chosen in keyed(queries, key):
            future = self.submit(inputs, deadline=deadline, key=chosen)
            waiting[future] = index
            future.add_done_callback(done.put)
            while waiting and (len(waiting) >= window or not done.empty()):
                ended = done.get()
                yield waiting.pop(ended), ended.result()
        while waiting:
            ended = done.get()
            yield waiting.pop(ended), ended.result()

    def feedback(
        self,
        learner: str,
        of: Outcome | str,
        truth: Value,
        *,
        inputs: Mapping[str, Value] | None = None,
        feedback_id: str | None = None,
    ) -> Feedback:
        """Send one of the pipeline's learners a truth, `of` an outcome or of a key; returns when the broker has it.

        The learner's model is given the inputs `truth` and, of an outcome, its `outputs` and `flags`; and `inputs`, if
        there are more. The id is by default `<request id>/<learner>`, so that one outcome counts once; another id is
        another observation. A repeat changes nothing and is not acknowledged anew.

        Raises `UsageError` for an outcome that does not rest on the learner, `BrokerError` where it could not be sent.
        """
        self._queries.require_home()
        return self._learners.send(learner, Truth(of, truth, inputs, feedback_id))

    def feedback_many(self, learner: str, truths: Iterable[Truth | tuple[Any, ...]]) -> list[Feedback]:
        """Send a learner many truths in few messages; returns at once, unless 64 messages are unanswered.

        Each is a tuple of an outcome or a key, the truth, and maybe inputs and an id, as of `feedback`. Of the feedback
        on each `accepted` waits until the broker has it, `outcome` and `token` until the learner has answered. A truth
        that cannot be sent or taken fails alone: these raise what is wrong, with its place. One that came before raises
        `OutcomeTimeoutError` at once.
        """
        self._queries.require_home()
        return self._learners.send_many(learner, truths)

    def close(self) -> None:
        """Let the cluster go; whoever still waits gets `ClientClosedError`. Closing twice, or in a fork, is fine."""
        if self._queries.forked:
            return
        self._learners.close()
        self._exchange.close()
