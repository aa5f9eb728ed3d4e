"""The gate's process as the fault simulator has it: turns of collecting, writing and committing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.core.gate import GATE
from agents.sim.faults.broker import EGRESS, OUTCOMES, FencedError, Record
from agents.sim.faults.messages import report_of
from agents.sim.faults.process import Process

if TYPE_CHECKING:
    from agents.sim.faults.world import World


Written = tuple[int, int, str, float, float]  # partition, offset, id, sent, append time


class GateProcess(Process):
    """One incarnation of the gate."""

    topic = OUTCOMES

    def __init__(self, world: World, replica: int) -> None:
        super().__init__(world, GATE, replica)
        self.producer = world.broker.producer(f"{GATE}.{replica}")
        self.aborts = False  # whether the next transaction is to be aborted
        self._writing = False
        self._fresh_core()

    def _fresh_core(self) -> None:
        scenario = self.world.scenario
        self.core = scenario.gate_type(scenario.graph, sinks=scenario.sinks)

    def assign(self, partition: int) -> None:
        """Take over a partition: read again what was released and what its note names."""
        broker = self.world.broker
        committed, note = broker.own(GATE, partition, self.incarnation)
        self.tenures[partition] = self.world.tenure(GATE, partition, committed)
        self._learn(partition, committed, note)

    def _learn(self, partition: int, committed: int, note: str) -> None:
        broker = self.world.broker
        spans, egress = self.core.assign(partition, committed, note)
        for record in broker.read((EGRESS, partition), egress):
            self.core.recall(partition, record.offset, record.request_id, record.sent, record.appended)
        for start, end in spans:
            for record in broker.read((OUTCOMES, partition), start, end):
                self.core.remember(report_of(partition, record))
        self.positions[partition] = committed
        self.poll(partition)

    def revoke(self, partition: int) -> None:
        if self.positions.pop(partition, None) is not None:
            self.core.revoke(partition)

    def poll(self, partition: int) -> None:
        for record in self.world.broker.read((OUTCOMES, partition), self.positions.get(partition, 0)):
            if partition not in self.positions:
                return
            self.positions[partition] = record.offset + 1
            self.core.deliver(self.world.now, report_of(partition, record))
        wake = self.core.next_wake()
        if wake is not None:
            self.after(max(0.0, wake - self.world.now), lambda: self.core.advance(self.world.now))

    def commit(self) -> None:
        """Begin a turn, if none is under way and there is something to do."""
        if self._writing:
            return
        releases = self.core.collect(self.world.now)
        offsets = {p: place for p, place in self.core.commits().items() if place[0] or releases}
        if not (offsets or releases):
            return
        self._writing = True
        written = []
        try:
            for release in releases:
                source = release.source
                record = Record(release.request_id, release.outcome, source.sent, source.deadline, source.hop)
                offset = self.world.broker.produce(self.producer, (EGRESS, release.partition), record)
                written.append((release.partition, offset, release.request_id, source.sent, record.appended))
        except FencedError:
            self.fenced()
            return
        self.after(self.world.latency(), lambda: self._finish(offsets, written))

    def _finish(self, offsets: dict[int, tuple[int, str]], written: list[Written]) -> None:
        try:
            if self.aborts:
                self.aborts = False
                self.world.broker.abort(self.producer)
                self._start_over()
                return
            self.world.broker.finish(self.producer, GATE, self.incarnation, offsets)
        except FencedError:
            self.fenced()
            return
        self.after(self.world.latency(), lambda: self._finished(offsets, written))

    def _finished(self, offsets: dict[int, tuple[int, str]], written: list[Written]) -> None:
        self._writing = False
        for egress in written:
            self.core.written(*egress)
        for partition, (offset, _) in offsets.items():
            self.core.committed(partition, offset)

    def _start_over(self) -> None:
        self._writing = False
        self._fresh_core()
        for partition in tuple(self.positions):
            committed, note = self.world.broker.committed(GATE, partition)
            self.tenures[partition] = self.world.tenure(GATE, partition, committed)
            self._learn(partition, committed, note)

    @property
    def idle(self) -> bool:
        core = self.core
        return not (core.pending or core.waiting or self._writing or any(o for o, _ in core.commits().values()))
