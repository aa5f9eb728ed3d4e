"""The gate's exporter of traces, with collectors that take them, refuse them, hang, or are not there."""

import threading
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


def release(request_id, kind=PREDICTION, executed=0.01):
    timings = [StageTiming("a", 0.0, 0.0, executed, 1, arrived=1_000_000)]
    outcome = Outcome(kind, {"large": b"x" * 1000}, reason="" if kind == PREDICTION else "expired", timings=timings)
    source = Delivery(request_id, 0, 0, 1.0, 2.0, "a", None, payload=SimpleNamespace(trace=new_trace(request_id)))
    return SimpleNamespace(request_id=request_id, outcome=outcome, source=source)


def ids(collector):
    return [
        told["spillway.request_id"] for span in collector.spans if "spillway.request_id" in (told := attributes(span))
    ]


def test_what_is_sampled_comes_to_the_collector(exporter, collector):
    mine = exporter(f"{collector.url}/base", share=0.0)
    for number in range(450):
        mine.offer(release(f"q{number}", PREDICTION if number % 2 else DROPPED), 1.5)
    until(lambda: mine.sent == 225, 60)
    assert sorted(ids(collector)) == sorted(f"q{number}" for number in range(0, 450, 2))
    assert {path for path, _ in collector.requests} == {"/base/v1/traces"}
    (resource,) = (each["resource"] for each in collector.requests[0][1]["resourceSpans"])
    assert attributes(resource)["service.name"] == "p"
    assert not mine.lost.total()


def test_what_waits_is_bounded_and_without_outputs(exporter, collector):
    mine = exporter(period=3600.0)
    for number in range(MOST_WAITING + 7):
        mine.offer(release(f"q{number}"), 1.5)
    assert mine.lost[FULL] == 7
    assert len(mine._waiting) == MOST_WAITING
    assert not any(outcome.outputs for outcome, *_ in mine._waiting)
    mine.close()  # which sends them
    until(lambda: mine.sent == MOST_WAITING, 60)
    assert len(ids(collector)) == MOST_WAITING


def test_a_collector_that_refuses_is_left_alone_for_a_time_and_found_again(exporter, collector, caplog):
    collector.status = 503
    mine = exporter()
    mine.offer(release("q0"), 1.5)
    until(lambda: mine.lost[REFUSED] == 1, 60)
    until(lambda: mine._away, 60)
    mine.offer(release("q1"), 1.5)
    assert mine.lost[PAUSED] == 1
    assert not mine._waiting
    collector.status = 200
    until(lambda: not mine._away, 60, "it finds the collector by itself")
    mine.offer(release("q2"), 1.5)
    until(lambda: mine.sent == 1, 60)
    assert ids(collector) == ["q2"]
    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert "answers 503" in warning


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://[::1]:1", "https://127.0.0.1:1", f"http://{'x' * 70}.y"])
def test_one_that_is_not_there_costs_the_traces_alone(exporter, url):
    mine = exporter(url)
    mine.offer(release("q0"), 1.5)
    until(lambda: mine.lost[REFUSED] == 1, 60)


def test_one_that_hangs_holds_up_nobody(exporter, collector, monkeypatch):
    monkeypatch.setattr(trace_exporter, "_CLOSE_SECONDS", 0.05)
    monkeypatch.setattr(trace_exporter, "_TIMEOUT", 600.0)
    collector.goes_on.clear()
    mine = exporter()
    mine.offer(release("q0"), 1.5)
    until(lambda: not mine._waiting, 60, "its request is under way")
    ended = threading.Event()

    def go_on():
        for number in range(2 * MOST_WAITING):
            mine.offer(release(f"r{number}"), 1.5)
        mine.close()
        ended.set()

    threading.Thread(target=go_on, daemon=True).start()
    assert ended.wait(60)
    assert mine._thread.is_alive()
    assert mine.lost[FULL] == MOST_WAITING


def test_one_that_hangs_for_good_is_given_up(exporter, collector, monkeypatch):
    monkeypatch.setattr(trace_exporter, "_TIMEOUT", 0.05)
    collector.goes_on.clear()
    mine = exporter()
    mine.offer(release("q0"), 1.5)
    until(lambda: mine.lost[REFUSED] == 1, 60)


def test_a_trace_that_makes_no_sense_is_lost_alone(exporter, collector):
    mine = exporter()
    mine.offer(release("bad", executed=float("nan")), 1.5)
    mine.offer(release("good"), 1.5)
    until(lambda: mine.sent == 1 and mine.lost[UNREADABLE] == 1, 60)
    assert ids(collector) == ["good"]


def test_what_was_sent_and_lost_is_in_the_gates_metrics(exporter):
    metrics = GateMetrics("p")
    assert not any("traces" in name for name, _ in samples(metrics))
    metrics.traces = exporter(period=3600.0)
    metrics.traces.lost[FULL] += 3
    gate = (("pipeline", "p"), ("reason", "full"), ("replica", "0"), ("stage", "gate"))
    assert samples(metrics)["spillway_traces_lost_total", gate] == 3
