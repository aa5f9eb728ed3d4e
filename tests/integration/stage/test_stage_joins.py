"""Four stages of a diamond as processes, without a gate: what the last one says of each query."""

import signal

import pytest

from spillway.lineage import reasons
from tests.input_damage import delete_records
from tests.waiting import PATIENT_SECONDS

DIAMOND = """
partitions: 4
stages:
  - {name: root, model: "stage_models:Pass"}
  - {name: left, model: "stage_models:Fragile", after: root}
  - {name: right, model: "stage_models:Square", after: root}
  - {name: last, model: "stage_models:Pass", after: [left, right], join: {on_loss: ON_LOSS}}
"""


@pytest.mark.nightly
@pytest.mark.parametrize("on_loss", ["drop", "partial"])
def test_a_diamond_joins_what_belongs_together_and_hears_of_losses(stage, until, on_loss):
    one = stage(DIAMOND.replace("ON_LOSS", on_loss))
    for name in ("root", "left", "right", "last"):
        one.start(name)
    sent = {f"q{x}": x for x in range(200)}
    for request_id, x in sent.items():
        told = {"x": x, **({"act": "raise"} if x % 10 == 0 else {})}
        one.send(request_id, told, within=int(PATIENT_SECONDS))
    one.flush()
    out = one.reader("outcomes")
    out.wait(len(sent))
    out.settle()
    assert len(out.messages) == len(sent)
    for told, outcome in out.outcomes():
        x = sent[told.request_id]
        if x % 10:
            assert outcome.outputs == {"left.y": x, "right.y": x * x, "right.id": told.request_id}
            assert {timing.stage for timing in outcome.timings} == {"root", "left", "right", "last"}
            assert outcome.flags == {}
        elif on_loss == "partial":
            assert outcome.outputs == {"right.y": x * x, "right.id": told.request_id}
            assert outcome.flags == {"last": {"missing": ["left"]}}
        else:
            assert (outcome.kind, outcome.reason, outcome.stage) == ("failed", reasons.MODEL_RAISED, "left")
            assert told.lost == ("last",)
    for name in ("left", "right", "last"):
        until(lambda name=name: one.committed(name, name) == one.ends(name))


def test_a_branch_that_is_away_costs_no_answers_but_those_whose_waiting_parts_retention_took(stage, until):
    """What waits keeps no payloads: they are read again when the branch comes; what it loses is heard of."""
    one = stage(DIAMOND.replace("ON_LOSS", "drop"))
    for name in ("root", "right"):
        one.start(name)
    last = one.start("last", payload_bytes=0)
    sent = {f"q-{x}": x for x in range(300)}
    for request_id, x in sent.items():
        one.send(request_id, {"x": x, **({"act": "raise"} if x % 10 == 0 else {})}, within=int(PATIENT_SECONDS))
    one.flush()
    until(lambda: sum(one.ends("last").values()) == len(sent))
    until(lambda: one.metrics("last").get("spillway_received_total") == len(sent))
    delete_records(one.bootstrap, f"{one.name}.last", {0: one.ends("last")[0]})
    one.start("left")  # it comes when all that the other branch has done waits
    out = one.reader("outcomes")
    out.wait(len(sent))
    out.settle()
    assert len(out.messages) == len(sent)
    for (told, outcome), message in zip(out.outcomes(), out.messages, strict=True):
        x = sent[told.request_id]
        if message.partition() == 0:
            assert outcome.reason == reasons.PART_GONE
        elif x % 10 == 0:
            assert (outcome.kind, outcome.reason, outcome.stage) == ("failed", reasons.MODEL_RAISED, "left")
            assert told.lost == ("last",)
        else:
            assert outcome.outputs == {"left.y": x, "right.y": x * x, "right.id": told.request_id}
            assert {timing.stage for timing in outcome.timings} == {"root", "left", "right", "last"}
    assert 0 < sum(message.partition() == 0 for message in out.messages) < len(sent)
    for name in ("left", "right", "last"):
        until(lambda name=name: one.committed(name, name) == one.ends(name))
    assert one.stop(last, signal.SIGTERM) == 0
