"""A stage with variants drops by its policy, which knows of each variant's lane what its profile says."""

import pytest

from spillway.agents.core.actions import Ok
from spillway.agents.core.lanes import number_of
from spillway.agents.core.routes.variants import Answered, Variants
from spillway.agents.live.stage.build import build_core
from spillway.agents.live.stage.config import StageConfig
from spillway.topology.load import parse
from spillway.topology.variants.needs import Needs
from spillway.topology.variants.variant import variants_of
from tests.unit.core.builders import NOW, delivery

PIPELINE = parse("""
name: digits
slo: 1s
stages:
  - name: digit
    variants:
      app: digits
      of:
        slow: {model: "m:S", architecture: a, accuracy: .9, batch: 2, takes: {1: 300ms, 2: 400ms}}
""")


def dropped(policy: str | None) -> list[int]:
    """Which of five queries that come at once are dropped, where one worker takes two at a time."""
    spec = PIPELINE.spec.stage("digit")
    route = Variants(variants_of(spec.variants), lambda _: Needs("digits"))
    core = build_core(StageConfig(pipeline=PIPELINE, stage="digit", replica=0, policy=policy), route=route)
    route.waits, route.ready = core.lanes.waits, core.lanes.ready
    core.assign(0, 0)
    core.attach(NOW, number_of(0, 0))
    for offset in range(5):
        core.deliver(NOW, delivery(f"q{offset}", offset, deadline=NOW + 0.9))
    (first,) = core.take_runs()
    core.complete(NOW + 0.3, first, [Ok({}, value=Answered({}))], 0.3)
    return [int(each.request_id[1:]) for each in core.take_emits() if each.loss is not None]


@pytest.mark.parametrize(("policy", "gone"), [(None, [3, 4]), ("naive", [])])
def test_what_cannot_be_in_time_is_dropped_at_a_batch_s_start_before_any_was_measured(policy, gone):
    assert dropped(policy) == gone
