"""One process of the gate in memory: the gate that ships, over the ports of a memory world."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from spillway.agents.core.gate import GateCore
from spillway.agents.live.gate.metrics import GateMetrics
from spillway.agents.memory.ports import MemoryClock, MemoryExecutor, MemorySpans, MemoryTransactions
from spillway.agents.memory.pulled_input import MemoryPulledInput
from spillway.agents.run.gate import Gate
from spillway.agents.run.gate_context import GateContext, GateTopics, gather_of
from spillway.agents.run.gate_wire import GateWire
from spillway.agents.run.inputs import Inputs, of_gate
from spillway.lineage.errors import OustedError
from spillway.lineage.values.codec import Decoder
from spillway.topology import topics

if TYPE_CHECKING:
    from spillway.agents.memory.groups import Group
    from spillway.agents.memory.processes import Process
    from spillway.agents.memory.world import DriverWorld
    from spillway.topology.load import Pipeline


class GateFront:
    """A process of the gate. Make it in that process."""

    def __init__(self, world: DriverWorld, process: Process, pipeline: Pipeline, group: Group) -> None:
        spec, limits = pipeline.spec, pipeline.spec.limits.merged()
        names = GateTopics(topics.outcomes(spec.name), topics.egress(spec.name), topics.dead(spec.name))
        pulled = MemoryPulledInput(world, process, group, f"{group.name}.0")
        spans, executor, clock = MemorySpans(world, process), MemoryExecutor(), MemoryClock(process)
        self.metrics = GateMetrics(spec.name, 0, spec.slo)
        self._gate = Gate(
            GateContext(
                name=f"{spec.name}.0",
                topics=names,
                input=pulled,
                transactions=MemoryTransactions(world, process, f"{group.name}.0", group.name, pulled.ticket),
                spans=spans,
                clock=clock,
                sleep=asyncio.sleep,
                begin=executor.run,
                reread=lambda places: asyncio.ensure_future(spans.pick(names.outcomes, places)),
                wire=GateWire(pipeline.graph.order, Decoder(limits), limits, clock),
                inputs=Inputs(names.outcomes, of_gate(group.name, names.outcomes), self.metrics.stopped),
                recorder=self.metrics,
                core=lambda: GateCore(pipeline.graph, sinks=spec.sinks),
                gather=gather_of(spec.slo),
            )
        )

    async def serve(self) -> None:
        """Serve until the process dies. Raises SpillwayError where it cannot go on."""
        await self._gate.start()
        while True:
            try:
                await self._gate.run(bool)
            except OustedError:
                await self._gate.rejoin()
