import sys
import types

import numpy as np
import pytest

from spillway.lineage.errors import UsageError
from spillway.lineage.message import DROPPED, FAILED, PREDICTION, Outcome, Query, StageTiming
from spillway.lineage.values.codec import Decoder, encode_query
from spillway.producers.client.exchange import OutcomeTimeoutError
from spillway.producers.load import generator as load
from spillway.producers.load import payloads
from spillway.producers.load.tally import Tally
from spillway.producers.recording import Recorded
from spillway.topology.load import parse


class OneRecording:
    directory = "recording"

    def __init__(self, queries):
        self._queries = queries

    def queries(self):
        return self._queries


def query(timestamp, value=b"v", key=b"id", headers=()):
    own = (("x-request-id", b"id"), ("spillway-sent", b"1000000"), ("spillway-deadline", b"1400000"))
    return Recorded("p.ingress", 0, 0, timestamp, key, (*own, *headers), value)


def test_generated_queries_carry_what_the_function_made():
    made = load.generated(np.array([0.0, 1.0]), lambda index, rng: {"n": index, "draw": rng.random()}, seed=5)
    first, second = (Decoder().query(made.shot(index).value).inputs for index in range(2))
    assert (first["n"], second["n"]) == (0, 1)
    rng = np.random.default_rng(5)
    assert [first["draw"], second["draw"]] == [rng.random(), rng.random()]


def test_an_input_may_be_the_queries_key():
    made = load.generated(np.zeros(2), lambda index, rng: {"user": f"u{index}", "at": index, "x": 0.5}, key="user")
    assert [made.shot(index).key for index in range(2)] == [b"u0", b"u1"]
    assert load.generated(np.zeros(1), lambda index, rng: {"at": 7}, key="at").shot(0).key == b"7"
    assert load.generated(np.zeros(1), lambda index, rng: {"at": 7}).shot(0).key is None


@pytest.mark.parametrize("key", ["x", "y"])
def test_an_input_that_can_be_no_key_is_named(key):
    with pytest.raises(UsageError, match=f"index 0 have no text or whole number '{key}' to be their key; they are 'x'"):
        load.generated(np.zeros(1), lambda index, rng: {"x": 0.5}, key=key).shot(0)


@pytest.mark.parametrize(
    "payload", [lambda i, r: 1 / 0, lambda i, r: {"x": object()}, lambda i, r: None, lambda i, r: 7]
)
def test_a_payload_that_cannot_be_sent_is_named(payload):
    with pytest.raises(UsageError, match=r"payload function.* at index 0"):
        load.generated(np.zeros(1), payload).shot(0)


def test_a_recording_keeps_payload_timing_key_and_budget():
    queries = [query(100.0, b"a"), query(101.0, b"b", key=b"user", headers=[("x-t", b"1"), ("other", b"2")])]
    again = load.recorded(OneRecording(queries), speed=2)
    assert again.due.tolist() == [0.0, 0.5]
    first, second = again.shot(0), again.shot(1)
    assert (first.value, second.value) == (b"a", b"b")
    assert (first.key, second.key) == (None, b"user")  # the first one's was its id: it will be its new one
    assert first.budget == pytest.approx(0.4)
    assert second.extra == (("x-t", b"1"),)
    assert load.recorded(OneRecording(queries), budgets=False).shot(0).budget is None


def test_a_recorded_query_without_times_takes_the_loads():
    bare = Recorded("p.ingress", 0, 0, 1.0, None, (("x-request-id", b"id"), ("spillway-sent", b"x")), None)
    shot = load.recorded(OneRecording([bare])).shot(0)
    assert shot.budget is None
    assert shot.value == b""


@pytest.mark.parametrize(("text", "sent"), [(b'{"x": 1}', {"x": 1}), (b'{"x": ', None)])
def test_a_query_recorded_in_json_is_sent_in_avro_and_poison_as_it_was(text, sent):
    asked = Recorded("p.ingress", 0, 0, 1.0, None, (("content-type", b"application/json"), ("x-t", b"1")), text)
    shot = load.recorded(OneRecording([asked])).shot(0)
    assert shot.extra == (("x-t", b"1"),)
    assert shot.value == (text if sent is None else encode_query(Query(sent)))


def test_a_scaled_recording_repeats_its_queries_in_their_places():
    queries = [query(float(n), str(n).encode()) for n in range(100)]
    again = load.recorded(OneRecording(queries), scale=3)
    values = [int(again.shot(index).value) for index in range(len(again.due))]
    assert values == sorted(values)
    assert set(values) == set(range(100))
    assert len(values) == 300


def test_queries_of_one_moment_are_all_sent():
    queries = [query(5.0, value) for value in (b"a", b"b", b"c")] + [query(6.0, b"d")]
    again = load.recorded(OneRecording(queries))
    assert [again.shot(index).value for index in range(4)] == [b"a", b"b", b"c", b"d"]


def test_an_empty_recording_is_refused():
    with pytest.raises(UsageError, match="no query"):
        load.recorded(OneRecording([]))


def test_a_payload_function_is_found_by_name(monkeypatch):
    module = types.ModuleType("my_payloads")
    module.make = lambda index, rng: {"n": index}
    monkeypatch.setitem(sys.modules, "my_payloads", module)
    assert payloads.find_payload("my_payloads:make")(3, None) == {"n": 3}
    for name, message in (
        ("nonsense", "module:function"),
        ("none_such:f", "cannot import"),
        ("my_payloads:f", "no fun"),
    ):
        with pytest.raises(UsageError, match=message):
            payloads.find_payload(name)


def pipeline(inputs):
    text = f"name: p\nslo: 1s\nstages:\n  - name: a\n    model: m:C\n{inputs}"
    return parse(text).spec


def test_without_a_function_inputs_follow_the_signature():
    spec = pipeline(
        "    inputs:\n      x: {dtype: float32, shape: [2, null]}\n      n: {dtype: int64, shape: [3]}\n"
        "      b: {dtype: bfloat16, shape: [2]}\n      s: {dtype: str}\n      on: {dtype: bool, shape: []}\n"
    )
    made = load.generated(np.zeros(1), payloads.signature_payload(spec))
    inputs = Decoder().query(made.shot(0).value).inputs
    assert (inputs["x"].dtype, inputs["x"].shape) == (np.float32, (2, 8))
    assert (inputs["n"].dtype, inputs["n"].shape) == (np.int64, (3,))
    assert inputs["on"].dtype == np.bool_
    assert isinstance(inputs["s"], str)
    assert "b" in inputs


def test_without_a_signature_the_index_is_sent():
    assert payloads.signature_payload(pipeline(""))(7, None) == {"index": 7}


def outcome(kind=PREDICTION, stage="b", timings=(("a", 0.1, 0.02, 0.4, 4), ("b", 0.2, 0.0, 0.1, 1))):
    return Outcome(kind, stage=stage, reason="why", timings=[StageTiming(*timing) for timing in timings])


def test_a_tally_keeps_each_query_apart():
    tally = Tally(np.array([0.0, 1.0, 2.0, 3.0]))
    tally.start = 10.0
    for index in range(4):
        tally.sent(index, 10.5 + index)
    tally.waiter(0).answered(outcome(), 11.0)
    tally.waiter(0).answered(outcome(DROPPED), 12.0)
    tally.waiter(1).answered(outcome(DROPPED, timings=()), 13.0)
    tally.waiter(2).answered(outcome(FAILED, timings=()), 14.0)
    assert not tally.done.is_set()
    tally.waiter(3).failed(OutcomeTimeoutError("late"))
    assert tally.done.is_set()
    tally.waiter(0).failed(OutcomeTimeoutError("it stays until its time is over"))
    result = tally.result()
    assert result.kind.tolist() == [1, 2, 3, 0]
    assert result.finished[:3].tolist() == [1.0, 3.0, 4.0]
    assert np.isnan(result.finished[3])
    assert (result.sent - result.due).tolist() == [0.5] * 4
    assert result.spent.tolist() == pytest.approx([0.2, 0, 0, 0])
    assert result.duplicates == 1
    assert result.reasons == {("dropped", "b", "why"): 1, ("failed", "b", "why"): 1}
    assert result.errors == {"OutcomeTimeoutError": 1}


def test_stage_totals_come_from_what_outcomes_tell():
    tally = Tally(np.zeros(4))
    for index in range(4):
        tally.waiter(index).answered(outcome(), 1.0)
    totals = tally.result().stage_totals(["a", "b", "c"], {"a": 2, "b": 1, "c": 1})
    assert (totals["a"].queries, totals["a"].batches, totals["a"].instances) == (4, 1, 2)
    assert totals["a"].executed == pytest.approx(0.4)
    assert totals["a"].busy == pytest.approx(0.4)
    assert totals["b"].batches == 4
    assert totals["b"].queued == pytest.approx(0.2)
    assert totals["c"].received == 0


def test_arrays_are_saved_under_their_names(tmp_path):
    tally = Tally(np.array([0.0, 1.0]))
    tally.waiter(0).answered(outcome(), 1.0)
    file = tmp_path / "load.npz"
    tally.result().save(file)
    with np.load(file) as saved:
        assert sorted(saved) == ["due", "finished", "kind", "sent", "spent"]
        assert saved["kind"].tolist() == [1, 0]
