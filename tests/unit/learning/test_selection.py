"""Selection among models by feedback, and what their answers come to."""

import math
import random
import statistics
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.learning.chosen import POLICIES
from spillway.agents.learning.selection import Exp3, Exp4, Observed, Static, Thompson, absolute, combine, zero_one
from spillway.lineage.errors import UsageError

MEMBERS = ["a", "b", "c", "d", "e"]


def played(policy, errors_at, queries, seed):
    """The share of wrong answers under immediate feedback, of the policy and of each member."""
    draw, state = random.Random(seed), policy.initial(MEMBERS)
    wrong, each = 0, dict.fromkeys(MEMBERS, 0)
    for query in range(queries):
        answers = {
            m: 0 if draw.random() >= error else draw.randrange(1, 10)
            for m, error in zip(MEMBERS, errors_at(query), strict=True)
        }
        asked = policy.select(state, MEMBERS, draw)
        voices = {m: answers[m] for m in asked}
        wrong += combine(voices, policy.weights(state, list(asked)), len(asked)).answer != 0
        state = policy.observe(state, MEMBERS, {m: Observed(p, zero_one(0, answers[m])) for m, p in asked.items()})
        for m in MEMBERS:
            each[m] += answers[m] != 0
    return wrong / queries, {m: count / queries for m, count in each.items()}


def failing(query):
    return 0.35, 0.3, 0.26, 0.22, 0.6 if 1_500 <= query < 3_000 else 0.12


@pytest.mark.parametrize("policy", [Exp3(), Exp4(), Thompson()])
def test_a_member_that_fails_is_left_and_found_again(policy):
    ours, each = played(policy, failing, 6_000, seed=1)
    assert ours < min(each.values())


def test_the_bare_forms_are_the_printed_ones():
    bare = partial(Exp3, eta=0.5, forgetting=0.0)
    state = bare().observe(bare().initial(MEMBERS), MEMBERS, {"a": Observed(0.2, 0.5)})
    expected = {m: math.exp(-0.5 * 0.5 / 0.2) if m == "a" else 1.0 for m in MEMBERS}
    total = sum(expected.values())
    assert bare().weights(state, MEMBERS) == pytest.approx({m: s / total for m, s in expected.items()})
    (drawn,) = bare().select(state, MEMBERS, random.Random(0)).items()
    assert drawn[1] == pytest.approx(expected[drawn[0]] / total)
    exp4 = Exp4(eta=0.5, forgetting=0.0)
    state = exp4.observe(exp4.initial(MEMBERS), MEMBERS, {m: Observed(1.0, 0.25 * (m == "b")) for m in MEMBERS})
    assert exp4.weights(state, ["a", "b"])["b"] == pytest.approx(math.exp(-0.125) / (1 + math.exp(-0.125)))


@given(
    st.sampled_from(sorted(POLICIES)),
    st.lists(st.tuples(st.sets(st.sampled_from(MEMBERS), min_size=1), st.floats(0, 1)), max_size=60),
    st.integers(0, 99),
)
def test_whatever_is_observed_probabilities_and_weights_make_sense(name, history, seed):
    policy, draw = POLICIES[name](), random.Random(seed)
    state = policy.initial(MEMBERS[:3])  # others come while it serves
    for ready, loss in history:
        members = sorted(ready)
        asked = policy.select(state, members, draw)
        assert set(asked) <= ready
        assert all(0 < p <= 1 for p in asked.values())
        assert sum(policy.weights(state, members).values()) == pytest.approx(1)
        before = {m: list(numbers) for m, numbers in state.items()}
        after = policy.observe(state, members, {m: Observed(p, loss) for m, p in asked.items()})
        assert state == before
        assert all(math.isfinite(number) for numbers in after.values() for number in numbers)
        state = after


@pytest.mark.parametrize("level", [0.02, 0.2])
def test_exp3_explores_less_as_the_choice_becomes_sure_and_leaves_it_when_it_fails(level):
    policy, draw = Exp3(), random.Random(2)
    state = policy.initial(MEMBERS)

    def follow(queries, best_fails):
        nonlocal state
        shares = []
        for number in range(queries):
            ((member, p),) = policy.select(state, MEMBERS, draw).items()
            wrong = level if member == "a" else 3 * level
            lost = draw.random() < (1.0 if best_fails and member == "a" else wrong)
            state = policy.observe(state, MEMBERS, {member: Observed(p, float(lost))})
            if number >= queries // 2:
                shares.append(policy.weights(state, MEMBERS)["a"])
        return statistics.fmean(shares)

    assert follow(10_000, best_fails=False) > 0.9
    assert follow(2_000, best_fails=True) < 0.05
    assert min(policy.weights(state, MEMBERS).values()) > 1e-4  # so it is found again
    assert follow(15_000, best_fails=False) > 0.5


def test_a_new_member_is_like_the_mean_of_the_others():
    assert Exp3().weights({"a": [0.0], "b": [-2.0]}, ["a", "b", "c"])["c"] == pytest.approx(
        math.exp(-1) / (1 + math.exp(-1) + math.exp(-2))
    )
    assert Static(("c", "b")).select({}, ["a", "b"], random.Random(0)) == {"b": 1.0}


@pytest.mark.parametrize("probability", [0.0, -0.1, 1.1, math.nan])
def test_a_probability_that_none_was_asked_with_is_refused(probability):
    with pytest.raises(UsageError, match="probability"):
        Observed(probability, 0.5)


def test_labels_vote_and_scores_are_averaged():
    weights = {"a": 0.5, "b": 0.3, "c": 0.2}
    vote = combine({"a": 7, "b": np.int64(3), "c": 3}, weights, asked=4)
    assert (vote.answer, vote.confidence) == (7, 0.25)  # .5 against .5: the first named; one of four agrees
    scores = combine({"b": np.float32([0.9, 0.1]), "c": np.float32([0.0, 1.0])}, weights, asked=2)
    assert scores.answer == pytest.approx([0.54, 0.46])
    assert (scores.answer.dtype, scores.confidence) == (np.float32, 0.5)
    stood_in = combine({"c": np.float32([0.0, 1.0])}, weights, 2, {"a": np.float32([1.0, 0.0])})
    assert stood_in.answer == pytest.approx([5 / 7, 2 / 7])
    assert stood_in.confidence == 0  # a stand-in never agrees, and the only answer does not
    assert combine({"a": 0.5, "b": 1.5}, {"a": 0.5, "b": 0.5}, 2).answer == 1.0


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ({}, "nothing"),
        ({"a": 1, "b": 0.5}, "labels"),
        ({"a": np.zeros(2), "b": np.zeros(3)}, "shapes"),
        ({"a": np.ma.masked, "b": 0.5}, "masked"),
        ({"a": np.ma.masked_array([0.9, 0.1], [True, False])}, "masked"),
    ],
)
def test_what_cannot_be_combined_is_said(answers, says):
    with pytest.raises(UsageError, match=says):
        combine(answers, {}, 2)


def test_losses():
    assert (zero_one(3, np.float32([0, 0, 0, 1])), zero_one("x", "y"), zero_one(2, np.int64(2))) == (0.0, 1.0, 0.0)
    assert (absolute(1, 0.75), absolute(9, 1)) == (0.25, 1.0)
