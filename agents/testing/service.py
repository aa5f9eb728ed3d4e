"""A pipeline served in a memory world: a process of each stage and of the gate, started again when it dies."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from spillway.agents.core.joins import PAYLOAD_BYTES
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
    from collections.abc import Callable, Collection, Mapping

    from spillway.agents.memory.processes import Process
    from spillway.topology.load import Pipeline
    from spillway.topology.spec import StageSpec

_RESTART: Final = 0.1  # seconds until a process that died is started again
_BATCH: Final = 0.001  # seconds that a batch of a model without a profile takes
_KILLS: Final = 0.02  # share of the calls to Kafka at which a process that is to be killed dies
_CALM: Final = Network(0.0002, 0.0003, 0.0)
_DEATHS: Final = 50  # of a process in a row that ended by an error, before it is given up


Slot = tuple[str, int]  # a stage, or the gate, and which replica of it


class Served(Protocol):
    """What runs in a process."""

    async def serve(self) -> None: ...

    def leave(self) -> None: ...


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

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        seed: int,
        kill: Collection[str],
        real_time: bool,
        replicas: Mapping[str, int] | None = None,
        make_world: Callable[[int, dict[str, int]], DriverWorld] = DriverWorld,
        payload_bytes: int = PAYLOAD_BYTES,
    ) -> None:
        """`kill`: the stages, or "gate", whose processes die now and then.

        `replicas`: of each stage and the gate, one where it is not named. `make_world`: of a seed and partitions.
        `payload_bytes`: of the parts that wait in a process.

        Raises UsageError for a pipeline that cannot be served so, and ModelError for a model that cannot be loaded.
        """
        _refuse(pipeline, kill)
        spec = pipeline.spec
        self._pipeline, self._kill = pipeline, frozenset(kill)
        self._models = {stage.name: _models(stage) for stage in spec.stages}
        self._period = period_of((stage.policy for stage in spec.stages), load_policy)
        names = [_input(pipeline, stage.name) for stage in spec.stages]
        partitioned = [*names, *(make(spec.name) for make in (topics.outcomes, topics.egress, topics.dead))]
        self.world = make_world(seed, {**dict.fromkeys(partitioned, spec.partitions), topics.plan(spec.name): 1})
        self.world.network = _CALM
        self._real, self._payload_bytes = real_time, payload_bytes
        if real_time:
            self.world.loop.pace = _Pace(self.world.now).wait
        self._groups = {
            each: Group(self.world, f"{spec.name}.{each}", topic)
            for each, topic in (*zip(self._models, names, strict=True), (GATE, topics.outcomes(spec.name)))
        }
        counts = replicas or {}
        self.slots: list[Slot] = [(name, replica) for name in self._groups for replica in range(counts.get(name, 1))]
        self._processes: dict[Slot, Process] = {}
        self._failures: dict[Slot, int] = {}
        self.deaths: dict[str, int] = dict.fromkeys(self._groups, 0)
        self.error: BaseException | None = None  # why a process was given up

    def start(self) -> None:
        for slot in self.slots:
            self._start(slot)

    def kill(self, name: str, replica: int = 0) -> None:
        """Kill a process now. It is started again a moment later."""
        if name not in self._groups:
            raise UsageError(f"there is no stage {name!r} to kill; there are {', '.join(self._groups)}")
        slot = name, replica
        if self._processes[slot].alive:
            self._processes[slot].kill()
            self._died(slot)

    # Inside ----------------------------------------------------------------------------------------------------

    def _start(self, slot: Slot) -> None:
        process = self._processes[slot] = self._process(slot)
        task = process.start(self._serve(slot, process))
        task.add_done_callback(partial(self._ended, slot, process))

    def _process(self, slot: Slot) -> Process:
        process = self.world.process(slot[0])
        if slot[0] in self._kill:
            process.strikes = partial(self._strikes, slot)
        return process

    async def _serve(self, slot: Slot, process: Process) -> None:
        await self._served(slot, process).serve()

    def _served(self, slot: Slot, process: Process) -> Served:
        name, replica = slot
        if name == GATE:
            return GateFront(
                *(self.world, process, self._pipeline, self._groups[name]),
                replica=replica,
                payload_bytes=self._payload_bytes,
            )
        return self._front(name, process, replica)

    def _front(self, name: str, process: Process, replica: int) -> Front:
        spec = self._pipeline.spec.stage(name)
        return Front(
            *(self.world, process, self._pipeline, spec, self._groups[name]),
            replica=replica,
            models=self._models[name],
            period=self._period,
            duration=self._duration(spec),
            payload_bytes=self._payload_bytes,
        )

    def _duration(self, spec: StageSpec) -> Callable[[int], float] | None:
        if self._real and spec.emulated is None:
            return None
        known = self._pipeline.durations.get(spec.name)
        return known if known is not None else lambda _size: _BATCH

    def _strikes(self, slot: Slot, _process: Process) -> str:
        if self.world.random.random() >= _KILLS:
            return ""
        self.world.at(self.world.now, partial(self._died, slot))
        return self.world.random.choice((BEFORE, AFTER))

    def _died(self, slot: Slot) -> None:
        self.deaths[slot[0]] += 1
        self.world.at(self.world.now + _RESTART, partial(self._start, slot))

    def _ended(self, slot: Slot, process: Process, task: asyncio.Task[None]) -> None:
        """Start a process again that has ended, unless it does so over and over by an error."""
        if not process.alive or task.cancelled():
            return
        process.kill()
        self._failures[slot] = self._failures.get(slot, 0) + 1
        if self._failures[slot] >= _DEATHS:
            self.error = task.exception()
        else:
            self._died(slot)


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
