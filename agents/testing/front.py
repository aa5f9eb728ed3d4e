"""One process of a stage in memory: the stage that ships, over the ports of a memory world."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from spillway.agents.live.stage.guard import Guard
from spillway.agents.live.stage.parts import build_cache, build_core, build_work, known_of, stage_signature
from spillway.agents.memory.input import MemoryInput
from spillway.agents.memory.ports import MemoryClock, MemoryLog, MemoryOutput, MemorySpans
from spillway.agents.metrics import StageMetrics
from spillway.agents.run.emission import Emission
from spillway.agents.run.inputs import Inputs, of_stage
from spillway.agents.run.intake import Intake
from spillway.agents.run.memory import Memory, Rereading
from spillway.agents.run.planner import Planner, without_words
from spillway.agents.run.stage import Context, Stage
from spillway.agents.run.tally import Tally
from spillway.agents.testing.workers import MemoryWorkers
from spillway.lineage.values.codec import Decoder

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spillway.agents.core.stage import StageCore
    from spillway.agents.live.stage.batch_work import BatchWork
    from spillway.agents.memory.groups import Group
    from spillway.agents.memory.processes import Process
    from spillway.agents.memory.world import DriverWorld
    from spillway.topology.load import Pipeline
    from spillway.topology.spec import StageSpec

COMMIT_EVERY = 0.5  # seconds


class Front:
    """A process of one replica of a stage. Make it in that process."""

    def __init__(
        self,
        world: DriverWorld,
        process: Process,
        pipeline: Pipeline,
        spec: StageSpec,
        group: Group,
        *,
        replica: int,
        models: Mapping[int, Any],
        period: float,
        duration: Callable[[int], float] | None,
    ) -> None:
        """`models`: of its workers. `period`: seconds between two words to the other stages.

        `duration`: of a batch of n, in seconds; None: what its model takes.
        """
        known, limits = known_of(models[0]), pipeline.spec.limits.merged()
        clock, spans = MemoryClock(process), MemorySpans(world, process)
        name, topic = pipeline.spec.name, group.topic
        self.metrics = StageMetrics(name, spec.name, replica, queue_limit=spec.queue, instances=len(models))
        self.metrics.plan_now = world.loop.time
        guard = Guard(spec.name)
        work: BatchWork = build_work(pipeline, spec, models, known, limits, guard)
        cache = build_cache(spec, known)
        self.metrics.cache = cache.get("cache")
        core: StageCore = build_core(pipeline, spec, replica, None, period=period, threads=len(models), cache=cache)
        decoder = Decoder(limits)
        intake = Intake(
            predecessors=tuple(pipeline.graph.predecessors[spec.name]),
            decoder=decoder,
            signature=None if pipeline.graph.is_join(spec.name) else stage_signature(spec, known),
            slo=pipeline.spec.slo,
            metrics=self.metrics,
        )
        self._planner = Planner(
            *(pipeline.spec, core.view, core), clock=clock, decoder=decoder, metrics=self.metrics, reload_schemas=bool
        )
        context = Context(
            intake=intake,
            emission=Emission(name, spec.name, limits, clock.now),
            memory=Memory(topic, spans, intake),
            rereading=Rereading(topic, spans, intake),
            metrics=self.metrics,
            tally=Tally(self.metrics, self._planner.observed),
            inputs=Inputs(topic, of_stage(group.name, topic), self.metrics.stopped),
            guard=guard,
            remembered=work.remembered,
            reload_schemas=bool,
        )
        self.stage = stage = Stage(core, clock, context)
        self._output = MemoryOutput(world, process, partial(without_words, stored=stage.stored))
        workers = MemoryWorkers(process, stage, work.run, duration)
        self._input = MemoryInput(world, process, group, f"{group.name}.{replica}", stage, COMMIT_EVERY)
        stage.start(self._input, self._output, workers)
        self._log = MemoryLog(world, process)

    async def serve(self) -> None:
        """Serve until the process dies. Raises SpillwayError where it cannot go on."""
        self._planner.follow(self._log)
        planning = asyncio.get_running_loop().create_task(self._planner.run(self._output, self.stage.tick))
        planning.add_done_callback(self.stage.planning_ended)
        self._input.start()
        await self.stage.failed
