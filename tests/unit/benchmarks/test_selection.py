"""The benchmark of model selection: what it replays, and that ensembles with tails lose no query in virtual time."""

import numpy as np
import pytest

from benchmarks.clipper import bounds, failing, stragglers
from benchmarks.clipper.selection import Style, replay
from examples.clipper.training import TRAINED_ON, digits
from examples.selection import training
from spillway.agents.learning.selection import Exp3, Exp4

ROWS, LABELS = digits()


@pytest.mark.parametrize("policy", [Exp3(), Exp4()])
def test_a_replay_leaves_the_model_that_fails_and_comes_back(policy):
    chance = np.random.default_rng(0)
    truths = [0] * 9_000
    wrong = {"best": chance.random(9_000) < 0.02, "second": chance.random(9_000) < 0.2}
    wrong["best"][2_000:3_000] = True
    answers = {name: each.astype(int).tolist() for name, each in wrong.items()}
    done = replay(policy, answers, truths, 0)
    assert len(done.wrong) == len(done.confidence) == len(truths)
    assert done.error(1_000, 2_000) < 0.1
    assert done.error(2_500, 3_000) < 0.4
    assert done.error(8_000) < 0.1


def test_a_replay_is_the_same_each_time_and_leaves_the_state_that_it_began_from():
    answers = {"a": [0, 1, 0, 1], "b": [1, 1, 1, 1]}
    state = {"a": [0.0], "b": [-1.0]}
    first, second = (replay(Exp3(), answers, [0, 1, 0, 1], 3, state) for _ in range(2))
    assert (first.wrong, first.state) == (second.wrong, second.state)
    assert state == {"a": [0.0], "b": [-1.0]}


def test_ensembles_with_tails_answer_each_query_once_and_in_time_where_they_do_not_block(monkeypatch):
    monkeypatch.setattr(stragglers, "QUERIES", 200)
    blocking = stragglers.straggle(3, float("inf"), 1)
    effort = stragglers.straggle(3, stragglers.OBJECTIVE, 1)
    for run in (blocking, effort):
        assert len(run.latencies) == len(run.wrong) == 200
        assert run.asked == 600
        assert min(run.latencies) >= stragglers.ALPHA
    assert blocking.answered == 600
    assert blocking.asked > effort.answered
    assert max(effort.latencies) < max(blocking.latencies)


@pytest.mark.parametrize("kind", failing.KINDS)
def test_a_stream_breaks_the_best_model_for_a_quarter_of_the_time_and_no_other(kind):
    truth = np.arange(3).repeat(100)
    right = np.eye(3)[truth]
    scores = np.stack([right, np.where(np.arange(300)[:, None] % 4 == 0, np.roll(right, 1, 1), right)])
    given, truths = failing.stream(scores, truth, kind, 1, 4_000)
    wrong = given.argmax(2) != truths
    assert not wrong[0, :1_000].any()
    assert not wrong[0, 2_000:].any()
    expected = {"never": 0.0, "random": 2 / 3, "always wrong": 1.0, "60 % random": 0.4}[kind]
    assert wrong[0, 1_000:2_000].mean() == pytest.approx(expected, abs=0.06)
    assert wrong[1].mean() == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize(("kind", "bound"), bounds.BOUNDS.items())
@pytest.mark.parametrize("case", bounds.CASES)
def test_a_limit_keeps_its_bound_above_one_query_and_most_of_the_best_fixed_rate(kind, bound, case):
    took, most = bounds.CASES[case]
    one, _ = bounds.run(took, lambda _: 1.0, 1, 0, 30.0)
    share, rate = bounds.run(took, lambda _: 1.0, kind(bounds.OBJECTIVE, most), 2, 30.0)
    best = {"15 ms + .5 ms n": 8, "10 ms + 5 us n, 3 % 15 ms longer": 1_600, "2 ms + .1 ms n": 170}[case]
    _, fixed = bounds.run(took, lambda _: 1.0, best, 0, 30.0)
    assert share <= one + bound + 0.01  # over so few batches
    assert rate >= 0.85 * fixed


def test_queries_are_of_digits_that_no_model_was_trained_on_and_the_same_for_a_seed():
    rows, labels = training.queries(50, seed=1, noise=0.0)
    held_out = {row.tobytes() for row in ROWS[TRAINED_ON:]}
    assert all(row.tobytes() in held_out for row in rows)
    assert (training.queries(50, seed=1)[0] == training.queries(50, seed=1)[0]).all()
    assert (labels == training.queries(50, seed=1)[1]).all()


def test_a_style_distorts_rows_as_it_says():
    chance = np.random.default_rng(0)
    assert Style(noise=0.0)(ROWS, chance) == pytest.approx(ROWS, abs=1e-6)
    assert Style(noise=0.0, inverted=True)(ROWS, chance) == pytest.approx(1 - ROWS, abs=1e-6)
    there = Style(90.0, 0.0)(Style(-90.0, 0.0)(ROWS, chance), chance)
    assert there == pytest.approx(ROWS, abs=1e-4)
