"""How a stage of a stateful pipeline takes a record: as one that cannot be used, where chance has it so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents.sim.faults.states.world.model import poisoned
from lineage import reasons

if TYPE_CHECKING:
    from agents.core.request import Delivery


def deliver(core: Any, stage: str, now: float, delivery: Delivery, poison: float) -> None:
    """Give a core a record, or a refusal of it."""
    if poison and not delivery.lost and poisoned(stage, delivery.request_id, poison) == "record":
        core.fail(now, delivery, reasons.BAD_INPUT, "scripted")
    else:
        core.deliver(now, delivery)
