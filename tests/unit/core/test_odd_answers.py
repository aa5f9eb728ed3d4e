"""Whatever members answer, and whatever an author's selection raises or returns, each query ends once, and alone."""

import asyncio
import functools
import math
import random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from spillway.agents.core.actions import EmitKind, Failed, Ok
from spillway.agents.core.lanes import number_of
from spillway.agents.core.routes.ensemble import Ensemble, Joint, Rules, Weights
from spillway.agents.learning.chosen import POLICIES, selection_of
from spillway.agents.live.stage.members import MemberWork
from spillway.lineage.errors import UsageError, WireError
from spillway.lineage.flags import checked
from tests.unit import odd_values
from tests.unit.core.builders import NOW, delivery
from tests.unit.core.test_lanes import MEMBERS, laned
from tests.unit.lineage.strategies import values
from tests.unit.odd_values import Panic, SilentError

QUERIES = 4


class Touchy:
    """An answer that raises whatever is done with it."""

    def _no(self, *_):
        raise Panic("do not touch")

    __eq__ = __hash__ = __str__ = __float__ = __len__ = __iter__ = _no


ERRORS = [TypeError("no"), UsageError("never"), SilentError(), asyncio.CancelledError(), SystemExit(3)]
ERRORS += [StopIteration(), Panic("panicked"), RecursionError()]


ODD = [*odd_values.ODD, {"label": 1}, [1, [2]], Touchy()]
arrays = npst.arrays(
    npst.scalar_dtypes() | npst.array_dtypes(max_size=2), npst.array_shapes(min_dims=0, max_dims=2, min_side=0)
)
sound = values | arrays | st.sampled_from([1, 2, 0.5, 1.5])
answers = st.integers(0, len(ODD) - 1).map(lambda n: ODD[n]) | sound


class Odd:
    """An author's selection one of whose methods does something odd, now and then."""

    def __init__(self, method, does, own, draw):
        self._method, self._does, self._own, self._draw = method, does, own, draw

    def __getattr__(self, method):
        def call(*arguments):
            if method == self._method and self._draw.random() < 0.7:
                if isinstance(self._does, BaseException):
                    raise self._does
                return self._does
            return getattr(self._own, method)(*arguments)

        return call


def played(selection, members_answers, weights=Weights({}), **rules):  # noqa: B008 - immutable
    """What became of a few queries to an ensemble: of each a Joint, or the Failed or loss that it ended by."""
    draw = random.Random(0)
    route = Ensemble(Rules(selection, members=MEMBERS, **rules), lambda *_: weights, draw, learner="w")
    core, lanes = laned(route, members=MEMBERS)
    for lane in range(len(MEMBERS)):
        core.attach(NOW, number_of(lane, 0))
    ended = {}
    for n in range(QUERIES):
        core.deliver(NOW, delivery(str(n), n, "a", payload=n))
    for _ in range(20):
        for batch in core.take_runs():
            made = [members_answers() for _ in batch.requests]
            core.complete(NOW, batch, [each if isinstance(each, Failed) else Ok({}, value=each) for each in made], 0.01)
        for work, joint in core.take_hits():
            assert isinstance(joint, Joint)
            core.answered(NOW, [(work, Ok({"c": joint}))])
        for emit in core.take_emits():
            if emit.kind is not EmitKind.DEAD_LETTER:
                ended.setdefault(emit.request_id, []).append(emit.loss if emit.lost else emit.payload)
            core.acked(emit)
    assert core.unsettled == core.depth == len(lanes._open) == len(lanes._idle) == 0
    assert len(ended) == QUERIES
    return [one for (one,) in ended.values()]


@given(
    st.sampled_from(sorted(POLICIES)),
    st.lists(answers | st.just(Failed("model-raised")), min_size=1, max_size=6),
    st.sampled_from(["own_mean", "ensemble_mean", "skip"]),
    st.integers(0, 99),
)
def test_whatever_members_answer_each_query_ends_once(name, told, missing, seed):
    draw = random.Random(seed)
    for one in played(POLICIES[name](), lambda: draw.choice(told), missing=missing):
        if not isinstance(one, Joint):
            assert one.reason in ("bad-result", "model-raised", "no-worker"), one
            assert one.text or one.reason == "model-raised"


@given(
    st.sampled_from(["initial", "select", "weights"]),
    st.integers(0, len(ERRORS) - 1).map(lambda n: ERRORS[n])
    | st.sampled_from([{}, {"stranger": 1.0}, {"linear": 0.0}, {"linear": 7}, {"linear": "x"}, dict.fromkeys(MEMBERS)])
    | st.sampled_from([{"linear": float("nan")}, {"linear": float("inf"), "cnn": 1.0}, {"linear": -1.0}])
    | answers,
    st.integers(0, 99),
)
def test_whatever_a_selection_of_ones_own_does_each_query_ends_once(method, does, seed):
    odd = Odd(method, does, POLICIES["exp4"](), random.Random(seed))
    for one in played(odd, lambda: "cat"):
        if not isinstance(one, Joint):
            assert one.reason == "bad-result", one
            assert "selection Odd" in one.text, one


odd_numbers = st.floats() | st.sampled_from([0.0, -1.0, 800.0, -1e308, 10**400, 2**63, -3, True])
odd_rows = (
    st.dictionaries(
        st.sampled_from([*MEMBERS, "gone", "(epoch)"]),
        st.lists(odd_numbers, max_size=3) | odd_numbers | npst.arrays(np.float64, st.integers(0, 3)) | answers,
    )
    | st.just({member: [math.nan, math.inf] for member in MEMBERS})
    | answers
)


@given(st.sampled_from(sorted(POLICIES)), odd_rows)
def test_whatever_the_table_of_weights_says_each_query_is_answered(name, row):
    """By the weights that the selection begins with where those raise, which its flags call stale."""
    for one in played(POLICIES[name](), lambda: "cat", Weights(row, [1, 2])):
        assert isinstance(one, Joint), one
        assert checked(one.flags).get("stale") == (one.flags["versions"] == {"w": None} or None)


@pytest.mark.parametrize("value", [[1], {"a": 1}, np.zeros(0), np.array([None]), Touchy()], ids=type)
def test_the_failure_names_the_member_or_the_selection(value):
    turns = iter([1.0, value, 2.0] * QUERIES)
    for one in played(POLICIES["exp4"](), lambda: next(turns)):
        assert one.reason == "bad-result"
        assert "linear, forest, cnn cannot be combined by selection Exp4" in one.text


@pytest.mark.parametrize("error", ERRORS, ids=type)
def test_a_query_that_a_selection_raises_for_costs_the_others_nothing(error):
    calls = []

    class Once(POLICIES["exp4"]):
        def select(self, *arguments):
            calls.append(1)
            if len(calls) == 2:
                raise error
            return super().select(*arguments)

    ends = played(Once(), lambda: "cat")
    assert [isinstance(one, Joint) for one in ends].count(False) == 1
    (failed,) = [one for one in ends if not isinstance(one, Joint)]
    assert failed.text.startswith(f"selection Once raised {type(error).__name__}")


def test_scores_that_are_no_numbers_spoil_no_mean():
    turns = iter([1.0, 2.0, float("nan"), 1.0, 2.0, 3.0, 1.0, 2.0, Failed("model-raised"), 1.0, 2.0, 3.0])
    route = Ensemble(Rules(POLICIES["exp4"]()), lambda *_: Weights({}), random.Random(0))
    for _ in range(4):
        for member in MEMBERS:
            if not isinstance(value := next(turns), Failed):
                route.heard(member, value, late=False)
    assert [mean.value for mean in route._means.values()] == [1.0, 2.0, 3.0]


@given(answers)
def test_what_a_member_with_a_cache_answers_is_kept_or_refused(value):
    work = MemberWork(SimpleNamespace(), "label", caches=True)
    result = work.result(None, 0, {"outputs": {"label": value}}, 0.1)
    assert isinstance(result, Ok) or result.reason == "bad-result"


DEEP = functools.reduce(lambda inner, _: [inner], range(10_000), [])


@pytest.mark.parametrize("value", [DEEP, odd_values.HostileList([1]), odd_values.HostileDict(a=1)], ids=type)
def test_what_cannot_be_copied_to_be_kept_is_refused(value):
    work = MemberWork(SimpleNamespace(), "label", caches=True)
    assert work.result(None, 0, {"outputs": {"label": value}}, 0.1).reason == "bad-result"


class Unmakeable:
    """A selection that cannot be constructed."""

    def __init__(self, which):
        raise ERRORS[which]


@pytest.mark.parametrize("which", [n for n, error in enumerate(ERRORS) if not isinstance(error, TypeError)])
def test_a_selection_that_cannot_be_made_is_refused(which):
    with pytest.raises(UsageError, match=f"Unmakeable' raised {type(ERRORS[which]).__name__}"):
        selection_of("kind", {"name": "tests.unit.core.test_odd_answers:Unmakeable", "which": which})


@given(answers)
def test_flags_of_what_was_combined_can_be_checked_or_are_refused(value):
    for one in played(POLICIES["exp4"](), lambda: value):
        if isinstance(one, Joint):
            try:
                checked(one.flags)
            except WireError as error:  # that query's alone, too
                assert error.reason == "bad-result"  # noqa: PT017 - or none
