"""A stateless stage among stateful ones, as a process: the driver's order of calls, and the version logs it follows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from spillway.agents.core.actions import Failed
from spillway.agents.core.batching import Batcher
from spillway.agents.core.policies import make
from spillway.agents.core.policy import StageView
from spillway.agents.sim.faults.processes.living import Replica, deliver, delivery_of, item_of, result_of, told
from spillway.agents.sim.faults.world import model
from spillway.agents.sim.faults.world.follower import Follower
from spillway.agents.sim.faults.world.records import INGRESS
from spillway.lineage import reasons
from spillway.lineage.errors import FencedError

if TYPE_CHECKING:
    from spillway.agents.core.actions import Emit, Result
    from spillway.agents.core.batching import Batch
    from spillway.agents.core.request import Request
    from spillway.agents.sim.faults.world.world import StateWorld


class StatelessProcess(Replica):
    """One incarnation of one replica of a stateless stage."""

    instances = 2

    def __init__(self, world: StateWorld, stage: str, replica: int) -> None:
        super().__init__(world, stage, replica)
        scenario, graph = world.scenario, world.graph
        self.topic = stage if graph.predecessors[stage] else INGRESS
        policy = make(scenario.stateless_policy, StageView(stage=stage, replica=0, instances=self.instances))
        batcher = Batcher(policy, scenario.batch, 0.0, self.instances, world.duration)
        places = world.shards_of(graph.rests_on(stage))
        logs = scenario.guards.stage_logs(places) if places else None
        self.core = scenario.guards.stage(
            graph,
            stage,
            batcher,
            rule=scenario.topology.rules.get(stage),
            epoch=self.incarnation,
            durability=logs,
            **scenario.bounds,
        )
        self._wake_at = float("inf")
        self._executed: dict[int, set[str]] = {}  # requests by partition, since it was assigned
        self._assigned: dict[int, int] = {}  # where each partition was committed then
        if logs is not None:
            self.follower = (scenario.guards.follower or Follower)(world, self, logs, places, self._logs_changed)
        self.begin()

    def remember(self, partition: int, committed: int, note: str) -> None:
        self._executed[partition], self._assigned[partition] = set(), committed
        for start, end in self.core.assign(partition, committed, note):
            for record in self.world.broker.read((self.topic, partition), start, end):
                self.core.remember(delivery_of(partition, record))

    def forget(self, partition: int) -> None:
        self.core.revoke(self.now, partition)
        self.after(0.0, self._pump)  # what was held of it has left room

    # What comes ------------------------------------------------------------------------------------------------

    def poll(self, partition: int) -> None:
        position = self.positions.get(partition)
        if position is None or self.lacks(partition, position):
            return
        world = self.world
        if world.scenario.redeliveries and world.random.random() < world.scenario.redeliveries:
            position = max(0, position - world.random.randint(1, 5))
        for record in world.broker.read((self.topic, partition), position):
            if not self.core.room:
                world.result.count("no room")
                self._full.add(partition)
                break
            self.positions[partition] = max(record.offset + 1, self.positions[partition])
            deliver(self.core, self.stage, self.now, delivery_of(partition, record), world.scenario.poison)
        self._pump()

    def _logs_changed(self) -> None:
        self.core.durability_changed(self.now)
        self._pump()

    # What the core asks for ------------------------------------------------------------------------------------

    def _pump(self) -> None:
        now = self.now
        for batch in self.core.take_runs():
            self._note(batch)
            self.point("compute.before")
            seconds = self.world.duration(len(batch.requests)) * self.world.random.uniform(0.5, 2.0)
            self.after(seconds, partial(self._complete, batch, seconds))
        for emit in self.core.take_emits():
            self.point("outputs.before")
            place, record = told(emit, self.stage)
            self.wire.send(place, record, partial(self._acked, emit))
        wake = self.core.next_wake(now)
        if wake is not None and wake < self._wake_at:
            self._wake_at = wake
            self.after(wake - now, self._advance)
        if self._full and self.core.room:
            full, self._full = sorted(self._full), set()
            for partition in full:
                self.poll(partition)

    def _note(self, batch: Batch) -> None:
        """Look whether a request was executed before. Where versions may die, it may well be: nothing is noted."""
        if self.follower is not None:
            return
        result = self.world.result
        for request in batch.requests:
            key, partition = (self.stage, request.request_id), request.partition
            first = min(part.offset for part in request.parts)
            if request.request_id in self._executed[partition]:
                result.problems.append(f"(j) {request.request_id}: {self.stage} executed it twice in one assignment")
            elif result.executed.get(key, first) < self._assigned[partition]:
                result.problems.append(f"(j) {request.request_id}: {self.stage} executed and committed it before")
            self._executed[partition].add(request.request_id)
            result.executed[key] = min(first, result.executed.get(key, first))

    def _advance(self) -> None:
        self._wake_at = float("inf")
        self.core.advance(self.now)
        self._pump()

    def _complete(self, batch: Batch, seconds: float) -> None:
        self.point("compute.after")
        results = [self._result(request) for request in batch.requests]
        self.core.complete(self.now, batch, results, seconds)
        self._pump()

    def _result(self, request: Request) -> Result:
        scenario = self.world.scenario
        if model.raises(self.stage, request.request_id, scenario.poison):
            return Failed(reasons.MODEL_RAISED, "scripted")
        if scenario.flaky and self.world.random.random() < scenario.flaky:
            return Failed(reasons.MODEL_RAISED, "by chance")
        return result_of(self.world, self.stage, self.value(item_of(request)))

    def value(self, item: model.Item) -> str:
        return model.hashed(self.stage, item)

    def _acked(self, emit: Emit) -> None:
        self.point("ack")
        self.core.acked(emit)
        self._pump()

    def commit(self) -> None:
        offsets = self.core.commits()
        if not offsets or self.world.answering(self.world.now) > self.world.now:
            return
        try:
            self.world.broker.commit(self.stage, self.incarnation, offsets)
        except FencedError:
            self.ousted()
            return
        self.after(self.world.latency(), lambda: self._committed(offsets))

    def _committed(self, offsets: dict[int, tuple[int, str]]) -> None:
        for partition, (offset, _) in offsets.items():
            self.core.committed(partition, offset)

    @property
    def idle(self) -> bool:
        return self.only_joins and not self.core.waiting

    @property
    def only_joins(self) -> bool:
        core, broker = self.core, self.world.broker
        if self._coming or core.unsettled or core.commits() or not self.wire.is_quiet():
            return False
        return all(
            next(broker.read((self.topic, partition), position), None) is None
            for partition, position in self.positions.items()
        ) and (self.follower is None or self.follower.read_up())


class BareProcess(StatelessProcess):
    """A stage with a state that nobody replicates: it keeps it in memory alone (`replication: none`).

    After a crash it begins with the initial state and takes all its inputs again, as recovery by replay alone does
    (HAMS, Figs. 2 and 3). Whoever comes behind it recognises the repetitions. With a model that draws nothing this
    gives the same state and messages; with one that draws, others. It takes requests one by one: batches come out the
    same.
    """

    instances = 1

    def __init__(self, world: StateWorld, stage: str, replica: int) -> None:
        self.state = model.State()
        super().__init__(world, stage, replica)

    def _load(self, partition: int, committed: int, note: str) -> None:  # noqa: ARG002 (as others do)
        super()._load(partition, 0, "")

    def value(self, item: model.Item) -> str:
        nonce = 0 if self.world.scenario.deterministic else self.world.random.getrandbits(32)
        value = model.compute(self.stage, self.state, item, nonce)
        self.state = model.update(self.stage, self.state, [item], nonce)
        return value
