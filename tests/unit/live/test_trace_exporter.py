"""The gate's exporter of traces, with collectors that take them, refuse them, hang, or are not there."""

import json
from types import SimpleNamespace

import pytest

from spillway.agents.core.request import Delivery
from spillway.agents.live.gate import trace_exporter
from spillway.agents.live.gate.metrics import GateMetrics
from spillway.agents.live.gate.trace_exporter import FULL, MOST_WAITING, PAUSED, REFUSED, UNREADABLE, TraceExporter
from spillway.lineage.message import DROPPED, PREDICTION, Outcome, StageTiming
from spillway.lineage.trace import new_trace
from tests.collector import attributes, collecting
from tests.unit.live.test_metrics import samples
from tests.waiting import until

PERIOD = 0.02


@pytest.fixture
def collector():
    with collecting() as collector:
        yield collector


@pytest.fixture
def exporter(collector, monkeypatch):
    """A maker of exporters, which end with the test."""
    monkeypatch.setattr(trace_exporter, "_LONGEST_PAUSE", 4 * PERIOD)
    made = []

    def make(url=collector.url, share=1.0, period=PERIOD):
        made.append(TraceExporter(url, "p", 0, share, period))
        return made[-1]

    yield make
    collector.goes_on.set()
    for each in made:
        each.close()
        each._thread.join(60)
        assert not each._thread.is_alive()


def offer(exporter, *request_ids, kind=PREDICTION, executed=0.01):
    for request_id in request_ids:
        timings = [StageTiming("a", 0.0, 0.0, executed, 1, arrived=1_000_000)]
        outcome = Outcome(kind, {"large": b"x" * 1000}, timings=timings)
        source = Delivery(request_id, 0, 0, 1.0, 2.0, "a", None, payload=SimpleNamespace(trace=new_trace(request_id)))
        exporter.offer(SimpleNamespace(request_id=request_id, outcome=outcome, source=source), 1.5)


def ids(collector):
    told = (attributes(span).get("spillway.request_id") for span in collector.spans)
    return [request_id for request_id in told if request_id]


def test_what_is_sampled_comes_to_the_collector(exporter, collector):
    mine = exporter(f"{collector.url}/base", share=0.0)
    drops = [f"q{number}" for number in range(225)]
    offer(mine, "not", "sampled")
    offer(mine, *drops, kind=DROPPED)
    until(lambda: mine.sent == 225, 60)
    assert ids(collector) == drops
    assert {path for path, _ in collector.requests} == {"/base/v1/traces"}
    assert attributes(collector.requests[0][1]["resource"])["service.name"] == "p"
    assert not mine.lost.total()


def test_what_waits_is_bounded_without_outputs_and_sent_at_the_end(exporter, collector):
    mine, metrics = exporter(period=3600.0), GateMetrics("p")
    assert not any("traces" in name for name, _ in samples(metrics))
    metrics.traces = mine
    offer(mine, *(f"q{number}" for number in range(MOST_WAITING + 7)))
    gate = (("pipeline", "p"), ("reason", "full"), ("replica", "0"), ("stage", "gate"))
    assert samples(metrics)["spillway_traces_lost_total", gate] == 7
    assert not any(outcome.outputs for outcome, *_ in mine._waiting)
    mine.close()
    until(lambda: mine.sent == MOST_WAITING, 60)
    assert len(ids(collector)) == MOST_WAITING


@pytest.mark.parametrize("answer", [b"", b"[]", b"\xff", b'{"partialSuccess": {"rejectedSpans": "many"}}', b'{"a": 1}'])
def test_an_odd_answer_of_a_collector_changes_nothing(exporter, collector, caplog, answer):
    collector.answer = answer
    mine = exporter()
    offer(mine, "q0")
    until(lambda: mine.sent == 1, 60)
    assert not mine.lost.total()
    assert not caplog.records


def test_spans_that_a_collector_rejects_are_warned_of_once_for_each_reason(exporter, collector, caplog):
    mine = exporter()
    for number, why in enumerate(("too old", "too old", "too many")):
        answer = {"partialSuccess": {"rejectedSpans": "3", "errorMessage": why}}
        collector.answer = json.dumps(answer).encode()
        offer(mine, f"q{number}")
        until(lambda: mine.sent == number + 1, 60)  # noqa: B023
    assert [record.args[1:] for record in caplog.records] == [(3, "too old"), (3, "too many")]


def test_a_collector_that_refuses_is_left_alone_for_a_time_and_found_again(exporter, collector, caplog):
    collector.status = 503
    mine = exporter()
    offer(mine, "q0")
    until(lambda: mine.lost[REFUSED] == 1 and mine._away, 60)
    offer(mine, "q1")
    assert (mine.lost[PAUSED], len(mine._waiting)) == (1, 0)
    collector.status = 200
    until(lambda: not mine._away, 60, "it finds the collector by itself")
    offer(mine, "q2")
    until(lambda: mine.sent == 1, 60)
    assert ids(collector) == ["q2"]
    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert "Error 503" in warning


def test_a_redirect_takes_no_traces(exporter, collector):
    collector.status = 302
    mine = exporter()
    offer(mine, "q0")
    until(lambda: mine.lost[REFUSED] == 1, 60)
    assert not mine.sent


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "https://[::1]:1", f"http://{'x' * 70}.y"])
def test_one_that_is_not_there_costs_the_traces_alone(exporter, url):
    mine = exporter(url)
    offer(mine, "q0")
    until(lambda: mine.lost[REFUSED] == 1, 60)


@pytest.mark.parametrize("patience", [0.05, 600.0])
def test_one_that_hangs_is_given_up_and_holds_up_nobody_until_then(exporter, collector, monkeypatch, patience):
    monkeypatch.setattr(trace_exporter, "_CLOSE_SECONDS", 0.05)
    monkeypatch.setattr(trace_exporter, "_TIMEOUT", patience)
    collector.goes_on.clear()
    mine = exporter()
    offer(mine, "q0")
    if patience < 1.0:
        until(lambda: mine.lost[REFUSED] == 1, 60)
        return
    until(lambda: not mine._waiting, 60, "its request is under way")
    offer(mine, *(f"q{number}" for number in range(MOST_WAITING + 7)))
    mine.close()
    assert mine._thread.is_alive()
    assert mine.lost[FULL] == 7


def test_a_trace_that_makes_no_sense_is_lost_alone(exporter, collector):
    mine = exporter()
    offer(mine, "bad", executed=float("nan"))
    offer(mine, "good")
    until(lambda: mine.sent == 1 and mine.lost[UNREADABLE] == 1, 60)
    assert ids(collector) == ["good"]
