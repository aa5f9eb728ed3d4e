"""Four stages of a diamond as processes, without a gate: what the last one says of each query."""

import pytest

from lineage import reasons

DIAMOND = """
partitions: 4
stages:
  - {name: root, model: "stage_models:Pass"}
  - {name: left, model: "stage_models:Fragile", after: root}
  - {name: right, model: "stage_models:Square", after: root}
  - {name: last, model: "stage_models:Pass", after: [left, right], join: {on_loss: ON_LOSS}}
"""


@pytest.mark.slow
@pytest.mark.parametrize("on_loss", ["drop", "partial"])
def test_a_diamond_joins_what_belongs_together_and_hears_of_losses(stage, until, on_loss):
    one = stage(DIAMOND.replace("ON_LOSS", on_loss))
    for name in ("root", "left", "right", "last"):
        one.start(name)
    sent = {f"q{x}": x for x in range(200)}
    for request_id, x in sent.items():
        one.send(request_id, {"x": x, **({"act": "raise"} if x % 10 == 0 else {})})
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
        elif on_loss == "partial":
            assert outcome.outputs == {"right.y": x * x, "right.id": told.request_id}
        else:
            assert (outcome.kind, outcome.reason, outcome.stage) == ("failed", reasons.MODEL_RAISED, "left")
            assert told.lost == ("last",)
    for name in ("left", "right", "last"):
        until(lambda name=name: one.committed(name, name) == one.ends(name))
