"""What a model, or an author's function, does to what it is given reaches no other query and no later run."""

import copy
import weakref
from contextlib import closing
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spillway.agents.core.actions import DEFAULT, Ok
from spillway.agents.live.stage.batch_work import BatchWork, UserFunctions
from spillway.agents.models.model_errors import RaisedLog, trace_of, words_of
from spillway.agents.run.intake import Signature
from spillway.lineage import reasons
from spillway.lineage.limits import Limits
from spillway.lineage.values import codec
from tests.unit.live.test_batch_work import stage_spec
from tests.unit.odd_values import Panic, SilentError
from tests.unit.workers.answers import Worker, in_thread, request, shown

DECODER = codec.Decoder()


class Vandal:
    """Does to its batch what its queries say, then answers what it finds in them."""

    def predict(self, batch):
        own = list(batch)
        for query in own:
            getattr(self, query["do"])(query, batch)
        return [
            {"n": query["n"], "l": query["l"], "x": float(query["x"].sum()), "m": query["m"], "p": query.parameters}
            for query in (own if all(query["do"] != "pad" for query in own) else batch)
        ]

    def nothing(self, query, batch):
        pass

    def scale(self, query, batch):
        query["x"] /= 2

    def grow(self, query, batch):
        query["l"].append(9)
        query["l"][0].append(9)
        query["m"]["new"] = query["m"]["a"].pop()
        query.parameters["p"] = 1

    def others(self, query, batch):
        for each in batch:
            each["l"].clear()
        raise ValueError

    def sort(self, query, batch):
        batch.sort(key=lambda each: -each["n"])
        raise ValueError

    def pad(self, query, batch):
        while len(batch) < 8:
            batch.append(batch[-1])

    def clear(self, query, batch):
        batch.clear()

    def panic(self, query, batch):
        raise Panic

    def silent(self, query, batch):
        raise SilentError


ACTS = [name for name in vars(Vandal) if not name.startswith("_") and name != "predict"]


def query(number, act):
    return {"n": number, "do": act, "x": np.arange(number, number + 3.0), "l": [[number], 2], "m": {"a": [1, 2]}}


@pytest.fixture(scope="module")
def worker():
    made = Worker(Vandal())
    yield made
    made.close()


@given(st.lists(st.sampled_from(ACTS), min_size=1, max_size=6))
@settings(max_examples=2 * settings.default.max_examples)
def test_each_query_is_answered_as_if_it_were_alone(worker, acts):
    inputs = [query(number, act) for number, act in enumerate(acts)]
    before = copy.deepcopy(inputs)
    alone = [shown(in_thread(Vandal(), [each])[0], DECODER) for each in inputs]
    for results in (in_thread(Vandal(), inputs), worker.run(inputs), worker.run(inputs, singly=True)):
        assert [shown(result, DECODER) for result in results] == alone
    assert str(inputs) == str(before)


def spoil(value):
    """Change all that can be changed in a value."""
    if isinstance(value, dict):
        for each in list(value.values()):
            spoil(each)
        value["spoilt"] = True
    elif isinstance(value, list):
        for each in value:
            spoil(each)
        value.insert(0, "spoilt")
    elif isinstance(value, np.ndarray):
        value[...] = 7


def functions(**own):
    made = UserFunctions(SimpleNamespace(coding=None, name="s", join=None, split=None, choose=None), ("a", "b"))
    for name, function in own.items():
        setattr(made, f"_{name}", function)
    return made


def spoiling(answer):
    return lambda outputs: (spoil(outputs), answer(outputs))[1]


def test_what_an_authors_function_changes_is_its_own():
    made = functions(
        finish=spoiling(lambda outputs: {"y": outputs["y"][1:]}),
        choose=spoiling(lambda outputs: "a"),
        split=spoiling(lambda outputs: {"a": {"y": outputs["y"]}}),
    )
    work = BatchWork(
        stage_spec(cache=True, default_outputs={"y": [[1], np.zeros(2)]}),
        [SimpleNamespace(predict=lambda batch: [{"y": [[1], np.zeros(2)]} for _ in batch])], made, joins=False,
        version="1", signature=None, limits=Limits(),
    )  # fmt: skip
    (first,) = work.run(0, SimpleNamespace(requests=[request(1, {})])).results
    seen = [DECODER.query(first.payloads["a"]).inputs]
    for answer in (first.value, first.value, DEFAULT, DEFAULT):
        result = work.remembered(request(2, {}), answer, 3.0)
        assert isinstance(result, Ok)
        seen.append(DECODER.query(result.payloads["a"]).inputs)
    assert len({str(each) for each in seen[:3]}) == 1
    assert str(seen[3]) == str(seen[4])


@pytest.mark.parametrize(
    "returned",
    [
        {1: 2},
        {"a": {1: 2}},
        [1],
        7,
        {"a": object()},
        {"a": np.ma.masked},
        {"b": {"y": 1}},
        {"a": {"\ud800": 1}},
        {"a": {"y": {1}}},
    ],
)
def test_what_a_split_returns_wrongly_is_a_bad_route(returned):
    (result,) = in_thread(
        SimpleNamespace(predict=lambda batch: [{"y": 1}]), [{"x": 1}], functions(split=lambda _: returned)
    )
    assert result.reason == reasons.BAD_ROUTE


class Haunted:
    """What a join may return: it raises whatever it is asked."""

    def __getattr__(self, name):
        raise Panic(name)


def test_a_join_may_return_what_raises_when_it_is_read():
    for signature in (None, Signature({"x": {"dtype": "float32", "shape": [2]}})):
        work = BatchWork(
            stage_spec(), [SimpleNamespace(predict=lambda batch: [{"y": 1} for _ in batch])],
            functions(join=lambda parts: {"x": Haunted() if parts[""]["n"] else np.zeros(2, np.float32)}), joins=True,
            version="1", signature=signature, limits=Limits(),
        )  # fmt: skip
        odd, fine = work.run(0, SimpleNamespace(requests=[request(1, {"n": 1}), request(2, {"n": 0})])).results
        assert odd.reason == reasons.BAD_ROUTE
        assert isinstance(fine, Ok)


@pytest.mark.parametrize(
    "error", [SilentError(), Panic("käte \ud800"), ValueError("x" * 100_000), KeyError(SilentError())]
)
def test_an_errors_text_and_traceback_can_always_be_had(error):
    error.__cause__ = SilentError()
    with pytest.raises(type(error)) as raised:
        raise error
    assert words_of(raised.value).encode()
    assert trace_of(raised.value).encode()
    assert RaisedLog("s").words(raised.value)
    assert len(words_of(raised.value)) < 5_000


def test_a_worker_keeps_no_answers_while_its_next_batch_runs():
    made, kept = [], []

    def predict(batch):
        kept.append([each() is not None for each in made])
        answer = np.zeros(3)
        made.append(weakref.ref(answer))
        return [{"y": answer} for _ in batch]

    with closing(Worker(SimpleNamespace(predict=predict))) as worker:
        for _ in range(2):
            worker.run([{"x": 1}])
    assert kept == [[], [False]]
