"""How a stage or the gate takes a record, and what it sends: with what that was made of, for the oracle."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agents.core.actions import EmitKind, Ok
from agents.core.request import Delivery
from agents.sim.faults.world.broker import OUTCOMES, Record
from agents.sim.faults.world.history import Source
from agents.sim.faults.world.model import Item, unreadable
from lineage import reasons
from lineage.message import PREDICTION, Outcome

if TYPE_CHECKING:
    from agents.core.actions import Emit
    from agents.core.request import Request
    from agents.sim.faults.world.broker import Place
    from agents.sim.faults.world.world import StateWorld

DEAD_LETTERS = "dead"


@dataclass(slots=True, frozen=True)
class Report:
    """The payload of a delivery to the gate."""

    outcome: Outcome


def delivery_of(partition: int, record: Record) -> Delivery:
    hop = record.hop
    return Delivery(
        record.request_id, partition, record.offset, record.sent, record.deadline,
        hop.stage if hop is not None else "", hop, dict(record.path), record.lost, record.appended, record.body,
    )  # fmt: skip


def report_of(partition: int, record: Record) -> Delivery:
    delivery = delivery_of(partition, record)
    delivery.payload = Report(record.body)
    return delivery


def deliver(core: Any, stage: str, now: float, delivery: Delivery, poison: float) -> None:
    if poison and not delivery.lost and unreadable(stage, delivery.predecessor, delivery.request_id, poison):
        core.fail(now, delivery, reasons.BAD_INPUT, "scripted")
    else:
        core.deliver(now, delivery)


def told(emit: Emit, stage: str, shard: int = -1, epoch: int = 0) -> tuple[Place, Record]:
    """Give what a core sends, where to, and of what it was made. `epoch`: of a stateful stage's reign."""
    topic, body = emit.destination or OUTCOMES, emit.payload
    if emit.kind is EmitKind.DEAD_LETTER:
        topic, body = DEAD_LETTERS, None
    elif emit.kind is not EmitKind.RESULT and (emit.loss is not None or body is None):
        loss = emit.loss
        assert loss is not None  # a loss of this stage's own making
        body = Outcome(loss.kind, reason=loss.reason, text=loss.text, stage=stage)
    source, work = emit.source, emit.work
    assert work is not None  # nobody has it yet
    made_of = Source(stage, shard, epoch, emit.partition, work.offsets)
    record = Record(emit.request_id, body, source.sent, source.deadline, emit.hop, emit.path, emit.lost, source=made_of)
    return (topic, emit.partition), record


def again(record: Record) -> Record:
    """Give a record to be sent once more."""
    return replace(record, offset=-1, appended=0.0)


def item_of(request: Request) -> Item:
    parts = sorted(request.parts, key=lambda part: part.predecessor)
    return Item(request.request_id, tuple((part.predecessor, part.payload) for part in parts))


def result_of(world: StateWorld, stage: str, value: str) -> Ok:
    """Send a value on its way; where the stage chooses, the value decides which."""
    chosen = world.scenario.chosen(stage, value)
    going = world.graph.successors[stage] if chosen is None else chosen
    if not going:
        return Ok({None: Outcome(PREDICTION, outputs={"value": value}, stage=stage)}, chosen)
    return Ok(dict.fromkeys(going, value), chosen)
