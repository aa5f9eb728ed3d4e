"""The gate behind stateful stages, as a process: what it releases is noted with all that it rests on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from agents.core.gate import GATE
from agents.sim.faults.broker import EGRESS, OUTCOMES, FencedError, Record
from agents.sim.faults.messages import report_of
from agents.sim.faults.states.processes.follower import Follower
from agents.sim.faults.states.processes.living import Living
from agents.sim.faults.states.world.history import Told
from lineage.message import PREDICTION

if TYPE_CHECKING:
    from agents.core.outcomes import Release
    from agents.sim.faults.states.world.state_world import StateWorld

Offsets = dict[int, tuple[int, str]]
Written = tuple[int, int, str, float, float]  # partition, offset, id, sent, append time


class GateProcess(Living):
    """One incarnation of the gate."""

    def __init__(self, world: StateWorld) -> None:
        super().__init__(world, GATE, 0)
        scenario = world.scenario
        self.producer = world.broker.producer(GATE)
        places = world.shards_of(world.graph.rests_on(None))
        logs = scenario.guards.gate_logs(places)
        self.core = scenario.guards.gate(
            world.graph, sinks=scenario.topology.sinks, durability=logs if places else None
        )
        self._writing = False
        self._began = False
        self.follower = Follower(world, self, logs, places, self._logs_changed)
        if not places:
            self._begin()

    def _begin(self) -> None:
        """Take the partitions, once the version logs were read to their ends."""
        self._began = True
        for partition in range(self.world.scenario.partitions):
            self.world.subscribe(self, (OUTCOMES, partition), partial(self.poll, partition))
            self.assign(partition)

    def assign(self, partition: int) -> None:
        """Take over a partition: read again what was released and what its note names."""
        broker = self.world.broker
        committed, note = broker.own(GATE, partition, self.incarnation)
        spans, egress = self.core.assign(partition, committed, note)
        for record in broker.read((EGRESS, partition), egress):
            self.core.recall(partition, record.offset, record.request_id, record.sent, record.appended)
        for start, end in spans:
            for record in broker.read((OUTCOMES, partition), start, end):
                self.core.remember(report_of(partition, record))
        self.positions[partition] = committed
        self.after(self.world.latency(), partial(self.poll, partition))

    def revoke(self, partition: int) -> None:
        """Let a partition go."""
        if self.positions.pop(partition, None) is not None:
            self.core.revoke(partition)

    def poll(self, partition: int) -> None:
        """Take what is there."""
        if partition not in self.positions:
            return
        for record in self.world.broker.read((OUTCOMES, partition), self.positions[partition]):
            self.positions[partition] = record.offset + 1
            self.core.deliver(self.world.now, report_of(partition, record))
        wake = self.core.next_wake()
        if wake is not None:
            self.after(max(0.0, wake - self.world.now), lambda: self.core.advance(self.world.now))

    def _logs_changed(self) -> None:
        if not self._began and self.follower.current:
            self._begin()
        self.core.durability_changed(self.world.now)

    def was_away(self, seconds: float) -> None:
        """Read the logs to where they end now before judging by them, if they may have been compacted."""
        if seconds > self.world.scenario.lag / 2:
            self.follower.was_away()

    def commit(self) -> None:
        """Begin a turn, if none is under way and there is something to do."""
        if self._writing or self.world.answering(self.world.now) > self.world.now:
            return
        self.point("outputs.before")
        releases = self.core.collect(self.world.now)
        offsets = {p: place for p, place in self.core.commits().items() if place[0] or releases}
        if not (offsets or releases):
            return
        self._writing = True
        written = []
        try:
            for release in releases:
                source = release.source
                record = Record(release.request_id, _told(release), source.sent, source.deadline, source.hop)
                offset = self.world.broker.produce(self.producer, (EGRESS, release.partition), record)
                written.append((release.partition, offset, release.request_id, source.sent, record.appended))
        except FencedError:
            self.fenced()
            return
        self.after(self.world.latency(), lambda: self._finish(offsets, written))

    def _finish(self, offsets: Offsets, written: list[Written]) -> None:
        self.point("manifest.before")
        try:
            self.world.broker.finish(self.producer, GATE, self.incarnation, offsets)
        except FencedError:
            self.fenced()
            return
        self.point("manifest.after")
        self.after(self.world.latency(), lambda: self._finished(offsets, written))

    def _finished(self, offsets: Offsets, written: list[Written]) -> None:
        self._writing = False
        for egress in written:
            self.core.written(*egress)
        for partition, (offset, _) in offsets.items():
            self.core.committed(partition, offset)

    @property
    def idle(self) -> bool:
        """Whether nothing is under way here."""
        core, broker = self.core, self.world.broker
        if (
            not self._began
            or core.pending
            or core.waiting
            or self._writing
            or any(offset for offset, _ in core.commits().values())
        ):
            return False
        return self.follower.read_up() and all(
            next(broker.read((OUTCOMES, partition), position), None) is None
            for partition, position in self.positions.items()
        )


def _told(release: Release) -> Told:
    outcome = release.outcome
    told = outcome.outputs if outcome.kind == PREDICTION else outcome.reason
    return Told(release.request_id, outcome.kind, told, release.offsets)
