"""What is told of a query, from what was found of it."""

import pytest

from spillway.agents.cli.waterfall import lines
from spillway.agents.live.operator.inspection import Search, Sighting, describe
from spillway.lineage.headers import Headers
from spillway.lineage.hops import Hop
from spillway.lineage.marks import Mark, Version
from spillway.lineage.message import DROPPED, FAILED, PREDICTION, Outcome, StageTiming
from spillway.lineage.trace import TraceContext
from spillway.topology.spec import PipelineSpec

SENT = 1_800_000_000_000_000
SPEC = PipelineSpec.model_validate(
    {
        "name": "p",
        "slo": "100ms",
        "stages": [
            {"name": "a", "model": "m:A"},
            {"name": "b", "model": "m:B", "after": ["a"]},
            {"name": "c", "model": "m:C", "after": ["a"]},
            {"name": "d", "model": "m:D", "after": ["b", "c"]},
        ],
    }
)
MARK = Mark("a", 0, Version(1, 7))


def sighting(topic="p.egress", at=40.0, *, stage="d", key=b"q", done=None, marks=()):
    headers = Headers(
        "q", SENT, SENT + 100_000, Hop(stage, 1, 3, 0, 0, tuple(marks)), trace=TraceContext("1" * 32, "2")
    )
    return Sighting(topic, 3, 17, (SENT / 1e3 + at) / 1e3, headers, key, done=done or {})


def timing(stage, at, queued=1.0, waited=2.0, executed=5.0, batch=4, model="m:M"):
    arrived = SENT + int(at * 1e3) if at is not None else 0
    return StageTiming(stage, queued / 1e3, waited / 1e3, executed / 1e3, batch, model, "1", arrived)


def told_of(outcome=None, *seen, waits_for=None, oldest=None, since=SENT / 1e6):
    return describe(
        Search("q", since, 60.0, 3, seen or [sighting()] if outcome else seen, outcome, waits_for or {}, oldest), SPEC
    )


def text_of(told, width=100):
    return "\n".join(lines(told, width))


def test_the_waterfall_has_a_row_of_the_scale_for_each_stage():
    outcome = Outcome(
        PREDICTION, stage="b", timings=[timing("a", 10.0, 10.0, 20.0, 20.0), timing("b", 70.0, 0, 0, 10.0)]
    )
    text = text_of(told_of(outcome, sighting(at=90.0)), 78)
    assert "q of p: answered 90.0 ms after it was sent, 10.0 ms before its deadline" in text
    _, _, head, a, b, end, _ = text.splitlines()
    assert head == "         0             100 ms  arrived  queued  waited  executed  batch  model"
    assert a == "a        ··░░▒▒▒▒████       |     10.0    10.0    20.0      20.0      4  m:M 1"
    assert b == "b                    ··██   |     70.0     0.0     0.0      10.0      4  m:M 1"
    assert end == "outcome                    *|  90.0"


def test_a_late_answer_is_drawn_beyond_the_deadline():
    told = told_of(Outcome(PREDICTION, stage="a", timings=[timing("a", 10.0, executed=150.0)]), sighting(at=200.0))
    assert told["late"]
    assert told["text"].endswith("100.0 ms after its deadline")
    bar = next(line for line in text_of(told).splitlines() if line.startswith("outcome"))
    assert bar.index("|") < bar.index("*")


def test_a_dropped_query_says_by_how_much_and_where():
    outcome = Outcome(
        DROPPED, reason="expired", text="3.0 ms past its deadline", stage="b", timings=[timing("b", 90.0, batch=0)]
    )
    told = told_of(outcome, sighting(at=104.0))
    assert told["text"] == (
        "dropped by b (expired) 104.0 ms after it was sent, 4.0 ms after its deadline: 3.0 ms past its deadline"
    )
    assert "not run" in text_of(told)


def test_timings_from_before_there_were_arrivals_have_no_place_in_the_bar():
    told = told_of(Outcome(FAILED, reason="model-raised", text="why", stage="a", timings=[timing("a", None)]))
    assert told["text"].startswith("failed at a (model-raised) 40.0 ms after")
    assert told["stages"][0]["arrived_ms"] is None
    assert "?" in text_of(told)


@pytest.mark.parametrize(
    ("seen", "waits_for", "state", "said"),
    [
        (
            [sighting("p.ingress", 1.0, done={"a": True}), sighting("p.b", 9.0, stage="a", done={"b": False})],
            {},
            "waiting",
            "b has it to do, from p.b, partition 3, offset 17",
        ),
        ([sighting("p.b", done={"b": None})], {}, "waiting", "(what was committed is unknown)"),
        (
            [sighting("p.b", done={"b": True})],
            {},
            "passed",
            "b has committed beyond p.b, partition 3, offset 17, and what followed",
        ),
        (
            [sighting("p.outcomes", stage="d", done={"gate": False}, marks=[MARK])],
            {str(MARK): "open", "a/1 e1.v2": "durable"},
            "held",
            "held at the gate for a/0 e1.v7 (open)",
        ),
        (
            [sighting("p.outcomes", stage="d", done={"gate": False})],
            {str(MARK): "durable"},
            "waiting",
            "gate has it to do, from p.outcomes",
        ),
        ([sighting("p.outcomes", done={"gate": True})], {}, "passed", "gate has committed beyond p.outcomes"),
    ],
)
def test_without_an_outcome_it_is_told_where_it_was_seen_last(seen, waits_for, state, said):
    told = told_of(None, *seen, waits_for=waits_for)
    assert told["state"] == state
    assert said in told["text"]
    assert [each["topic"] for each in told["seen"]] == [each.topic for each in seen]
    assert said in text_of(told)


def test_where_nothing_was_found_it_is_told_how_far_back_anything_is_kept():
    assert "no longer kept" not in told_of(oldest=SENT / 1e6 - 10)["text"]
    told = told_of(oldest=SENT / 1e6 + 10)
    assert told["state"] == "not-found"
    assert "no longer kept (the topics' retention)" in told["text"]
    assert "the oldest outcome kept in partition 3 is of 2027-01-15 08:00:10.000 UTC" in text_of(told)
    assert "no outcome is kept" in told_of(since=None)["text"]
