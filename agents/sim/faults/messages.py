"""Records as deliveries, and what a core sends as records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from agents.core.actions import EmitKind
from agents.core.request import Delivery
from agents.sim.faults.broker import OUTCOMES, Record
from lineage.message import Outcome

if TYPE_CHECKING:
    from agents.core.actions import Emit
    from agents.sim.faults.broker import Place

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


def message_of(emit: Emit, stage: str) -> tuple[Place, Record]:
    if emit.kind is EmitKind.DEAD_LETTER:
        topic, body = DEAD_LETTERS, None
    elif emit.kind is EmitKind.RESULT or (emit.loss is None and emit.payload is not None):
        topic, body = emit.destination or OUTCOMES, emit.payload
    else:
        loss = emit.loss
        assert loss is not None  # a loss of this stage's own making
        topic = emit.destination or OUTCOMES
        body = Outcome(loss.kind, reason=loss.reason, text=loss.text, stage=stage)
    source = emit.source
    record = Record(emit.request_id, body, source.sent, source.deadline, emit.hop, emit.path, emit.lost)
    return (topic, emit.partition), record
