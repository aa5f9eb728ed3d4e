"""All processes of a served pipeline speak at the same moments: as told, else as often as its policies ask."""

import pytest

from agents.supervise.child import GATE
from agents.supervise.service import ServiceSettings, child_plans
from producers.connection import ClientSettings
from topology.load import parse

PIPELINE = """
name: p
slo: 1
stages:
  - {name: a, emulated: {beta: 1ms}, replicas: 2}
  - {name: b, emulated: {beta: 1ms}, after: a, policy: naive}
  - {name: c, emulated: {beta: 1ms}, after: b, policy: spillway}
"""


@pytest.mark.parametrize(
    ("given", "period"), [({}, "0.1"), ({"policy": "pard"}, "1.0"), ({"policy": "pard", "plan_period": 0.3}, "0.3")]
)
def test_every_process_is_given_the_same_period(tmp_path, given, period):
    pipeline = parse(PIPELINE, "p.yaml")
    settings = ServiceSettings(pipeline, ClientSettings(bootstrap="localhost:1"), tmp_path, **given)
    commands = {f"{plan.stage}.{plan.replica}": plan.command for plan in child_plans(settings)}
    assert set(commands) == {"a.0", "a.1", "b.0", "c.0", f"{GATE}.0"}
    for command in commands.values():
        assert command[command.index("--plan-period") + 1] == period
