import json
import os
import urllib.request

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from agents.live.metrics import Distribution, GateMetrics, StageMetrics
from agents.live.registry import serve_metrics


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


def labels(**more):
    return tuple(sorted({**dict(LABELS), **more}.items()))


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
    metrics.latency.observe(0.1)
    found = samples(metrics)
    gate = (("pipeline", "p"), ("replica", "0"), ("stage", "gate"))
    assert found["spillway_good_total", gate] == 7
    assert found["spillway_latency_seconds_count", gate] == 1
    assert (
        found["spillway_outcomes_total", tuple(sorted({**dict(gate), "kind": "prediction", "reason": ""}.items()))] == 7
    )


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
    registration = serve_metrics(tmp_path, metrics)
    entry = json.loads((tmp_path / "p" / "s.1.json").read_text())
    assert (entry["pid"], entry["role"], entry["stage"], entry["replica"]) == (os.getpid(), "stage", "s", 1)
    with urllib.request.urlopen(f"http://127.0.0.1:{entry['port']}/metrics", timeout=5) as answer:
        assert b"spillway_received_total" in answer.read()
    registration.close()
    assert list((tmp_path / "p").iterdir()) == []


def test_a_successors_entry_is_left_alone(tmp_path):
    registration = serve_metrics(tmp_path, StageMetrics("p", "s", 1))
    registration.path.write_text(json.dumps({"pid": 1}))
    registration.close()
    assert registration.path.exists()


def test_estimates_and_budgets_come_out_by_term_and_fate():
    metrics = StageMetrics("p", "s", 1)
    metrics.calibration.told(0.01, 0.02, 0.03)
    metrics.calibration.happened(0.02, 0.02, 0.02)
    metrics.budgets.kept(0.2)
    metrics.budgets.refused(-0.1, 0.05)
    found = samples(metrics)
    assert found["spillway_told_seconds_total", labels(term="visit")] == pytest.approx(0.06)
    assert found["spillway_happened_seconds_total", labels(term="queueing")] == pytest.approx(0.02)
    assert found["spillway_estimate_error_seconds_bucket", labels(term="queueing", le="0.0")] == 0
    assert found["spillway_estimate_error_seconds_bucket", labels(term="queueing", le="0.025")] == 1
    assert found["spillway_budget_seconds_bucket", labels(fate="refused", le="-0.1")] == 1
    assert found["spillway_budget_seconds_bucket", labels(fate="kept", le="+Inf")] == 1
    assert found["spillway_shortfall_seconds_count", LABELS] == 1
