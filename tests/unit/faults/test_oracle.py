"""The oracle itself: it sees each kind of wrong, and nothing else."""

from tests.oracle import outcome_problems, repetition_problems

RIGHT = [("q1", "prediction", 1), ("q2", "dropped", "expired")]


def right(request_id, kind, told):
    return (request_id, kind, told) in RIGHT


def test_outcomes():
    accepted = ["q1", "q2"]
    assert outcome_problems(accepted, RIGHT, right) == []
    assert outcome_problems(accepted, RIGHT[:1], right) == ["q2: no outcome"]
    assert outcome_problems(accepted, [*RIGHT, RIGHT[0]], right) == ["q1: 2 outcomes"]
    assert outcome_problems(["q1"], RIGHT, right) == ["q2: outcome of a query that nobody sent"]
    wrong = [RIGHT[0], ("q2", "prediction", 1)]
    assert outcome_problems(accepted, wrong, right) == ["q2: wrong outcome prediction 1"]


def test_repetitions():
    once = [("a", "q1", 11), ("b", "q1", 21), ("a", "q2", 11)]
    assert repetition_problems(once, replaced=()) == []
    assert repetition_problems([*once, ("a", "q1", 12)], replaced={"a"}) == []
    assert len(repetition_problems([*once, ("a", "q1", 12)], replaced={"b"})) == 1
    assert len(repetition_problems([*once, ("a", "q1", 11)], replaced={"a"})) == 1
