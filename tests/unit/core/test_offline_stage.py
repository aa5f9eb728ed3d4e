"""Offline queries through a stage's core: caches, dispatch and default answers are for online ones; so is the room."""

from spillway.agents.core.actions import Ok
from spillway.agents.core.cache import CacheStep, PredictionCache
from spillway.agents.core.dispatch import Dispatch
from spillway.agents.core.offline import HELD_SECONDS
from spillway.lineage.reasons import NO_SPARE_TIME
from tests.unit.core.builders import NOW, delivery, finish, shown, stage_core, with_default
from tests.unit.core.test_variants_route import Stage


def test_an_offline_query_is_run_and_emitted_as_any_other():
    core = stage_core("chain", "a")
    core.deliver(NOW, delivery("q", 0, offline=True))
    assert shown(finish(core, "b")) == [("result", "b", "q", ())]


def test_as_many_as_fit_beside_the_queue_do_not_stop_the_reading():
    core = stage_core("chain", "a", instances=0, queue_limit=2)
    for n in range(40):  # more than may be under way of online ones
        core.deliver(NOW, delivery(f"q{n}", n, offline=True))
    assert core.room
    core.deliver(NOW, delivery("x", 40))
    core.deliver(NOW, delivery("y", 41))
    assert not core.room


def test_they_ask_and_fill_no_cache_so_no_online_query_waits_for_one():
    cache = PredictionCache(10_000)
    core = stage_core("chain", "a", steps=[CacheStep(cache, lambda _: b"same")])
    core.deliver(NOW, delivery("first", 0))
    (running,) = core.take_runs()
    core.deliver(NOW, delivery("offline", 1, offline=True))
    core.deliver(NOW, delivery("second", 2))
    core.complete(NOW + 1, running, [Ok({"b": 1}, value=1, size=1)], 0.1)
    assert [work.request_id for work, _ in core.take_hits()] == ["second"]
    (batch,) = core.take_runs()
    assert [each.request_id for each in batch.requests] == ["offline"]
    core.complete(NOW + 2, batch, [Ok({"b": 2}, value=2, size=1)], 0.1)
    core.deliver(NOW + 3, delivery("third", 3))
    assert [answer for _, answer in core.take_hits()] == [1]


def test_their_batches_have_no_copies():
    dispatch = Dispatch()
    core = stage_core("chain", "a", steps=[dispatch])
    dispatch.attach(0, 0)
    core.deliver(NOW, delivery("q", 0, offline=True))
    finish(core, "b")
    assert dispatch.stats.batches == 0
    assert dispatch.take_extras(NOW) == []
    core.deliver(NOW, delivery("r", 1))
    assert len(dispatch.take_extras(NOW)) == 1


def test_a_stage_with_a_default_does_not_answer_them_with_it():
    core = stage_core("chain", "a", instances=0, steps=with_default())
    core.deliver(NOW, delivery("q", 0, offline=True))
    core.advance(NOW + 5)
    assert core.take_hits() == []
    core.advance(NOW + HELD_SECONDS)
    assert core.take_hits() == []
    assert [emit.loss.reason for emit in core.take_emits()] == [NO_SPARE_TIME]


def test_of_variants_it_waits_for_what_has_to_be_loaded_rather_than_take_a_worse_one():
    stage = Stage(workers=("small",))
    asked = stage.ask(within=3600, offline=True, accuracy=0.8)
    assert not stage.runs
    assert stage.route.waiting == {"large"}  # so the controller loads it
    stage.attach("large", now=NOW + 3)
    assert stage.answer(NOW + 3)[asked].flags["variant"] == "large"


def test_of_variants_it_is_handed_back_where_nobody_loads_it():
    stage = Stage(workers=("small",))
    asked = stage.ask(within=3600, offline=True, accuracy=0.8)
    stage.core.advance(NOW + HELD_SECONDS + 0.1)
    stage.settle(NOW + HELD_SECONDS + 0.1)
    assert dict(stage.told)[asked].reason == NO_SPARE_TIME
    assert stage.lanes.load().dropped == 0
