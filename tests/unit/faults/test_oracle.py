"""The oracle itself: it sees each kind of wrong, and nothing else."""

from __future__ import annotations

from agents.sim.faults import Execution, Tenure
from tests.oracle import execution_problems, outcome_problems, repetition_problems, values
from tests.unit.faults.pipelines import SHAPES

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


def test_executions():
    tenures = {0: Tenure("a", 0, 0, committed=0), 1: Tenure("a", 0, 1, committed=5)}
    before, after = Execution("a", "q", 0, 4, 0), Execution("a", "q", 0, 7, 1)
    assert execution_problems([before], tenures) == []
    assert execution_problems([before, before], tenures) == ["q: executed twice by a in one assignment"]
    assert execution_problems([before, after], tenures) == ["q: executed by a, committed, and executed again"]
    uncommitted = Execution("a", "q", 0, 5, 0)
    assert execution_problems([Execution("a", "q", 0, 5, 1), uncommitted], tenures) == []


def test_values():
    shape = SHAPES["partial"]
    rules = {"d": ("all", "partial")}
    b, c = ("b", ("b", ("a", "q"))), ("c", ("c", ("a", "q")))
    assert values(shape.graph(), rules, {}, "d", "q") == {("d", (b,)), ("d", (c,)), ("d", (b, c))}
    assert values(shape.graph(), {"d": ("all", "drop")}, {}, "d", "q") == {("d", (b, c))}
    assert values(shape.graph(), {"d": ("any", "drop")}, {}, "d", "q") == {("d", (b,)), ("d", (c,))}
