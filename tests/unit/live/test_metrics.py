import asyncio
import json
import os
import threading
import urllib.error
import urllib.request
from contextlib import closing
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from spillway.agents.core.actions import Emit, EmitKind, Executed
from spillway.agents.core.request import Loss, Request
from spillway.agents.core.workers import Batch
from spillway.agents.live.gate.metrics import GateMetrics
from spillway.agents.live.registry import LOOPBACK, Address, MetricsServer, Registration, turns
from spillway.agents.metrics import BELIEVED_SECONDS, Distribution, StageMetrics, StateMetrics, WaitsTold
from spillway.agents.run.tally import Tally
from spillway.agents.supervise.registry import Entry
from spillway.agents.supervise.scrape import figures
from spillway.lineage.errors import UsageError
from spillway.lineage.message import DROPPED, Outcome
from tests.unit.supervise.test_readings import reading


def samples(metrics):
    registry = CollectorRegistry()
    registry.register(metrics)
    text = generate_latest(registry).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


LABELS = (("pipeline", "p"), ("replica", "1"), ("stage", "s"))


def labels(those=LABELS, **more):
    return tuple(sorted({**dict(those), **more}.items()))


def test_a_stages_numbers_come_out_under_their_names():
    metrics = StageMetrics("p", "s", 1, queue_limit=100, instances=2)
    metrics.received = lambda: 5
    metrics.depth = lambda: 3
    metrics.outcomes["dropped", "expired"] += 2
    metrics.dead_letters["not-avro",] += 1
    metrics.committed[4] = 17
    metrics.executed.observe(0.02)
    found = samples(metrics)
    assert found["spillway_received_total", LABELS] == 5
    assert found["spillway_queue_depth", LABELS] == 3
    assert found["spillway_queue_limit", LABELS] == 100
    assert found["spillway_model_instances", LABELS] == 2
    assert found["spillway_outcomes_total", labels(kind="dropped", reason="expired")] == 2
    assert found["spillway_dead_letters_total", labels(reason="not-avro")] == 1
    assert found["spillway_committed_offset", labels(partition="4")] == 17
    assert found["spillway_execution_seconds_count", LABELS] == 1
    assert found["spillway_execution_seconds_sum", LABELS] == pytest.approx(0.02)


def test_the_gates_numbers_come_out_under_their_names():
    metrics = GateMetrics("p")
    metrics.good = 7
    metrics.outcomes["prediction", ""] += 7
    metrics.latency["prediction"].observe(0.1)
    found = samples(metrics)
    gate = (("pipeline", "p"), ("replica", "0"), ("stage", "gate"))
    assert found["spillway_good_total", gate] == 7
    assert found["spillway_latency_seconds_count", labels(gate, kind="prediction")] == 1
    assert found["spillway_outcomes_total", labels(gate, kind="prediction", reason="")] == 7


def test_buckets_are_cumulative_and_bounds_belong_below():
    values = Distribution()
    for seconds in (0.001, 0.0011, 100.0):
        values.observe(seconds)
    buckets = dict(values.buckets())
    assert buckets["0.001"] == 1
    assert buckets["0.0025"] == 2
    assert buckets["10.0"] == 2
    assert buckets["+Inf"] == 3


def test_a_live_process_is_found_by_its_file_and_served_on_loopback(tmp_path):
    metrics = StageMetrics("p", "s", 1)
    registration = Registration(tmp_path, metrics)
    entry = json.loads((tmp_path / "p" / "s.1.json").read_text())
    assert (entry["pid"], entry["role"], entry["stage"], entry["replica"]) == (os.getpid(), "stage", "s", 1)
    with urllib.request.urlopen(f"http://127.0.0.1:{entry['port']}/metrics", timeout=5) as answer:
        assert b"spillway_received_total" in answer.read()
    registration.close()
    assert list((tmp_path / "p").iterdir()) == []


def test_a_successors_entry_is_left_alone(tmp_path):
    registration = Registration(tmp_path, StageMetrics("p", "s", 1))
    registration.path.write_text(json.dumps({"pid": 1}))
    registration.close()
    assert registration.path.exists()


def test_estimates_and_budgets_come_out_by_term_and_fate():
    metrics = StageMetrics("p", "s", 1)
    metrics.calibration.told(0.01, 0.02, 0.03)
    metrics.calibration.happened(0.02, 0.02, 0.02)
    metrics.budgets.left["kept"].observe(0.2)
    metrics.budgets.refused(-0.1, 0.05)
    found = samples(metrics)
    assert found["spillway_told_seconds_total", labels(term="visit")] == pytest.approx(0.06)
    assert found["spillway_happened_seconds_total", labels(term="queueing")] == pytest.approx(0.02)
    assert found["spillway_estimate_error_seconds_bucket", labels(term="queueing", le="0.0")] == 0
    assert found["spillway_estimate_error_seconds_bucket", labels(term="queueing", le="0.025")] == 1
    assert found["spillway_budget_seconds_bucket", labels(fate="refused", le="-0.1")] == 1
    assert found["spillway_budget_seconds_bucket", labels(fate="kept", le="+Inf")] == 1
    assert found["spillway_shortfall_seconds_count", LABELS] == 1


# What a stage's batches and messages add to its metrics.


def request(**times):
    return Request("q", 0, 0.0, **{"deadline": 2.0, "arrived": 1.0, "parts": (), "path": {}, **times})


def test_a_batch_is_counted_with_its_budgets_and_held_to_what_was_told():
    metrics = StageMetrics("p", "s", 0)
    tally = Tally(metrics)
    metrics.calibration.told(0.1, 0.1, 0.1)
    one = request(entered=1.25, started=1.5)
    tally.executed(1.75, Batch(0, [one], 1.5, 1.75), Executed([], 0.25))
    assert (metrics.executed.count, metrics.batched, metrics.executed.total) == (1, 1, 0.25)
    assert metrics.budgets.left["kept"].total == pytest.approx(0.75)
    assert metrics.budgets.consumption.total == pytest.approx(0.75)
    assert metrics.calibration.happened_total["visit"] == pytest.approx(0.75)


def test_a_drop_told_to_several_joins_is_one_refusal():
    metrics = StageMetrics("p", "s", 0)
    tally = Tally(metrics)
    gone = request()
    loss = Loss(DROPPED, "too-late", "", 0.5)
    for kind, destination in ((EmitKind.TOMBSTONE, "j"), (EmitKind.OUTCOME, None)):
        tally.emitted(1.8, Emit(kind, destination, None, {}, None, gone, None, ("s",), loss))
    assert metrics.budgets.left["refused"].count == 1
    assert metrics.budgets.left["refused"].total == pytest.approx(0.2)
    assert metrics.budgets.shortfall.total == 0.5
    assert metrics.outcomes["dropped", "too-late"] == 2


def test_what_an_unreporting_policy_does_not_tell_is_observed():
    seen = SimpleNamespace(delays=[], waits=[])
    batch = Batch(0, [request(entered=1.25, started=1.5)], 1.5, 2.0)
    Tally(StageMetrics("p", "s", 0), seen).executed(2.0, batch, Executed([], 0.5))
    assert (seen.delays, seen.waits) == ([0.25], [0.25])


# What a process answers over HTTP: its metrics, whether it hangs, whether it serves.


def get(address, path):
    try:
        with urllib.request.urlopen(f"http://{address.local}:{address.port}{path}", timeout=30) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_metrics_and_questions_have_their_pages():
    wrong = {"healthy": "", "ready": "it starts"}
    metrics = StageMetrics("p", "s", 0)
    server = MetricsServer(metrics, Address(), healthy=lambda: wrong["healthy"], ready=lambda: wrong["ready"])
    with closing(server):
        assert "spillway_received_total" in get(server.address, "/metrics")[1]
        assert get(server.address, "/healthz") == (200, "ok\n")
        assert get(server.address, "/readyz") == (503, "it starts\n")
        wrong.update(healthy="it hangs", ready="")
        assert get(server.address, "/healthz") == (503, "it hangs\n")
        assert get(server.address, "/readyz") == (200, "ok\n")


def test_the_gate_tells_its_last_drops_and_failures():
    metrics = GateMetrics("p")
    for number in range(60):
        metrics.note(float(number), f"q-{number}", Outcome("failed", reason="model-raised", stage="s", text="x" * 999))
    with closing(MetricsServer(metrics, Address(), recent=metrics.recent)) as server:
        code, text = get(server.address, "/recent")
    told = json.loads(text)
    assert (code, [each["request_id"] for each in told]) == (200, [f"q-{number}" for number in range(59, 9, -1)])
    assert told[0] == {
        "at": 59.0, "request_id": "q-59",
        "kind": "failed", "reason": "model-raised", "stage": "s", "text": "x" * 200 + "...",
    }  # fmt: skip


def test_a_port_that_is_taken_is_named():
    with (
        closing(MetricsServer(StageMetrics("p", "s", 0), Address())) as first,
        pytest.raises(UsageError, match=rf"cannot listen on 127\.0\.0\.1:{first.address.port} .* --metrics-port"),
    ):
        MetricsServer(StageMetrics("p", "s", 1), first.address)


def test_all_addresses_are_reached_by_loopback():
    assert Address("0.0.0.0", 1).local == LOOPBACK
    assert Address("10.0.0.1", 1).local == "10.0.0.1"


def test_a_process_is_ready_once_it_serves_and_while_no_partition_is_stopped(tmp_path):
    metrics = StageMetrics("p", "s", 0)
    with closing(Registration(tmp_path, metrics, Address(), str)) as registration:
        address = Address(port=registration.port)
        assert get(address, "/readyz") == (503, "it has not started serving\n")
        registration.mark_ready()
        assert get(address, "/readyz")[0] == 200
        metrics.stopped[3] = 17
        code, said = get(address, "/readyz")
        assert (code, "partitions 3 are stopped" in said) == (503, True)


def test_a_loop_that_turns_is_told_from_one_that_does_not(monkeypatch):
    monkeypatch.setattr("spillway.agents.live.registry.LOOP_SECONDS", 60.0)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        assert turns(loop)() == ""
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
    monkeypatch.setattr("spillway.agents.live.registry.LOOP_SECONDS", 0.0)
    assert turns(loop)() == "the event loop has not turned for 0 s"
    loop.close()


# What a process says of its waiting is believed for as long as the loop that says it goes on.


def told(metrics):
    """What the watchdog reads of a process with these metrics."""
    entry = Entry("p", metrics.stage, 0, 1, 1, 0.0, metrics.role)
    return figures(entry, reading(metrics, 1.0), None)


def test_a_loop_that_falls_silent_is_not_believed_for_long():
    clock = SimpleNamespace(now=100.0)
    waits = WaitsTold(lambda: clock.now)
    waits.say(frozenset({1, 3}))
    assert (waits.partitions, waits.due) == ({1, 3}, False)
    clock.now += BELIEVED_SECONDS
    assert (waits.partitions, waits.due) == ({1, 3}, True)
    clock.now += 0.1
    assert waits.partitions == frozenset()


def test_the_watchdog_reads_it_of_stages_and_gate():
    for metrics in (StageMetrics("p", "back", 0), GateMetrics("p")):
        assert told(metrics).waits == ()
        metrics.waits.say(frozenset({3, 1}))
        assert told(metrics).waits == (1, 3)


def test_it_reads_the_bytes_that_a_member_has_moved():
    metrics = StageMetrics("p", "learn", 0)
    assert told(metrics).moved == 0
    metrics.state = StateMetrics()
    metrics.state.moved = 5_000
    assert told(metrics).moved == 5_000
