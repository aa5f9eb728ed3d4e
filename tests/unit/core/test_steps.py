"""Steps of a stage: queries come to them in order, each hears of what passes, and a stage forgets what they hold."""

import pytest

from spillway.agents.core.actions import Failed, Ok
from spillway.agents.core.step import Step
from tests.unit.core.builders import NOW, delivery, finish, shown, stage_core


class Noted(Step):
    """Notes what it hears; holds the queries named in `holds`, and spares those in `spares`."""

    def __init__(self, name, heard, holds=(), spares=()):
        self.name, self.heard, self.holds, self.spares = name, heard, holds, spares
        self.held = []

    def note(self, what, *about):
        self.heard.append((self.name, what, *about))

    def admit(self, now, work):
        self.note("admit", work.request_id)
        if work.request_id in self.holds:
            self.held.append(work)
        else:
            self._onward(now, work)

    def started(self, _now, batch):
        self.note("started", len(batch.requests))

    def executed(self, _now, work, _result):
        self.note("executed", work.request_id)

    def answered(self, _now, _batch):
        self.note("answered")

    def lost(self, _batch):
        self.note("lost")

    def left(self, _now, work):
        self.note("left", work.request_id)

    def settled(self, work, _result):
        self.note("settled", work.request_id)

    def spare(self, work, failed):
        self.note("spare", work.request_id, failed is not None)
        if work.request_id not in self.spares:
            return False
        self._stage.answer(work, Ok({"c": self.name}))
        return True

    def remove(self, unwanted):
        gone = [work for work in self.held if unwanted(work)]
        self.held = [work for work in self.held if work not in gone]
        return len(gone)

    def advance(self, now):
        self.note("advance")
        while self.held and now > NOW:
            self._onward(now, self.held.pop(0))

    def next_wake(self, _now):
        return NOW + 1 if self.held else None


@pytest.fixture
def heard():
    return []


def core_of(*steps, **options):
    return stage_core("chain", "b", steps=steps, **options)


def ask(core, *names):
    for name in names:
        core.deliver(NOW, delivery(name, ask.offset, "a", deadline=NOW + 10))
        ask.offset += 1


@pytest.fixture(autouse=True)
def offsets():
    ask.offset = 0


def test_a_query_comes_to_them_in_order_and_each_hears_what_comes_of_it(heard):
    core = core_of(Noted("x", heard), Noted("y", heard))
    ask(core, "q")
    assert shown(finish(core, "c")) == [("result", "c", "q", ())]
    both = [("started", 1), ("executed", "q"), ("settled", "q"), ("answered",)]
    assert heard == [("x", "admit", "q"), ("y", "admit", "q")] + [(name, *what) for what in both for name in "xy"]


def test_one_that_holds_a_query_wakes_its_stage_and_the_next_step_gets_it(heard):
    core = core_of(Noted("x", heard, holds=["q"]), Noted("y", heard))
    ask(core, "q")
    assert (core.take_runs(), core.unsettled, core.next_wake(NOW)) == ([], 1, NOW + 1)
    core.advance(NOW + 1)
    assert heard == [("x", "admit", "q"), ("y", "advance"), ("x", "advance"), ("y", "admit", "q"), *heard[-2:]]
    assert (len(core.take_runs()), core.next_wake(NOW + 1)) == (1, None)


def test_what_they_hold_goes_with_its_partition_and_what_is_queued_has_left(heard):
    core = core_of(Noted("x", heard, holds=["held"]), instances=0)
    ask(core, "held", "queued")
    assert core.unsettled == 2
    core.revoke(NOW, 0)
    assert core.unsettled == 0
    assert heard[-1] == ("x", "left", "queued")


def test_the_last_is_asked_first_to_answer_what_has_failed(heard):
    core = core_of(Noted("x", heard, spares=["q"]), Noted("y", heard), Noted("z", heard, spares=["r"]))
    ask(core, "q", "r", "s")
    for _ in "qrs":
        (batch,) = core.take_runs()
        core.complete(NOW, batch, [Failed("raised")], 0.01)
    emits = core.take_emits()
    assert [(e.request_id, e.payload) for e in emits if e.kind.value == "result"] == [("q", "x"), ("r", "z")]
    assert {e.request_id for e in emits if e.loss is not None} == {"s"}
    assert [name for name, what, *_ in heard if what == "spare"] == [*"zyx", *"z", *"zyx"]


def test_a_query_that_one_spares_waits_no_more(heard):
    step = Noted("x", heard, holds=["q"], spares=["q", "r"])
    core = core_of(step, instances=0)
    works = []
    step.settled = step.left = lambda *_: None
    step.admit = lambda now, work: (works.append(work), Noted.admit(step, now, work))
    core._enter = step.admit
    ask(core, "q", "r", "s")
    core.spare(NOW, works)
    assert [emit.payload for emit in core.take_emits()] == ["x", "x"]
    assert (step.held, core.depth) == ([], 1)
    core.attach(NOW, 0)
    assert [request.request_id for batch in core.take_runs() for request in batch.requests] == ["s"]


def test_each_hears_of_a_worker_that_is_lost(heard):
    core = core_of(Noted("x", heard))
    ask(core, "q")
    core.take_runs()
    core.lose(NOW, 0)
    assert heard[-1] == ("x", "lost")
    assert (core.depth, core.unsettled) == (1, 1)
