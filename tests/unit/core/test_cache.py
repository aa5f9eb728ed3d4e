"""Predictions that are remembered, and queries that share an evaluation: nothing is lost, doubled or mixed up."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.core.actions import Failed, Ok
from spillway.agents.core.cache import CacheStep, PredictionCache
from spillway.agents.live.stage.cached import Keys, kept
from spillway.lineage import reasons
from spillway.lineage.message import Query
from spillway.lineage.values.tensors import Bfloat16
from tests.unit.core.builders import NOW, delivery, stage_core


def core_with(max_bytes=10_000, **options):
    cache = PredictionCache(max_bytes)
    step = CacheStep(cache, lambda work: work.parts[0].payload.encode())
    return stage_core("chain", "b", steps=[step], **options), cache


def send(core, *pairs):
    """Deliver queries as (id, what it asks), from offset `len` of what came before."""
    for name, asked in pairs:
        core.deliver(NOW, delivery(name, send.offset, "a", payload=asked))
        send.offset += 1


@pytest.fixture(autouse=True)
def offsets():
    send.offset = 0


def run(core, answer=None):
    """Complete what runs; the ids that were evaluated."""
    ran = []
    for batch in core.take_runs():
        results = []
        for request in batch.requests:
            ran.append(request.request_id)
            value = {"y": request.parts[0].payload}
            results.append(answer or Ok({"c": value["y"]}, None, value, 10))
        core.complete(NOW, batch, results, 0.01)
    return ran


def answer(core):
    """Answer what is known; the ids."""
    hits = core.take_hits()
    core.answered(NOW, [(work, Ok({"c": value["y"]})) for work, value in hits])
    return [work.request_id for work, _ in hits]


def test_a_hit_is_no_arrival_to_the_policy():
    core, _ = core_with()
    send(core, ("one", "x"))
    run(core)
    send(core, ("two", "x"))
    assert (core.load().arrived, core.depth, core.unsettled) == (1, 0, 2)


def test_a_failure_is_the_first_ones_own_and_the_next_is_evaluated():
    core, cache = core_with()
    send(core, ("one", "x"), ("two", "x"), ("three", "x"))
    assert run(core, Failed(reasons.MODEL_RAISED, "no")) == ["one"]
    assert len(cache) == 0
    assert run(core) == ["two"]
    assert answer(core) == ["three"]


def test_a_query_that_is_dropped_leaves_the_lead():
    core, _ = core_with(policy="expired")
    send(core, ("running", "w"), ("next", "v"))
    core.deliver(NOW, delivery("late", 2, "a", payload="x", deadline=NOW + 0.5))
    core.deliver(NOW, delivery("patient", 3, "a", payload="x", deadline=NOW + 9))
    (batch,) = core.take_runs()
    core.complete(NOW + 1, batch, [Ok({"c": "w"}, None, {"y": "w"}, 1)], 1.0)
    assert core.stats.dropped == {reasons.EXPIRED: 1}
    assert [run(core), run(core), run(core)] == [["next"], ["patient"], []]


def test_a_revoked_partition_takes_its_followers_and_hands_the_lead_on():
    core, _ = core_with()
    core.assign(1, 0)
    send(core, ("busy", "w"))
    core.deliver(NOW, delivery("mine", 0, "a", payload="x", partition=1))
    core.deliver(NOW, delivery("also-mine", 1, "a", payload="x", partition=1))
    send(core, ("other", "x"))
    core.revoke(NOW, 1)
    assert core.unsettled == 2
    assert run(core) == ["busy"]
    assert run(core) == ["other"]
    assert answer(core) == []


def test_a_lost_worker_leaves_its_query_in_the_lead():
    core, _ = core_with()
    send(core, ("one", "x"), ("two", "x"))
    core.take_runs()
    core.attach(NOW, 7)
    core.lose(NOW, 0, (), (0,), "killed")
    assert run(core) == ["one"]
    assert answer(core) == ["two"]


def test_the_least_recently_used_leave_first_and_what_is_too_large_is_not_kept():
    cache = PredictionCache(3 * 210)
    for name in (b"a", b"b", b"c"):
        cache.store(name, {"y": name}, 10)
    assert cache.ask(SimpleNamespace(key=b"a"))[1] == {"y": b"a"}
    cache.store(b"d", {}, 10)
    cache.store(b"huge", {}, 10_000)
    cache.store(b"d", {}, 10)
    asked = [cache.ask(SimpleNamespace(key=name))[0] for name in (b"a", b"b", b"c", b"d", b"huge")]
    assert asked == [False, True, False, False, True]
    assert cache.bytes == 630


@given(
    st.lists(st.tuples(st.sampled_from("wxyz"), st.integers(0, 5)), max_size=40), st.sampled_from(["naive", "expired"])
)
def test_every_query_has_one_outcome_of_its_own(steps, policy):
    send.offset = 0
    core, _ = core_with(max_bytes=450, batch=2, policy=policy)
    asked, got = {}, []

    def collect():
        emits = core.take_emits()
        got.extend((emit.request_id, emit.kind.value, emit.payload) for emit in emits)
        core.acked_all(emits)

    for number, (what, act) in enumerate(steps):
        asked[f"q{number}"] = what
        send(core, (f"q{number}", what))
        if act == 1:
            run(core)
        elif act == 2:
            run(core, Failed(reasons.MODEL_RAISED, "no"))
        elif act == 3:
            answer(core)
        collect()
    while core.unsettled:
        before = core.unsettled
        run(core)
        answer(core)
        collect()
        assert core.unsettled < before
    results = [(name, payload) for name, kind, payload in got if kind == "result"]
    assert len(results) == len(set(results))
    assert all(asked[name] == payload for name, payload in results)
    assert {name for name, *_ in got} == set(asked)


# Keys of queries.


def key(inputs, parameters=None, sender="", model="m:M"):
    part = delivery("q", 0, sender, payload=SimpleNamespace(message=Query(inputs, parameters or {})))
    return Keys(model, "1").of(SimpleNamespace(parts=(part,)))


def test_a_key_is_of_what_is_asked_whatever_the_order_of_names():
    one = {"x": np.arange(6, dtype="f4").reshape(2, 3), "t": "a", "n": 3}
    assert key(one) == key(dict(reversed(one.items())))
    assert key(one) == key({**one, "x": np.asfortranarray(one["x"])})


def test_different_questions_have_different_keys():
    array = np.arange(6, dtype="f4")
    asked = [
        {}, {"x": 1}, {"x": 1.0}, {"x": True}, {"x": "1"}, {"x": b"1"}, {"x": [1]}, {"x": {"1": 1}}, {"x": None},
        {"y": 1}, {"x": array}, {"x": array.reshape(2, 3)}, {"x": array.astype("f8")}, {"x": array.tobytes()},
        {"x": array.tolist()}, {"x": ["a", "bc"]}, {"x": ["ab", "c"]}, {"x": [["a"], "b"]}, {"x": [["a", "b"]]},
        {"x": Bfloat16(np.zeros(2, np.uint16))}, {"x": Bfloat16(np.ones(2, np.uint16))},
    ]  # fmt: skip
    keys = {key(each) for each in asked} | {key({}, {"p": 1}), key({}, model="m:N"), key({}, sender="a")}
    assert len(keys) == len(asked) + 3


def test_what_is_kept_is_a_copy_with_its_size():
    array = np.zeros(1000)
    value, size = kept({"y": array, "t": "text", "l": [1, {"a": b"bc"}], "b": Bfloat16(np.zeros(8, np.uint16))}, None)
    array[:] = 1
    assert value["y"].sum() == 0
    assert 8_000 < size < 9_000


def test_what_a_model_says_of_its_answer_is_kept_with_it():
    said = {"confidence": 0.5, "mine": [1]}
    value, size = kept({"y": 1}, said)
    assert (value, value.flags) == ({"y": 1}, said)
    assert size > kept({"y": 1}, None)[1]


@pytest.mark.parametrize("name", ["default", "reconstructed", "stale"])
def test_what_no_worker_has_made_of_the_query_is_not_kept_and_the_next_is_evaluated(name):
    core, cache = core_with()
    send(core, ("q1", "x"), ("q2", "x"))
    assert run(core, Ok({"c": "o"}, value="o", size=1, flags={name: True})) == ["q1"]
    assert (len(cache), core.take_hits(), run(core)) == (0, [], ["q2"])
