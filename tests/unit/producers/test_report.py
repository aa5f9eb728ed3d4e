import json

import numpy as np
import pytest

from spillway.producers.report import DROPPED, FAILED, MISSING, PREDICTION, Report, StageTotals

STAGE = StageTotals(
    received=6,
    batches=2,
    queries=5,
    dropped=1,
    failed=0,
    queued=0.01,
    waited=0.002,
    executed=0.5,
    busy=1.0,
    instances=2,
)


def build(**changes):
    arguments = {
        "pipeline": "p",
        "policy": "naive",
        "trace": "t.csv",
        "slo": 0.4,
        "duration": 2.0,
        "due": [0.0, 0.5, 1.0, 1.5, 1.6, 1.9],
        "finished": [0.1, 0.9, 2.0, 1.6, 1.7, -1.0],
        "kind": [PREDICTION, PREDICTION, PREDICTION, DROPPED, FAILED, MISSING],
        "spent": [0.2, 0.2, 0.2, 0.2, 0.2, 0.0],
        "slip": np.full(6, 0.001),
        "duplicates": 3,
        "stages": {"b": STAGE, "a": STAGE},
    }
    return Report.build(**(arguments | changes))


def test_every_request_is_counted_once():
    report = build()
    assert report.requests == 6
    assert report.outcomes.model_dump() == {"prediction": 3, "dropped": 1, "failed": 1, "missing": 1, "duplicate": 3}
    assert (report.good, report.late) == (2, 1)


def test_rates_follow_their_definitions():
    report = build()
    assert report.drop_rate == pytest.approx(4 / 6)
    assert report.goodput_rps == pytest.approx(1.0)
    assert report.invalid_rate == pytest.approx(1 - 0.4 / 2.0)


def test_a_prediction_at_the_slo_to_the_end_is_good():
    assert build(due=[0.0], finished=[0.4], kind=[PREDICTION], spent=[0.0], slip=[0.0]).good == 1


def test_latency_is_of_predictions_alone():
    latency = build().latency_ms
    assert (latency.p50, latency.max) == (400.0, 1000.0)
    assert latency.mean == pytest.approx(500.0)


def test_without_a_prediction_latency_is_null():
    report = build(due=[0.0], finished=[0.0], kind=[MISSING], spent=[0.0], slip=[0.0])
    assert report.latency_ms.p50 is None
    assert report.drop_rate == 1
    assert json.loads(report.to_json())["latency_ms"]["max"] is None


def test_a_load_of_one_moment_has_no_goodput_per_second():
    report = build(due=[0.0], finished=[0.0], kind=[PREDICTION], spent=[0.0], slip=[0.0], duration=0.0)
    assert (report.good, report.goodput_rps) == (1, 0.0)
    assert report.stages["a"].busy == 0.0


def test_stages_keep_the_pipelines_order():
    report = build()
    assert list(report.stages) == ["b", "a"]
    assert report.stages["a"].model_dump() == {
        "received": 6, "batches": 2, "mean_batch": 2.5, "dropped": 1, "failed": 0,
        "queue_ms": 10.0, "wait_ms": 2.0, "exec_ms": 500.0, "busy": 0.25,
    }  # fmt: skip


def test_busy_counts_the_time_until_the_last_outcome():
    late = build(finished=[0.1, 0.9, 4.0, 1.6, 1.7, 99.0])
    assert late.stages["a"].busy == pytest.approx(1 / 8)


def test_a_simulation_does_not_slip():
    slip = build(slip=None).schedule_slip_ms
    assert slip.mean == slip.max == 0


def test_the_json_has_the_promised_keys_in_order():
    text = build().to_json()
    assert list(json.loads(text)) == [
        "pipeline", "policy", "trace", "slo_ms", "duration_s", "requests", "outcomes", "good", "late", "drop_rate",
        "invalid_rate", "goodput_rps", "latency_ms", "schedule_slip_ms", "stages", "emulated", "versions",
    ]  # fmt: skip
    assert text == build().to_json()


def test_a_report_is_read_back():
    assert Report.model_validate_json(build().to_json()) == build()


def test_arrays_of_different_lengths_are_a_mistake():
    with pytest.raises(ValueError, match="6 due, 1 finished"):
        build(finished=[1.0])
