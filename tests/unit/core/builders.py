"""Short ways to make deliveries and cores in tests."""

from dataclasses import replace
from typing import Any

from spillway.agents.core.actions import Ok
from spillway.agents.core.batching import Batcher
from spillway.agents.core.deadlines import Deadlines, DefaultAnswer
from spillway.agents.core.policies import make
from spillway.agents.core.policy import StageView
from spillway.agents.core.request import Delivery, Request
from spillway.agents.core.stage import StageCore
from spillway.agents.core.step import Step
from spillway.lineage.hops import Hop
from spillway.lineage.marks import Mark, Version
from tests.unit.core.shapes import SHAPES

NOW = 1_000.0


def delivery(request_id: str, offset: int, sender: str = "", *, sequence: int | None = None, **more: Any) -> Delivery:
    """A record; between stages its sender's sequence is its own offset unless told."""
    hop = None
    if sender:
        hop = Hop(
            sender, 1, more.get("partition", 0), offset if sequence is None else sequence, more.pop("committed", 0)
        )
    defaults = {
        "partition": 0,
        "sent": NOW,
        "deadline": NOW + 1.0,
        "appended": NOW,
        "payload": f"{sender}:{request_id}",
    }
    return Delivery(request_id=request_id, offset=offset, predecessor=sender, hop=hop, **{**defaults, **more})


def request(name: str = "q", *, sent: float = 0.0, within: float = 1e9, partition: int = 0, **more: Any) -> Request:
    """A query that arrives as it is sent, with so many seconds to its deadline."""
    return Request(name, partition, sent, sent + within, sent, (), {}, **more)


def stage_core(
    shape: str,
    stage: str,
    *,
    batch: int = 1,
    policy: str = "naive",
    instances: int = 1,
    payload_bytes: int | None = None,
    **options: Any,
):
    batcher = Batcher(make(policy, StageView(stage=stage, instances=instances)), batch, 0.0, instances)
    rule = SHAPES[shape].rules.get(stage)
    if payload_bytes is not None:
        rule = replace(rule, payload_bytes=payload_bytes)
    core = StageCore(SHAPES[shape].graph(), stage, batcher, rule=rule, **options)
    core.assign(0, 0)
    return core


def with_default() -> list[Step]:
    """The steps of a stage with a default answer."""
    return [Deadlines(), DefaultAnswer()]


def finish(core: StageCore, *destinations: str | None, now: float = NOW):
    """Complete what runs, with results for these destinations; the emits."""
    for batch in core.take_runs():
        core.complete(now, batch, [Ok(dict.fromkeys(destinations, "out")) for _ in batch.requests], 0.01)
    return core.take_emits()


def shown(emits):
    return [(emit.kind.value, emit.destination, emit.request_id, emit.lost) for emit in emits]


# Messages that rest on states, and a durability that knows what it is told.

OLD, NEW = Mark("s", 0, Version(1, 5)), Mark("s", 0, Version(2, 5))
OTHER = Mark("t", 0, Version(1, 1))


class Known:
    def __init__(self):
        self.alive, self.gone, self.asked = set(), set(), 0

    def tell(self, core, *, alive=None, gone=None, now=NOW):
        """Report to the core which versions are durable or dead by now."""
        self.alive = self.alive if alive is None else alive
        self.gone = self.gone if gone is None else gone
        core.durability_changed(now)

    def durable(self, mark):
        self.asked += 1
        return mark in self.alive

    def dead(self, mark):
        self.asked += 1
        return mark in self.gone


def marked(request_id, offset, sender, *marks, **more):
    made = delivery(request_id, offset, sender, **more)
    made.hop = replace(made.hop, marks=marks)
    return made
