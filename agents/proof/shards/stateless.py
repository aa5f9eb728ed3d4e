"""A stateless stage among stateful ones, as a process: the stage that ships, and the version logs it follows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.core.actions import Executed, Failed
from spillway.agents.core.batching import Batcher
from spillway.agents.core.policies import make
from spillway.agents.core.policy import StageView
from spillway.agents.memory.ports import MemoryClock, MemorySpans
from spillway.agents.metrics import StageMetrics
from spillway.agents.proof.shards.ports import RunEmission, RunInput, RunInputs, RunIntake, RunOutput
from spillway.agents.proof.shards.replica import Replica, item_of, result_of
from spillway.agents.proof.shards.world import model
from spillway.agents.run.memory import Memory, Rereading
from spillway.agents.run.stage_context import Context
from spillway.agents.run.tally import Tally
from spillway.lineage import reasons

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from spillway.agents.core.actions import Result
    from spillway.agents.core.batching import Batch
    from spillway.agents.core.crash_suspects import Place
    from spillway.agents.core.request import Delivery, Request
    from spillway.agents.run.stage import Stage
    from spillway.checkpoint.dedup import Span

_NOBODY: Final[set[Place]] = set()
_INSTANCES: Final = 2


class RunMemory(Memory):
    """Tells the process when it takes a partition over."""

    def __init__(self, process: StatelessProcess, topic: str, intake: Any) -> None:
        super().__init__(topic, MemorySpans(process.world, process), intake)
        self._process = process

    async def read(self, partition: int, spans: Sequence[Span]) -> AsyncIterator[Delivery]:
        self._process.taken_over(partition)
        async for delivery in super().read(partition, spans):
            yield delivery


class NoCrashWatch:
    """No process is known to have died of a query."""

    busy = _NOBODY

    def look(self, committed: Any) -> None:
        """Nothing."""


class StatelessProcess(Replica):
    """One incarnation of one replica of a stateless stage. It is its stage's workers, too."""

    busy = _NOBODY
    _driver: Stage | None = None
    _input: RunInput

    async def _serve(self) -> None:
        world, scenario, graph, stage = self.world, self.world.scenario, self.world.graph, self.stage
        topic = world.topic(stage)
        policy = make(scenario.stateless_policy, StageView(stage=stage, replica=0, instances=_INSTANCES))
        batcher = Batcher(policy, scenario.batch, 0.0, _INSTANCES, world.duration)
        places = world.shards_of(graph.rests_on(stage))
        logs = self._follow(scenario.guards.stage_logs, places, self._heard)
        self.core = scenario.guards.stage(
            *(graph, stage, batcher),
            rule=scenario.topology.rules.get(stage),
            epoch=self.incarnation,
            durability=logs,
            queue_limit=scenario.queue_limit,
        )
        self._executed: dict[int, set[str]] = {}  # requests by partition, since it was assigned
        self._assigned: dict[int, int] = {}  # where each partition was committed then
        metrics = StageMetrics("p", stage, self.replica)
        intake: Any = RunIntake(stage, scenario.poison)
        context = Context(
            intake=intake,
            emission=RunEmission(stage),  # type: ignore[arg-type]
            memory=RunMemory(self, topic, intake),
            rereading=Rereading(topic, MemorySpans(world, self), intake),
            metrics=metrics,
            tally=Tally(metrics),
            inputs=RunInputs(self, topic),
            guard=NoCrashWatch(),
            remembered=_nothing_known,
            reload_schemas=bool,
            read_logs=self.read_to_ends,
        )
        driver = scenario.guards.driver(self.core, MemoryClock(self), context)
        self._input = RunInput(self, world.groups[stage], driver, replays=False)
        driver.start(self._input, RunOutput(self, driver.stored), self)
        self._input.start()
        self._driver = driver
        await driver.failed

    def _heard(self) -> None:
        if self._driver is not None:
            self._driver.durability_changed()

    @property
    def has(self) -> set[int]:
        return set() if self._driver is None else set(self._driver.partitions)

    def taken_over(self, partition: int) -> None:
        self._executed[partition], self._assigned[partition] = set(), self._input.places[partition]

    # Its workers -----------------------------------------------------------------------------------------------

    def submit(self, _worker: int, batch: Batch) -> None:
        self._note(batch)
        self.point("compute.before")
        seconds = self.world.duration(len(batch.requests)) * self.world.random.uniform(0.5, 2.0)
        self.after(seconds, partial(self._complete, batch, seconds))

    def _complete(self, batch: Batch, seconds: float) -> None:
        self.point("compute.after")
        assert self._driver is not None  # it has submitted
        results = [self._result(request) for request in batch.requests]
        self._driver.executed(batch, Executed(results, seconds, self.world.now))

    def _result(self, request: Request) -> Result:
        scenario = self.world.scenario
        if model.raises(self.stage, request.request_id, scenario.poison):
            return Failed(reasons.MODEL_RAISED, "scripted")
        if scenario.flaky and self.world.random.random() < scenario.flaky:
            return Failed(reasons.MODEL_RAISED, "by chance")
        return result_of(self.world, self.stage, model.hashed(self.stage, item_of(request)))

    def _note(self, batch: Batch) -> None:
        """Check whether a request was executed before. Where versions may die, it may well be: nothing is noted."""
        if self.feed is not None:
            return
        result = self.world.result
        for request in batch.requests:
            key, partition = (self.stage, request.request_id), request.partition
            first = min(part.offset for part in request.parts)
            if request.request_id in self._executed[partition]:
                result.problems.append(f"(j) {request.request_id}: {self.stage} executed it twice in one assignment")
            elif result.executed.get(key, first) < self._assigned[partition]:
                result.problems.append(f"(j) {request.request_id}: {self.stage} executed and committed it before")
            self._executed[partition].add(request.request_id)
            result.executed[key] = min(first, result.executed.get(key, first))

    # Whether it rests ------------------------------------------------------------------------------------------

    @property
    def idle(self) -> bool:
        return self.only_joins and not self.core.waiting

    @property
    def only_joins(self) -> bool:
        """Whether a join waits for parts, at most."""
        driver = self._driver
        if driver is None or not driver.idle or self.core.commits() or not self.wire.is_quiet():
            return False
        return self._input.read_up and self._has_read


def _nothing_known(work: Any, value: Any, _now: float) -> Result:
    raise NotImplementedError(f"a run has no cache: {work}, {value}")
