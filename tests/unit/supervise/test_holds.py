"""A stage that waits by right is not taken for one that hangs."""

from agents.core.joins import longest_wait
from agents.supervise.service import join_holds
from agents.supervise.supervisor import SupervisorSettings
from topology.load import parse

DIAMOND = """
name: p
slo: 60
stages:
  - {name: a, model: "m:M"}
  - {name: b, model: "m:M", after: a}
  - {name: c, model: "m:M", after: a}
  - {name: d, model: "m:M", after: [b, c]}
"""
TWO_ENDS = """
name: p
slo: 0.1
sinks: all
stages:
  - {name: a, model: "m:M"}
  - {name: b, model: "m:M", after: a}
  - {name: c, model: "m:M", after: a}
"""


def test_joins_may_hold_their_input_for_as_long_as_they_wait():
    assert join_holds(parse(DIAMOND, "p.yaml")) == {"d": longest_wait(60.0)}
    assert join_holds(parse(TWO_ENDS, "p.yaml")) == {"gate": longest_wait(0.1)}


def test_the_watchdogs_patience_is_longer_than_any_such_wait():
    settings = SupervisorSettings(stall=30.0, holds={"d": longest_wait(60.0)})
    assert settings.patience("d") == 30.0 + longest_wait(60.0)
    assert settings.patience("a") == 30.0
