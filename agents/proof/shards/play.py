"""One run: the clients, the processes with what happens to them, and the end."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from spillway.agents.core.gate import GATE
from spillway.agents.memory.ports import ABORTED
from spillway.agents.memory.processes import AFTER
from spillway.agents.memory.world import START
from spillway.agents.proof.shards.gate import GateProcess
from spillway.agents.proof.shards.member.member import MemberProcess
from spillway.agents.proof.shards.schedule.scenario import Kind
from spillway.agents.proof.shards.stateless import StatelessProcess
from spillway.agents.proof.shards.world.model import key_of
from spillway.agents.proof.shards.world.records import CONTROL, INGRESS, STATE, VERSIONS, Record, keyed, versions_of
from spillway.agents.proof.shards.world.world import StateWorld
from spillway.lineage.keys import partition_for
from spillway.lineage.replication import Yield

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from spillway.agents.memory.broker import Place
    from spillway.agents.proof.shards.member.host import Reigning
    from spillway.agents.proof.shards.replica import Living
    from spillway.agents.proof.shards.schedule.scenario import Fault, Scenario
    from spillway.agents.proof.shards.world.world import Process

_STEPS = 300_000  # more events than any run needs: a run that does not end is an error, not a hang
_LEFT = 25.0  # seconds that a run goes on in which an input was lost: longer than joins wait
_BREAKS = {Kind.ABORT: ABORTED, Kind.UNKNOWN: AFTER}
_NOTICED = 0.05  # seconds until a supervisor has noticed a death, at most
Slot = tuple[str, int, int]  # stage, shard (-1: stateless), replica


class EndlessError(Exception):
    """A run goes on for ever."""


class Play(StateWorld):
    """Runs a scenario."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(scenario, seed)
        self._ahead = 0  # queries to come, faults under way: nothing ends before these
        self.slots: dict[Slot, Living] = {}
        self._waiting: list[Fault] = []  # for a process to come to a point
        self._seen: dict[tuple[Fault, str], int] = {}
        self._cut: dict[Place, int] = {}  # inputs whose end was cut off, with their readers' positions
        self.points = self._come_to

    # The run ---------------------------------------------------------------------------------------------------

    def run(self) -> Play:
        scenario = self.scenario
        for fault in scenario.faults:
            self._schedule(fault)
        for slot in self._slots():
            self._start(slot)
        self._schedule_queries()
        self._schedule_compaction()
        with self.loop.running():
            self._step()
        self._finish()
        for process in self.slots.values():
            process.kill()
        self.loop.close()
        return self

    def _step(self) -> None:
        scenario = self.scenario
        checked, most = self.now, scenario.most_seconds
        for _ in range(_STEPS):
            if not self.loop.step():
                break  # all are dead
            if self.loop.failures:
                raise self.loop.failures[0]
            self.result.events += 1
            if self.now - checked > 0.25 * scenario.stretch:  # seconds between two looks
                checked = self.now
                if self.loop.unheard:
                    raise self.loop.unheard[0]
                if self.result.stopped and not self._ahead:
                    most = min(most, self.now - START + _LEFT * scenario.stretch)
                if self.now - START > most or (not self._ahead and self._quiet()):
                    break
        else:
            raise EndlessError(f"it has not ended after {_STEPS:,} events")

    def _slots(self) -> list[Slot]:
        replicas = range(self.scenario.replicas)
        slots: list[Slot] = [(GATE, -1, replica) for replica in replicas]
        for stage in self.graph.order:
            if stage in self.scenario.topology.states:
                slots += [
                    (stage, shard, replica)
                    for shard in range(self.scenario.shards_of(stage))
                    for replica in range(1 + self.scenario.backups)
                ]
            else:
                slots += [(stage, -1, replica) for replica in replicas]
        return slots

    def _start(self, slot: Slot) -> None:
        stage, shard, replica = slot
        if stage == GATE:
            self.slots[slot] = GateProcess(self, replica)
        elif shard < 0:
            self.slots[slot] = StatelessProcess(self, stage, replica)
        else:
            self.slots[slot] = MemberProcess(self, (stage, shard), replica)

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
        partition = self.partition_of(request_id)
        self.result.accepted.setdefault(request_id, sent)
        self.broker.append((INGRESS, partition), Record(request_id, request_id, sent, sent + self.scenario.slo))

    def partition_of(self, request_id: str) -> int:
        """Give the partition of a query, which it keeps on its whole way."""
        key = key_of(request_id, self.scenario.keys) if self.scenario.topology.keyed else request_id
        return partition_for(key.encode(), self.scenario.partitions)

    def _schedule_compaction(self) -> None:
        if self.scenario.compactions:
            self.at(self.now + self.random.expovariate(self.scenario.compactions), self._compact)

    def _compact(self) -> None:
        topics = [place for place in self.broker.logs if place == CONTROL or place[0].endswith((VERSIONS, STATE))]
        if topics:
            place, before = self.random.choice(sorted(topics)), self.now - self.scenario.lag
            old = [record.offset for record in self.broker.logs[place] if record.appended < before]
            if old:
                self.broker.compact(place, self.random.choice(old) + 1)
        self._schedule_compaction()

    # What goes wrong -------------------------------------------------------------------------------------------

    def _schedule(self, fault: Fault) -> None:
        at = START + fault.at
        if fault.kind is Kind.AWAY:
            self.away(at, at + fault.seconds)
            self._strike_later(at, lambda: self.result.struck.append("broker away"))
        elif fault.kind is Kind.LATE:
            place = (fault.of, fault.shard)
            self.late(fault.stage, versions_of(place), at, at + fault.seconds, fault.replica)
            self._strike_later(at, lambda: self.result.struck.append(f"late log of {fault.of} at {fault.stage}"))
        elif fault.kind is Kind.SWITCH:
            self._strike_later(at, partial(self._switch, (fault.stage, fault.shard)))
        elif fault.kind in (Kind.RETAIN, Kind.CUT):
            self._strike_later(at, partial(self._damage, fault))
        elif fault.kind is Kind.MOVE:
            self._strike_later(at, partial(self._move, fault.stage))
        elif fault.point:
            self.at(at, lambda: self._waiting.append(fault))
        else:
            self._strike_later(at, partial(self._strike_one, fault))

    def _move(self, stage: str) -> None:
        self.result.struck.append(f"move of {stage}")
        self.groups[stage].turn()

    def _switch(self, place: Place) -> None:
        epoch = max((reigning.epoch for reigning in self._reigns(place)), default=0)
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
        found = [
            (slot, process)
            for slot, process in self.slots.items()
            if self._is_meant(fault, slot, process) and process.alive and process.withheld is None
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
        for fault in self._waiting:
            if fault.point != point or fault.stage != process.stage:
                continue
            slot = next((slot for slot, one in self.slots.items() if one is process), None)
            if slot is None or not self._is_meant(fault, slot, process) or process.withheld is not None:
                continue
            seen = self._seen[fault, point] = self._seen.get((fault, point), 0) + 1
            if seen >= fault.nth:
                self._waiting.remove(fault)
                self._strike(fault, slot, self.slots[slot])
                return

    def _strike(self, fault: Fault, slot: Slot, process: Living) -> None:
        where = f" at {fault.point}" if fault.point else ""
        self.result.struck.append(f"{fault.kind.value} {slot[0]} {getattr(process, 'role', '')}{where}")
        if fault.kind is Kind.CRASH:
            process.kill()
            self._replace(slot, process, fault.seconds)
        elif isinstance(process, GateProcess) and fault.kind in _BREAKS:
            process.break_next(_BREAKS[fault.kind])
        elif fault.kind is Kind.PAUSE:
            process.stop()
            if fault.reported and isinstance(process, MemberProcess):
                self.at(self.now + self.random.random() * _NOTICED, partial(self._report, process))
            self._strike_later(self.now + fault.seconds, lambda: self._awake(process))
            moves = fault.moves and self.scenario.replicas > 1  # when its session is over
            if not (moves or isinstance(process, MemberProcess)):
                self._strike_later(self.now + fault.seconds / 2, partial(self._start, slot))
        elif fault.kind is Kind.SLOW:
            process.wire.slow = 0.3 * self.scenario.stretch
            self._strike_later(self.now + fault.seconds, lambda: setattr(process.wire, "slow", 0.0))

    def _replace(self, slot: Slot, dead: Living, seconds: float) -> None:
        if isinstance(dead, MemberProcess) and self.scenario.reports:
            self.at(self.now + self.random.random() * _NOTICED, partial(self._report, dead))
        self._strike_later(self.now + seconds, lambda: self._start(slot))

    def ended(self, process: Process) -> None:
        for slot, one in self.slots.items():
            if one is process:
                self._replace(slot, one, 0.1)

    def _report(self, dead: MemberProcess) -> None:
        for process in tuple(self.slots.values()):
            if isinstance(process, MemberProcess) and process.place == dead.place and process.alive:
                process.after(0.0, partial(process.reported, (dead.name,)))

    def _awake(self, process: Living) -> None:
        if process.alive:
            process.attempt(process.go_on)

    # Inputs are damaged ----------------------------------------------------------------------------------------

    def _damage(self, fault: Fault) -> None:
        partition = self.random.randrange(self.scenario.partitions)
        place = self.topic(fault.stage), partition
        needed = self._needed(fault.stage, partition)
        readers = [one for one in self.graph.order if self.topic(one) == place[0]]
        log = [record.offset for record in self.broker.logs.get(place, ())]
        if fault.kind is Kind.RETAIN:
            unread = [offset for offset in log if offset >= needed]
            if not (needed and unread and all(self._needed(one, partition) for one in readers)):
                return  # who needs nothing yet begins at what is there, and knows of no more
            self.broker.delete_before(place, self.random.choice(unread) + 1)
        else:
            read = [offset for offset in log if offset < needed]
            if not read:
                return
            self.broker.cut(place, self.random.choice(read))
            self._cut[place] = needed
        self.result.damaged.add(place)
        self.wake(place)
        self.result.struck.append(f"{fault.kind.value} the input of {fault.stage}")

    def _needed(self, stage: str, partition: int) -> int:
        """Give the position of an input's reader, as its commit or its newest durable version has it."""
        if stage not in self.scenario.topology.states:
            return self.broker.committed(stage, partition)[0]
        found = (
            process.position(partition)
            for process in self.slots.values()
            if isinstance(process, MemberProcess) and process.stage == stage and process.alive
        )
        return max(found, default=0)

    # The end ---------------------------------------------------------------------------------------------------

    def _quiet(self) -> bool:
        if not all(process.alive and process.idle for process in self.slots.values()):
            return False
        places = self.shards_of(self.scenario.topology.states)
        return all(any(True for _ in self._reigns(place)) for place in places) and all(
            set(group.partitions) == set().union(*(one.has for one in self.slots.values() if one.stage == stage))
            for stage, group in self.groups.items()
        )

    def _reigns(self, place: Place) -> Iterable[Reigning]:
        for process in self.slots.values():
            if isinstance(process, MemberProcess) and process.place == place and process.reigning is not None:
                yield process.reigning

    def _finish(self) -> None:
        result = self.result
        result.seconds = self.now - START
        result.refilled.update(place for place, needed in self._cut.items() if self.broker.end(place) >= needed)
        for slot, process in self.slots.items():
            # A join may wait for parts that chance has made another attempt do without.
            in_vain = self.scenario.fickle and isinstance(process, StatelessProcess) and process.only_joins
            if not (process.alive and (process.idle or in_vain)):
                result.stuck.append(f"{slot[0]}.{max(slot[1], 0)}.{slot[2]}")
        for place in self.shards_of(self.scenario.topology.states):
            reigns = list(self._reigns(place))
            if len(reigns) != 1:
                result.stuck.append(f"{place[0]}.{place[1]} has {len(reigns)} primaries")
            for reigning in reigns:
                result.final[place] = reigning.recorded, reigning.machine.state.now.digest
