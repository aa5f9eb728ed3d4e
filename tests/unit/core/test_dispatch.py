"""A dispatch in virtual time: whatever fails, whoever answers first, each query settles once and with its own answer.

The model is linear over whole numbers, so it is its own parity model and made answers are exact: an answer that is made
of the wrong group, place or row shows as a wrong number.
"""

import heapq
import random

import numpy as np
import pytest

from spillway.agents.coding.codes import Sum
from spillway.agents.core.actions import DEFAULT, Ok
from spillway.agents.core.agreement import AGAIN, Agreement
from spillway.agents.core.cache import CacheStep, PredictionCache
from spillway.agents.core.deadlines import Deadlines, DefaultAnswer
from spillway.agents.core.dispatch import FLOOR, Dispatch
from spillway.agents.core.policy import StageState
from tests.unit.core.builders import NOW, delivery, stage_core, with_default

QUERIES = 60


def model(value):
    return 7 * value


class World:
    """A stage, its workers and its dispatch's, on a clock of its own; `random` decides who is slow and who dies."""

    code = Sum

    def __init__(self, seed, patience=1e6, policy="naive", default=False, holds=False, deaths=0, **dispatch):
        """`patience`: seconds that queries have at most; beside whole numbers `holds` marks what was made.

        `deaths`: of the front, at most.
        """
        self.random = random.Random(seed)
        draw = self.random.randint
        self.patience, self.holds = patience, holds
        self.deadlines, self.emitted = {}, {}
        self.rows = dispatch.get("rows", 1)
        self.width = dispatch.get("width", 1)
        self.workers, self.batch = draw(1, 4), draw(1, 3)
        self.arguments = {"policy": policy}, dispatch
        self.steps = default, holds
        self.now, self.events, self.number = NOW, [], 0
        self.answers = {}
        self.revoked = set()
        self.spare, self.recovered = 100, 0
        self.committed, self.front, self.delivered = {0: 0, 1: 0}, 0, []
        self.deaths = draw(0, deaths)
        self.start()

    def start(self):
        """A front and its workers; what the one before had in hand is gone."""
        core, dispatch = self.arguments
        default, holds = self.steps
        moments, self.default = Deadlines(), DefaultAnswer()
        self.dispatch = Dispatch(**dispatch, release=moments if holds else None)
        steps = [moments] * (default or holds) + [self.default] * default + [self.dispatch]
        self.core = stage_core("chain", "b", batch=self.batch, instances=self.workers, steps=steps, **core)
        for partition in {0, 1} - self.revoked:
            self.core.assign(partition, self.committed[partition])
        self.busy = {}  # worker -> what it runs, of the stage's own and of the dispatch's
        for row in range(self.rows):
            for worker in range(self.random.randint(0, 2)):
                self.attach_beside(row, worker)

    def attach_beside(self, row, worker):
        if self.dispatch.shared:
            self.core.attach(self.now, self.dispatch.number_of(row, worker))
        self.dispatch.attach(row, worker)

    def die(self):
        self.committed |= {partition: offset for partition, (offset, _) in self.core.commits().items()}
        self.recovered += self.dispatch.stats.recovered
        self.front += 1
        self.start()
        for n in self.delivered:
            if n // 2 >= self.committed[n % 2]:
                self.give(n)

    def later(self, seconds, what, *arguments, front=None):
        """`front`: the only one that this is for; None: whichever is there."""
        heapq.heappush(self.events, (self.now + seconds, self.number, front, what, arguments))
        self.number += 1

    def soon(self, seconds, what, *arguments):
        self.later(seconds, what, *arguments, front=self.front)

    def slow(self):
        return self.random.expovariate(1 / 0.02) * (20 if self.random.random() < 0.15 else 1)

    def deliver(self, n):
        self.delivered.append(n)
        self.deadlines[n] = self.now + self.patience * self.random.random()
        self.give(n)

    def give(self, n):
        if n % 2 not in self.revoked:
            made = delivery(str(n), n // 2, "a", payload=n + 1, partition=n % 2, deadline=self.deadlines[n])
            self.core.deliver(self.now, made)

    def complete(self, worker, batch):
        if self.busy.get(worker) is not batch:
            return
        del self.busy[worker]
        if self.random.random() < 0.1:
            self.core.lose(self.now, worker, (), (), "killed")
            if worker < 0:
                self.dispatch.lose(*self.dispatch.worker_of(worker))
            self.spare += 1
            self.soon(0.05, lambda worker=self.spare: self.core.attach(self.now, worker))
            return
        batch.outputs = [model(request.parts[0].payload) for request in batch.requests]
        self.core.complete(self.now, batch, [Ok({"c": value}) for value in batch.outputs], 0.01)

    def done(self, extra):
        if self.random.random() < 0.1:
            self.dispatch.lose(extra.row, extra.worker)
            if self.dispatch.shared:
                self.core.lose(self.now, self.dispatch.number_of(extra.row, extra.worker))
            self.spare += 1
            self.soon(0.05, self.attach_beside, extra.row, self.spare)
            return
        batches = extra.group.batches
        extra.outputs = []
        for place in range(max(len(batch.requests) for batch in batches)):
            asked = [batch.requests[place].parts[0].payload if place < len(batch.requests) else 0 for batch in batches]
            extra.outputs.append(model(self.encode([float(value) for value in asked], extra.row)))
        self.dispatch.done(self.now, extra)

    def encode(self, values, row):
        if len(values) == 1:
            return values[0]
        return self.code(len(values)).encode([{"x": np.array([value])} for value in values], row)["x"][0]

    def recover(self, recovery):
        group = recovery.group
        told = {place: [] for place in recovery.places}
        for n in range(max(len(batch.requests) for batch in group.batches)):
            answers = [
                None if batch.outputs is None else {"y": np.array([self.answer_at(batch, n)])}
                for batch in group.batches
            ]
            if None not in answers:
                return  # they have come meanwhile
            parities = {row: {"y": np.array([extra.outputs[n]])} for row, extra in group.rows.items()}
            solved = self.code(len(answers)).decode(answers, parities)
            for place in told.keys() & solved.keys():
                value = float(solved[place]["y"][0])
                value = round(value) if abs(value - round(value)) < 1e-6 else value  # of a solution of several rows
                told[place].append(("made", value) if self.holds else value)
        for place, values in told.items():
            if values:
                batch = group.batches[place]
                self.dispatch.recovered(self.now, batch, [Ok({"c": value}) for value in values[: len(batch.requests)]])

    def answer_at(self, batch, n):
        return float(batch.outputs[n]) if n < len(batch.outputs) else 0.0

    def pump(self):
        for batch in self.core.take_runs():
            self.busy[batch.worker] = batch
            self.soon(self.slow(), self.complete, batch.worker, batch)
        for extra in self.dispatch.take_extras(self.now):
            self.soon(self.slow(), self.done, extra)
        for recovery in self.dispatch.take_recoveries():
            self.soon(self.random.random() * 0.02, self.recover, recovery)
        for work, value in self.core.take_hits():
            self.soon(self.random.random() * 0.01, self.answer, work, value)
        for emit in self.core.take_emits():
            self.answers.setdefault(emit.request_id, []).append(emit.payload)
            self.emitted[int(emit.request_id)] = self.now
            self.soon(self.random.random() * 0.01, self.core.acked, emit)

    def answer(self, work, value):
        self.core.answered(self.now, [(work, Ok({"c": "default"}, value=value))])

    def play(self):
        for n in range(QUERIES):
            self.later(0.004 * n, self.deliver, n)
        if self.random.random() < 0.3:
            self.later(0.1, self.revoke)
        for _ in range(self.deaths):
            self.later(0.3 * self.random.random(), self.die)
        while self.events:
            self.now, _, front, what, arguments = heapq.heappop(self.events)
            if front not in (None, self.front):
                continue
            what(*arguments)
            self.core.advance(self.now)
            self.pump()
            wake = self.core.next_wake(self.now)
            if wake is not None and (not self.events or wake < self.events[0][0]):
                self.later(max(0.0, wake - self.now), bool)

    def revoke(self):
        self.revoked.add(1)
        self.core.revoke(self.now, 1)


KINDS = [
    {},
    {"quantile": 0.8},
    {"quantile": 0.5, "budget": 0.2, "room": 1},
    {"width": 2, "wait": 0.02},
    {"width": 3, "rows": 2, "wait": 0.05},
    {"width": 4, "rows": 1, "wait": 0.01, "room": 1},
    {"shared": True},
    {"width": 2, "wait": 0.02, "shared": True},
    {"width": 3, "rows": 2, "wait": 0.05, "shared": True},
]


def settled(world, seed):
    """How many answers were made, where every query has its own answer and nothing is left."""
    world.play()
    assert world.core.unsettled == 0
    for n in range(QUERIES):
        got = world.answers.get(str(n), [])
        assert set(got) == {model(n + 1)} or (not got and n % 2 in world.revoked), (seed, n)
        assert len(got) <= 1 + world.front, (seed, n)  # the gate drops what a front before has emitted
    world.committed |= {partition: offset for partition, (offset, _) in world.core.commits().items()}
    assert world.committed[0] == QUERIES // 2
    assert not world.dispatch._of
    return world.recovered + world.dispatch.stats.recovered


@pytest.mark.parametrize("seeds", [range(30), pytest.param(range(30, 200), marks=pytest.mark.nightly)], ids=len)
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_each_query_settles_once_and_with_its_own_answer(kind, seeds):
    recovered = 0
    for seed in seeds:
        world = World(seed, deaths=2, **kind)
        recovered += settled(world, seed)
        stats = world.dispatch.stats
        assert stats.started <= kind.get("budget", 1.0) * stats.batches * world.rows
    assert recovered > 0


class OtherRow(Sum):
    """Decodes a row as the next."""

    def decode(self, answers, parities):
        return super().decode(answers, {row + 1: answer for row, answer in parities.items()})


class OtherSlot(Sum):
    def encode(self, queries, row):
        return super().encode([*queries[1:], queries[0]], row)


class OtherAnswer(Sum):
    def decode(self, answers, parities):
        solved = super().decode(answers, parities)
        return dict(zip(solved, reversed(solved.values()), strict=True))


class OtherGroup(World):
    """A driver that takes the rows of the group before."""

    kept = None

    def recover(self, recovery):
        rows, kept = recovery.group.rows, self.kept
        self.kept = rows
        if kept and rows.keys() <= kept.keys() and all(len(kept[n].outputs) >= len(rows[n].outputs) for n in rows):
            recovery.group.rows = kept
        super().recover(recovery)


class OtherPlace(World):
    """A driver that takes the answer to another query of the batch."""

    def answer_at(self, batch, n):
        return float(batch.outputs[(n + 1) % len(batch.outputs)])


def play_all(world):
    for seed in range(30):
        settled(world(seed, width=3, rows=2, wait=0.05), seed)


@pytest.mark.parametrize("wrong", [OtherRow, OtherSlot, OtherAnswer, OtherGroup, OtherPlace])
def test_any_mix_up_shows(wrong, monkeypatch):
    if not issubclass(wrong, World):
        monkeypatch.setattr(World, "code", wrong)
    with pytest.raises(AssertionError):
        play_all(wrong if issubclass(wrong, World) else World)


EARLY = 0.009  # seconds by which a last moment may come before the deadline
LAST = [
    {"default": True, "patience": 0.3},
    {"default": True, "patience": 0.3, "policy": "pard"},
    {"default": True, "holds": True, "patience": 0.5, "width": 2, "wait": 0.02},
    {"default": True, "holds": True, "patience": 0.3, "width": 3, "rows": 2, "wait": 0.02, "policy": "pard"},
    {"holds": True, "patience": 0.5, "width": 2, "wait": 0.02},
]


@pytest.mark.parametrize("kind", LAST, ids=str)
def test_at_its_last_moment_a_query_gets_what_there_is(kind):
    defaults = made = exact = 0
    for seed in range(40):
        world = World(seed, **kind)
        world.play()
        assert world.core.unsettled == 0
        for n in range(QUERIES):
            got = world.answers.get(str(n), [])
            if n % 2 in world.revoked and not got:
                continue
            (answer,) = got
            at, deadline = world.emitted[n], world.deadlines[n]
            if answer == "default":
                assert kind.get("default")
                assert kind.get("policy") or at >= deadline - EARLY, (seed, n)
                defaults += 1
            elif answer == ("made", model(n + 1)):
                assert kind.get("policy") or at >= deadline - EARLY, (seed, n)
                made += 1
            else:
                assert answer == model(n + 1), (seed, n)
                exact += 1
            if kind.get("default"):  # nothing is waited for beyond
                assert at <= deadline + 0.011, (seed, n)
        assert not world.core.load().queued
        assert len(world.core.take_hits()) == 0
        assert world.default.given <= defaults
    assert exact > 0
    assert bool(defaults) == bool(kind.get("default"))
    assert bool(made) == bool(kind.get("holds"))


def test_a_default_comes_earlier_by_what_lies_behind_the_stage():
    core = stage_core("chain", "b", steps=with_default())
    heard = {"c": [StageState("c", 0, NOW, duration=0.2)], "gate": [StageState("gate", 0, NOW, hops=[0.05] * 9)]}
    core.deliver(NOW, delivery("1", 0, "a"))
    core.tick(NOW + 0.1, heard)
    wake = core.next_wake(NOW + 0.1)
    core.advance(wake - 1e-6)
    assert core.take_hits() == []
    core.advance(wake)
    ((work, value),) = core.take_hits()
    assert (work.request_id, value) == ("1", DEFAULT)
    assert wake == pytest.approx(NOW + 1 - 0.05 - 0.005)


def test_followers_of_a_cached_query_have_last_moments_of_their_own():
    cache = PredictionCache(10_000)
    default = DefaultAnswer()
    steps = [Deadlines(), default, CacheStep(cache, lambda _work: b"same")]
    core = stage_core("chain", "b", steps=steps)
    for n, within in enumerate((1.0, 2.0, 3.0)):
        core.deliver(NOW, delivery(str(n), n, "a", deadline=NOW + within))
    (batch,) = core.take_runs()
    emits = []
    for now in (NOW + 1, NOW + 2):
        core.advance(now)
        hits = core.take_hits()
        core.answered(now, [(work, Ok({"c": "default"}, value=value)) for work, value in hits])
        emits += core.take_emits()
    assert [(emit.request_id, emit.payload) for emit in emits] == [("0", "default"), ("1", "default")]
    assert len(cache) == 0
    core.complete(NOW + 2.5, batch, [Ok({"c": "exact"}, value="v", size=1)], 2.5)
    ((work, value),) = core.take_hits()
    assert (work.request_id, value, len(cache)) == ("2", "v", 1)
    core.answered(NOW + 2.5, [(work, Ok({"c": "exact"}))])
    assert [emit.payload for emit in core.take_emits()] == ["exact"]
    assert default.given == 2


def dispatching(width, workers, **more):
    """A dispatch with a worker of its own, or of its stage's."""
    dispatch = Dispatch(width=width, **more)
    core = stage_core("chain", "b", instances=workers, steps=[dispatch])
    if dispatch.shared:
        core.attach(NOW, dispatch.number_of(0, 0))
    dispatch.attach(0, 0)
    return dispatch, core


def started(width, batches, workers, **more):
    """One with this many batches under way, on these workers."""
    dispatch, core = dispatching(width, workers, **more)
    for n in range(batches):
        core.deliver(NOW, delivery(str(n), n, "a"))
    return dispatch, core, core.take_runs()


def test_a_group_that_waits_too_long_is_coded_as_it_is():
    dispatch, core, (batch,) = started(3, 1, 1, wait=0.2)
    assert (dispatch.take_extras(NOW), core.next_wake(NOW)) == ([], NOW + 0.2)
    core.advance(NOW + 0.2)
    (extra,) = dispatch.take_extras(NOW)
    dispatch.done(NOW, extra)
    (recovery,) = dispatch.take_recoveries()
    assert (recovery.group.batches, recovery.places) == ([batch], (0,))


def test_an_extra_whose_group_is_answered_is_given_up():
    dispatch, core, batches = started(2, 2, 2)
    for batch in batches:
        core.complete(NOW, batch, [Ok({"c": 0})], 0.01)
    assert dispatch.take_extras(NOW) == []


def test_only_slow_batches_are_copied():
    dispatch, core = dispatching(1, 1, quantile=0.9)
    now = NOW
    for n in range(30):
        core.deliver(now, delivery(str(n), n, "a", deadline=NOW + 1e6))
        (batch,) = core.take_runs()
        now += 0.01
        core.advance(now - 0.0001)
        core.complete(now, batch, [Ok({"c": 0})], 0.01)
    assert dispatch.take_extras(NOW) == []
    core.deliver(now, delivery("slow", 30, "a", deadline=NOW + 1e6))
    (batch,) = core.take_runs()
    core.advance(now + 0.0101)
    (extra,) = dispatch.take_extras(NOW)
    assert extra.group.batches == [batch]
    dispatch.done(NOW, extra)
    assert [recovery.places for recovery in dispatch.take_recoveries()] == [(0,)]
    dispatch.recovered(now + 0.02, batch, [Ok({"c": "copy"})])
    core.complete(now + 9, batch, [Ok({"c": "late"})], 9.0)
    assert [emit.payload for emit in core.take_emits()][-1] == "copy"


def test_a_worker_of_the_dispatch_that_drains_gets_nothing_more():
    dispatch, core, _ = started(1, 2, 2)
    (extra,) = dispatch.take_extras(NOW)
    assert not dispatch.drain(0, 0)
    dispatch.done(NOW, extra)
    assert (dispatch.take_extras(NOW), core.unsettled) == ([], 2)


def test_a_batch_goes_before_an_extra_on_a_shared_worker():
    dispatch, core, runs = started(2, 3, 2, shared=True)
    shared, batches = dispatch.number_of(0, 0), {batch.worker: batch for batch in runs}
    assert batches.keys() == {0, 1, shared}  # its own workers are busy
    assert dispatch.worker_of(shared) == (0, 0)
    assert dispatch.take_extras(NOW) == []
    core.complete(NOW, batches[shared], [Ok({"c": 0})], 0.01)
    (extra,) = dispatch.take_extras(NOW)
    core.deliver(NOW, delivery("3", 3, "a"))  # waits for a worker, as the shared one is lent
    assert core.take_runs() == []
    dispatch.done(NOW + 0.01, extra)
    assert [batch.worker for batch in core.take_runs()] == [shared]
    assert not core.lend(NOW, shared)


def test_a_shared_worker_that_is_lost_or_drains_while_it_is_lent_leaves_the_lane():
    for ends in (False, True):
        dispatch, core, _ = started(2, 2, 2, shared=True)
        (extra,) = dispatch.take_extras(NOW)
        if ends:
            core.lose(NOW, dispatch.number_of(0, 0))
            dispatch.lose(0, 0)
        else:
            assert not core.drain(NOW, dispatch.number_of(0, 0))
            assert not dispatch.drain(0, 0)
            dispatch.done(NOW, extra)
        core.deliver(NOW, delivery("2", 2, "a"))
        assert (core.take_runs(), core.workers) == ([], 2)


def test_made_answers_are_graded_and_too_bad_ones_suspend_the_code():
    agreement = Agreement(0.8)
    dispatch, core = dispatching(2, 2, agreement=agreement)
    numbers = iter(range(10_000))

    def group(now):
        for n in (next(numbers), next(numbers)):
            core.deliver(now, delivery(str(n), n, "a", deadline=NOW + 1e6))
        return core.take_runs(), dispatch.take_extras(NOW)

    def end(now, batch):
        core.complete(now, batch, [Ok({"c": 0})], 0.01)

    (slow, fast), (extra,) = group(NOW)
    end(NOW, fast)
    dispatch.done(NOW, extra)
    (recovery,) = dispatch.take_recoveries()
    assert dispatch.take_gradings() == []
    end(NOW, slow)
    assert dispatch.take_gradings() == [recovery]  # late, and so it grades what was made
    sampled = []
    for _ in range(40):
        batches, (extra,) = group(NOW)
        for batch in batches:
            end(NOW, batch)
        dispatch.done(NOW, extra)
        sampled += dispatch.take_gradings()
    assert {grading.places for grading in sampled} == {(0,), (1,)}
    assert len(sampled) == 5
    agreement.hear(39, 50)
    for now, extras in ((NOW + 1, 0), (NOW + AGAIN, 0), (NOW + AGAIN + 1, 1)):
        batches, given = group(now)
        assert (len(given), dispatch.paused) == (extras, "" if extras else FLOOR)
        for batch in batches:
            end(now, batch)
    assert (dispatch.stats.paused, agreement.pauses) == (2, 1)
