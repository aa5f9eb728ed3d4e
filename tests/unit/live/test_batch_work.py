import re
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.core.actions import Failed, Ok
from spillway.agents.core.request import Delivery, Request
from spillway.agents.live.stage.batch_work import BatchWork, UserFunctions
from spillway.agents.models.flagged import Flagged
from spillway.agents.run.emission import Carried
from spillway.agents.run.intake import Signature
from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.limits import Limits
from spillway.lineage.message import Query, StageTiming
from spillway.lineage.values import codec

DECODER = codec.Decoder()
RECORD = SimpleNamespace(key="käte".encode(), topic="in")


def functions(*successors, join=None, split=None, choose=None):
    made = UserFunctions(SimpleNamespace(coding=None, name="s", join=None, split=None, choose=None), successors)
    made._join, made._split, made._choose = join, split, choose
    return made


def request(number, *parts):
    deliveries = tuple(
        Delivery(f"r{number}", 0, number, 1.0, 9.0, sender, None, payload=Carried(RECORD, None, query))
        for sender, query in (parts or (("", Query({"x": number}, {"p": 1})),))
    )
    return Request(f"r{number}", 0, 1.0, 9.0, 2.0, deliveries, {}, 2.5, 3.0)


def stage_spec(**fields):
    plain = {"name": "s", "model": "m", "version": None, "cache": None, "coding": None, "default_outputs": {}}
    return SimpleNamespace(**plain | fields)


def batch_work(predict, made, spec=None, **options):
    told = {"joins": False, "version": "1", "signature": None, "limits": Limits(), **options}
    return BatchWork(stage_spec(**(spec or {})), [SimpleNamespace(predict=predict)], made, **told)


def run(predict, requests, made=None, **options):
    return batch_work(predict, made or functions(), **options).run(0, SimpleNamespace(requests=requests)).results


def square(batch):
    return [{"y": query["x"] ** 2} for query in batch]


def test_results_are_encoded_with_what_the_stage_did():
    (result,) = run(square, [request(3)])
    outcome = DECODER.outcome(result.payloads[None])
    assert outcome.outputs == {"y": 9}
    (timing,) = outcome.timings
    assert (timing.stage, timing.queued, timing.waited, timing.batch, timing.model) == ("s", 0.5, 0.5, 1, "m")


@pytest.mark.parametrize(("sent", "told"), [("käte".encode(), "käte"), (None, ""), (b"a\xff", "a\\xff")])
@pytest.mark.parametrize("joins", [False, True])
def test_a_model_is_told_the_messages_key(sent, told, joins, monkeypatch):
    monkeypatch.setattr(RECORD, "key", sent)
    seen = []
    run(lambda batch: seen.extend(query.key for query in batch) or [{}], [request(1)], joins=joins)
    assert seen == [told]


def told_version(result):
    (timing,) = DECODER.outcome(result.payloads[None]).timings
    return timing.version


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("fixed", [False, True])
@given(st.lists(st.one_of(st.none(), st.sampled_from(["", "1", "2", "3"])), max_size=6))
def test_an_answer_has_the_version_of_the_model_that_made_it(fixed, cached, said):
    """`said`: by the workers that answer, one after the other; None by one that says nothing."""
    work = batch_work(square, functions(), {"cache": cached or None, "version": "1" if fixed else None})
    for number, version in enumerate(said):
        prepared = work.prepare(SimpleNamespace(requests=[request(number)]))
        prepared.version = version
        result = work.result(prepared, 0, {"outputs": {"y": 1}}, 0.1)
        expected = "1" if fixed or version is None else version
        assert told_version(result) == expected
        if cached:
            assert told_version(work.remembered(request(9), result.value, 4.0)) == expected


def test_a_fan_out_sends_one_encoding_to_all_and_keeps_parameters():
    (result,) = run(square, [request(3)], functions("a", "b"))
    assert result.payloads["a"] is result.payloads["b"]
    query = DECODER.query(result.payloads["a"])
    assert (query.inputs, query.parameters) == ({"y": 9}, {"p": 1})
    assert result.chosen is None


def test_choose_and_split():
    made = functions("a", "b", choose=lambda outputs: "b", split=lambda outputs: {"b": {"half": outputs["y"] / 2}})
    (result,) = run(square, [request(4)], made)
    assert result.chosen == ("b",)
    assert {name: DECODER.query(value).inputs for name, value in result.payloads.items()} == {"b": {"half": 8.0}}


def test_choosing_nobody_ends_the_request_here():
    (result,) = run(square, [request(4)], functions("a", choose=lambda outputs: None))
    assert result.chosen == ()
    assert DECODER.outcome(result.payloads[None]).outputs == {"y": 16}


@pytest.mark.parametrize(
    "made",
    [
        functions("a", choose=lambda outputs: ["nowhere"]),
        functions("a", choose=lambda outputs: 1 / 0),
        functions("a", choose=lambda outputs: exec("raise SystemExit")),
        functions("a", split=lambda outputs: {}),
        functions("a", split=lambda outputs: {"a": {}, "b": {}}),
        functions("a", split=lambda outputs: {"a": {}, None: {}}),
        functions("a", split=lambda outputs: "no mapping"),
    ],
)
def test_a_route_that_does_not_fit_fails_the_query(made):
    (result,) = run(square, [request(1)], made)
    assert result.reason == reasons.BAD_ROUTE


def test_joined_parts_are_flat_by_default_and_timings_come_once():
    before = StageTiming("root", 0.0, 0.0, 1.0, 1)
    parts = [("a", Query({"u": 1}, timings=[before])), ("b", Query({"u": 2}, timings=[before]))]
    (result,) = run(lambda batch: [dict(batch[0])], [request(1, *parts)], joins=True)
    outcome = DECODER.outcome(result.payloads[None])
    assert outcome.outputs == {"a.u": 1, "b.u": 2}
    assert [timing.stage for timing in outcome.timings] == ["root", "s"]


def test_a_join_that_raises_or_gives_what_the_model_does_not_take_fails_alone():
    def join(parts):
        if parts["a"]["u"] == 2:
            raise KeyError("u")
        return {"x": np.float32(1)} if parts["a"]["u"] == 1 else {"x": "text"}

    requests = [request(n, ("a", Query({"u": n})), ("b", Query({}))) for n in (1, 2, 3)]
    signature = Signature({"x": {"dtype": "float32"}})
    results = run(
        lambda batch: [{"n": len(batch)} for _ in batch],
        requests,
        functions(join=join),
        joins=True,
        signature=signature,
    )
    assert isinstance(results[0], Ok)
    assert [result.reason for result in results[1:]] == [reasons.BAD_ROUTE, reasons.BAD_INPUT]


def test_one_culprit_does_not_take_its_batch_along():
    def fragile(batch):
        if any(query["x"] == 2 for query in batch):
            raise ValueError("no twos")
        return square(batch)

    results = run(fragile, [request(n) for n in range(4)])
    assert [isinstance(result, Ok) for result in results] == [True, True, False, True]
    assert results[2].reason == reasons.MODEL_RAISED
    assert re.fullmatch(r"ValueError: no twos \(.*test_batch_work.py:\d+ in fragile\)", results[2].text)


def test_wrong_counts_are_sorted_out_one_by_one():
    results = run(lambda batch: square(query for query in batch if query["x"] != 1), [request(n) for n in range(3)])
    assert [type(result) for result in results] == [Ok, Failed, Ok]
    assert results[1].reason == reasons.WRONG_RESULT_COUNT


class Hostile(dict):
    __slots__ = ()

    def __iter__(self):
        raise RuntimeError("not to be read")

    keys = __iter__


@pytest.mark.parametrize("output", [None, 3, "text", {"y": object()}, {"y": 10**30}, Hostile(), {3: 4}])
def test_results_that_cannot_be_sent(output):
    (result,) = run(lambda batch: [output], [request(1)])
    assert isinstance(result, Failed)
    assert result.reason == reasons.BAD_RESULT


def test_a_result_over_the_limit():
    (result,) = run(lambda batch: [{"y": b"x" * 2000}], [request(1)], limits=Limits(max_message_bytes=1000))
    assert result.reason == reasons.BAD_RESULT


def flagged(*said):
    return lambda batch: [Flagged({"x": 1}, **flags) for flags, _ in zip(said, batch, strict=True)]


def test_what_a_model_says_of_an_answer_goes_on_with_what_came():
    came = {"root": {"variant": "a"}}
    requests = [request(n, ("root", Query({"x": n}, flags=came))) for n in range(3)]
    results = run(flagged({"confidence": np.float32(0.5)}, {}, {"mine": object()}), requests, functions("a", "b"))
    told = [DECODER.query(result.payloads["b"]).flags for result in results[:2]]
    assert told == [{**came, "s": {"confidence": 0.5}}, came]
    assert [result.flags for result in results[:2]] == [{"confidence": 0.5}, {}]
    assert results[2] == Failed(reasons.BAD_RESULT, "flag mine: a value of type object cannot travel")


def test_a_join_merges_what_came():
    branches = [{"root": {"n": 1}, "a": {"default": True}}, {"root": {"n": 1}, "b": {"default": False}}]
    parts = [(sender, Query({}, flags=flags)) for sender, flags in zip("ab", branches, strict=True)]
    (result,) = run(lambda batch: [{}], [request(1, *parts)], joins=True)
    assert DECODER.outcome(result.payloads[None]).flags == branches[0] | branches[1]


@pytest.mark.parametrize("limits", [Limits(), Limits(max_message_bytes=200), Limits(max_depth=2)])
def test_no_query_fails_for_too_many_flags(limits):
    said = {"deep": [[1]]} if limits.max_depth == 2 else {"mine": ["m"] * 1_000}
    (result,) = run(flagged(said), [request(1)], limits=limits)
    assert DECODER.outcome(result.payloads[None]).flags == {"s": {"flags_cut": True}}


def test_a_model_that_returns_no_list():
    (result,) = run(lambda batch: iter([]), [request(1)])
    assert "returned list_iterator, not a list" in result.text


def test_route_names_what_split_left_out():
    made = functions("a", "b", split=lambda outputs: {"a": {}})
    with pytest.raises(WireError, match="split returned nothing for b"):
        made.route({})


SIGNATURE = Signature({"image": {"dtype": "uint8", "shape": [None, 8, -1]}, "name": {"dtype": "str"}})


def test_what_fits_passes_and_more_may_come():
    SIGNATURE.check({"image": np.zeros((3, 8, 5), np.uint8), "name": "x", "more": 1})


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({"name": "x"}, "'image' is missing; the query has 'name'$"),
        ({}, "'image' is missing; the query has none$"),
        (dict.fromkeys("abcdefg", 1), "'image' is missing; the query has 'a', 'b', 'c', 'd', 'e', ...$"),
        ({"image": np.zeros((3, 8, 5)), "name": "x"}, "is float64, not uint8"),
        ({"image": np.zeros((3, 7, 5), np.uint8), "name": "x"}, r"shape \[3, 7, 5\], not \[None, 8, None\]"),
        ({"image": np.zeros((8, 5), np.uint8), "name": "x"}, "has shape"),
        ({"image": np.zeros((3, 8, 5), np.uint8), "name": 3}, "is int, not str"),
        ({"image": "no tensor", "name": "x"}, "is str, not uint8"),
    ],
)
def test_what_does_not_fit_is_named(inputs, says):
    with pytest.raises(WireError, match=says) as caught:
        SIGNATURE.check(inputs)
    assert caught.value.reason == reasons.BAD_INPUT


@pytest.mark.parametrize(
    ("given", "dtype", "fits"),
    [
        ([[1, 2], [3, 4]], "float32", True),
        ([0.1, 0.2], "float32", True),
        ([1, 2], "uint8", True),
        ([True, False], "bool", True),
        ([1, 300], "uint8", False),
        ([1.5], "int64", False),
        ([[1], [1, 2]], "float32", False),
        (["a"], "float32", False),
        ([10**30], "int64", False),
        ([1, 0], "bool", False),
    ],
)
def test_a_list_of_numbers_becomes_the_tensor_that_is_wanted(given, dtype, fits):
    inputs = {"x": given}
    signature = Signature({"x": {"dtype": dtype}})
    if not fits:
        with pytest.raises(WireError, match=f"'x' is list, not {dtype}"):
            signature.check(inputs)
        return
    signature.check(inputs)
    assert str(inputs["x"].dtype) == dtype
    assert np.allclose(inputs["x"], given)


@pytest.mark.parametrize(
    ("expected", "given", "says"),
    [
        ({"shape": [2]}, [1, 2], "'x' is a list, not a tensor; name its 'dtype'"),
        ({"dtype": "float32", "shape": [2]}, [1, 2, 3], "has shape"),
    ],
)
def test_a_list_has_a_shape_where_a_dtype_is_named(expected, given, says):
    with pytest.raises(WireError, match=says):
        Signature({"x": expected}).check({"x": given})


def test_a_partial_join_names_the_predecessors_that_lost_the_query():
    spec = SimpleNamespace(coding=None, name="s", split=None, choose=None, join=None)
    expects = lambda path: ("left", "right", "top") if path["root"] == "all" else ("left",)  # noqa: E731
    partial = SimpleNamespace(mode="all", on_loss="partial", function=None)
    one = request(1, ("right", Query({"x": 1})))
    one.path["root"] = "all"
    for join, told in (
        (partial, ["left", "top"]),
        (None, []),
        (SimpleNamespace(**vars(partial) | {"mode": "any"}), []),
    ):
        spec.join = join
        assert UserFunctions(spec, (), expects).missing(one) == told
