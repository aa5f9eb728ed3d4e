"""The spans that the gate makes of an outcome: their ids, parents and times, and which traces it exports."""

import json

import pytest
from hypothesis import given

from spillway.agents.live.gate.trace_spans import is_sampled, spans_of
from spillway.lineage.headers import Headers
from spillway.lineage.message import DROPPED, FAILED, PREDICTION, Outcome, StageTiming
from spillway.lineage.trace import TraceContext, new_trace
from tests.collector import attributes
from tests.unit.lineage.strategies import outcomes

TRACE, CALLER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SENT = 1_700_000_000_000_000
CONTEXT = TraceContext(TRACE, CALLER, 1)


def timing(stage, arrived_ms, batch=4, executed=0.040):
    return StageTiming(stage, 0.002, 0.010, executed, batch, "m:M", "3", SENT + arrived_ms * 1000)


def spans(outcome, *, context=CONTEXT, request_id="q1", sent=SENT, released=SENT + 120_000):
    return spans_of(outcome, Headers(request_id, sent, sent + 200_000, trace=context), released, "p")


def times(span):
    return tuple((int(span[f"{end}TimeUnixNano"]) - SENT * 1000) / 1e6 for end in ("start", "end"))


def test_a_trace_has_the_query_below_its_caller_its_stages_and_their_executions():
    found = spans(Outcome(PREDICTION, timings=[timing("detect", 5), timing("taste", 60)]))
    root, detect, _, taste, _ = (span["spanId"] for span in found)
    assert len({span["spanId"] for span in found} | {CALLER}) == 6
    assert {span["traceId"] for span in found} == {TRACE}
    assert [span["parentSpanId"] for span in found] == [CALLER, root, detect, root, taste]
    assert [span["name"] for span in found] == ["p", "detect", "execute", "taste", "execute"]
    assert [times(span) for span in found] == [(0, 120), (5, 57), (17, 57), (60, 112), (72, 112)]
    assert not any("status" in span for span in found)
    assert attributes(found[0]) == {
        "spillway.request_id": "q1", "spillway.outcome": PREDICTION, "spillway.slo_ms": 200.0,
        "spillway.lateness_ms": -80.0, "spillway.late": False,
    }  # fmt: skip
    assert attributes(found[3]) == {
        "spillway.stage": "taste", "spillway.queued_ms": 2.0, "spillway.waited_ms": 10.0,
        "spillway.executed_ms": 40.0, "spillway.batch": 4, "spillway.model": "m:M", "spillway.version": "3",
    }  # fmt: skip


def test_a_drop_is_an_error_of_the_query_and_of_the_stage_that_dropped_it():
    stages = [timing("a", 5), timing("b", 60, batch=0, executed=0.0)]
    outcome = Outcome(DROPPED, reason="expired", text="5 ms late", stage="b", timings=stages)
    root, first, _, last = spans(outcome, released=SENT + 250_000)
    for span in (root, last):
        assert span["status"] == {"code": 2, "message": "5 ms late"}
        assert attributes(span)["error.type"] == "expired"
    assert "status" not in first
    assert (attributes(root)["spillway.ended_by"], attributes(root)["spillway.late"]) == ("b", True)


def test_a_trace_that_is_made_again_has_the_same_spans_and_another_querys_has_others():
    outcome = Outcome(PREDICTION, timings=[timing("a", 5)])
    assert spans(outcome) == spans(outcome)
    ids = [{span["spanId"] for span in spans(outcome, **change)} for change in ({}, {"request_id": "q2"}, {"sent": 7})]
    assert len(set.union(*ids)) == 9


@pytest.mark.parametrize("context", [new_trace("q1"), None])
def test_without_a_caller_there_is_no_parent_and_without_its_time_no_stage(context):
    (root,) = spans(Outcome(PREDICTION, timings=[StageTiming("old", 0.1, 0.1, 0.1, 1)]), context=context)
    assert (root["traceId"], root["parentSpanId"]) == (new_trace("q1").trace_id, "")


@pytest.mark.parametrize(("sent", "released"), [(2**63 - 1, 5), (SENT, SENT - 10**6)])
@given(outcome=outcomes)
def test_whatever_an_outcome_says_a_collector_can_take_its_spans_or_there_are_none(outcome, sent, released):
    try:
        text = json.dumps(spans(outcome, sent=sent, released=released), allow_nan=False)
    except (ValueError, OverflowError):
        return  # no such durations
    for span in json.loads(text):
        assert 0 <= int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"]) < 2**63


def test_losses_and_what_a_caller_records_are_always_exported_and_of_the_others_a_share():
    unsampled = TraceContext(TRACE, CALLER, 0)
    assert all(is_sampled(Outcome(kind), "q1", unsampled, 0.0) for kind in (DROPPED, FAILED))
    assert is_sampled(Outcome(PREDICTION), "q1", CONTEXT, 0.0)
    assert not is_sampled(Outcome(PREDICTION), "q1", unsampled, 1.0)  # its caller has decided
    own = [f"q{number}" for number in range(2_000)]
    for share, least, most in ((0.0, 0, 0), (0.1, 150, 250), (1.0, 2_000, 2_000)):
        assert least <= sum(is_sampled(Outcome(PREDICTION), each, new_trace(each), share) for each in own) <= most
