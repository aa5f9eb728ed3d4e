"""How a stage of a stateful pipeline takes a record, and what it sends: with what that was made of, for the oracle."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from agents.core.actions import Ok
from agents.sim.faults.messages import message_of
from agents.sim.faults.states.world.history import Source
from agents.sim.faults.states.world.model import Item, unreadable
from lineage import reasons
from lineage.message import PREDICTION, Outcome

if TYPE_CHECKING:
    from agents.core.actions import Emit
    from agents.core.request import Delivery, Request
    from agents.sim.faults.broker import Place, Record
    from agents.sim.faults.states.world.state_world import StateWorld


def deliver(core: Any, stage: str, now: float, delivery: Delivery, poison: float) -> None:
    if poison and not delivery.lost and unreadable(stage, delivery.predecessor, delivery.request_id, poison):
        core.fail(now, delivery, reasons.BAD_INPUT, "scripted")
    else:
        core.deliver(now, delivery)


def told(emit: Emit, stage: str, shard: int = -1, epoch: int = 0) -> tuple[Place, Record]:
    """Give what a core sends, where to, and of what it was made. `epoch`: of a stateful stage's reign."""
    where, record = message_of(emit, stage)
    assert emit.work is not None  # nobody has it yet
    record.source = Source(stage, shard, epoch, emit.partition, emit.work.offsets)
    return where, record


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
