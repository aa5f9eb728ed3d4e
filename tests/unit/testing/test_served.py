"""Pipelines served in this process by the drivers that ship: what users see of them."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from spillway import Pipeline, UsageError, WireError, testing
from spillway.producers.client.exchange import OutcomeTimeoutError

from . import served_models
from .served_models import closed

MODELS = f"{served_models.__name__}"
DIAMOND = f"""
name: p
slo: 500ms
partitions: 3
stages:
  - {{name: open, model: "{MODELS}:Opens"}}
  - {{name: left, model: "{MODELS}:Doubles", after: open}}
  - {{name: right, model: "{MODELS}:Adds", after: open}}
  - {{name: close, model: "{MODELS}:Closes", after: [left, right]}}
"""


def one(stage, slo="500ms"):
    return Pipeline.parse(f"name: p\nslo: {slo}\npartitions: 2\nstages:\n  - {{name: a, {stage}}}\n")


def test_a_whole_pipeline_answers_as_one_that_is_served():
    with testing.serve(Pipeline.parse(DIAMOND)) as pipeline:
        outcome = pipeline.predict({"x": 5}, key="k")
        assert (outcome.kind, outcome.outputs, outcome.stage) == ("prediction", {"z": closed(5)}, "close")
        assert {timing.stage for timing in outcome.timings} == {"open", "left", "right", "close"}
        assert (outcome.request_id, outcome.late) == ("q1", False)
        found = dict(pipeline.outcomes([{"x": x} for x in range(50)], window=20))
        assert {index: outcome.outputs["z"] for index, outcome in found.items()} == {x: closed(x) for x in range(50)}


@pytest.mark.parametrize("kill", ["open", "close", "gate", ["open", "left", "right", "close", "gate"]])
def test_each_query_has_one_right_outcome_whatever_dies(kill):
    died = 0
    for seed in range(6):
        with testing.serve(Pipeline.parse(DIAMOND), seed=seed, kill=kill) as pipeline:
            found = dict(pipeline.outcomes([{"x": x} for x in range(30)], deadline=60.0))
            assert {index: outcome.outputs.get("z") for index, outcome in found.items()} == {
                x: closed(x) for x in range(30)
            }
            died += sum(pipeline.deaths.values())
    assert died > 3


def test_the_same_seed_makes_the_same_run():
    def run(seed):
        with testing.serve(Pipeline.parse(DIAMOND), seed=seed, kill=["left", "gate"]) as pipeline:
            found = [outcome.latency for _, outcome in pipeline.outcomes([{"x": x} for x in range(10)], deadline=60.0)]
            return found, pipeline.deaths, pipeline.now

    assert run(3) == run(3) != run(4)


def test_a_process_can_be_killed_by_hand():
    with testing.serve(Pipeline.parse(DIAMOND)) as pipeline:
        sent = pipeline.submit({"x": 1}, deadline=60.0)
        pipeline.kill("open")
        pipeline.kill("gate")
        assert sent.result().outputs == {"z": closed(1)}
        assert pipeline.deaths == {"open": 1, "left": 0, "right": 0, "close": 0, "gate": 1}
        with pytest.raises(UsageError, match="no stage 'opne' to kill; there are open, left, right, close, gate"):
            pipeline.kill("opne")


def test_a_process_may_stand_still_and_shows_what_it_counts():
    with testing.serve(Pipeline.parse(DIAMOND)) as pipeline:
        pipeline.stop("left")
        sent = pipeline.submit({"x": 1}, deadline=60.0)
        pipeline.sleep(5.0)
        assert sent.outcome is None
        assert len(pipeline.records("left")) == 1
        pipeline.go_on("left")
        assert sent.result().outputs == {"z": closed(1)}
        assert pipeline.metrics("left")["spillway_received_total"] == 1
        assert pipeline.metrics("gate", kind="failed")["spillway_latency_seconds_count"] == 0
        pipeline.produce("ingress", b"rubbish", headers=[("x-request-id", b"r")])
        pipeline.sleep(1.0)
        (letter,) = pipeline.records("dead")
        assert dict(letter.headers)["spillway-reason"] == b"not-avro"
        assert pipeline.metrics("open", reason="not-avro")["spillway_dead_letters_total"] == 1
        with pytest.raises(UsageError, match=r"no topic 'p\.deed'; there are p\.close, p\.dead"):
            pipeline.records("deed")
        with pytest.raises(UsageError, match="no stage 'lfet'; there are open, left"):
            pipeline.metrics("lfet")


def test_what_goes_wrong_has_its_outcome():
    with testing.serve(one(f'model: "{MODELS}:Raises"')) as pipeline:
        failed = pipeline.predict({"x": -1})
        assert (failed.kind, failed.reason) == ("failed", "model-raised")
        assert "a negative x" in failed.text
        assert pipeline.predict({"x": 1}).outputs == {"x": 1}
        with pytest.raises(WireError):
            pipeline.predict({"x": object()})


def test_a_query_that_cannot_make_its_deadline_is_dropped():
    slow = one("emulated: {alpha: 200ms, beta: 0ms}", slo="400ms")
    with testing.serve(slow) as pipeline:
        dropped = pipeline.predict({"x": 1}, deadline=0.05)
        assert (dropped.kind, dropped.reason) == ("dropped", "too-late")
        began = pipeline.now
        answered = pipeline.predict({"x": 1})
        assert answered.kind == "prediction"
        assert pipeline.now - began >= 0.2
        (timing,) = answered.timings
        assert timing.executed == 0.2


def test_a_query_that_is_late_gets_the_default():
    late = one("emulated: {alpha: 200ms, beta: 0ms}, default: {label: unknown}", slo="250ms")
    with testing.serve(late) as pipeline:
        outcome = pipeline.predict({"x": 1}, deadline=0.1)
        assert (outcome.outputs, outcome.flags) == ({"label": "unknown"}, {"a": {"default": True}})


def test_time_goes_on_while_the_test_waits_and_by_hand():
    with testing.serve(one("emulated: {alpha: 50ms, beta: 0ms}")) as pipeline:
        sent, began = pipeline.submit({"x": 1}), pipeline.now
        assert sent.outcome is None
        pipeline.sleep(2.0)
        assert sent.outcome is not None
        assert pipeline.now - began >= 2.0


def test_in_real_time_a_batch_takes_what_its_model_takes():
    with testing.serve(Pipeline.parse(DIAMOND), real_time=True) as pipeline:
        assert pipeline.predict({"x": 2}).outputs == {"z": closed(2)}


def test_an_id_counts_once():
    with testing.serve(one(f'model: "{MODELS}:Opens"')) as pipeline:
        first, second = [pipeline.submit({"x": x}, request_id="same") for x in (1, 2)]
        assert first.result().outputs == second.result().outputs == {"x": 4}
        with pytest.raises(OutcomeTimeoutError, match="was the id used before"):
            pipeline.predict({"x": 1}, request_id="same")


@pytest.mark.parametrize(
    ("pipeline", "options", "text"),
    [
        (DIAMOND, {"kill": "opne"}, "kill: there is no stage 'opne'"),
        (
            DIAMOND.replace('Closes"', 'Closes", state: {kind: shared}'),
            {},
            "stage 'close' keeps a state .'state'., which is not served in memory",
        ),
        (DIAMOND.replace("Closes", "Clses"), {}, "Clses"),
    ],
)
def test_what_cannot_be_served_is_told_at_once(pipeline, options, text):
    with pytest.raises(Exception, match=text) as caught:
        testing.serve(Pipeline.parse(pipeline), **options)
    assert isinstance(caught.value, UsageError) or "Clses" in str(caught.value)


def test_it_is_used_within_its_block_and_outside_of_loops():
    with testing.serve(one(f'model: "{MODELS}:Opens"')) as pipeline:

        async def asks():
            pipeline.predict({"x": 1})

        with pytest.raises(UsageError, match=r"asyncio\.to_thread"):
            asyncio.run(asks())
    with pytest.raises(UsageError, match="closed"):
        pipeline.predict({"x": 1})


def test_the_page_for_users_holds(tmp_path):
    """Its files, run by pytest as a user would."""
    text = (Path(__file__).parents[3] / "docs/testing.md").read_text()
    blocks = [block.partition("\n") for block in text.split("```")[1::2]]
    files = {kind.partition(" ")[2]: body for kind, _, body in blocks if " " in kind}
    assert {"pipeline.yaml", "models.py", "test_plates.py"} <= files.keys()
    for name, body in files.items():
        (tmp_path / name).write_text(body)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_a_model_raises_is_logged_without_another_error(served, caplog):
    served(one(f'model: "{MODELS}:Raises"')).predict({"x": -1})
    assert "the model raised" in caplog.text
    assert "another exception" not in caplog.text


def test_a_deadline_that_no_message_can_carry_is_refused(served):
    with pytest.raises(UsageError, match=r"deadline is 1e\+300 s: it must be 0 or more, and at most 1e\+12"):
        served(one("emulated: {alpha: 1ms}")).predict({"x": 1}, deadline=1e300)
