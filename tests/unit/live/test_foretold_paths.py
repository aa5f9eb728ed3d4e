"""A stage that chooses learns from its own choices, by the class that senders name, and drops by what it foretells."""

import pytest

from spillway.agents.core.actions import Ok
from spillway.agents.live.stage.build import build_core
from spillway.agents.live.stage.config import StageConfig
from spillway.lineage.errors import UsageError
from spillway.topology.load import parse
from tests.unit.core.builders import NOW, delivery
from tests.unit.live.test_intake_and_emission import intake, record

PIPELINE = parse("""
name: fork
slo: 1s
stages:
  - {name: a, emulated: {alpha: 10ms}, batching: {size: 1}, choose: "m:f"}
  - {name: slow, after: a, emulated: {alpha: 300ms}, batching: {size: 1}}
  - {name: fast, after: a, emulated: {alpha: 10ms}, batching: {size: 1}}
  - {name: end, after: [slow, fast], emulated: {alpha: 10ms}, batching: {size: 1}}
""")


def served(policy: str):
    """A core at `a` that saw 30 requests of each class go their way."""
    core = build_core(StageConfig(pipeline=PIPELINE, stage="a", replica=0, policy=policy))
    core.assign(0, 0)
    for offset in range(60):
        kind, way = (("s", "slow"), ("f", "fast"))[offset % 2]
        ask(core, offset, kind, way, deadline=NOW + 1_000)
    return core


def ask(core, offset: int, kind: str, way: str, *, deadline: float) -> list[str]:
    now = NOW + offset
    core.deliver(now, delivery(f"r{offset}", offset, deadline=deadline, kind=kind))
    for batch in core.take_runs():
        core.complete(now + 0.01, batch, [Ok({way: "out"}, (way,)) for _ in batch.requests], 0.01)
    emits = core.take_emits()
    core.acked_all(emits)
    return [emit.destination for emit in emits if emit.loss is None]


@pytest.mark.parametrize(("kind", "way", "sent"), [("f", "fast", ["fast"]), ("s", "slow", [])])
def test_a_class_that_takes_the_fast_way_has_time_enough(kind, way, sent):
    assert ask(served("pard:paths=predicted"), 60, kind, way, deadline=NOW + 60.1) == sent


def test_without_foretelling_the_worst_way_counts():
    assert ask(served("pard"), 60, "f", "fast", deadline=NOW + 60.1) == []


def test_an_oracle_cannot_be_had_live():
    with pytest.raises(UsageError, match="paths=oracle works only in the simulator"):
        build_core(StageConfig(pipeline=PIPELINE, stage="a", replica=0, policy="pard:paths=oracle"))


def test_the_class_is_what_the_sender_says_in_a_header():
    assert intake().delivery(record()).kind == ""
    assert intake().delivery(record(extra_pairs=[("x-class", b"cars")])).kind == "cars"
    assert intake().delivery(record(extra_pairs=[("x-class", b"c" * 500)])).kind == "c" * 64
    assert intake().delivery(record(extra_pairs=[("x-class", b"\xff")])).kind == ""
