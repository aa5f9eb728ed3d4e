"""One process of the gate in memory: the gate that ships, over the ports of a memory world."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from spillway.agents.core.gate import HELD_LIMIT, GateCore
from spillway.agents.core.join_rules import PAYLOAD_BYTES
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

    def __init__(
        self,
        world: DriverWorld,
        process: Process,
        pipeline: Pipeline,
        group: Group,
        *,
        replica: int = 0,
        payload_bytes: int = PAYLOAD_BYTES,
        held_limit: int = HELD_LIMIT,
    ) -> None:
        """`payload_bytes` and `held_limit`: as of `GateCore`."""
        name = f"{group.name}.{replica}"
        spec, limits = pipeline.spec, pipeline.spec.limits.merged()
        names = GateTopics(topics.outcomes(spec.name), topics.egress(spec.name), topics.dead(spec.name))
        self._leaving = False

        def begin() -> GateCore:
            self.core = GateCore(pipeline.graph, sinks=spec.sinks, payload_bytes=payload_bytes, held_limit=held_limit)
            return self.core

        self.input = pulled = MemoryPulledInput(world, process, group, name)
        spans, executor, clock = MemorySpans(world, process), MemoryExecutor(), MemoryClock(process)
        self.metrics = GateMetrics(spec.name, replica, spec.slo)
        self.transactions = MemoryTransactions(world, process, name, group.name, pulled.ticket)
        self.gate = Gate(
            GateContext(
                name=f"{spec.name}.{replica}",
                topics=names,
                input=pulled,
                transactions=self.transactions,
                spans=spans,
                clock=clock,
                sleep=asyncio.sleep,
                begin=executor.run,
                reread=lambda places: asyncio.ensure_future(spans.pick(names.outcomes, places)),
                wire=GateWire(pipeline.graph.order, Decoder(limits), limits, clock),
                inputs=Inputs(names.outcomes, of_gate(group.name, names.outcomes), self.metrics.stopped),
                recorder=self.metrics,
                core=begin,
                gather=gather_of(spec.slo),
            )
        )

    async def serve(self) -> None:
        """Serve until the process dies or is to `leave`. Raises SpillwayError where it cannot go on."""
        await self.gate.start()
        while not self._leaving:
            try:
                await self.gate.run(lambda: self._leaving)
            except OustedError:
                await self.gate.rejoin()
        await self.input.close(leave=True)

    @property
    def left(self) -> dict[str, int]:
        return {} if self.gate.idle else {"held or waiting": 1}

    def leave(self) -> None:
        """End `serve` in order, after which other replicas have its partitions."""
        self._leaving = True
