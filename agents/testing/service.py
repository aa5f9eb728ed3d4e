"""A pipeline served in a memory world: a process of each stage and of the gate, started again when it dies."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from spillway.agents.core.policies import period_of
from spillway.agents.live.stage.parts import load_copy
from spillway.agents.memory.groups import Group
from spillway.agents.memory.processes import AFTER, BEFORE
from spillway.agents.memory.world import DriverWorld, Network
from spillway.agents.models.loading import TORCH_THREADS, load_policy
from spillway.agents.testing.front import Front
from spillway.agents.testing.gate import GateFront
from spillway.lineage.errors import UsageError
from spillway.lineage.metric_names import GATE
from spillway.topology import topics

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Iterable, Mapping

    from prometheus_client import Metric
    from prometheus_client.registry import Collector

    from spillway.agents.memory.processes import Process
    from spillway.topology.load import Pipeline
    from spillway.topology.spec import StageSpec

_RESTART: Final = 0.1  # seconds until a process that died is started again
_BATCH: Final = 0.001  # seconds that a batch of a model without a profile takes
_KILLS: Final = 0.02  # share of the calls to Kafka at which a process that is to be killed dies
_CALM: Final = Network(0.0002, 0.0003, 0.0)
_DEATHS: Final = 50  # of a process in a row that ended by an error, before it is given up


class Served(Protocol):
    """What runs in a process."""

    @property
    def metrics(self) -> Collector: ...

    async def serve(self) -> None: ...


class _Pace:
    """Time that goes on as the machine's does, from `start` on."""

    def __init__(self, start: float) -> None:
        self._ahead = start - time.monotonic()

    def wait(self, until: float) -> float:
        while (left := until - (time.monotonic() + self._ahead)) > 0:
            time.sleep(left)
        return time.monotonic() + self._ahead


class PassingModel:
    """What an emulated accelerator answers, without its wait: the input."""

    version = "emulated"
    deterministic = True

    def predict(self, batch: list[Any]) -> list[dict[str, object]]:
        return [dict(query) for query in batch]


class Service:
    """The processes of one pipeline, in a world of their own."""

    def __init__(self, pipeline: Pipeline, *, seed: int, kill: Collection[str], real_time: bool) -> None:
        """`kill`: the stages, or "gate", whose processes die now and then.

        Raises UsageError for a pipeline that cannot be served so, and ModelError for a model that cannot be loaded.
        """
        _refuse(pipeline, kill)
        spec = pipeline.spec
        self._pipeline, self._kill = pipeline, frozenset(kill)
        self._models = {stage.name: _models(stage) for stage in spec.stages}
        self._period = period_of((stage.policy for stage in spec.stages), load_policy)
        names = [_input(pipeline, stage.name) for stage in spec.stages]
        partitioned = [*names, *(make(spec.name) for make in (topics.outcomes, topics.egress, topics.dead))]
        self.world = DriverWorld(seed, {**dict.fromkeys(partitioned, spec.partitions), topics.plan(spec.name): 1})
        self.world.network = _CALM
        self._real = real_time
        if real_time:
            self.world.loop.pace = _Pace(self.world.now).wait
        self._groups = {
            each: Group(self.world, f"{spec.name}.{each}", topic)
            for each, topic in (*zip(self._models, names, strict=True), (GATE, topics.outcomes(spec.name)))
        }
        self._processes: dict[str, Process] = {}
        self._serving: dict[str, Served] = {}
        self._failures: dict[str, int] = {}
        self.deaths: dict[str, int] = dict.fromkeys(self._groups, 0)
        self.error: BaseException | None = None  # why a process was given up

    def start(self) -> None:
        for name in self._groups:
            self._start(name)

    def kill(self, name: str) -> None:
        """Kill a process now. It is started again a moment later."""
        process = self._process(name, "to kill")
        if process.alive:
            process.kill()
            self._died(name)

    def stop(self, name: str) -> None:
        """Let a process stand still until `go_on`, or until it is killed."""
        self._process(name, "to stop").stop()

    def go_on(self, name: str) -> None:
        self._process(name, "to go on").go_on()

    def metrics(self, name: str) -> Iterable[Metric]:
        """Return what a process counts, or the one before it did where it has just died."""
        self._process(name, "with metrics")
        served = self._serving.get(name)
        return () if served is None else served.metrics.collect()

    # Inside ----------------------------------------------------------------------------------------------------

    def _process(self, name: str, purpose: str) -> Process:
        if name not in self._processes:
            raise UsageError(f"there is no stage {name!r} {purpose}; there are {', '.join(self._groups)}")
        return self._processes[name]

    def _start(self, name: str) -> None:
        process = self._processes[name] = self.world.process(name)
        if name in self._kill:
            process.strikes = partial(self._strikes, name)
        task = process.start(self._serve(name, process))
        task.add_done_callback(partial(self._ended, name, process))

    async def _serve(self, name: str, process: Process) -> None:
        served: Served
        if name == GATE:
            served = GateFront(self.world, process, self._pipeline, self._groups[name])
        else:
            served = self._front(name, process)
        self._serving[name] = served
        await served.serve()

    def _front(self, name: str, process: Process) -> Front:
        spec = self._pipeline.spec.stage(name)
        return Front(
            *(self.world, process, self._pipeline, spec, self._groups[name]),
            replica=0,
            models=self._models[name],
            period=self._period,
            duration=self._duration(spec),
        )

    def _duration(self, spec: StageSpec) -> Callable[[int], float] | None:
        if self._real and spec.emulated is None:
            return None
        known = self._pipeline.durations.get(spec.name)
        return known if known is not None else lambda _size: _BATCH

    def _strikes(self, name: str, _process: Process) -> str:
        if self.world.random.random() >= _KILLS:
            return ""
        self.world.at(self.world.now, partial(self._died, name))
        return self.world.random.choice((BEFORE, AFTER))

    def _died(self, name: str) -> None:
        self.deaths[name] += 1
        self.world.at(self.world.now + _RESTART, partial(self._start, name))

    def _ended(self, name: str, process: Process, task: asyncio.Task[None]) -> None:
        """Start a process again that ended by an error, unless it does so over and over."""
        if not process.alive or task.cancelled():
            return
        process.kill()
        self._failures[name] = self._failures.get(name, 0) + 1
        if self._failures[name] >= _DEATHS:
            self.error = task.exception()
        else:
            self._died(name)


def _refuse(pipeline: Pipeline, kill: Collection[str]) -> None:
    spec = pipeline.spec
    for stage in spec.stages:
        for section, text in (
            ("state", "keeps a state"), ("tables", "looks up tables"), ("ensemble", "is an ensemble"),
            ("variants", "has variants"), ("coding", "is coded"), ("copies", "runs copies"),
        ):  # fmt: skip
            if getattr(stage, section):
                raise UsageError(
                    f"{pipeline.path}: stage {stage.name!r} {text} ('{section}'), which is not served in memory; test "
                    "it with 'spillway serve' on the embedded Kafka, or load a pipeline without it"
                )
    known = [*(stage.name for stage in spec.stages), GATE]
    for name in kill:
        if name not in known:
            raise UsageError(f"kill: there is no stage {name!r} in {pipeline.path}; there are {', '.join(known)}")


def _models(spec: StageSpec) -> Mapping[int, Any]:
    if spec.emulated is not None:
        return dict.fromkeys(range(spec.workers.of_front(0)), PassingModel())
    return {number: load_copy(spec, TORCH_THREADS) for number in range(spec.workers.of_front(0))}


def _input(pipeline: Pipeline, stage: str) -> str:
    name = pipeline.spec.name
    return topics.stage_input(name, stage) if pipeline.graph.predecessors[stage] else topics.ingress(name)
