"""What is done with is gone at once: cycles are looked for so rarely in what serves that they would fill memory."""

import gc
import weakref

import pytest

from spillway.lineage.message import PREDICTION, Outcome
from tests.unit.core.builders import NEW, NOW, OLD, OTHER, Known, finish, marked, stage_core
from tests.unit.core.builders import delivery as told
from tests.unit.core.test_gate import Report
from tests.unit.core.test_held_outcomes import gate


@pytest.fixture
def made():
    """Deliveries' payloads, for which nothing but counting references is to free them."""
    refs = []

    def of(message):
        message.payload = Report(Outcome(PREDICTION))
        refs.append(weakref.ref(message.payload))
        return message

    gc.disable()
    yield of, refs
    gc.enable()


def served(core, destination):
    core.acked_all(finish(core, destination))


@pytest.mark.parametrize("marks", [(), (OLD,)])
def test_of_a_request_alone(made, marks):
    of, refs = made
    known = Known()
    core = stage_core("chain", "b", durability=known)
    core.deliver(NOW, of(marked("q", 0, "a", *marks)))
    served(core, "c")
    known.tell(core, alive=set(marks))
    assert core.commits()[0][0] == 1
    assert refs[0]() is None


def test_of_a_query_at_the_ingress(made):
    of, refs = made
    core = stage_core("chain", "a", durability=Known())
    core.deliver(NOW, of(told("q", 0)))
    served(core, "b")
    assert refs[0]() is None


@pytest.mark.parametrize("marks", [((), ()), ((OLD,), ()), ((OLD,), (OTHER,))])
@pytest.mark.parametrize("early", [False, True])
def test_of_a_joined_request(made, marks, early):
    """`early`: the first part's version is durable before the second part comes."""
    of, refs = made
    known = Known()
    core = stage_core("diamond", "d", durability=known)
    core.deliver(NOW, of(marked("q", 0, "b", *marks[0])))
    if early:
        known.tell(core, alive={OLD})
    core.deliver(NOW, of(marked("q", 1, "c", *marks[1])))
    served(core, None)
    known.tell(core, alive={OLD, OTHER})
    assert core.commits()[0][0] == 2
    assert [ref() for ref in refs] == [None, None]


def test_of_what_is_dead_and_what_comes_in_its_place(made):
    of, refs = made
    known = Known()
    core = stage_core("diamond", "d", durability=known)
    core.deliver(NOW, of(marked("q", 0, "b", OLD)))
    core.deliver(NOW, of(marked("q", 1, "c", OTHER)))
    core.deliver(NOW, of(marked("q", 2, "b", NEW)))
    finish(core, None)
    known.tell(core, gone={OLD}, alive={NEW, OTHER})
    served(core, None)
    assert core.commits()[0][0] == 3
    assert [ref() for ref in refs] == [None, None, None]


def test_of_an_outcome_and_its_repetition(made):
    of, refs = made
    core, known = gate()
    core.deliver(NOW, of(marked("q", 0, "c", OLD)))
    core.deliver(NOW, of(marked("q", 1, "a", OLD)))
    known.tell(core, alive={OLD})
    assert len(core.collect(NOW)) == 1
    core.deliver(NOW, of(marked("q", 2, "a", OTHER)))
    known.tell(core, alive={OLD, OTHER})
    assert core.commits()[0][0] == 3
    assert [ref() for ref in refs] == [None, None, None]
