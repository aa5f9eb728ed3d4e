"""The gate behind stateful stages, as a process: the gate that ships, over a run's logs.

What it releases is noted with all that it rests on.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from spillway.agents.core.gate import GATE
from spillway.agents.memory.ports import MemoryClock, MemorySpans, MemoryTransactions
from spillway.agents.memory.pulled_input import MemoryPulledInput
from spillway.agents.proof.shards.ports import RunInputs
from spillway.agents.proof.shards.replica import DEAD_LETTERS, Replica, report_of
from spillway.agents.proof.shards.world.records import EGRESS, OUTCOMES, Record
from spillway.agents.proof.shards.world.world import Told
from spillway.agents.run.gate_context import POLL_SECONDS, GateContext, GateTopics
from spillway.lineage.message import PREDICTION

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spillway.agents.core.outcomes import Release
    from spillway.agents.core.request import Delivery
    from spillway.agents.memory.groups import Ticket
    from spillway.agents.proof.shards.world.world import StateWorld
    from spillway.agents.run.gate import Gate
    from spillway.lineage.ports import Commit, Outgoing


class RunTransactions(MemoryTransactions):
    """A gate's transactions, which may break."""

    def __init__(self, process: GateProcess, member: Callable[[], Ticket]) -> None:
        super().__init__(process.world, process, f"{GATE}.{process.replica}", GATE, member)
        self._gate, self.breaks = process, self._break_once
        self.next_breaks = ""  # what becomes of the next one: aborted, or unknown

    async def write(self, records: Sequence[Outgoing], offsets: Mapping[int, Commit]) -> list[tuple[int, int]]:
        self._gate.point("outputs.before")
        written = await super().write(records, offsets)
        self._gate.point("manifest.after")
        return written

    def _break_once(self) -> str:
        self._gate.point("manifest.before")
        breaks, self.next_breaks = self.next_breaks, ""
        return breaks


class RunWire:
    """Makes deliveries of a run's reports, and its records of releases."""

    def read(self, record: Any) -> Delivery:
        return report_of(record.partition, record.record)

    envelope = read

    def again(self, _fetch: Any, record: Any) -> tuple[Any, None]:
        return self.read(record).payload, None

    def released(self, record: Any) -> tuple[str, float]:
        return record.record.request_id, record.record.sent

    def message(self, release: Release) -> tuple[Any, tuple[()]]:
        outcome, source = release.outcome, release.source
        told = outcome.outputs if outcome.kind == PREDICTION else outcome.reason
        body = Told(release.request_id, outcome.kind, told, release.offsets)
        return Record(release.request_id, body, source.sent, source.deadline, source.hop), ()

    def letter(self, unusable: Any) -> tuple[bytes, tuple[()]]:
        raise NotImplementedError(f"a run's reports can all be read: {unusable}")


class Recorder:
    """Counts nothing."""

    def __init__(self) -> None:
        self.received = self.aborted = 0
        self.duplicates: Callable[[], int] = int
        self.held: Callable[[], int] = int
        self.committed: dict[int, int] = {}

    def accepted(self, *_told: Any, **_named: Any) -> None:
        """Nothing, as all that follow."""

    released = transferred = wrote_letters = report_waits = accepted


class GateProcess(Replica):
    """One incarnation of one replica of the gate."""

    _gate: Gate | None = None

    def __init__(self, world: StateWorld, replica: int) -> None:
        self._changed = False
        super().__init__(world, GATE, replica)

    async def _serve(self) -> None:
        world, scenario = self.world, self.world.scenario
        places = world.shards_of(world.graph.rests_on(None))
        durability = self._follow(scenario.guards.gate_logs, places, self._logs_changed)
        self._input = MemoryPulledInput(world, self, world.groups[GATE], f"{GATE}.{self.replica}")
        self._transactions, spans = RunTransactions(self, self._input.ticket), MemorySpans(world, self)
        context = GateContext(
            name=f"{GATE}.{self.replica}",
            topics=GateTopics(OUTCOMES, EGRESS, DEAD_LETTERS),
            input=self._input,
            transactions=self._transactions,
            spans=spans,
            clock=MemoryClock(self),
            sleep=asyncio.sleep,
            begin=_none_is_long,
            reread=lambda wanted: asyncio.ensure_future(spans.pick(OUTCOMES, wanted)),
            wire=RunWire(),  # type: ignore[arg-type]
            inputs=RunInputs(self, OUTCOMES),
            recorder=Recorder(),
            core=lambda: scenario.guards.gate(
                world.graph, sinks=scenario.topology.sinks, durability=durability, held_limit=scenario.held_limit
            ),
            versions=self if places else None,
            held_poll=POLL_SECONDS,  # versions end a wait in `take`
        )
        gate = scenario.guards.gate_driver(context)
        await gate.start()
        self._gate = gate
        await gate.run(lambda: False)

    # What it hears of versions ---------------------------------------------------------------------------------

    def _logs_changed(self) -> None:
        self._changed = True
        self._input.stir()

    def news(self) -> bool:
        changed, self._changed = self._changed, False
        return changed

    # For the run -----------------------------------------------------------------------------------------------

    def break_next(self, what: str) -> None:
        if self._gate is not None:
            self._transactions.next_breaks = what

    @property
    def has(self) -> set[int]:
        return set() if self._gate is None else set(self._gate.partitions)

    @property
    def idle(self) -> bool:
        gate = self._gate
        return gate is not None and gate.idle and self._input.read_up and self._has_read


def _none_is_long(function: Callable[[], Any]) -> Any:
    raise NotImplementedError(f"a run's outcomes are short: {function}")
