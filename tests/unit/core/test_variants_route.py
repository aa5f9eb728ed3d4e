"""A stage with variants in virtual time: who answers, who waits, who is refused, and what the outcome says."""

import pytest

from spillway.agents.core.actions import Failed, Ok
from spillway.agents.core.batching import Batcher
from spillway.agents.core.deadlines import Deadlines
from spillway.agents.core.laned_stage import LanedCore
from spillway.agents.core.lanes import Lanes, number_of
from spillway.agents.core.policies import make
from spillway.agents.core.policy import StageView
from spillway.agents.core.routes.reports import Reporter
from spillway.agents.core.routes.variants import Answered, Variants
from spillway.topology.variant_sections import VariantsSpec
from spillway.topology.variants.needs import needs_of
from spillway.topology.variants.selection import Status
from spillway.topology.variants.variant import variants_of
from tests.unit.core.builders import NOW, delivery
from tests.unit.core.shapes import SHAPES

OF = {
    "small": {"model": "m:S", "architecture": "a", "accuracy": 0.7, "batch": 2, "takes": {1: 0.01, 2: 0.015}},
    "large": {"model": "m:L", "architecture": "b", "accuracy": 0.9, "takes": {1: 0.1}, "version": "2"},
}


def lane_of(variant):
    return Batcher(make("naive", StageView(stage="b")), variant.batch, 0.0, 0, variant.duration)


class Stage:
    """A stage of two variants; `needs` of a query stand where a driver has its parameters."""

    def __init__(self, *, workers=("small", "large"), room=100, **options):
        spec = VariantsSpec(app="x", of=OF, **options)
        variants = variants_of(spec)
        self.needs = {}
        self.route = Variants(
            variants,
            lambda request: needs_of(self.needs[request.request_id], "x"),
            on_miss=spec.on_miss,
            budget=spec.budget,
            versions={"large": "2"},
        )
        lanes = {each.name: lane_of(each) for each in variants}
        self.lanes = Lanes(lanes, self.route, room)
        self.route.waits, self.route.ready = self.lanes.waits, self.lanes.ready
        self.core = LanedCore(
            SHAPES["chain"].graph(), "b", self.lanes, self.route, queue_limit=room, steps=[Deadlines()]
        )
        self.core.assign(0, 0)
        self.names = list(lanes)
        self.offset = 0
        self.told = []
        self.runs = []
        for name in workers:
            self.attach(name)

    def attach(self, name, worker=0, now=NOW):
        self.core.attach(now, number_of(self.names.index(name), worker))
        self.settle(now)

    def ask(self, now=NOW, within=1.0, *, offline=False, **needs):
        identity = f"q{self.offset}"
        self.needs[identity] = needs
        made = delivery(identity, self.offset, "a", sent=now, deadline=now + within, offline=offline)
        self.core.deliver(now, made)
        self.offset += 1
        self.settle(now)
        return identity

    def settle(self, now):
        """Gather what is to run, and what was settled: (request id, what came of it)."""
        self.runs += self.core.take_runs()
        self.told += [(work.request_id, made) for work, made in self.core.take_hits()]
        self.told += [(emit.request_id, emit.loss) for emit in self.core.take_emits() if emit.loss is not None]

    def answer(self, now=NOW):
        """Have everything that runs be answered."""
        while self.runs:
            batch = self.runs.pop(0)
            made = Ok({}, value=Answered({"y": 1}, {"confidence": 0.5}, len(batch.requests)))
            self.core.complete(now, batch, [made] * len(batch.requests), 0.01)
            self.settle(now)
        return dict(self.told)


def flags(joint):
    return {key: joint.flags[key] for key in ("variant", "found", "met")}


def test_the_one_that_meets_the_needs_answers_and_the_outcome_says_so():
    stage = Stage()
    exact = stage.ask(accuracy=0.8, latency="500ms")
    fast = stage.ask(latency=0.05)
    told = stage.answer()
    assert told[exact].outputs == {"y": 1}
    assert told[exact].flags == {
        "confidence": 0.5,
        "variant": "large",
        "architecture": "b",
        "accuracy": 0.9,
        "version": "2",
        "found": "active",
        "asked": {"latency": 0.5, "accuracy": 0.8},
        "met": True,
        "why": {"of": {"large": ["active", 0, 0, 0.1, 0.9], "small": ["active", 0, 0, 0.015, 0.7]}, "others": 0},
    }
    assert flags(told[fast]) == {"variant": "small", "found": "active", "met": True}
    assert "version" not in told[fast].flags
    assert (stage.route.stats.answered, stage.route.stats.met) == (2, 2)


def test_the_queue_counts_in_what_is_left_of_the_latency_unless_the_budget_is_static():
    for budget, last in (("remaining", "marked"), ("static", "active")):
        stage = Stage(budget=budget)
        asked = [stage.ask(accuracy=0.8, latency=0.25, within=0.25) for _ in range(4)]
        told = stage.answer()
        assert [told[each].flags["variant"] for each in asked] == ["large"] * 4
        assert [told[each].flags["found"] for each in asked] == ["active"] * 2 + [last] * 2


def test_a_query_that_takes_what_has_time_does_not_say_how_fast_that_must_be():
    stage = Stage()
    stage.route._loads = {"small": 5.0}
    stage.route._looked = NOW  # so the large one has time, though the small one is cheaper
    stage.ask(accuracy=0.5, latency="200ms", within=0.2)
    stage.ask(accuracy=0.8, latency="500ms", within=0.5)
    assert stage.route.stats.asked == {"large": 2}
    assert {model: list(told) for model, told in stage.route.latencies.items()} == {"b": [pytest.approx(0.5)]}
    alone = Stage(workers=("large",))
    alone.ask(accuracy=0.5, latency="200ms", within=0.2)
    assert list(alone.route.latencies["b"]) == [pytest.approx(0.2)]


def test_an_answer_after_the_deadline_or_of_another_accuracy_does_not_meet():
    stage = Stage(workers=("small",), on_miss="closest")
    inexact = stage.ask(accuracy=0.95)
    late = stage.ask(latency=0.5, within=0.5)
    told = stage.answer(NOW + 0.6)
    assert flags(told[inexact]) == {"variant": "small", "found": "closest", "met": False}
    assert flags(told[late]) == {"variant": "small", "found": "active", "met": False}


def test_a_query_waits_for_a_variant_to_be_loaded_and_is_asked_anew_when_it_is():
    stage = Stage(workers=("small",), on_miss="wait")
    reporter = Reporter(stage.route, 0.0, {})
    waiting = stage.ask(model="b")
    assert stage.core.depth == 1
    assert not stage.runs
    assert stage.route.stats.unmet == {"large": 1}
    stage.attach("large", now=NOW + 0.1)
    assert flags(stage.answer(NOW + 0.2)[waiting]) == {"variant": "large", "found": "active", "met": True}
    assert stage.route.stats.found == {"loading": 1}  # it counts once
    report = reporter.report(1.0, {}, {}, [], {})
    assert (report.unmet, report.told["large"].load) == ({"large": 1.0}, 0.0)  # of the load, too


def test_a_query_that_waits_for_what_never_comes_fails_long_after_its_deadline():
    stage = Stage(workers=("small",), on_miss="wait")
    waiting = stage.ask(model="b")
    now = NOW
    while not stage.told and now < NOW + 60:
        now = stage.core.next_wake(now)
        stage.core.advance(now)
        stage.settle(now)
    assert {(request, loss.reason) for request, loss in stage.told} == {(waiting, "no-worker")}
    assert NOW + 21 <= now <= NOW + 23
    assert stage.core.depth == 0


def test_who_cannot_be_answered_is_refused_where_misses_fail():
    stage = Stage(workers=("small",), on_miss="fail")
    refused = stage.ask(accuracy=0.8, latency=0.2, within=0.2)
    told = stage.answer()
    assert told[refused].reason == "no-variant"
    assert "accuracy 0.8" in told[refused].text
    assert "policy" not in told[refused].text  # under naive as well, which drops nothing by itself
    answered = stage.ask(accuracy=0.6)
    assert flags(stage.answer()[answered])["variant"] == "small"


def test_a_query_that_its_variant_refuses_is_routed_once_more():
    stage = Stage(room=1)
    asked = [stage.ask(latency=0.9) for _ in range(8)]
    told = stage.answer()
    kinds = [told[each].flags["variant"] if not hasattr(told[each], "reason") else told[each].reason for each in asked]
    assert {"small", "large"} <= set(kinds)
    assert kinds[-1] == "lane-full"


def test_marks_of_a_controller_keep_queries_away_while_another_one_meets_them():
    stage = Stage()
    stage.route.note({"small": Status(marked=True)})
    first = stage.ask()
    assert flags(stage.answer()[first])["variant"] == "large"
    stage.route.note({})
    only = stage.ask(now=NOW + 2, latency=0.05)
    assert flags(stage.answer(NOW + 2)[only])["variant"] == "small"


def test_a_model_that_raises_fails_its_query_alone():
    stage = Stage(workers=("small",))
    failed = stage.ask(variant="small")
    (batch,) = stage.runs
    stage.runs.clear()
    stage.core.complete(NOW, batch, [Failed("model-raised", "boom")], 0.01)
    stage.settle(NOW)
    assert dict(stage.told)[failed].reason == "model-raised"


def test_a_lane_says_how_long_a_query_would_wait():
    stage = Stage(workers=("small",))
    waits = []
    for _ in range(7):
        waits.append(round(stage.lanes.waits(NOW)["small"], 4))
        stage.ask(variant="small", within=100)
    # The first runs alone, the next two form, and two more each 15 ms later.
    assert waits == [0.0, 0.01, 0.01, 0.025, 0.025, 0.04, 0.04]
    assert "large" not in stage.lanes.waits(NOW)


def test_a_section_makes_the_variants_that_are_selected_from():
    spec = VariantsSpec(app="x", of=OF)
    small, large = variants_of(spec)
    assert (small.app, small.price, small.latency, large.rate) == ("x", 1.0, 0.015, pytest.approx(10))


# What its controller is told.


def test_a_report_has_what_came_since_the_one_before():
    stage = Stage(on_miss="wait")
    reporter = Reporter(stage.route, 0.0, {"large": 1})
    for _ in range(4):
        stage.ask(latency=0.05)
    for seconds in (0.2, 0.5, 0.9):
        stage.ask(model="b", within=seconds)
    runs = [("small", 1, 0.02), ("small", 2, 0.03), ("small", 2, 0.015), ("large", 1, 0.3)]
    report = reporter.report(2.0, {"small": 2, "large": 1}, {"large": 3}, runs, {"small": 0.25})
    small, large = report.told["small"], report.told["large"]
    assert (small.ready, small.alive, small.died, small.load, small.wait) == (1, 2, 0, 2.0, 0.25)
    assert (small.batch, small.p50) == (2, pytest.approx(0.03))  # twice its profile
    assert (large.died, large.load, large.p50) == (2, 1.5, pytest.approx(0.3))
    assert report.unmet == {}
    assert report.slos == pytest.approx({("x", "a"): 1.0, ("x", "b"): 0.2})
    nothing = reporter.report(4.0, {}, {"large": 3}, [], {})
    assert (nothing.told["small"].load, nothing.told["large"].died, nothing.slos) == (0.0, 0, {})
    assert nothing.told["small"].p50 is None


def test_what_is_wanted_and_not_there_counts_once_and_is_remembered_while_it_is_waited_for():
    stage = Stage(workers=("small",), on_miss="wait")
    reporter = Reporter(stage.route, 0.0, {})
    stage.ask(model="b", within=30)
    assert reporter.report(2.0, {}, {}, [], {}).unmet == {"large": 0.5}
    assert reporter.report(3.0, {}, {}, [], {}).unmet == {}
    stage.core.advance(NOW + 1.5)
    assert reporter.report(4.0, {}, {}, [], {}).unmet == {"large": 1e-3}


def test_what_the_closest_answers_counts_for_what_was_wanted_if_that_is_another_architecture():
    stage = Stage(workers=("small",))
    reporter = Reporter(stage.route, 0.0, {})
    stage.ask(accuracy=0.8, latency=0.5, within=0.5)
    report = reporter.report(1.0, {}, {}, [], {})
    assert report.unmet == {"large": 1.0}
    assert report.slos == pytest.approx({("x", "b"): 0.5})
    assert flags(stage.answer()["q0"])["found"] == "closest"


def test_without_any_worker_a_query_still_says_what_it_wants():
    stage = Stage(workers=())
    waiting = stage.ask(model="b")
    assert stage.route.stats.unmet == {"large": 1}
    stage.core.advance(NOW + 1.5)
    assert stage.route.waiting == {"large"}
    stage.attach("large")
    assert flags(stage.answer()[waiting])["variant"] == "large"


def test_a_new_version_takes_what_waits_and_the_old_one_answers_what_it_runs():
    stage = Stage(workers=("small",), on_miss="wait")
    running, waiting = stage.ask(), stage.ask(accuracy=0.8, within=9)
    renewed = {"small-2": {**OF["small"], "version": "2"}, "large-2": OF["large"] | {"accuracy": 0.95}}
    section = VariantsSpec(app="x", of=renewed)
    for each in variants_of(section):
        stage.lanes.add(each.name, lane_of(each))
        stage.names.append(each.name)
    stage.attach("small-2")
    stage.attach("large-2")
    stage.route.replace(variants_of(section), {"small-2": "2"})
    stage.core.retire(NOW, ["small", "large"])
    stage.settle(NOW)
    third = stage.ask(latency=0.05)
    told = stage.answer(NOW + 0.1)
    assert {each: told[each].flags["variant"] for each in (running, waiting, third)} == {
        running: "small",
        waiting: "large-2",
        third: "small-2",
    }
    assert told[third].flags["version"] == "2"
    assert "version" not in told[running].flags
    assert stage.core.drain(NOW + 1, number_of(0, 0))
    stage.lanes.forget(0)
    assert set(stage.lanes.ready()) == {"small-2", "large-2"}


def test_a_query_that_asks_nothing_is_told_that_no_variant_runs():
    stage = Stage(workers=(), on_miss="fail")
    refused = stage.ask()
    assert dict(stage.told)[refused].text == "no variant of 'x' runs"


def test_a_query_that_waits_for_what_was_taken_back_is_refused():
    stage = Stage(workers=("small",), on_miss="wait")
    lost = stage.ask(variant="large", within=9)
    stage.route.replace(variants_of(VariantsSpec(app="x", of={"small": OF["small"]})), {})
    stage.core.retire(NOW, ["large"])
    stage.attach("small", worker=1)
    assert dict(stage.told)[lost].reason == "no-variant"


def test_what_no_other_variant_of_its_model_will_do_for_is_told_as_lacking():
    near = {"model": "m:N", "architecture": "a", "accuracy": 0.75, "takes": {1: 0.02}}
    stage = Stage(workers=("small",))
    stage.route.replace(variants_of(VariantsSpec(app="x", of={**OF, "near": near})), {})
    stage.ask(latency=0.05)
    stage.ask(model="b", within=9)
    assert stage.route.lacking == set()
    stage.ask(accuracy=0.72)
    assert stage.route.lacking == {"near"}
    report = Reporter(stage.route, NOW, {}).report(NOW + 2, {}, {}, [], {})
    assert (report.lacking, stage.route.lacking) == ({"near"}, set())
    stage.ask(variant="large", within=9)
    assert stage.route.lacking == {"large"}
