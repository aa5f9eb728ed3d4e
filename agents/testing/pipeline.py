"""A pipeline in the caller's process: queries in, outcomes out, in virtual time, with faults that a seed chooses."""

from __future__ import annotations

import asyncio
import sys
from itertools import count
from typing import TYPE_CHECKING, Any, Self

from spillway.agents.memory.ports import MemoryLog
from spillway.agents.memory.records import kept
from spillway.agents.testing.service import Service
from spillway.lineage import headers
from spillway.lineage.errors import UsageError
from spillway.lineage.keys import partition_for
from spillway.lineage.ports import Outgoing
from spillway.lineage.values.codec import Decoder
from spillway.producers.client.exchange import OutcomeTimeoutError
from spillway.producers.client.queries import GRACE, WINDOW, QueryMaker, keyed
from spillway.producers.closing import Closing
from spillway.topology import topics
from spillway.topology.load import Pipeline

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from spillway.lineage.message import Outcome, Value
    from spillway.lineage.ports import Record
    from spillway.producers.client.queries import Prepared

_LOADING = 0.001  # seconds between two looks at whether models are loaded


class Pending:
    """A query that was sent. Its outcome comes while the pipeline's time goes on."""

    def __init__(self, pipeline: ServedPipeline, query: Prepared) -> None:
        self._pipeline = pipeline
        self.query = query
        self.outcome: Outcome | None = None  # None until it is there

    def result(self) -> Outcome:
        """Return the outcome, for which the time goes on. Raises OutcomeTimeoutError where none comes."""
        return self._pipeline.wait_for(self)


class ServedPipeline(Closing):
    """What `serve` gives. Not for several threads, nor for code that runs on an asyncio loop.

    Time goes on while an outcome is waited for and in `sleep`. It is virtual: as fast as the models are. A batch takes
    what the stage's profile says, and 1 ms without one.
    """

    def __init__(
        self, pipeline: Pipeline, *, seed: int, kill: Collection[str], slow: Collection[str], real_time: bool
    ) -> None:
        self.pipeline = pipeline
        self._service = Service(pipeline, seed=seed, kill=kill, slow=slow, real_time=real_time)
        self._world = self._service.world
        clock = (lambda: self._world.now,) * 2
        self._maker = QueryMaker(pipeline, slo=None, grace=GRACE, clock=clock)
        self._numbers = count(1)
        self._decoder = Decoder(pipeline.spec.limits.merged())
        self._waiting: dict[bytes, list[Pending]] = {}
        self._answered: asyncio.Event
        self._closed = False

    def __enter__(self) -> Self:
        try:
            self._run(self._begin())
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """End all processes. Queries without an outcome get none."""
        if not self._closed:
            self._closed = True
            self._world.end()

    # For users -------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """What time it is in the pipeline, in seconds."""
        return self._world.now

    @property
    def deaths(self) -> Mapping[str, int]:
        """How often the process of each stage, the gate's, and workers in processes have died, by name."""
        return dict(self._service.deaths)

    def predict(
        self,
        inputs: Mapping[str, Value],
        parameters: Mapping[str, Value] | None = None,
        *,
        deadline: float | None = None,
        request_id: str | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Outcome:
        """Run one query and return its outcome, as `spillway.Client.predict` does."""
        return self.submit(
            inputs, parameters, deadline=deadline, request_id=request_id, key=key, headers=headers
        ).result()

    def submit(
        self,
        inputs: Mapping[str, Value],
        parameters: Mapping[str, Value] | None = None,
        *,
        deadline: float | None = None,
        request_id: str | None = None,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Pending:
        """Send one query. Its id is "q1", "q2" and so on where none is given."""
        identity = f"q{next(self._numbers)}" if request_id is None else request_id
        query = self._maker.prepare(inputs, parameters, deadline, identity, key, None, headers)
        pending = Pending(self, query)
        self._waiting.setdefault(query.request_id, []).append(pending)
        self.produce("ingress", query.value, key=query.key, headers=query.headers)
        return pending

    def outcomes(
        self,
        queries: Iterable[Mapping[str, Value]],
        *,
        key: Callable[[Mapping[str, Value]], str] | None = None,
        deadline: float | None = None,
        window: int = WINDOW,
    ) -> Iterator[tuple[int, Outcome]]:
        """Run many queries, `window` at a time, and yield each one's index and outcome, in the order of `queries`."""
        pending: list[tuple[int, Pending]] = []
        for index, inputs, chosen in keyed(queries, key):
            pending.append((index, self.submit(inputs, deadline=deadline, key=chosen)))
            if len(pending) >= window:
                first, sent = pending.pop(0)
                yield first, sent.result()
        for index, sent in pending:
            yield index, sent.result()

    def sleep(self, seconds: float) -> None:
        """Let so many seconds go by in the pipeline."""
        self._run(asyncio.sleep(seconds))

    def kill(self, stage: str) -> None:
        """Kill a stage's process, or the gate's ("gate"), as SIGKILL does. It is started again 0.1 s later.

        Of workers ("recognise.workers", as `serve` names them) one is killed, which runs a batch if any does.
        """
        self._service.kill(stage)

    def stop(self, stage: str) -> None:
        """Let a stage's process, or the gate's, stand still until `go_on`, as SIGSTOP does."""
        self._service.stop(stage)

    def go_on(self, stage: str) -> None:
        """Let a process that was stopped go on, as SIGCONT does."""
        with self._world.loop.running():  # what it was to do meanwhile is done now
            self._service.go_on(stage)

    def metrics(self, stage: str, **labels: str) -> Mapping[str, float]:
        """Return what the process of a stage, or the gate's, counts: by name, the sum of all that have these labels."""
        found: dict[str, float] = {}
        for family in self._service.metrics(stage):
            for sample in family.samples:
                if labels.items() <= sample.labels.items():
                    found[sample.name] = found.get(sample.name, 0.0) + sample.value
        return found

    def produce(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Collection[tuple[str, bytes | None]] = (),
        partition: int | None = None,
    ) -> None:
        """Write a record, as any Kafka client may. `topic`: without the pipeline's name, as in "ingress"."""
        name = f"{self.pipeline.spec.name}.{topic}"
        if partition is None:
            partition = partition_for(key or b"", self._partitions(name))
        self._world.broker.append((name, partition), kept(Outgoing(name, partition, key, value, tuple(headers))))

    def records(self, topic: str) -> list[Record]:
        """Return all committed records of a topic, as in "dead" or "egress", partition by partition."""
        name = f"{self.pipeline.spec.name}.{topic}"
        places = [(name, partition) for partition in range(self._partitions(name))]
        return [one.record() for place in places for one in self._world.broker.read(place, 0)]

    def wait_for(self, pending: Pending) -> Outcome:
        """Let the time go on until a query has its outcome, and return that."""
        if pending.outcome is None:
            self._run(self._until(pending))
        assert pending.outcome is not None  # else it has raised
        return pending.outcome

    # Inside ----------------------------------------------------------------------------------------------------

    def _partitions(self, topic: str) -> int:
        found = self._world.partitions
        if topic not in found:
            raise UsageError(f"there is no topic {topic!r}; there are {', '.join(sorted(found))}")
        return found[topic]

    def _run(self, what: Coroutine[Any, Any, None]) -> None:
        if self._closed:
            what.close()
            raise UsageError("the pipeline is closed: use it within its 'with' block")
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass  # what models raise is to name no other error, as it would below
        else:
            what.close()
            raise UsageError("a pipeline in memory runs a loop of its own: call it by asyncio.to_thread from here")
        self._world.loop.run_until_complete(what)
        if self._service.error is not None:
            raise self._service.error

    async def _begin(self) -> None:
        self._answered = asyncio.Event()
        self._service.start()
        client = self._world.process("client")
        client.start(self._follow(MemoryLog(self._world, client)))
        while self._service.loading and self._service.error is None:  # noqa: ASYNC110 - once
            await asyncio.sleep(_LOADING)

    async def _follow(self, log: MemoryLog) -> None:
        egress = topics.egress(self.pipeline.spec.name)
        for partition in range(self.pipeline.spec.partitions):
            log.follow((egress, partition), None, self._receive)

    def _receive(self, records: Sequence[Record]) -> None:
        for record in records:
            request_id = headers.identify(record.headers).encode()
            for pending in self._waiting.pop(request_id, ()):
                outcome = self._decoder.released(record.value or b"")
                pending.outcome = pending.query.received(outcome, self._world.now)
            self._answered.set()

    async def _until(self, pending: Pending) -> None:
        name = pending.query.request_id.decode()
        while pending.outcome is None and self._service.error is None:
            left = pending.query.expires - self._world.now
            if left <= 0:
                raise OutcomeTimeoutError(f"no outcome of query {name} came in time{pending.query.hint}", name)
            self._answered.clear()
            try:
                await asyncio.wait_for(self._answered.wait(), left)
            except TimeoutError:
                continue


def serve(
    pipeline: Pipeline | Path | str,
    *,
    seed: int = 0,
    kill: Collection[str] | str = (),
    slow: Collection[str] | str = (),
    real_time: bool = False,
) -> ServedPipeline:
    """Serve a pipeline of stateless stages in this process: no Kafka, no Java, no other process.

    The stages and the gate are those that ship, over a model of Kafka, and the models are the file's own. `seed`
    chooses delays, and when those die that `kill` names: stages, "gate", or workers that would be processes. These are
    `stage.workers`, `stage.NAME` of a member or variant, `stage.copies`, and `stage.parity`. Workers that `slow` names
    take a hundred times as long for a batch now and then. Whatever dies, each query has one outcome. In `real_time` a
    batch takes what its model takes, and the clock is the machine's. Use it as a context::

        with spillway.testing.serve("pipeline.yaml", kill="recognise") as pipeline:
            assert pipeline.predict({"image": image}).outputs["plate"] == "AB-123"

    Raises SpecError for a file that is no pipeline, UsageError for one that cannot be served so, and ModelError for a
    model that cannot be loaded; of a worker that would be a process when the context is entered.
    """
    found = pipeline if isinstance(pipeline, Pipeline) else Pipeline.load(pipeline)
    beside = str(found.path.parent.absolute())
    if beside not in sys.path:
        sys.path.append(beside)  # models are found beside the file; last, so that it takes no other module's place
    kill, slow = [[names] if isinstance(names, str) else names for names in (kill, slow)]
    return ServedPipeline(found, seed=seed, kill=kill, slow=slow, real_time=real_time)
