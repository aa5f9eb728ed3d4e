"""A stage's process as the fault simulator has it: the driver's order of calls around a real core."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from agents.core.actions import Failed, Ok
from agents.core.batching import Batcher
from agents.core.policies import make
from agents.core.policy import StageView
from agents.sim.faults.broker import INGRESS, FencedError
from agents.sim.faults.messages import delivery_of, message_of
from agents.sim.faults.process import Process
from lineage import reasons
from lineage.message import PREDICTION, Outcome

if TYPE_CHECKING:
    from agents.core.actions import Emit, Result
    from agents.core.batching import Batch
    from agents.core.request import Request
    from agents.sim.faults.broker import Place
    from agents.sim.faults.world import World

_INSTANCES = 2


class StageProcess(Process):
    """One incarnation of one replica of one stage."""

    def __init__(self, world: World, stage: str, replica: int) -> None:
        super().__init__(world, stage, replica)
        scenario = world.scenario
        self.topic = stage if scenario.graph.predecessors[stage] else INGRESS
        policy = make(scenario.policy, StageView(stage=stage, replica=replica, instances=_INSTANCES))
        batcher = Batcher(policy, scenario.batch, 0.0, _INSTANCES, world.duration)
        self.core = scenario.stage_type(
            scenario.graph, stage, batcher, rule=scenario.rules.get(stage), epoch=self.incarnation
        )
        self._wake_at = float("inf")
        self._landing: dict[Place, float] = {}  # when the last message to a partition lands: they keep their order
        self._sent: dict[Place, list[list[Any]]] = {}  # [record, emit, whether it still lands], not landed yet

    # Partitions ------------------------------------------------------------------------------------------------

    def assign(self, partition: int) -> None:
        """Take over a partition: read again what its note names, then go on from the committed offset."""
        committed, note = self.world.broker.own(self.stage, partition, self.incarnation)
        self.tenures[partition] = self.world.tenure(self.stage, partition, committed)
        for start, end in self.core.assign(partition, committed, note):
            for record in self.world.broker.read((self.topic, partition), start, end):
                self.core.remember(delivery_of(partition, record))
        self.positions[partition] = committed
        self.poll(partition)

    def revoke(self, partition: int) -> None:
        """Let a partition go in an orderly way."""
        if self.positions.pop(partition, None) is not None:
            self.core.revoke(self.world.now, partition)
            self._pump()

    # Records ---------------------------------------------------------------------------------------------------

    def poll(self, partition: int) -> None:
        position = self.positions.get(partition)
        if position is None:
            return
        for record in self.world.broker.read((self.topic, partition), position):
            if not self.core.room:
                break
            self.positions[partition] = record.offset + 1
            delivery = delivery_of(partition, record)
            if not delivery.lost and self.world.scenario.poison(self.stage, record.request_id) == "record":
                self.core.fail(self.world.now, delivery, reasons.BAD_INPUT, "scripted")
            else:
                self.core.deliver(self.world.now, delivery)
        self._pump()

    # What the core asks for ------------------------------------------------------------------------------------

    def _pump(self) -> None:
        now = self.world.now
        for batch in self.core.take_runs():
            for request in batch.requests:
                self.world.executed(self.stage, request, self.tenures[request.partition])
            seconds = self.world.duration(len(batch.requests)) * self.world.random.uniform(0.5, 2.0)
            self.after(seconds, partial(self._complete, batch, seconds))
        for emit in self.core.take_emits():
            self._send(emit)
        wake = self.core.next_wake(now)
        if wake is not None and wake < self._wake_at:
            self._wake_at = wake
            self.after(wake - now, self._advance)

    def _advance(self) -> None:
        self._wake_at = float("inf")
        self.core.advance(self.world.now)
        self._pump()

    def _complete(self, batch: Batch, seconds: float) -> None:
        self.core.complete(self.world.now, batch, [self._result(request) for request in batch.requests], seconds)
        self._pump()
        self.poll_all()

    def _result(self, request: Request) -> Result:
        scenario = self.world.scenario
        if scenario.poison(self.stage, request.request_id) == "model":
            return Failed(reasons.MODEL_RAISED, "scripted")
        if self.core.stage in scenario.rules:
            parts = tuple(sorted((part.predecessor, part.payload) for part in request.parts))
            value: tuple[Any, ...] = (self.stage, parts)
        else:
            value = (self.stage, request.parts[0].payload)
        successors = scenario.graph.successors[self.stage]
        choose = scenario.choose.get(self.stage)
        chosen = None if choose is None else choose(request.request_id)
        going = successors if chosen is None else chosen
        if not going:
            return Ok({None: Outcome(PREDICTION, outputs={"value": value}, stage=self.stage)}, chosen)
        return Ok(dict.fromkeys(going, value), chosen)

    def _send(self, emit: Emit) -> None:
        place, record = message_of(emit, self.stage)
        delay = self.world.latency()
        lands = max(self.world.now + delay, self._landing.get(place, 0.0))
        self._landing[place] = lands
        flight = [record, emit, True]
        self._sent.setdefault(place, []).append(flight)
        # The network goes on whatever becomes of the process.
        self.world.at(lands, lambda: self._land(place, flight))

    def _land(self, place: Place, flight: list[Any]) -> None:
        self._sent[place].remove(flight)
        record, emit, lands = flight
        if lands:
            self.world.broker.append(place, record)
            self.after(self.world.latency(), lambda: self._acked(emit))

    def _acked(self, emit: Emit) -> None:
        self.core.acked(emit)
        self._pump()
        self.poll_all()

    def commit(self) -> None:
        offsets = self.core.commits()
        if not offsets:
            return
        try:
            self.world.broker.commit(self.stage, self.incarnation, offsets)
        except FencedError:
            self.fenced()
            return
        self.after(self.world.latency(), lambda: self._committed(offsets))

    def _committed(self, offsets: dict[int, tuple[int, str]]) -> None:
        for partition, (offset, _) in offsets.items():
            self.core.committed(partition, offset)

    def die(self) -> None:
        """End now. Of what was under way to each partition, a beginning arrives."""
        super().die()
        for flights in self._sent.values():
            kept = self.world.random.randint(0, len(flights))
            for flight in flights[kept:]:
                flight[2] = False

    @property
    def idle(self) -> bool:
        core = self.core
        return not (core.unsettled or core.waiting or core.commits() or any(self._sent.values()))
