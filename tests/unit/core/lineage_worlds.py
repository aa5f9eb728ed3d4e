"""A stage and the gate behind stateful stages, in small random worlds, judged against what only the living would give.

The logs are made up as stateful stages leave them. The stage and the gate are the real cores; each learns of durability
in its own time, crashes, and goes on from what it committed. Model: a stage without a `Durability` that gets only the
records that live, in their order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agents.core.actions import EmitKind, Ok
from agents.core.batching import Batcher
from agents.core.gate import GateCore
from agents.core.joins import Rule
from agents.core.policies import make
from agents.core.policy import StageView
from agents.core.stage import StageCore
from lineage import reasons
from lineage.message import DROPPED, PREDICTION, Outcome
from tests.unit.core.made_up_logs import NOW, Record, View, forwarded, merged_in_order, plain_source, source
from topology.routing import Graph
from topology.spec import PipelineSpec, StageSpec

if TYPE_CHECKING:
    from random import Random

    from agents.core.request import Delivery

RULES = {
    "all": Rule(),
    "partial": Rule("all", "partial"),
    "any": Rule("any"),
    "uneven-all": Rule(),
    "uneven-partial": Rule("all", "partial"),
    "uneven-any": Rule("any"),
}
SINKS = {"sinks-any": "any", "sinks-all": "all"}
SHAPES = ("chain", *RULES, *SINKS)


def graph(shape: str) -> Graph:
    """`chain`: b, d. `uneven`: d after b, and after c, which is after b. Else a join: d after b and c."""
    edges = {"b": (), "c": (), "d": ("b", "c")}
    if shape == "chain":
        edges = {"b": (), "d": ("b",)}
    elif shape.startswith("uneven"):
        edges = {"b": (), "c": ("b",), "d": ("b", "c")}
    elif shape.startswith("sinks"):
        edges = {"a": (), "b": ("a",), "c": ("a",)}
    stages = tuple(StageSpec(name=name, model="m:M", after=after) for name, after in edges.items())
    return Graph(PipelineSpec(name="p", slo=1.0, sinks=SINKS.get(shape), stages=stages))


@dataclass(frozen=True)
class Report:
    outcome: Outcome


class World:
    """Stage d and the gate over made-up logs. `problems` says what went wrong."""

    def __init__(
        self,
        random: Random,
        shape: str,
        *,
        stage_type: type[StageCore] = StageCore,
        gate_type: type[GateCore] = GateCore,
        requests: int = 6,
    ) -> None:
        self.random = random
        self.shape = shape
        self.graph = graph(shape)
        self.rule = RULES.get(shape)
        self.stage_type, self.gate_type = stage_type, gate_type
        sources = [source(random, "a" if shape in SINKS else "b", requests, random.randint(1, 3), 0.25)]
        first = sources[0].messages
        self.other_way: list[Record] = []  # to the gate, past the stage
        if shape == "chain":
            self.input = [record for record in first if not record.lost]
            self.other_way = [_reported(record, ("d",)) for record in first if record.lost]
        elif shape in SINKS:
            self.input = []
            losses = [_reported(record, ("b", "c")) for record in first if record.lost]
            ways = [[_reported(record) for record in forwarded(sources[0], stage)] for stage in ("b", "c")]
            self.other_way = merged_in_order(random, [losses, *ways])
        elif shape.startswith("uneven"):
            direct = [replace(record, lost=("b", "c")) if record.lost else record for record in first]
            self.input = merged_in_order(random, [direct, forwarded(sources[0], "c")])
        else:
            plain = random.random() < 0.5
            sources.append(plain_source(random, "c", requests) if plain else source(random, "c", requests, 2, 0.25))
            self.input = merged_in_order(random, [first, sources[1].messages])
        self.dead = set().union(*(each.dead for each in sources))
        self.news = merged_in_order(random, [each.news for each in sources])
        self.outcomes: list[Record] = []
        self.egress: list[tuple[str, Outcome]] = []
        self.committed: dict[str, tuple[int, str]] = {"d": (0, ""), "gate": (0, "")}
        self.published = 0
        self.problems: list[str] = []
        self.stays = 0
        self.groups = self._gate_groups() if shape in SINKS else self._groups()
        self._start_stage()
        self._start_gate()

    # Processes ---------------------------------------------------------------------------------------------------

    def _start_stage(self) -> None:
        """Begin anew, with the logs read to their ends."""
        self.view = View(self.news)
        self.view.learn(self.published)
        batcher = Batcher(make("naive", StageView(stage="d", instances=2)), self.random.randint(1, 3), 0.0, 2)
        self.stage = self.stage_type(
            graph("chain") if self.shape in SINKS else self.graph, "d", batcher, rule=self.rule, durability=self.view
        )
        self.read = self.committed["d"][0]
        for start, end in self.stage.assign(0, *self.committed["d"]):
            for offset in range(start, end):
                self.stage.remember(self.input[offset].delivery(offset))
        self.running: list[Any] = []
        self.unacked: list[Any] = []
        self.wire: list[Any] = []  # sent, not landed

    def _start_gate(self) -> None:
        self.gate_view = View(self.news)
        self.gate_view.learn(self.published)
        self.gate = self.gate_type(self.graph, sinks=SINKS.get(self.shape), durability=self.gate_view)
        spans, egress = self.gate.assign(0, *self.committed["gate"])
        for offset in range(egress, len(self.egress)):
            self.gate.recall(0, offset, self.egress[offset][0], NOW, NOW)
        for start, end in spans:
            for offset in range(start, end):
                self.gate.remember(self.outcomes[offset].delivery(offset, Report))
        self.gate_read = self.committed["gate"][0]

    # Steps -------------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Do one thing that can be done; False if nothing can."""
        moves = [
            (self.publish, 2, self.published < len(self.news)),
            (self.learn, 2, self.view.read < self.published),
            (self.gate_learn, 2, self.gate_view.read < self.published),
            (self.deliver, 6, self.read < len(self.input)),
            (self.complete, 3, bool(self.running)),
            (self.land, 4, bool(self.wire)),
            (self.ack, 4, bool(self.unacked)),
            (self.commit, 2, bool(self.stage.commits())),
            (self.told_otherwise, 1, bool(self.other_way)),
            (self.gate_deliver, 6, self.gate_read < len(self.outcomes)),
            (self.turn, 2, bool(self.gate.pending) or self.gate.commits().get(0, (0, ""))[0] > 0),
        ]
        can = [(move, weight) for move, weight, possible in moves if possible]
        if not can:
            return False
        self.random.choices([move for move, _ in can], weights=[weight for _, weight in can])[0]()
        self._pump()
        self._check_offsets()
        return True

    def run(self, steps: int = 600, crashes: int = 2) -> list[str]:
        at = {self.random.randint(0, 120) for _ in range(self.random.randint(0, crashes))}
        for number in range(steps):
            if number in at:
                self.crash()
            if not self._more():
                break
            self.step()
        self.turn()
        self._judge()
        return self.problems

    def _more(self) -> bool:
        return (
            self.published < len(self.news)
            or self.view.read < self.published
            or self.gate_view.read < self.published
            or self.read < len(self.input)
            or bool(self.running or self.wire or self.unacked or self.other_way or self.stage.commits())
            or self.gate_read < len(self.outcomes)
            or self.gate.pending > self.gate.held
        )

    def crash(self) -> None:
        if self.random.random() < 0.6 and self.shape not in SINKS:
            landed = self.random.randint(0, len(self.wire))
            for emit in self.wire[:landed]:
                self._append(emit)
            self._start_stage()
        else:
            self._start_gate()

    def publish(self) -> None:
        self.published += 1

    def learn(self) -> None:
        self.view.learn(self.random.randint(self.view.read + 1, self.published))
        self.stage.durability_changed(NOW)

    def gate_learn(self) -> None:
        self.gate_view.learn(self.random.randint(self.gate_view.read + 1, self.published))
        self.gate.durability_changed(NOW)

    def deliver(self) -> None:
        delivery = self.input[self.read].delivery(self.read)
        self.read += 1
        if _poison(delivery, self.shape):
            self.stage.fail(NOW, delivery, reasons.CORRUPT, "scripted")
        else:
            self.stage.deliver(NOW, delivery)

    def complete(self) -> None:
        batch = self.running.pop(self.random.randrange(len(self.running)))
        self.stage.complete(NOW, batch, [Ok({None: _value(request.parts)}) for request in batch.requests], 0.01)

    def land(self) -> None:
        emit = self.wire.pop(0)
        self._append(emit)
        self.unacked.append(emit)

    def ack(self) -> None:
        self.stage.acked(self.unacked.pop(self.random.randrange(len(self.unacked))))

    def commit(self) -> None:
        offset, note = self.stage.commits()[0]
        self.committed["d"] = (offset, note)
        if self.random.random() < 0.9:
            self.stage.committed(0, offset)

    def told_otherwise(self) -> None:
        self.outcomes.append(self.other_way.pop(0))

    def gate_deliver(self) -> None:
        self.gate.deliver(NOW, self.outcomes[self.gate_read].delivery(self.gate_read, Report))
        self.gate_read += 1

    def turn(self) -> None:
        releases = self.gate.collect(NOW)
        places = self.gate.commits()
        for release in releases:
            if any(mark in self.dead for part in release.parts for mark in part.hop.marks):
                self.problems.append(f"{release.request_id} was released and is dead")
            self.gate.written(0, len(self.egress), release.request_id, release.source.sent, NOW)
            self.egress.append((release.request_id, release.outcome))
        for offset, note in places.values():
            self.committed["gate"] = (offset, note)
            self.gate.committed(0, offset)

    # What is judged ----------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        self.running += self.stage.take_runs()
        for emit in self.stage.take_emits():
            if emit.kind is EmitKind.DEAD_LETTER:
                self.unacked.append(emit)
            else:
                self.wire.append(emit)

    def _append(self, emit: Any) -> None:
        if emit.kind is not EmitKind.DEAD_LETTER:
            self.outcomes.append(Record(emit.request_id, emit.hop, _outcome(emit), emit.lost))

    def _alive(self, record: Record) -> bool:
        return not any(mark in self.dead for mark in record.hop.marks)

    def _groups(self) -> dict[str, tuple[tuple[int, ...], Outcome]]:
        """What the living alone give: the outcome of each query, and the input that makes it."""
        batcher = Batcher(make("naive", StageView(stage="d")), 1, 0.0, 1)
        model = StageCore(self.graph, "d", batcher, rule=self.rule)
        model.assign(0, 0)
        groups = {}
        for offset, record in enumerate(self.input):
            if not self._alive(record):
                continue
            delivery = record.delivery(offset)
            if _poison(delivery, self.shape):
                model.fail(NOW, delivery, reasons.CORRUPT, "scripted")
            else:
                model.deliver(NOW, delivery)
            for batch in model.take_runs():
                model.complete(NOW, batch, [Ok({None: _value(request.parts)}) for request in batch.requests], 0.01)
            for emit in model.take_emits():
                if emit.kind is not EmitKind.DEAD_LETTER:
                    groups.setdefault(emit.request_id, (emit.work.offsets, _outcome(emit)))
        for record in self.other_way:
            if self._alive(record):
                groups.setdefault(record.request_id, ((), record.body))
        self.stays = model.waiting
        return groups

    def _gate_groups(self) -> dict[str, tuple[tuple[int, ...], Outcome]]:
        model = GateCore(self.graph, sinks=SINKS[self.shape])
        model.assign(0, 0)
        for offset, record in enumerate(self.other_way):
            if self._alive(record):
                model.deliver(NOW, record.delivery(offset, Report))
        return {release.request_id: ((), release.outcome) for release in model.collect(NOW)}

    def _check_offsets(self) -> None:
        """No input is let go before its request is durable, and told to the gate's log; of a request, all at once."""
        position = self.stage._shares[0].offsets.position
        for request_id, (offsets, outcome) in self.groups.items():
            if not any(offset < position for offset in offsets):
                continue
            marks = [mark for offset in offsets for mark in self.input[offset].hop.marks]
            if not all(self.view.durable(mark) for mark in marks):
                self.problems.append(f"{request_id} was let go before it was durable")
            if not any(r.request_id == request_id and r.body == outcome and self._alive(r) for r in self.outcomes):
                self.problems.append(f"{request_id} was let go and not told")

    def _judge(self) -> None:
        told: dict[str, list[Outcome]] = {}
        for request_id, outcome in self.egress:
            told.setdefault(request_id, []).append(outcome)
        for request_id, (_, outcome) in self.groups.items():
            if told.get(request_id) != [outcome]:
                self.problems.append(f"{request_id}: {told.get(request_id)} in place of {outcome}")
        self.problems += [f"{request_id} came from nowhere" for request_id in told if request_id not in self.groups]
        position = self.stage._shares[0].offsets.position
        if self.stage.waiting != self.stays:
            self.problems.append(f"{self.stage.waiting} wait, not {self.stays}")
        if not self.stays and position != len(self.input):
            self.problems.append(f"the stage stands at {position} of {len(self.input)}")
        if self.gate._shares[0].offsets.position != len(self.outcomes):
            self.problems.append(f"the gate stands at {self.gate._shares[0].offsets.position} of {len(self.outcomes)}")
        for core in (self.stage, self.gate):
            speculation = core._shares[0].speculation
            if speculation is not None and (speculation._open or speculation._awaited._lines):
                self.problems.append(f"{core} still remembers what is decided")
        if self.stage.unsettled or self.stage.resting:
            self.problems.append(f"{self.stage.unsettled} unsettled, {self.stage.resting} resting")


def _reported(record: Record, lost: tuple[str, ...] = ()) -> Record:
    """The same as a report to the gate."""
    if lost:
        return replace(record, body=Outcome(DROPPED, reason=str(record.body), stage=record.hop.stage), lost=lost)
    return replace(record, body=Outcome(PREDICTION, outputs={"from": record.body}, stage=record.hop.stage))


def _poison(delivery: Delivery, shape: str) -> bool:
    return shape in ("chain", "partial") and delivery.request_id == "q1" and not delivery.lost


def _value(parts: Any) -> tuple[str, ...]:
    return tuple(sorted(part.payload for part in parts))


def _outcome(emit: Any) -> Outcome:
    if emit.kind is EmitKind.OUTCOME and not emit.lost:
        return Outcome(PREDICTION, outputs={"parts": emit.payload}, stage="d")
    text = str(emit.payload) if emit.loss is None else emit.loss.reason
    return Outcome(DROPPED, reason=text, stage="d")
