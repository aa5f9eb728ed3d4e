"""Queries whose update raises: each fails alone, and everything else goes on, from a state that has nothing of them."""

import re
import time

import pytest

from spillway.lineage import reasons
from spillway.lineage.message import FAILED, PREDICTION

MODELS = "tests.integration.stateful.models"
ALONE = """
partitions: 2
stages:
  - name: learn
    model: "tests.integration.stateful.models:{model}"
    state: {{kind: {state}, replication: {mode}}}
    batching: {{max: 8}}
"""
SECOND = f"""
partitions: 2
stages:
  - {{name: first, model: "{MODELS}:Marking", state: shared, batching: {{max: 8}}}}
  - {{name: second, model: "{MODELS}:PoisonedCount", state: keyed, batching: {{max: 8}}, after: first}}
"""


def send(pipeline, count, rate=150.0, **marked):
    """Send `count` queries, those at the numbers given with that mark."""
    marks = {number: name for name, numbers in marked.items() for number in numbers}
    begun = time.monotonic()
    for number in range(count):
        time.sleep(max(0.0, begun + number / rate - time.monotonic()))
        pipeline.send(f"q{number}", {"x": number, **({marks[number]: 1} if number in marks else {})})
    assert pipeline.producer.flush(30) == 0


def judge(pipeline, poison, random=()):
    """All that is wrong, where these and no others fail; each of them has its dead letter."""
    failing = {f"q{number}" for number in poison}

    def right(request, kind, told):
        return kind == FAILED and reasons.MODEL_RAISED in told if request in failing else kind == PREDICTION

    problems = pipeline.judge(right, random=random)
    letters = [each for each in problems if re.search(rf"offset \d+: {reasons.MODEL_RAISED} update raised", each)]
    assert bool(letters) == bool(failing)
    assert not pipeline.twice
    return [problem for problem in problems if problem not in letters]


def reigns(pipeline, stage="learn"):
    logs = [pipeline.log(f"{stage}.0.{member}") for member in (0, 1)]
    return sum(len(re.findall(r"primary of epoch \d+", log)) for log in logs)


def test_each_that_raises_fails_alone_and_the_rest_goes_on(states):
    """Those that raise only together, too, are served apart; and a state that cannot be kept fails its query."""
    pipeline = states(ALONE.format(model="Poisoned", state="shared", mode="nspb"))
    pipeline.start_all()
    poison, unkept = range(25, 225, 50), [130, 180]
    send(pipeline, 260, poison=poison, unkept=unkept, pair=range(60, 68))
    pipeline.await_all()
    failing = [*poison, *unkept]
    assert 2 <= reigns(pipeline) <= 2 + len(failing)
    assert judge(pipeline, failing) == []


@pytest.mark.nightly
def test_in_a_state_by_key_too(states):
    pipeline = states(ALONE.format(model="PoisonedCount", state="keyed", mode="nspb"))
    pipeline.start_all()
    poison = range(25, 600, 50)
    send(pipeline, 600, poison=poison)
    pipeline.await_all()
    assert 2 <= reigns(pipeline) <= 1 + len(poison)
    assert judge(pipeline, poison) == []


@pytest.mark.parametrize(
    "mode",
    ["kafka-eos", *(pytest.param(mode, marks=pytest.mark.nightly) for mode in ("s1", "s2", "remus"))],
)
@pytest.mark.nightly
def test_in_the_other_ways_of_replication_too(states, mode):
    pipeline = states(ALONE.format(model="Poisoned", state="shared", mode=mode))
    pipeline.start_all()
    send(pipeline, 200, poison=[50, 120])
    pipeline.await_all()
    assert judge(pipeline, [50, 120]) == []


@pytest.mark.nightly
def test_behind_another_state_and_while_its_primary_dies(states):
    pipeline = states(SECOND)
    pipeline.start_all()
    primary = pipeline.primary("first")
    poison = range(25, 300, 50)
    send(pipeline, 300, poison=poison)
    pipeline.kill(primary)
    for number in range(300, 330):
        pipeline.send(f"q{number}", {"x": number})
    pipeline.await_all()
    assert judge(pipeline, poison, random=["first"]) == []
