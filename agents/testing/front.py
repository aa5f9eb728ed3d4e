"""One process of a stage in memory: the stage that ships, over the ports of a memory world."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from spillway.agents.core.join_rules import PAYLOAD_BYTES
from spillway.agents.core.laned_stage import LanedCore
from spillway.agents.live.stage.build import build_work, known_of, known_of_hello
from spillway.agents.live.stage.crash_watch import CrashWatch
from spillway.agents.live.stage.dispatch_pool import beside_of
from spillway.agents.live.stage.driver import DriverParts, build_driver
from spillway.agents.live.stage.members import Members
from spillway.agents.live.stage.redundancy_workers import Extras
from spillway.agents.live.stage.variants import VariantCrews
from spillway.agents.memory.input import MemoryInput
from spillway.agents.memory.ports import MemoryClock, MemoryLog, MemoryOutput, MemorySpans
from spillway.agents.metrics import StageMetrics
from spillway.agents.run.planner import without_words
from spillway.agents.testing.workers import MemoryWorkers
from spillway.lineage.values.codec import Decoder
from spillway.topology.ensembles import record_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spillway.agents.core.stage import StageCore
    from spillway.agents.live.stage.build import Known
    from spillway.agents.live.stage.config import StageConfig
    from spillway.agents.live.stage.crew import Crew, Crews
    from spillway.agents.memory.groups import Group
    from spillway.agents.memory.processes import Process
    from spillway.agents.memory.world import DriverWorld
    from spillway.agents.run.stage import Stage
    from spillway.topology.ensembles import Served

COMMIT_EVERY = 0.5  # seconds
_LOOK = 0.05  # seconds between two looks whether all is done


class Front:
    """A process of one replica of a stage. Make it in that process."""

    def __init__(
        self,
        world: DriverWorld,
        process: Process,
        config: StageConfig,
        group: Group,
        *,
        models: Mapping[int, Any],
        duration: Callable[[int], float] | None,
        crews: Crews,
        loaded: Callable[[], object],
        payload_bytes: int = PAYLOAD_BYTES,
    ) -> None:
        """`models`: of its workers, where these are threads.

        `duration`: of a thread's batch of n, in seconds; None: what its model takes. `loaded` is called once the
        workers that would be processes have loaded their models. `payload_bytes`: as of `Rule`.
        """
        self._world, self._process, self._config, self._group = world, process, config, group
        self._models, self._duration, self._crews = models, duration, crews
        name, spec = config.pipeline.spec.name, config.spec
        self.metrics = StageMetrics(name, spec.name, config.replica, queue_limit=spec.queue, instances=len(models))
        self.metrics.plan_now = world.loop.time
        self._loaded, self._payload_bytes = loaded, payload_bytes
        self._leaving = asyncio.Event()
        self.begun = False  # whether it has loaded, and has what follows
        self.stage: Stage
        self.core: StageCore
        self._crew: Crew | Members | VariantCrews | None

    async def serve(self) -> None:
        """Serve until the process dies or has left. Raises SpillwayError where it cannot go on."""
        config, world, process = self._config, self._world, self._process
        beside = beside_of(config, self._crews)
        known, crew = await self._begin_workers()
        if beside is not None:
            await beside.ready()
        self._loaded()
        limits, guard = config.pipeline.spec.limits.merged(), CrashWatch(config.stage)
        work = build_work(config, self._models, known, guard)
        built = build_driver(
            config,
            DriverParts(
                known=known,
                work=work,
                guard=guard,
                metrics=self.metrics,
                clock=MemoryClock(process),
                spans=MemorySpans(world, process),
                decoder=Decoder(limits),
                threads=len(self._models),
                crew=crew,
                beside=beside,
                payload_bytes=self._payload_bytes,
            ),
        )
        stage, planner, self.core = built.stage, built.planner, built.core
        self.stage, self._crew = stage, crew
        output = MemoryOutput(world, process, partial(without_words, stored=stage.stored))
        member = f"{self._group.name}.{config.replica}"
        source = MemoryInput(world, process, self._group, member, stage, COMMIT_EVERY)
        stage.start(source, output, crew or MemoryWorkers(process, stage, work.run, self._duration))
        if crew is not None:
            crew.begin(stage, work)
        if beside is not None:
            loop = asyncio.get_running_loop()
            stage.extras = extras = Extras(beside, work, loop, stage)
            extras.begin()
        planner.follow(MemoryLog(world, process))
        planning = asyncio.get_running_loop().create_task(planner.run(output, stage.tick))
        planning.add_done_callback(stage.planning_ended)
        source.start()
        self.begun = True
        left = asyncio.ensure_future(self._left(source, output))
        await asyncio.wait([stage.failed, left], return_when=asyncio.FIRST_COMPLETED)
        if stage.failed.done():
            stage.failed.result()

    def leave(self) -> None:
        """End `serve` in order, after which other replicas have its partitions."""
        self._leaving.set()

    def follow(self, record: Served) -> None:
        """Change an ensemble to the members that a record says, as the table of sizes would."""
        assert isinstance(self._crew, Members)  # it is an ensemble's, and has begun
        self._config = self._config.sized({}, {record_key(self._config.stage): record})
        self._crew.follow(self._config, record)

    @property
    def left(self) -> dict[str, int]:
        if not self.begun:
            return {}
        core, dispatch = self.core, self.metrics.dispatch
        left = {
            "unsettled": core.unsettled,
            "queued": core.depth,
            "in joins": core.waiting,
            "in lanes": core.lanes.under_way if isinstance(core, LanedCore) else 0,
            "in dispatch": 0 if dispatch is None else dispatch.under_way,
        }
        return {what: count for what, count in left.items() if count}

    async def _left(self, source: MemoryInput, output: MemoryOutput) -> None:
        await self._leaving.wait()
        self.stage.stop_taking()
        while not self.stage.idle:  # noqa: ASYNC110 - what makes it so is many things
            await asyncio.sleep(_LOOK)
        await source.close(leave=True)
        await output.close()

    async def _begin_workers(self) -> tuple[Known, Crew | Members | VariantCrews | None]:
        """Start the workers that would be processes, and return what their model says of itself."""
        config, spec = self._config, self._config.spec
        if spec.ensemble is not None:
            members = Members(config, self._crews)
            return await members.first(), members
        if spec.variants is not None:
            variants = VariantCrews(config, self._crews)
            return await variants.first(), variants
        if config.processes:
            crew = self._crews.make(f"stage {spec.name!r}", spec, config.workers)
            return known_of_hello(await crew.first()), crew
        return known_of(self._models[0]), None
