"""One run: the clients, the processes with what happens to them, and the end."""

from __future__ import annotations

import heapq
from functools import partial
from typing import TYPE_CHECKING

from agents.core.gate import GATE
from agents.sim.faults.broker import EGRESS, INGRESS, Record
from agents.sim.faults.gates import GateProcess
from agents.sim.faults.scenario import FaultKind
from agents.sim.faults.stages import StageProcess
from agents.sim.faults.world import START, World
from lineage.keys import partition_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.sim.faults.broker import Place
    from agents.sim.faults.history import FaultRun
    from agents.sim.faults.process import Process
    from agents.sim.faults.scenario import Fault, Scenario

_STEPS = 2_000_000  # more events than any run needs: a run that does not end is an error, not a hang


class Play(World):
    """Runs a scenario. Use `run`."""

    def __init__(self, scenario: Scenario, seed: int) -> None:
        super().__init__(scenario, seed)
        self._ahead = 0  # queries to come, faults under way: nothing ends before these
        self._faults = list(scenario.faults)
        self.processes: dict[tuple[str, int], Process] = {}
        self._members: dict[tuple[str, int], list[int]] = {}  # replica -> its partitions
        self._fading: list[Process] = []  # replaced, and not at their end yet

    def committed(self, stage: str, replica: int, core: object) -> None:
        process = self.processes.get((stage, replica))
        if process is None or process.core is not core or not process.alive or process.standing is not None:
            return
        for fault in self._faults:
            if fault.when is not None and _key(fault) == (stage, replica) and fault.when(core):
                self._faults.remove(fault)
                self._strike(fault)
                return

    # The run ---------------------------------------------------------------------------------------------------

    def run(self) -> FaultRun:
        scenario = self.scenario
        self._start_processes()
        self._schedule_queries()
        for fault in self._faults:
            if fault.at is not None:
                self._ahead += 1
                self.at(START + fault.at, partial(self._due, fault))
        checked = self.now
        for _ in range(_STEPS):
            self.now, _, what = heapq.heappop(self.events)
            what()
            if self.now - START > scenario.most_seconds:
                break
            if self.now - checked > 1.0:
                checked = self.now
                if self._quiet():
                    break
        return self._finish()

    def _start_processes(self) -> None:
        scenario = self.scenario
        for stage in scenario.graph.order:
            for replica in range(scenario.replicas):
                mine = [p for p in range(scenario.partitions) if p % scenario.replicas == replica]
                self._members[stage, replica] = mine
                self._start(stage, replica)
        self._members[GATE, 0] = list(range(scenario.partitions))
        self._start(GATE, 0)

    def _start(self, stage: str, replica: int) -> None:
        process = GateProcess(self, replica) if stage == GATE else StageProcess(self, stage, replica)
        self.processes[stage, replica] = process
        for partition in self._members[stage, replica]:
            process.assign(partition)

    def _schedule_queries(self) -> None:
        scenario, random = self.scenario, self.random
        when = START
        for number in range(scenario.queries):
            when += random.expovariate(scenario.rate)
            request_id = f"q{number}"
            self._ahead += 1
            self.at(when, partial(self._query, request_id, when))
            if random.random() < scenario.repeats:
                again = when + random.uniform(0.0, 1.0)
                self._ahead += 1
                self.at(again, partial(self._query, request_id, again))

    def _query(self, request_id: str, sent: float) -> None:
        self._ahead -= 1
        partition = partition_for(request_id.encode(), self.scenario.partitions)
        if request_id not in self.result.accepted:
            self.result.accepted.append(request_id)
        self.broker.append((INGRESS, partition), Record(request_id, request_id, sent, sent + self.scenario.slo))

    def wake(self, place: Place) -> None:
        """Tell the readers of a place, a moment later, that there is something new."""
        topic, partition = place
        for process in (*self.processes.values(), *self._fading):
            if process.topic == topic and process.alive and partition in process.positions:
                process.after(self.random.uniform(0.0005, 0.003), partial(process.poll, partition))

    # What goes wrong -------------------------------------------------------------------------------------------

    def _due(self, fault: Fault) -> None:
        self._ahead -= 1
        process = self.processes.get(_key(fault))
        if process is not None and process.alive and process.standing is None:
            self._strike(fault)

    def _strike(self, fault: Fault) -> None:
        self.result.faults += 1
        process = self.processes[_key(fault)]
        if fault.kind is FaultKind.CRASH:
            process.die()
            self._later(fault.seconds, lambda: self._start(fault.stage, fault.replica))
        elif fault.kind is FaultKind.ZOMBIE:
            process.stand_still()
            self._later(fault.seconds, lambda: self._replace(fault, process))
        elif fault.kind is FaultKind.REBALANCE:
            self._rebalance(fault)
        elif isinstance(process, GateProcess):
            process.aborts = True

    def _later(self, seconds: float, what: Callable[[], None]) -> None:
        self._ahead += 1

        def come() -> None:
            self._ahead -= 1
            what()

        self.at(self.now + seconds, come)

    def _replace(self, fault: Fault, process: Process) -> None:
        self._fading.append(process)
        self._start(fault.stage, fault.replica)
        self._later(fault.pause, lambda: self._awake(process))

    def _awake(self, process: Process) -> None:
        """Let a zombie go on; it reads and sends until its next commit, or a heartbeat, tells it the truth."""
        process.go_on()
        self._later(0.2, lambda: self._bury(process))

    def _bury(self, process: Process) -> None:
        if process.alive:
            process.fenced()
        self._fading.remove(process)

    def _rebalance(self, fault: Fault) -> None:
        mine = self._members[_key(fault)]
        others = [r for s, r in self._members if s == fault.stage and r != fault.replica]
        if not mine or not others:
            return
        other = others[self.random.randrange(len(others))]
        target = self.processes[fault.stage, other]
        partition = mine.pop(self.random.randrange(len(mine)))
        self._members[fault.stage, other].append(partition)
        self.processes[_key(fault)].revoke(partition)
        if target.alive:  # else it takes the partition when it is back; a standing one, when it goes on
            target.after(self.random.uniform(0.0, 0.1), lambda: self._hand_over(fault.stage, other, partition))

    def _hand_over(self, stage: str, replica: int, partition: int) -> None:
        process = self.processes[stage, replica]
        if process.alive and partition in self._members[stage, replica] and partition not in process.positions:
            process.assign(partition)

    # The end ---------------------------------------------------------------------------------------------------

    def _quiet(self) -> bool:
        if self._ahead or self._fading:
            return False
        return all(process.alive and process.idle and self._read_up(process) for process in self.processes.values())

    def _read_up(self, process: Process) -> bool:
        return all(
            next(self.broker.read((process.topic, partition), position), None) is None
            for partition, position in process.positions.items()
        )

    def _finish(self) -> FaultRun:
        result = self.result
        result.seconds = self.now - START
        for process in self.processes.values():
            result.duplicates += process.core.stats.duplicates
            if not (process.alive and process.idle and self._read_up(process)):
                result.stuck.append(f"{process.stage}.{process.replica}")
        for partition in range(self.scenario.partitions):
            for record in self.broker.read((EGRESS, partition), 0):
                outcome = record.body
                told = outcome.outputs if outcome.kind == "prediction" else outcome.reason
                result.egress.append((record.request_id, outcome.kind, told))
        return result


def _key(fault: Fault) -> tuple[str, int]:
    return fault.stage, fault.replica


def run(scenario: Scenario, seed: int) -> FaultRun:
    return Play(scenario, seed).run()
