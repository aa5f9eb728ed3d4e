"""The gate behind stateful stages, as a process: what it releases is noted with all that it rests on."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from spillway.agents.core.gate import GATE
from spillway.agents.sim.faults.processes.living import Replica, report_of
from spillway.agents.sim.faults.world.follower import Follower
from spillway.agents.sim.faults.world.records import EGRESS, OUTCOMES, Record
from spillway.agents.sim.faults.world.world import Told
from spillway.lineage.errors import FencedError
from spillway.lineage.message import PREDICTION

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.core.gate import GateCore
    from spillway.agents.core.outcomes import Release
    from spillway.agents.sim.faults.world.world import StateWorld

ABORTED, UNKNOWN = "aborted", "of unknown result"
_OPEN_SECONDS = 0.15  # until the broker aborts a transaction that somebody waits for
Offsets = dict[int, tuple[int, str]]
Written = tuple[int, int, str, float, float]  # partition, offset, id, sent, append time


class GateProcess(Replica):
    """One incarnation of one replica of the gate."""

    topic = OUTCOMES

    def __init__(self, world: StateWorld, replica: int) -> None:
        super().__init__(world, GATE, replica)
        self._standing: Offsets = {}  # what is committed for each of our partitions
        self.places = world.shards_of(world.graph.rests_on(None))
        self.logs = world.scenario.guards.gate_logs(self.places)
        self._writing = False
        self.breaks = ""  # what becomes of the transaction under way: aborted, or unknown
        self._open()
        self.follower = (world.scenario.guards.follower or Follower)(
            world, self, self.logs, self.places, self._logs_changed
        )
        self.begin()

    def _open(self) -> None:
        scenario, graph = self.world.scenario, self.world.graph
        durability = self.logs if self.places else None
        self.producer = self.world.broker.producer(f"{GATE}.{self.replica}")
        self.core: GateCore = scenario.guards.gate(graph, sinks=scenario.topology.sinks, durability=durability)

    def remember(self, partition: int, committed: int, note: str) -> None:
        broker = self.world.broker
        self._standing[partition] = committed, note
        spans, egress = self.core.assign(partition, committed, note)
        for record in broker.read((EGRESS, partition), egress):
            self.core.recall(partition, record.offset, record.request_id, record.sent, record.appended)
        for start, end in spans:
            for record in broker.read((OUTCOMES, partition), start, end):
                self.core.remember(report_of(partition, record))

    def _load(self, partition: int, committed: int, note: str) -> None:
        if self.world.broker.is_open((EGRESS, partition)):
            self.after(_OPEN_SECONDS, partial(self.world.broker.time_out, (EGRESS, partition)))
            self.after(2 * _OPEN_SECONDS, partial(self._load, partition, committed, note))
        else:
            super()._load(partition, committed, note)

    def forget(self, partition: int) -> None:
        self.core.revoke(partition)
        self._standing.pop(partition, None)
        self.after(0.0, self._go_on)  # what was held of it has left room

    def let_go(self, partition: int, then: Callable[[], None]) -> None:
        if self._writing:
            self._leaving.append((partition, then))
        else:
            super().let_go(partition, then)

    def poll(self, partition: int) -> None:
        if partition not in self.positions or self.lacks(partition, self.positions[partition]):
            return
        for record in self.world.broker.read((OUTCOMES, partition), self.positions[partition]):
            if not self._room:
                self.world.result.count("gate full")
                self._full.add(partition)
                break
            self.positions[partition] = record.offset + 1
            self.core.deliver(self.now, report_of(partition, record))
        wake = self.core.next_wake()
        if wake is not None:
            self.after(max(0.0, wake - self.now), lambda: self.core.advance(self.now))

    @property
    def _room(self) -> bool:
        return self.core.room and self.core.pending < self.world.scenario.held_limit

    def _go_on(self) -> None:
        if self._full and self._room:
            full, self._full = sorted(self._full), set()
            for partition in full:
                self.poll(partition)

    def _logs_changed(self) -> None:
        self.core.durability_changed(self.now)
        self._go_on()

    def commit(self) -> None:
        """Begin a turn, if none is under way and there is something to do."""
        if self._writing or self.world.answering(self.world.now) > self.world.now:
            return
        releases = self.core.collect(self.now)
        offsets = {p: place for p, place in self.core.commits().items() if place[0] or releases}
        if not (offsets or releases):
            return
        # Each record goes with an offset of its partition, if only the standing one: it is by these that the broker
        # refuses what a gate writes whose partitions have moved on.
        touched = {release.partition for release in releases}
        offsets |= {p: self._standing[p] for p in self.world.scenario.guards.also_commits(touched) - offsets.keys()}
        self._writing = True
        self.point("outputs.before")
        self.after(0.0005, partial(self._write, self.core, releases, offsets))

    def _write(self, core: GateCore, releases: list[Release], offsets: Offsets) -> None:
        if core is not self.core:
            return
        written = []
        try:
            for release in releases:
                source = release.source
                record = Record(release.request_id, _told(release), source.sent, source.deadline, source.hop)
                offset = self.world.broker.produce(self.producer, (EGRESS, release.partition), record)
                written.append((release.partition, offset, release.request_id, source.sent, record.appended))
        except FencedError:
            self._refused()
            return
        self.after(self.world.latency(), partial(self._finish, core, offsets, written))

    def _finish(self, core: GateCore, offsets: Offsets, written: list[Written]) -> None:
        if core is not self.core:
            return
        self.point("manifest.before")
        breaks, self.breaks = self.breaks, ""
        try:
            if breaks == ABORTED:
                self.world.broker.abort(self.producer)
            else:
                self.world.broker.finish(self.producer, GATE, self.incarnation, offsets)
        except FencedError:
            self._refused()
            return
        if breaks:
            self.world.result.count(f"gate's transaction {breaks}")
            self.begin_again()
            return
        self.point("manifest.after")
        self.after(self.world.latency(), partial(self._finished, core, offsets, written))

    def _finished(self, core: GateCore, offsets: Offsets, written: list[Written]) -> None:
        if core is not self.core:
            return
        self._writing = False
        for egress in written:
            core.written(*egress)
        for partition, (offset, note) in offsets.items():
            core.committed(partition, offset)
            if partition in self.positions:
                self._standing[partition] = offset, note
        leaving, self._leaving = self._leaving, []
        for partition, then in leaving:
            super().let_go(partition, then)
        self._go_on()

    def _refused(self) -> None:
        """Begin again without what has moved on, unless another process has this one's place."""
        if self.world.is_replaced(self):
            self.fenced()
        else:
            self.begin_again()

    def begin_again(self) -> None:
        """Drop what the core has decided since the last commit, with the core, and read on from there."""
        self._writing = False
        for partition in (*self.positions, *self._coming):
            self.revoke(partition)
        leaving, self._leaving = self._leaving, []
        for _, then in leaving:
            then()
        self._open()
        self.begin()

    def ousted(self) -> None:
        if self._writing and not self.world.is_replaced(self):
            return  # the transaction tells
        super().ousted()

    @property
    def idle(self) -> bool:
        core, broker = self.core, self.world.broker
        if (
            self._coming
            or core.pending
            or core.waiting
            or self._writing
            or any(offset for offset, _ in core.commits().values())
        ):
            return False
        return (
            self.follower is not None
            and self.follower.read_up()
            and all(
                next(broker.read((OUTCOMES, partition), position), None) is None
                for partition, position in self.positions.items()
            )
        )


def _told(release: Release) -> Told:
    outcome = release.outcome
    told = outcome.outputs if outcome.kind == PREDICTION else outcome.reason
    return Told(release.request_id, outcome.kind, told, release.offsets)
