"""A pipeline served in a memory world: a process of each stage and of the gate, started again when it dies."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.core.gate import HELD_LIMIT
from spillway.agents.core.join_rules import PAYLOAD_BYTES
from spillway.agents.core.policies import period_of
from spillway.agents.live.stage.build import load_copy
from spillway.agents.live.stage.config import StageConfig
from spillway.agents.memory.groups import Group
from spillway.agents.memory.processes import AFTER, BEFORE
from spillway.agents.memory.world import DriverWorld, Network
from spillway.agents.models.loading import TORCH_THREADS, load_policy
from spillway.agents.models.plain import EmulatedModel
from spillway.agents.testing.conditions import Conditions, name_of, processes_of
from spillway.agents.testing.front import Front
from spillway.agents.testing.gate import GateFront
from spillway.agents.testing.links import Workshop
from spillway.lineage.errors import ModelError, UsageError
from spillway.lineage.metric_names import GATE
from spillway.topology import topics

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Collection, Iterable, Mapping

    from prometheus_client import Metric

    from spillway.agents.memory.processes import Process
    from spillway.topology.load import Pipeline

_RESTART: Final = 0.1  # seconds until a process that died is started again
_KILLS: Final = 0.02  # share of the calls to Kafka at which a process that is to be killed dies
_CALM: Final = Network(0.0002, 0.0003, 0.0)
_DEATHS: Final = 50  # of a process in a row that ended by an error, before it is given up

Slot = tuple[str, int]  # a stage, or the gate, and which replica of it
Served = Front | GateFront  # what runs in a process


def _paced(start: float) -> Callable[[float], float]:
    """Return what waits for times that go on as the machine's does, from `start` on."""
    ahead = start - time.monotonic()

    def wait(until: float) -> float:
        while (left := until - (time.monotonic() + ahead)) > 0:
            time.sleep(left)
        return time.monotonic() + ahead

    return wait


class Service:
    """The processes of one pipeline, in a world of their own."""

    def __init__(
        self,
        pipeline: Pipeline,
        *,
        seed: int,
        kill: Collection[str] = (),
        slow: Collection[str] = (),
        real_time: bool = False,
        replicas: Mapping[str, int] | None = None,
        make_world: Callable[[int, dict[str, int]], DriverWorld] = DriverWorld,
        payload_bytes: int = PAYLOAD_BYTES,
        held_limit: int = HELD_LIMIT,
    ) -> None:
        """`kill`: the stages, or "gate", whose processes die now and then, and names of workers that do.

        `slow`: names of workers that straggle (`spillway.agents.testing.conditions`). `replicas`: of each stage and the
        gate, one where it is not named. `make_world`: of a seed and partitions. `payload_bytes`: of the parts that
        wait in joins of a process. `held_limit`: of decided outcomes in a gate.

        Raises UsageError for a pipeline that cannot be served so, and ModelError for a model that cannot be loaded.
        """
        spec = pipeline.spec
        _refuse(pipeline)
        self._period = period_of((stage.policy for stage in spec.stages), load_policy)
        self._configs = {
            stage.name: StageConfig(pipeline=pipeline, stage=stage.name, replica=0, plan_period=self._period)
            for stage in spec.stages
        }
        processes = [name for config in self._configs.values() for name in processes_of(config)]
        threads = [
            name_of(name, "") for name, config in self._configs.items() if not (config.spec.lanes or config.processes)
        ]
        _check("kill", kill, [*self._configs, GATE, *processes], pipeline)
        _check("slow", slow, [*threads, *processes], pipeline)
        if slow and real_time:
            raise UsageError("slow: in real time a batch takes what its model takes; leave one of the two out")
        self._pipeline, self._kill = pipeline, frozenset(kill)
        self._models = {name: _models(config) for name, config in self._configs.items()}
        names = [config.topic for config in self._configs.values()]
        partitioned = [*names, *(make(spec.name) for make in (topics.outcomes, topics.egress, topics.dead))]
        self._payload_bytes, self._held_limit = payload_bytes, held_limit
        self.world = make_world(seed, {**dict.fromkeys(partitioned, spec.partitions), topics.plan(spec.name): 1})
        self.world.network = _CALM
        if real_time:
            self.world.loop.pace = _paced(self.world.now)
        self.groups = {
            each: Group(self.world, f"{spec.name}.{each}", topic)
            for each, topic in (*zip(self._models, names, strict=True), (GATE, topics.outcomes(spec.name)))
        }
        counts = replicas or {}
        self.slots: list[Slot] = [(name, replica) for name in self.groups for replica in range(counts.get(name, 1))]
        self._processes: dict[Slot, Process] = {}
        self._serving: dict[Slot, Served] = {}
        self._failures: dict[Slot, int] = {}
        self.deaths: dict[str, int] = dict.fromkeys([*self.groups, *processes], 0)
        self._error: BaseException | None = None  # why a process was given up
        self.loading = {name for name, config in self._configs.items() if processes_of(config)}
        """Stages whose workers have not loaded their models yet."""
        conditions = Conditions(pipeline, self.world.random, kill=self._kill, slow=frozenset(slow), real_time=real_time)
        self._workshop = Workshop(conditions, self._worker_died)

    @property
    def error(self) -> BaseException | None:
        """Why a process was given up, or what was raised in one that nobody waits for, by a policy, say."""
        loop = self.world.loop
        return self._error or next(iter([*loop.failures, *loop.unheard]), None)

    def start(self) -> None:
        for slot in self.slots:
            self._start(slot)

    def kill(self, name: str) -> None:
        """Kill a process now (of a stage, its first replica's), or a worker. It is started again a moment later."""
        if name not in self.deaths:
            raise UsageError(f"there is no stage {name!r} to kill; there are {', '.join(self.deaths)}")
        if name not in self.groups:
            self._workshop.kill(name)
        elif self._processes[name, 0].alive:
            self._processes[name, 0].kill()
            self._died((name, 0))

    def stop(self, name: str) -> None:
        """Let a process (of a stage, its first replica's) stand still until `go_on`, or until it is killed."""
        self._processes[self._first(name)].stop()

    def go_on(self, name: str) -> None:
        self._processes[self._first(name)].go_on()

    def metrics(self, name: str) -> Iterable[Metric]:
        """Return what a process counts (of a stage, its first replica's); nothing where it has yet to begin."""
        served = self._serving.get(self._first(name))
        return () if served is None else served.metrics.collect()

    # Inside ----------------------------------------------------------------------------------------------------

    def _first(self, name: str) -> Slot:
        if name not in self.groups:
            raise UsageError(f"there is no stage {name!r}; there are {', '.join(self.groups)}")
        return name, 0

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
        served = self._serving[slot] = self._served(slot, process)
        await served.serve()

    def _served(self, slot: Slot, process: Process) -> Served:
        name, replica = slot
        if name == GATE:
            return GateFront(
                *(self.world, process, self._pipeline, self.groups[name]),
                replica=replica,
                payload_bytes=self._payload_bytes,
                held_limit=self._held_limit,
            )
        return self._front(name, process, replica)

    def _front(self, name: str, process: Process, replica: int) -> Front:
        config, models = replace(self._configs[name], replica=replica), self._models[name]
        return Front(
            *(self.world, process, config, self.groups[name]),
            models=models,
            duration=self._workshop.conditions.duration(config.spec) if models else None,
            crews=self._workshop.crews(process),
            loaded=partial(self.loading.discard, name),
            payload_bytes=self._payload_bytes,
        )

    def _strikes(self, slot: Slot, _process: Process) -> str:
        if self.world.random.random() >= _KILLS:
            return ""
        self.world.at(self.world.now, partial(self._died, slot))
        return self.world.random.choice((BEFORE, AFTER))

    def _worker_died(self, name: str) -> None:
        self.deaths[name] += 1

    def _died(self, slot: Slot) -> None:
        self.deaths[slot[0]] += 1
        self.world.at(self.world.now + _RESTART, partial(self._start, slot))

    def _ended(self, slot: Slot, process: Process, task: asyncio.Task[None]) -> None:
        """Start a process again that has ended, unless by errors over and over, or as it cannot load a model."""
        if not process.alive:
            return
        if task.cancelled():  # by its models' code: a process would end so
            self._error = ModelError(f"process {slot[0]!r} was cancelled: its models' code raised CancelledError")
            return
        process.kill()
        self._failures[slot] = self._failures.get(slot, 0) + 1
        error = task.exception()
        if self._failures[slot] >= _DEATHS or isinstance(error, ModelError):
            self._error = error
        else:
            self._died(slot)


def _refuse(pipeline: Pipeline) -> None:
    for stage in pipeline.spec.stages:
        registered = stage.variants is not None and stage.variants.registered
        for refused, section, text in (
            (stage.state, "state", "keeps a state"), (stage.tables, "tables", "looks up tables"),
            (registered, "variants", "has the variants of a registry"),
        ):  # fmt: skip
            if refused:
                raise UsageError(
                    f"{pipeline.path}: stage {stage.name!r} {text} ('{section}'), which is not served in memory; test "
                    "it with 'spillway serve' on the embedded Kafka, or load a pipeline without it"
                )


def _check(option: str, names: Iterable[str], known: Collection[str], pipeline: Pipeline) -> None:
    for name in names:
        if name not in known:
            raise UsageError(
                f"{option}: there is no {'stage' if option == 'kill' else 'worker'} {name!r} in {pipeline.path}; there "
                f"are {', '.join(known)}"
            )


def _models(config: StageConfig) -> Mapping[int, Any]:
    """Return the models of workers that are threads, by their numbers."""
    spec = config.spec
    if config.processes:
        return {}
    if spec.emulated is not None:
        return dict.fromkeys(range(config.workers), EmulatedModel(lambda _size: 0.0))  # the world waits
    return {number: load_copy(spec, TORCH_THREADS) for number in range(config.workers)}
