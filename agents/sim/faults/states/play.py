"""One run: the clients, the processes with what happens to them, and the end."""

from __future__ import annotations

import heapq
from functools import partial
from typing import TYPE_CHECKING

from agents.core.gate import GATE
from agents.sim.faults.broker import INGRESS, Record
from agents.sim.faults.states.processes.bare import BareProcess
from agents.sim.faults.states.processes.gate import GateProcess
from agents.sim.faults.states.processes.stateless import StatelessProcess
from agents.sim.faults.states.schedule.scenario import Kind
from agents.sim.faults.states.shard.member import MemberProcess
from agents.sim.faults.states.world.model import key_of
from agents.sim.faults.states.world.state_world import StateWorld
from agents.sim.faults.states.world.topics import CONTROL, STATE, VERSIONS, keyed, versions_of
from agents.sim.faults.world import START
from lineage.keys import partition_for
from lineage.replication import Yield

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from agents.sim.faults.broker import Place
    from agents.sim.faults.process import Process
    from agents.sim.faults.states.processes.living import Living
    from agents.sim.faults.states.schedule.scenario import Fault, Scenario
    from agents.sim.faults.states.shard.primary import Primary

_STEPS = 300_000  # more events than any run needs: a run that does not end is an error, not a hang
_NOTICED = 0.05  # seconds until a supervisor has noticed a death, at most
Slot = tuple[str, int, int]  # stage, shard (-1: stateless), replica


class Play(StateWorld):
    """Runs a scenario."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(scenario, seed)
        self._ahead = 0  # queries to come, faults under way: nothing ends before these
        self.processes: dict[Slot, Living] = {}
        self._waiting: list[Fault] = []  # for a process to come to a point
        self._seen: dict[tuple[Fault, str], int] = {}
        self.points = self._come_to

    # The run ---------------------------------------------------------------------------------------------------

    def run(self) -> Play:
        """Run until nothing is left to do."""
        scenario, events = self.scenario, self.events
        for fault in scenario.faults:
            self._schedule(fault)
        for slot in self._slots():
            self._start(slot)
        self._schedule_queries()
        self._schedule_compaction()
        checked = self.now
        for _ in range(_STEPS):
            if not events:
                break  # all are dead
            self.now, _, what = heapq.heappop(events)
            what()
            self.result.events += 1
            if self.now - checked > 0.25:  # noqa: PLR2004 (seconds between two looks)
                checked = self.now
                if self.now - START > scenario.most_seconds or (not self._ahead and self._quiet()):
                    break
        return self._finish()

    def _slots(self) -> list[Slot]:
        slots: list[Slot] = [(GATE, -1, 0)]
        for stage in self.graph.order:
            if stage in self.scenario.topology.states:
                slots += [
                    (stage, shard, replica)
                    for shard in range(self.scenario.shards_of(stage))
                    for replica in range(1 + self.scenario.backups)
                ]
            else:
                slots.append((stage, -1, 0))
        return slots

    def _start(self, slot: Slot) -> None:
        stage, shard, replica = slot
        if stage == GATE:
            self.processes[slot] = GateProcess(self)
        elif stage in self.scenario.bare:
            self.processes[slot] = BareProcess(self, stage)
        elif shard < 0:
            self.processes[slot] = StatelessProcess(self, stage)
        else:
            self.processes[slot] = MemberProcess(self, (stage, shard), replica)

    def _schedule_queries(self) -> None:
        scenario, random = self.scenario, self.random
        when = START
        for number in range(scenario.queries):
            when += random.expovariate(scenario.rate)
            self._ahead += 1
            self.at(when, partial(self._query, f"q{number}", when))
            if random.random() < scenario.repeats:
                again = when + random.uniform(0.0, 1.0)
                self._ahead += 1
                self.at(again, partial(self._query, f"q{number}", again))

    def _query(self, request_id: str, sent: float) -> None:
        self._ahead -= 1
        key = key_of(request_id, self.scenario.keys) if self.scenario.topology.keyed else request_id
        partition = partition_for(key.encode(), self.scenario.partitions)
        self.result.accepted.setdefault(request_id, sent)
        self.broker.append((INGRESS, partition), Record(request_id, request_id, sent, sent + self.scenario.slo))

    def _schedule_compaction(self) -> None:
        if self.scenario.compactions:
            self.at(self.now + self.random.expovariate(self.scenario.compactions), self._compact)

    def _compact(self) -> None:
        topics = [place for place in self.broker.logs if place == CONTROL or place[0].endswith((VERSIONS, STATE))]
        if topics:
            lag = self.scenario.lag * (1 + self.random.random())
            self.broker.compact(self.random.choice(sorted(topics)), self.now - lag)
        self._schedule_compaction()

    # What goes wrong -------------------------------------------------------------------------------------------

    def _schedule(self, fault: Fault) -> None:
        at = START + fault.at
        if fault.kind is Kind.AWAY:
            self.away(at, at + fault.seconds)
            self._strike_later(at, lambda: self.result.struck.append("broker away"))
        elif fault.kind is Kind.LATE:
            place = (fault.of, fault.shard)
            self.late(fault.stage, versions_of(place), at, at + fault.seconds)
            self._strike_later(at, lambda: self.result.struck.append(f"late log of {fault.of} at {fault.stage}"))
        elif fault.kind is Kind.SWITCH:
            self._strike_later(at, partial(self._switch, (fault.stage, fault.shard)))
        elif fault.point:
            self.at(at, lambda: self._waiting.append(fault))
        else:
            self._strike_later(at, partial(self._strike_one, fault))

    def _switch(self, place: Place) -> None:
        """Ask for another primary of a shard, as an operator does."""
        epoch = max((process.epoch for process in self._primaries(place)), default=0)
        if epoch:
            self.result.struck.append(f"switch of {place[0]}")
            self.broker.append(CONTROL, keyed(f"yield/operator/{place}/{epoch}", Yield(*place, epoch, "operator")))

    def _strike_later(self, at: float, what: Callable[[], None]) -> None:
        self._ahead += 1

        def come() -> None:
            self._ahead -= 1
            what()

        self.at(at, come)

    def _strike_one(self, fault: Fault) -> None:
        """Find whom a fault strikes now, by stage and role."""
        found = [
            (slot, process)
            for slot, process in self.processes.items()
            if self._is_meant(fault, slot, process) and process.alive and process.standing is None
        ]
        if found:
            self._strike(fault, *self.random.choice(found))

    @staticmethod
    def _is_meant(fault: Fault, slot: Slot, process: Process) -> bool:
        return (
            slot[0] == fault.stage
            and slot[1] in (-1, fault.shard)
            and (not fault.role or getattr(process, "role", "") == fault.role)
        )

    def _come_to(self, process: Process, point: str) -> None:
        """Look whether the process is to be struck where it is."""
        for fault in self._waiting:
            if fault.point != point or fault.stage != process.stage:
                continue
            slot = next((slot for slot, one in self.processes.items() if one is process), None)
            if slot is None or not self._is_meant(fault, slot, process) or process.standing is not None:
                continue
            seen = self._seen[fault, point] = self._seen.get((fault, point), 0) + 1
            if seen >= fault.nth:
                self._waiting.remove(fault)
                self._strike(fault, slot, self.processes[slot])
                return

    def _strike(self, fault: Fault, slot: Slot, process: Living) -> None:
        where = f" at {fault.point}" if fault.point else ""
        self.result.struck.append(f"{fault.kind.value} {slot[0]} {getattr(process, 'role', '')}{where}")
        if fault.kind is Kind.CRASH:
            process.die()
            self._replace(slot, process, fault.seconds)
        elif fault.kind is Kind.PAUSE:
            process.stand_still()
            if fault.reported and isinstance(process, MemberProcess):
                self.at(self.now + self.random.random() * _NOTICED, partial(self._report, process))
            self._strike_later(self.now + fault.seconds, lambda: self._awake(slot, process))
            if not isinstance(process, MemberProcess):  # its partitions move when its session is over
                self._strike_later(self.now + fault.seconds / 2, lambda: self._start(slot))
        elif fault.kind is Kind.SLOW:
            process.wire.slow = 0.3
            self._strike_later(self.now + fault.seconds, lambda: setattr(process.wire, "slow", 0.0))

    def _replace(self, slot: Slot, dead: Living, seconds: float) -> None:
        if isinstance(dead, MemberProcess) and self.scenario.reports:
            self.at(self.now + self.random.random() * _NOTICED, partial(self._report, dead))
        self._strike_later(self.now + seconds, lambda: self._start(slot))

    def ended(self, process: Process) -> None:
        """Start a process again that has ended by itself."""
        for slot, one in self.processes.items():
            if one is process:
                self._replace(slot, one, 0.1)

    def _report(self, dead: MemberProcess) -> None:
        for process in tuple(self.processes.values()):
            if isinstance(process, MemberProcess) and process.place == dead.place and process.alive:
                process.after(0.0, partial(process.reported, (dead.name,)))

    def _awake(self, slot: Slot, process: Living) -> None:
        """Let a process go on; one that was replaced learns it a moment later."""
        if not process.alive:
            return
        process.attempt(process.go_on)
        if self.processes[slot] is not process:
            self._strike_later(self.now + 0.2, partial(self._bury, process))

    @staticmethod
    def _bury(process: Living) -> None:
        if process.alive:
            process.fenced()

    # The end ---------------------------------------------------------------------------------------------------

    def _quiet(self) -> bool:
        return all(process.alive and process.idle for process in self.processes.values()) and self._governed()

    def _governed(self) -> bool:
        """Whether every shard has a primary, and everybody has judged everything."""
        return all(any(True for _ in self._primaries(place)) for place in self.shards_of(self.scenario.topology.states))

    def _primaries(self, place: Place) -> Iterable[Primary]:
        for process in self.processes.values():
            if isinstance(process, MemberProcess) and process.place == place and process.primary is not None:
                yield process.primary

    def _finish(self) -> Play:
        result = self.result
        result.seconds = self.now - START
        for slot, process in self.processes.items():
            if not (process.alive and process.idle):
                result.stuck.append(f"{slot[0]}.{max(slot[1], 0)}.{slot[2]}")
        for place in self.shards_of(self.scenario.topology.states):
            primaries = list(self._primaries(place))
            if len(primaries) != 1:
                result.stuck.append(f"{place[0]}.{place[1]} has {len(primaries)} primaries")
            for primary in primaries:
                version = type(primary.base)(primary.epoch, primary.reign.recorded)
                result.final[place] = (version if version.n > primary.base.n else primary.base), primary.state.digest
        return self


def run(scenario: Scenario, seed: int) -> Play:
    """Run `scenario` with all that chance decides drawn from `seed`."""
    return Play(scenario, seed).run()
