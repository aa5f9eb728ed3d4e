"""What is gathered of a served pipeline, for `spillway status` and the page."""

import json
import math
from contextlib import closing
from dataclasses import replace

import pytest

from spillway.agents.live.gate.metrics import GateMetrics
from spillway.agents.live.registry import Registration
from spillway.agents.metrics import StageMetrics
from spillway.agents.supervise import view
from spillway.agents.supervise.scrape import Snapshot, figures
from spillway.agents.supervise.view import View, counted, finite, mean, together, total
from spillway.lineage import metric_names as names
from spillway.lineage.message import Outcome
from tests.unit.supervise.test_readings import GATE, STAGE, a_stage, reading


def test_a_stage_is_all_its_replicas():
    before, now = reading(a_stage(0), 0.0), reading(a_stage(8, 0.01), 2.0)
    one = figures(STAGE, now, before)
    two = replace(one, rate=12.0, batch=1.0, order="me, 12:00:00", versions={"a": 1, "gone": 0})
    told = together([one, two])
    assert (told["rate"], told["queue"], told["dropped"], told["drops"]) == (16.0, 14, 10, 0.0)
    assert told["batch"] == pytest.approx((4 * 4.0 + 12 * 1.0) / 16)
    assert (told["orders"], told["versions"]) == (["me, 12:00:00"], {"a": 1})


def test_drops_and_good_predictions_a_second():
    metrics = GateMetrics("p")
    before = reading(metrics, 0.0)
    metrics.good, metrics.outcomes["dropped", "expired"] = 30, 5
    known = figures(GATE, reading(metrics, 2.0), before)
    assert (known.goodput, known.drops) == (15.0, 2.5)
    assert math.isnan(figures(GATE, before, None).goodput)
    assert figures(GATE, reading(metrics, 1.0), Snapshot(0.0, reading(GateMetrics("p"), 0.0).samples)).drops == 5.0


def test_what_nobody_knows_is_no_number():
    assert math.isnan(total([math.nan]))
    assert math.isnan(mean([(1.0, 0.0), (math.nan, 2.0)]))
    assert finite({"a": [math.inf, 1.0, (math.nan,)]}) == {"a": [None, 1.0, [None]]}
    assert counted([]) == {}


def test_the_gate_and_the_stages_of_the_pipelines_that_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(view, "answers", lambda _settings, _within: True)
    gate = GateMetrics("p")
    gate.outcomes["failed", "model-raised"] = 1
    gate.note(5.0, "q-1", Outcome("failed", reason="model-raised", stage="detect", text="<script>"))
    stage = StageMetrics("p", "detect", 0)
    stage.words = list
    with (
        closing(Registration(tmp_path, gate, recent=gate.recent)),
        closing(Registration(tmp_path, stage)),
        closing(Registration(tmp_path, GateMetrics("other"))),
    ):
        gather = View(tmp_path, ["p"]).gather
        gather()
        told = json.loads(json.dumps(gather(), allow_nan=False))["pipelines"]
    assert list(told) == ["p"]
    assert told["p"]["outcomes"] == {"failed": {"model-raised": 1}}
    assert [(each["request_id"], each["text"]) for each in told["p"]["recent"]] == [("q-1", "<script>")]
    assert set(told["p"]["stages"]) == {"detect", "gate"}
    assert told["p"]["stages"]["detect"]["rate"] == 0.0
    assert told["p"]["goodput"] == 0.0


def test_replicas_of_other_machines_are_named(tmp_path):
    seen = View(tmp_path, ["p"])
    seen.found = [STAGE]
    words = [({names.OF_STAGE: "detect", names.OF_REPLICA: n, names.WHAT: "age"}, 1.0) for n in ("0", "1")]
    seen._now = {view._whose(STAGE): Snapshot(0.0, {names.PLAN_WORD: words})}
    assert seen.unseen("p") == ["detect.1"]
