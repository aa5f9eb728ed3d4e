"""An ensemble in virtual time: whoever dies, raises, is full or late, each query settles once and nothing lingers."""

import heapq
import math
import random

import pytest

from spillway.agents.core.actions import DEFAULT, Failed, Ok
from spillway.agents.core.batching import Batcher
from spillway.agents.core.cache import PredictionCache
from spillway.agents.core.deadlines import Deadlines
from spillway.agents.core.laned_stage import LanedCore
from spillway.agents.core.lanes import Lanes, number_of, parts_of
from spillway.agents.core.policies import make
from spillway.agents.core.policy import StageView
from spillway.agents.core.routes.ensemble import Ensemble, Joint, Rules, Weights
from spillway.agents.learning.chosen import POLICIES
from tests.unit.core.builders import NOW, delivery, with_default
from tests.unit.core.shapes import SHAPES

QUERIES = 80
MEMBERS = ("linear", "forest", "cnn")


def batcher(policy="naive", batch=2):
    return Batcher(make(policy, StageView(stage="b")), batch, 0.0, 0)


def route(seed=0, selection="exp4", **options):
    policy = POLICIES[selection]()
    weights = Weights(policy.initial(MEMBERS), version=7)
    more = {name: options.pop(name) for name in ("learner", "answer") if name in options}
    return Ensemble(Rules(policy, **options), lambda *_: weights, random.Random(seed), **more)


def asks(request):
    return str(request.parts[0].payload).encode()


def laned(route, *, policy="naive", room=100, queue_limit=None, default=False, members=MEMBERS, cached=()):
    caches = {name: PredictionCache(10_000) for name in cached}
    lanes = Lanes({name: batcher(policy) for name in members}, route, room, caches, asks)
    steps = with_default() if default else [Deadlines()]
    core = LanedCore(SHAPES["chain"].graph(), "b", lanes, route, queue_limit=queue_limit or room, steps=steps)
    core.assign(0, 0)
    return core, lanes


class World:
    """A stage of three members on a clock of its own; `random` decides who is slow, raises and dies."""

    def __init__(
        self, seed, *, selection, wait=math.inf, policy="naive", patience=1e6, room=100, default=False, cached=()
    ):
        self.different = 12 if cached else QUERIES
        self.random = random.Random(seed)
        self.route = route(seed, selection, wait=wait, threshold=0.5 if default else 0.0)
        self.core, self.lanes = laned(self.route, policy=policy, room=room, default=default, cached=cached)
        self.core.assign(1, 0)
        self.patience, self.wait = patience, wait
        self.now, self.events, self.number = NOW, [], 0
        self.busy, self.emits, self.revoked, self.sent = {}, {}, set(), {}
        self.spare = 0
        self.kills = 0.1
        for lane in range(len(MEMBERS)):
            for _ in range(self.random.randint(1, 2)):
                self.later(self.random.choice((0.0, 0.1)), self.start, lane)

    def later(self, seconds, what, *arguments):
        heapq.heappush(self.events, (self.now + seconds, self.number, what, arguments))
        self.number += 1

    def start(self, lane):
        self.spare += 1
        self.core.attach(self.now, number_of(lane, self.spare))

    def deliver(self, n):
        partition = n % 2
        if partition not in self.revoked:
            self.sent[n] = self.now
            deadline = self.now + self.patience * self.random.random()
            made = delivery(str(n), n // 2, "a", payload=n % self.different, partition=partition, deadline=deadline)
            self.core.deliver(self.now, made)

    def complete(self, worker, batch):
        if self.busy.get(worker) is not batch:
            return
        del self.busy[worker]
        if self.random.random() < self.kills:
            places = range(len(batch.requests))
            self.core.lose(self.now, worker, (), places, "killed")
            self.later(self.random.choice((0.001, 0.2)), self.start, parts_of(worker)[0])
            return
        results = [self.result(request, parts_of(worker)[0]) for request in batch.requests]
        self.core.complete(self.now, batch, results, 0.01)

    def result(self, request, lane):
        if self.random.random() < 0.15:
            return Failed("model-raised", "no")
        return Ok({}, value=request.parts[0].payload if lane else -1)

    def pump(self):
        for batch in self.core.take_runs():
            assert batch.worker not in self.busy
            self.busy[batch.worker] = batch
            slow = 20 if self.random.random() < 0.1 else 1
            self.later(self.random.expovariate(1 / 0.01) * slow, self.complete, batch.worker, batch)
        for work, value in self.core.take_hits():
            self.later(self.random.random() * 0.01, self.answer, work, value)
        for emit in self.core.take_emits():
            self.emits.setdefault(int(emit.request_id), []).append(emit)
            self.later(self.random.random() * 0.01, self.core.acked, emit)

    def answer(self, work, value):
        if value is DEFAULT:
            made = Ok({"c": "default"}, value=DEFAULT)
        else:
            assert isinstance(value, Joint)
            self.check(int(work.request_id) % self.different, value)
            made = Ok({"c": "default" if value.declined else value.outputs["label"]}, flags=value.flags)
        self.core.answered(self.now, [(work, made)])

    def check(self, n, joint):
        told = joint.flags["members"]
        answers = {name: each["answer"] for name, each in told.items() if "answer" in each}
        assert answers
        assert all(answer == (-1 if name == "linear" else n) for name, answer in answers.items())
        assert all(0 < each["p"] <= 1 for each in told.values())
        agree = sum(answer == joint.outputs["label"] for answer in answers.values())
        assert joint.flags["confidence"] == pytest.approx(agree / len(told), abs=1e-5)

    def drain(self):
        """Let a random worker go, and another come."""
        lane = self.random.randrange(len(MEMBERS))
        found = [worker for worker in self.lanes._lanes[MEMBERS[lane]].batcher._workers if worker not in self.busy]
        if found:
            self.core.drain(self.now, found[0])
            self.later(0.05, self.start, lane)

    def revoke(self):
        self.revoked.add(1)
        self.core.revoke(self.now, 1)

    def play(self):
        for n in range(QUERIES):
            self.later(0.004 * n, self.deliver, n)
        self.later(0.15, self.drain)
        if self.random.random() < 0.3:
            self.later(0.1, self.revoke)
        while self.events:
            self.now, _, what, arguments = heapq.heappop(self.events)
            what(*arguments)
            self.core.advance(self.now)
            self.pump()
            assert self.core.depth >= 0
            wake = self.core.next_wake(self.now)
            if wake is not None and (not self.events or wake < self.events[0][0]):
                self.later(max(0.0, wake - self.now), bool)


KINDS = [
    {"selection": "exp4"},
    {"selection": "exp3"},
    {"selection": "thompson", "wait": 0.02},
    {"selection": "exp4", "wait": 0.02},
    {"selection": "exp4", "wait": 0.02, "room": 3},
    {"selection": "uniform", "room": 2},
    {"selection": "exp4", "wait": 0.05, "policy": "pard", "patience": 0.2},
    {"selection": "exp3", "policy": "pard", "patience": 0.2, "default": True},
    {"selection": "exp4", "patience": 0.1, "default": True},
    {"selection": "exp4", "cached": MEMBERS},
    {"selection": "exp4", "cached": ("cnn",), "wait": 0.02, "room": 3},
    {"selection": "exp3", "cached": MEMBERS, "policy": "pard", "patience": 0.2, "default": True},
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_each_query_settles_once_and_the_offsets_follow(kind):
    ends, late, partial, refused, hits, shared = set(), 0, 0, set(), 0, 0
    for seed in range(12):
        world = World(seed, **kind)
        world.play()
        core, lanes = world.core, world.lanes
        assert core.unsettled == core.depth == 0, seed
        assert not lanes._open, seed
        assert not lanes._idle, seed
        assert not lanes._dues, seed
        for lane in lanes._lanes.values():
            assert lane.batcher.depth == 0, seed
        for cache in lanes.caches().values():
            assert not cache._flights, seed
            hits, shared = hits + cache.hits, shared + cache.shared
        for n in range(QUERIES):
            emits = [emit for emit in world.emits.get(n, ()) if emit.kind.value != "dead-letter"]
            if n % 2 in world.revoked:
                assert len(emits) <= 1, (seed, n)
                continue
            (emit,) = emits
            ends.add("lost" if emit.lost else "default" if emit.payload == "default" else "answer")
            if not emit.lost and emit.payload != "default":
                assert emit.payload in (n % world.different, -1), (seed, n)
        assert {p: offset for p, (offset, _) in core.commits().items()}[0] == QUERIES // 2, seed
        late += world.route.stats.late
        partial += world.route.stats.partial
        refused |= {reason for _, reason in lanes.refused}
    assert "answer" in ends
    assert ("default" in ends) == kind.get("default", False)
    if kind["selection"] == "exp4":
        assert partial
    if kind.get("wait"):
        assert kind["selection"] != "exp4" or late
    if kind.get("cached"):
        assert 0 < shared < hits
    if kind.get("room"):
        assert "lane-full" in refused


def deliver(core, n, now=NOW, **more):
    core.deliver(now, delivery(str(n), n, "a", payload=n, **more))


def answer(core, runs, lane, value, now=NOW):
    """Have the lane's batch, of those in `runs`, answered."""
    (batch,) = [batch for batch in runs if parts_of(batch.worker)[0] == lane]
    core.complete(now, batch, [Ok({}, value=value)] * len(batch.requests), 0.001)
    return [hit for _, hit in core.take_hits()]


def started(core):
    for lane in range(3):
        core.attach(NOW, number_of(lane, 0))
    return core


def test_what_waits_in_a_lane_at_work_may_hold_its_partition_back():
    core, _lanes = laned(route())
    core.assign(1, 0)
    for name, partition in (("none", 0), ("first", 0), ("second", 1)):
        core.deliver(NOW, delivery(name, 0 if name != "first" else 1, "a", payload=1, partition=partition))
        if name == "none":
            assert core.waits() == {0}  # for a worker
            core.attach(NOW, number_of(0, 0))
    (batch,) = core.take_runs()
    assert core.waits() == {0, 1}
    while batch is not None:
        core.complete(NOW, batch, [Ok({}, value=1) for _ in batch.requests], 0.01)
        batch = next(iter(core.take_runs()), None)
    assert core.waits() == frozenset()


def test_after_wait_what_has_come_is_combined():
    core = started(laned(route(wait=0.02, learner="b-weights"))[0])
    deliver(core, 0)
    runs = core.take_runs()
    assert len(runs) == 3
    assert answer(core, runs, 0, "cat", NOW + 0.01) == []
    assert core.next_wake(NOW + 0.01) == pytest.approx(NOW + 0.02)
    core.advance(NOW + 0.02)
    ((_, joint),) = core.take_hits()
    assert joint.outputs == {"label": "cat"}
    assert joint.flags == {
        "members": {"linear": {"p": 1.0, "answer": "cat"}, "forest": {"p": 1.0}, "cnn": {"p": 1.0}},
        "confidence": 0.333333,
        "request": "0",
        "keys": {"b-weights": "all"},
        "versions": {"b-weights": 7},
    }
    assert answer(core, runs, 1, "dog", NOW + 0.03) == []


def test_of_answers_that_weigh_the_same_the_first_named_counts_whoever_came_first():
    core = started(laned(route())[0])
    deliver(core, 0)
    runs = core.take_runs()
    (joint,) = [joint for lane, label in ((2, "c"), (1, "b"), (0, "a")) for joint in answer(core, runs, lane, label)]
    assert joint.outputs == {"label": "a"}


def test_with_no_answer_after_wait_the_first_is_taken():
    core = started(laned(route(wait=0.02))[0])
    deliver(core, 0)
    runs = core.take_runs()
    core.advance(NOW + 0.02)
    assert core.take_hits() == []
    (joint,) = answer(core, runs, 2, "dog", NOW + 0.05)
    assert joint.outputs == {"label": "dog"}


def test_the_last_moment_ends_the_wait_for_others():
    core = started(laned(route())[0])
    deliver(core, 0, deadline=NOW + 0.5)
    answer(core, core.take_runs(), 0, "cat", NOW + 0.1)
    assert core.next_wake(NOW + 0.1) == pytest.approx(NOW + 0.5, abs=0.01)
    core.advance(NOW + 0.5)
    ((_, joint),) = core.take_hits()
    assert joint.outputs == {"label": "cat"}


def test_a_member_that_is_down_is_not_drawn_and_a_full_one_stops_nothing():
    core, lanes = laned(route(selection="uniform"), room=2, queue_limit=100)
    core.attach(NOW, number_of(1, 0))
    for n in range(10):
        deliver(core, n)
    assert lanes.ready() == {"linear": 0, "forest": 1, "cnn": 0}
    assert not core.room  # its only lane is full
    assert lanes.refused == {("forest", "lane-full"): 7}
    assert {emit.loss.reason for emit in core.take_emits()} == {"lane-full"}
    core.attach(NOW, number_of(0, 0))
    assert core.room
    for n in range(10, 13):
        deliver(core, n)
    assert core.take_emits() == []  # the other lane has taken them
    assert {parts_of(batch.worker)[0] for batch in core.take_runs()} == {0, 1}


def test_a_query_that_a_lane_died_of_is_not_asked_there_again():
    core, lanes = laned(route(), members=("linear",))
    core.attach(NOW, number_of(0, 0))
    core.deliver(NOW, delivery("0", 0, "a"))
    for death in range(3):
        (batch,) = core.take_runs()
        core.lose(NOW, batch.worker, [], [0], "it died")  # the only worker of the lane, which serves nobody then
        core.attach(NOW, number_of(0, death + 1))
    assert core.take_runs() == []
    assert {emit.loss.reason for emit in core.take_emits()} == {"model-died"}
    assert not lanes.depth


def test_a_member_that_was_lost_and_is_back_is_asked_again_where_the_others_are_lost():
    core, lanes = laned(route(), members=("linear", "forest"))
    core.attach(NOW, number_of(0, 0))
    core.attach(NOW, number_of(1, 0))
    deliver(core, 0)
    assert len(core.take_runs()) == 2
    core.lose(NOW + 0.1, number_of(0, 0))
    core.attach(NOW + 0.2, number_of(0, 1))
    core.lose(NOW + 0.3, number_of(1, 0))
    assert core.take_emits() == []
    (hit,) = answer(core, core.take_runs(), 0, "dog", NOW + 0.4)
    assert hit.outputs == {"label": "dog"}
    assert lanes.under_way == 0


def test_below_the_threshold_the_default_is_the_answer():
    core = started(laned(route(threshold=0.6), default=True)[0])
    deliver(core, 0)
    runs = core.take_runs()
    hits = [answer(core, runs, lane, label) for lane, label in enumerate("abc")]
    assert [len(each) for each in hits] == [0, 0, 1]
    assert hits[2][0].declined
    assert core._route.stats.declined == 1


def test_scores_are_averaged_and_a_missing_one_is_its_mean():
    ensemble = route(missing="own_mean")
    core = started(laned(ensemble)[0])
    for n, third in enumerate((3.0, None)):
        deliver(core, n)
        runs = core.take_runs()
        answer(core, runs, 0, 1.0)
        hits = answer(core, runs, 1, 2.0)
        if third is None:
            (batch,) = [batch for batch in runs if parts_of(batch.worker)[0] == 2]
            core.complete(NOW, batch, [Failed("model-raised")], 0.001)
            hits = [hit for _, hit in core.take_hits()]
        else:
            hits = answer(core, runs, 2, third)
        assert hits[0].outputs == {"label": 2.0}
    assert hits[0].flags["confidence"] == pytest.approx(1 / 3, abs=1e-5)


def test_lanes_come_and_go_while_it_serves():
    core, lanes = laned(route(), members=("linear", "forest"))
    core.attach(NOW, number_of(0, 0))
    deliver(core, 0)
    number = lanes.add("tree", batcher())
    core.attach(NOW, number_of(number, 0))
    deliver(core, 1)
    runs = core.take_runs()
    assert [parts_of(batch.worker)[0] for batch in runs] == [0, number]
    lane = lanes.retire(NOW, "linear", finishes=True)
    deliver(core, 2)  # comes too late for linear
    assert answer(core, runs, 0, "cat")  # the first query was at its worker
    assert not answer(core, runs, number, "dog")
    assert not lane.finished
    runs = core.take_runs()  # the second one waited there
    (joint,) = answer(core, runs, 0, "cat")
    assert joint.flags["members"] == {"linear": {"p": 1.0, "answer": "cat"}, "tree": {"p": 1.0, "answer": "dog"}}
    assert lane.finished
    assert core.drain(NOW, number_of(0, 0))
    lanes.forget(0)
    (joint,) = answer(core, runs, number, "dog")
    assert list(joint.flags["members"]) == ["tree"]


def test_a_lane_that_is_retired_and_loses_its_workers_leaves_what_waits_to_the_others():
    core, lanes = laned(route(selection="uniform"), members=("linear",))
    core.attach(NOW, number_of(0, 0))
    for n in range(3):
        deliver(core, n)
    runs = core.take_runs()
    core.attach(NOW, number_of(lanes.add("tree", batcher()), 0))
    lane = lanes.retire(NOW, "linear", finishes=True)
    core.lose(NOW, number_of(0, 0), [], [], "it died")
    assert lane.finished
    lanes.forget(0)
    hits = []
    while runs := core.take_runs():
        for batch in runs:
            core.complete(NOW, batch, [Ok({}, value="dog")] * len(batch.requests), 0.001)
        hits += core.take_hits()
    assert [list(joint.flags["members"]) for _, joint in hits] == [["tree"]] * 3


def test_a_query_keeps_the_rules_under_which_it_came():
    ensemble = route(wait=5.0, told={"epoch": 1}, learner="b-weights")
    core = started(laned(ensemble)[0])
    deliver(core, 0)
    first = core.take_runs()
    ensemble.change(Rules(POLICIES["exp4"](), wait=0.1, told={"epoch": 2}))
    deliver(core, 1)
    assert answer(core, first, 0, "cat") == []
    assert answer(core, core.take_runs(), 0, "cat", NOW + 0.05) == []
    core.advance(NOW + 0.1)  # the second one's wait is over, and not that of the first
    ((work, joint),) = core.take_hits()
    assert (work.request_id, joint.flags["rules"]) == ("1", {"epoch": 2})
    assert answer(core, first, 1, "cat", NOW + 0.2) == []
    (joint,) = answer(core, first, 2, "cat", NOW + 0.2)
    assert joint.flags["rules"] == {"epoch": 1}
