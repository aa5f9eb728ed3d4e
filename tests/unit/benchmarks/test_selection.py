"""The benchmark of model selection: what it replays, and that ensembles with tails lose no query in virtual time."""

import numpy as np
import pytest

from benchmarks.clipper import failing, stragglers
from benchmarks.clipper.failing import replay
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
    losses = replay(policy, answers, truths, 0)
    assert len(losses) == len(truths)
    assert np.mean(losses[1_000:2_000]) < 0.1
    assert np.mean(losses[2_500:3_000]) < 0.4
    assert np.mean(losses[8_000:]) < 0.1


def test_a_replay_is_the_same_each_time():
    answers = {"a": [0, 1, 0, 1], "b": [1, 1, 1, 1]}
    first, second = (replay(Exp3(), answers, [0, 1, 0, 1], 3) for _ in range(2))
    assert first == second


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


def test_queries_are_of_digits_that_no_model_was_trained_on_and_the_same_for_a_seed():
    rows, labels = training.queries(50, seed=1, noise=0.0)
    held_out = {row.tobytes() for row in ROWS[TRAINED_ON:]}
    assert all(row.tobytes() in held_out for row in rows)
    assert (training.queries(50, seed=1)[0] == training.queries(50, seed=1)[0]).all()
    assert (labels == training.queries(50, seed=1)[1]).all()
