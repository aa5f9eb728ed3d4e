"""`python -m benchmarks gateway`: what it counts as broken, and what it sends."""

import random

import pytest

from benchmarks.gateway import hostile, kill
from benchmarks.gateway.kill import Asked, Outage

AWAY = [Outage("gateway.1", 10.0, 12.0), Outage("gate", 20.0, 22.0)]
GOOD = {"hostile": 1, "codes": [], "good": {"200": 1}, "memory_before": 0, "memory_most": 1, "log": []}


@pytest.mark.parametrize(
    ("asked", "allowed"),
    [
        (Asked(0, 0.0, 1.0, "200"), True),
        (Asked(0, 20.0, 21.0, "503"), True),
        (Asked(1, 9.0, 10.5, "reset"), True),
        (Asked(1, 11.0, 11.0, "refused"), True),
        (Asked(1, 13.0, 13.0, "refused"), False),
        (Asked(0, 11.0, 11.0, "refused"), False),
        (Asked(0, 20.0, 21.0, "reset"), False),
        (Asked(0, 20.0, 21.0, "400"), False),
        (Asked(0, 20.0, 21.0, "wrong answer"), False),
        (Asked(0, 20.0, 80.0, "no answer"), False),
    ],
)
def test_a_connection_may_fail_only_while_its_own_gateway_is_away(asked, allowed):
    assert kill.allowed(asked, AWAY) is allowed


def test_an_id_that_is_there_twice_breaks_the_promise():
    assert kill.broken({"unlike": {}, "twice": 0}) == []
    assert kill.broken({"unlike": {"400 by gateway 0": 2}, "twice": 1}) != []


@pytest.mark.parametrize(
    "changed",
    [
        {"good": {"200": 5, "429": 1}},
        {"good": {}},
        {"memory_most": hostile.MOST_BYTES + 1},
        {"codes": [{"kind": "bad JSON", "code": "500", "count": 1}]},
        {"codes": [{"kind": "bad JSON", "code": "no answer", "count": 1}]},
        {"log": ["POST /x failed"]},
    ],
)
def test_what_hostile_requests_must_not_bring_about(changed):
    assert hostile.broken(GOOD) == []
    assert len(hostile.broken({**GOOD, **changed})) == 1


@pytest.mark.parametrize("kind", hostile.KINDS)
def test_every_kind_makes_bytes_of_every_sort(kind):
    made = {hostile.KINDS[kind](random.Random(seed)) for seed in range(40)}
    assert all(isinstance(each, bytes) and len(each) < 4 << 20 for each in made)
