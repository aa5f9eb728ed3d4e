"""Alternatives, durations from a recording, figures and the verdict."""

import numpy as np
import pytest

from spillway.agents.whatif.figures import Fates, figures
from spillway.agents.whatif.study import judge
from spillway.agents.whatif.traffic import Alternative, alternatives, measured, read_traffic, resized
from spillway.lineage.errors import UsageError
from spillway.producers.report import DROPPED, PREDICTION
from spillway.topology.load import parse

from .recordings import Taken, served

SPEC = """
name: small
slo: 100ms
partitions: 4
stages:
  - {name: a, emulated: {alpha: 10ms, beta: 0}, batching: {size: 1, max: 8}}
  - {name: b, after: a, emulated: {alpha: 10ms, beta: 0}, batching: {size: 1}}
"""


def test_every_policy_meets_every_size_and_the_files_own_comes_first():
    sizes = {"fronts": [{"a": 2}, {"a": 2, "b": 3}], "batch": [{"b": 4}]}
    found = alternatives(["naive", "expired", "naive"], sizes, [])
    assert len(found) == 2 * 3 * 2
    assert found[:2] == [Alternative("naive"), Alternative("expired")]
    assert found[-1].label == "a=2 fronts b=3 fronts b=4 batch"
    assert found[0].label == "as the file says"


def test_slos_are_a_dimension_without_the_files_own():
    found = alternatives([], {}, [0.2, 0.3])
    assert [each.slo for each in found] == [0.2, 0.3]
    assert found[0].label == "SLO 200 ms"


def test_too_many_alternatives_are_refused():
    with pytest.raises(UsageError, match="65 alternatives are too many"):
        alternatives([f"p{number}" for number in range(65)], {}, [])


def test_resizing_changes_nothing_else():
    pipeline = parse(SPEC)
    changed = resized(pipeline, {"fronts": {"a": 3}, "workers": {"b": 2}, "batch": {"a": 8}})
    a, b = changed.spec.stages
    assert (a.fronts, a.worker_count, a.batching.most, b.fronts, b.worker_count) == (3, 3, 8, 1, 2)
    assert pipeline.spec.stages[0].fronts == 1
    assert changed.graph is pipeline.graph


def test_a_state_has_shards_and_no_replicas():
    kept = parse(
        SPEC.replace(
            "emulated: {alpha: 10ms, beta: 0}, batching: {size: 1, max", 'model: "m:M", state: shared, batching: {max'
        )
    )
    assert resized(kept, {"fronts": {"a": 1}}).spec == kept.spec
    for dimension in ("workers", "fronts"):
        with pytest.raises(
            UsageError, match=f"--{dimension}: stage a keeps a state, so it has one working member per shard"
        ):
            resized(kept, {dimension: {"a": 2}})


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"fronts": {"aa": 2}}, "--fronts: pipeline 'small' has no stage 'aa'; did you mean"),
        ({"fronts": {"a": 0}}, "--fronts: stage a needs at least 1, not 0"),
        ({"fronts": {"a": 5}}, "--fronts: stage a cannot have 5 fronts, as each needs one of the 4 partitions"),
        ({"batch": {"a": 9}}, "--batch: stage a takes at most 8 (its batching.max)"),
    ],
)
def test_sizes_that_cannot_be_served_are_refused(sizes, words):
    with pytest.raises(UsageError) as raised:
        resized(parse(SPEC), sizes)
    assert words in str(raised.value)


def test_durations_are_medians_where_seen_and_a_line_elsewhere():
    executed = {1: [0.012] * 10, 4: [0.018] * 40, 8: [0.026]}
    found = measured(executed)
    assert found(1) == 0.012
    assert found(4) == 0.018
    assert found(16) == pytest.approx(0.042, abs=0.001)
    assert found.sizes == 3


def test_durations_of_one_size_are_constant_and_of_little_are_none():
    assert measured({2: [0.02] * 30})(8) == pytest.approx(0.02)
    assert measured({1: [0.01] * 19}) is None
    assert measured({}) is None


def test_durations_never_fall_below_zero():
    found = measured({2: [0.001] * 40, 4: [0.1] * 40})
    assert found(1) > 0


def fates(latency, kind, budget=0.1):
    count = len(latency)
    return Fates(np.arange(count) / 10, np.array(latency), np.array(kind), np.full(count, budget), np.full(count, 0.01))


def test_a_recording_that_was_cut_off_says_so(tmp_path):
    text = "name: small\nslo: 1s\nstages:\n  - {name: a, emulated: {alpha: 10ms, beta: 0}}\n"
    with Taken(tmp_path / "r", text) as taken:
        served(taken, [0.0, 0.1], 0.01, 1.0)

    def notes():
        return read_traffic(parse(text), str(tmp_path / "r"), seed=0, duration=None, hop=None).notes

    assert not any("cut off" in note for note in notes())
    (file,) = (tmp_path / "r").glob("recording-*.avro")
    with file.open("ab") as more:
        more.write(b"\x02\x64half a block")
    assert any(note.endswith("was cut off while it was written: its last 14 bytes are left out") for note in notes())


def test_figures_count_late_as_dropped():
    found = figures(fates([0.05, 0.2, 0.05, 0.0], [PREDICTION, PREDICTION, PREDICTION, DROPPED]), {"a": 1}, {"a": 1.0})
    assert (found.requests, found.good, found.late, found.dropped) == (4, 2, 1, 1)
    assert found.drop_rate == found.invalid_rate == 0.5
    assert found.goodput_rps == pytest.approx(2 / 0.3)
    assert found.p50 == pytest.approx(0.05)


def test_figures_without_a_prediction_have_no_latency():
    found = figures(fates([0.0], [DROPPED]), {"a": 1}, {})
    assert (found.p50, found.as_json()["p99_ms"]) == (None, None)


def of(drop_rate=0.1, p50=0.1, drops=10):
    lost = int(1000 * drop_rate)
    made = fates([p50] * (1000 - lost) + [0.0] * lost, [PREDICTION] * (1000 - lost) + [DROPPED] * lost, budget=1)
    return figures(made, {"a": drops}, {})


@pytest.mark.parametrize(
    ("predicted", "level"),
    [
        (of(), "close"),
        (of(drop_rate=0.119), "close"),
        (of(drop_rate=0.125), "rough"),
        (of(drop_rate=0.16), "poor"),
        (of(p50=0.112), "rough"),
        (of(p50=0.2), "poor"),
        (of(drops=17), "rough"),
        (of(drops=100), "poor"),
    ],
)
def test_the_worst_figure_gives_the_verdict(predicted, level):
    verdict = judge(of(), predicted)
    assert verdict.level == level
    assert verdict.text.startswith(f"{level}: drop rate within ")


def test_a_verdict_without_any_prediction_rests_on_drops():
    nothing = figures(fates([0.0], [DROPPED]), {"a": 1}, {})
    assert [check.name for check in judge(nothing, nothing).checks] == ["drop rate", "drops at a"]
