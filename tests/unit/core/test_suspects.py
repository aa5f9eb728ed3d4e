"""Who is looked at more closely after an update has raised, and until when."""

from types import SimpleNamespace

import pytest

from spillway.agents.core.crash_suspects import WATCHED, Suspects
from spillway.agents.core.workers import Batch

BATCH = ["a", "b", "c"]


@pytest.fixture
def suspects():
    return Suspects()


def apart(suspects, *requests):
    batch = Batch(0, [SimpleNamespace(request_id=each) for each in requests], 1.0, 2.0)
    parts = suspects.apart(batch)
    assert {(part.worker, part.started, part.expected_end) for part in parts} == {(0, 1.0, 2.0)}
    return ["".join(each.request_id for each in part.requests) for part in parts]


def test_nobody_is_suspected_before_anything_has_raised(suspects):
    assert not suspects
    assert not suspects.tries(BATCH)
    assert apart(suspects, *BATCH) == ["abc"]


def test_the_queries_of_a_batch_that_raised_are_tried_first_and_together(suspects):
    assert suspects.raised(BATCH)
    assert suspects
    assert suspects.tries(["x", "b"])
    assert apart(suspects, "x", "b", "a") == ["xba"]


def test_those_that_raise_only_together_go_alone(suspects):
    suspects.raised(BATCH)
    suspects.raised(["b", "c", "x"])
    assert apart(suspects, "x", "b", "y", "c") == ["xy", "b", "c"]
    assert apart(suspects, "c") == ["c"]


def test_what_raises_once_more_alone_is_nobodys_fault(suspects):
    assert suspects.raised(BATCH)
    assert suspects.raised(BATCH)
    assert not suspects.raised(["b"])


def test_an_innocent_query_is_not_counted_twice_where_its_outcome_was_durable(suspects):
    suspects.raised(BATCH)
    suspects.durable(["a", "c"])
    suspects.raised(["a", "x"])
    assert apart(suspects, "a", "b", "x") == ["abx"]


def test_suspects_are_tried_however_much_comes_between(suspects):
    suspects.raised(BATCH)
    for number in range(WATCHED + 1):
        suspects.tries([str(number)])
    assert not suspects.tries(["y"])
    assert suspects.tries(["y", "a"])


def test_after_a_guilty_one_the_next_queries_are_tried_too(suspects):
    suspects.guilty()
    tried = 0
    while suspects.tries(["x", "y"]):
        tried += 2
    assert tried == WATCHED
    assert not suspects
    suspects.guilty()
    assert suspects.tries(["z"])


def test_the_oldest_are_forgotten_beyond_the_bound():
    suspects = Suspects(most=2)
    suspects.raised(BATCH)
    suspects.durable(["b", "c"])
    suspects.raised(["b"])
    suspects.raised(["b"])
    assert not suspects.raised(["b"])
    assert suspects.raised(["a"])  # it was forgotten, and is met as a new one
