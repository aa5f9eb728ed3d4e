"""Members' caches: asked after the route, one for each member; what is known there costs no batch."""

from spillway.agents.core.actions import Failed, Ok
from spillway.agents.core.lanes import number_of, parts_of
from tests.unit.core.builders import NOW, delivery
from tests.unit.core.test_lanes import answer, laned, route


def serving(*cached, members=("linear", "forest"), **options):
    core, lanes = laned(route(wait=options.pop("wait", 1.0), **options), members=members, cached=cached, room=2)
    for lane in range(len(members)):
        core.attach(NOW, number_of(lane, 0))
    return core, lanes


def ask(core, n, what, now=NOW):
    """Send a query; gives what it was answered at once, and the batches that began."""
    core.deliver(now, delivery(str(n), n, "a", payload=what))
    return [joint for _, joint in core.take_hits()], core.take_runs()


def counts(lanes, name="linear"):
    cache = lanes.caches()[name]
    return cache.hits, cache.misses, cache.shared


def asked(runs):
    return [parts_of(batch.worker)[0] for batch in runs]


def test_a_member_without_a_cache_is_asked_anew():
    core, lanes = serving("forest")
    _, runs = ask(core, 0, "x")
    for lane in (0, 1):
        answer(core, runs, lane, "cat")
    joints, runs = ask(core, 1, "x")
    assert (joints, asked(runs)) == ([], [0])
    (joint,) = answer(core, runs, 0, "cat")
    assert (joint.batch, joint.flags["confidence"]) == (2, 1.0)
    assert list(lanes.caches()) == ["forest"]


def test_equal_queries_under_way_share_an_evaluation():
    core, lanes = serving("linear", members=("linear",))
    _, runs = ask(core, 0, "x")
    for n in (1, 2, 3):  # more than the lane has room for
        assert ask(core, n, "x") == ([], [])
    assert [joint.outputs["label"] for joint in answer(core, runs, 0, "cat", NOW + 0.1)] == ["cat"] * 4
    assert counts(lanes) == (3, 1, 3)


def test_where_an_evaluation_fails_the_next_equal_query_is_evaluated():
    core, lanes = serving("linear", members=("linear",))
    _, (batch,) = ask(core, 0, "x")
    ask(core, 1, "x")
    core.complete(NOW, batch, [Failed("model-raised", "no")], 0.001)
    (again,) = core.take_runs()
    assert [ticket.request_id for ticket in again.requests] == ["1"]
    core.complete(NOW, again, [Ok({}, value="cat")], 0.001)
    assert counts(lanes) == (0, 2, 0)  # what failed is not remembered


def test_the_last_worker_gone_those_that_wait_for_its_answer_wait_no_more():
    core, lanes = serving("linear")
    _, runs = ask(core, 0, "x")
    ask(core, 1, "x")
    core.lose(NOW, number_of(0, 0))
    assert not lanes.caches()["linear"]._flights
    answers = answer(core, runs, 1, "dog")
    answers += answer(core, core.take_runs(), 1, "dog")
    assert [joint.outputs["label"] for joint in answers] == ["dog", "dog"]
    assert lanes.refused == {("linear", "no-worker"): 2}
