"""Offline queries beside a lane's queue: when they start, what they are not counted in, when they are handed back."""

import heapq
from dataclasses import asdict
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.core.batching import Batcher
from spillway.agents.core.durations import Estimate
from spillway.agents.core.limits import limits
from spillway.agents.core.offline import HELD_SECONDS, ROOM, UNSERVED_SECONDS
from spillway.agents.core.policies import make
from spillway.agents.core.policy import StageFacts, StageView
from spillway.lineage.reasons import NO_SPARE_TIME
from tests.unit.core.builders import NOW, request

POLICIES = ["naive", "expired", "pard", "spillway"]


def took(n):
    return 0.1 + 0.05 * n


class Lane:
    """A batcher in virtual time, whose batches take what the profile says."""

    def __init__(self, policy="naive", most=3, delay=0.0, workers=1, limit=None):
        facts = {"s": StageFacts(most, took, workers)}
        view = StageView("s", instances=workers, slo=1.0, facts=facts, successors={"s": ()})
        self.batcher = Batcher(make(policy, view), most, delay, workers, Estimate(took), limit)
        self.ends = []
        self.numbers = count()
        self.starts = []
        self.dropped = []

    def at(self, now):
        """Do what happens until `now`."""
        while True:
            wake = self.batcher.next_wake(-1.0)
            end = self.ends[0][0] if self.ends else float("inf")
            soonest = min(end, float("inf") if wake is None else max(wake, 0.0))
            if soonest > now:
                return
            if end <= soonest:
                batch = heapq.heappop(self.ends)[2]
                self.batcher.complete(end, batch.worker, end - batch.started)
                self.gather()
            else:
                self.batcher.advance(soonest)
                self.gather()

    def push(self, now, *, offline=False, budget=60.0):
        self.at(now)
        made = request(sent=now, within=budget, offline=offline)
        self.batcher.push(now, made)
        self.gather()
        return made

    def gather(self):
        for batch in self.batcher.starts:
            waiting = len(self.batcher.policy) + sum(len(slot.forming) for slot in self.batcher._workers.values())
            assert not batch.offline or not waiting or [each.deaths > 0 for each in batch.requests] == [True]
            assert {each.offline for each in batch.requests} == {batch.offline}
            self.starts.append(batch)
            heapq.heappush(self.ends, (batch.started + took(len(batch.requests)), next(self.numbers), batch))
        self.batcher.starts.clear()
        self.dropped += self.batcher.drops
        self.batcher.drops.clear()


def report(lane, now):
    state = lane.batcher.report(now)
    return None if state is None else asdict(state) | {"waits": list(state.waits)}


ARRIVALS = st.lists(st.tuples(st.sampled_from([0.0, 0.01, 0.1, 0.3, 1.0]), st.booleans()), min_size=1, max_size=60)


@pytest.mark.parametrize("policy", POLICIES)
@given(arrivals=ARRIVALS, most=st.integers(1, 4), delay=st.sampled_from([0.0, 0.05]), workers=st.integers(1, 3))
def test_no_offline_batch_starts_while_an_online_query_waits(policy, arrivals, most, delay, workers):
    lane, now, online = Lane(policy, most, delay, workers), NOW, []
    for gap, offline in arrivals:
        now += gap
        made = lane.push(now, offline=offline)  # `gather` looks at every start
        online += [] if offline else [made]
    lane.at(now + 100.0)
    refused = {id(each) for each, _ in lane.dropped}
    batches = [batch for batch in lane.starts if batch.offline]
    for each in online:
        if id(each) not in refused:
            between = [b for b in batches if each.arrived < b.started < each.started]
            assert not between  # so it waits for none but those under way when it came
    assert not lane.batcher.offline.waiting


@pytest.mark.parametrize("policy", POLICIES)
@given(gaps=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 7)), min_size=1, max_size=12), adaptive=st.booleans())
def test_what_policies_and_scalers_hear_is_the_same_with_and_without_them(policy, gaps, adaptive):
    alone, beside = (Lane(policy, limit=limits("aimd", 0.2, 8) if adaptive else None) for _ in range(2))
    now = NOW
    for online, offline in gaps:
        for lane in (alone, beside):
            for _ in range(online):
                lane.push(now, budget=5.0)
            lane.at(now + 5.0)
        for _ in range(offline):
            beside.push(now + 5.0, offline=True)
        now += 10.0
        for lane in (alone, beside):
            lane.at(now)
            lane.batcher.tick(now, {})
        assert alone.batcher.load() == beside.batcher.load()
        assert report(alone, now) == report(beside, now)
        assert (alone.batcher.depth, alone.batcher.limit) == (beside.batcher.depth, beside.batcher.limit)
    assert beside.batcher.offline.completed == sum(offline for _, offline in gaps)


@pytest.mark.parametrize("policy", POLICIES)
def test_what_waits_is_no_load_and_takes_no_room(policy):
    lane = Lane(policy, most=1)
    lane.push(NOW)
    before = lane.batcher.load(), lane.batcher.depth
    for _ in range(20):
        lane.push(NOW, offline=True, budget=-1.0)
    assert (lane.batcher.load(), lane.batcher.depth) == before
    assert lane.batcher.aside == 20
    assert not lane.dropped  # though their deadline is over


def test_one_that_finds_no_spare_time_is_handed_back_and_not_counted_as_dropped():
    lane = Lane(workers=0)
    made = lane.push(NOW, offline=True)
    assert lane.batcher.next_wake(NOW) == NOW + HELD_SECONDS
    lane.at(NOW + HELD_SECONDS + 0.1)
    assert [(each, refusal.reason) for each, refusal in lane.dropped] == [(made, NO_SPARE_TIME)]
    assert lane.batcher.load().dropped == 0


def test_one_that_finds_no_room_is_handed_back_at_once():
    lane = Lane(workers=0)
    for _ in range(ROOM + 1):
        lane.push(NOW, offline=True)
    assert [refusal.reason for _, refusal in lane.dropped] == [NO_SPARE_TIME]


def test_a_lost_worker_s_queries_wait_again_before_the_others_and_are_not_handed_back():
    lane = Lane(most=2)
    for _ in range(3):
        lane.push(NOW, offline=True)
    lost = lane.batcher.lose(NOW + 1.0, 0)
    assert lost.offline
    assert len(lost.requests) == 1  # the first found an idle worker
    for each in lost.requests:
        each.deaths += 1
    lane.batcher.requeue(NOW + 1.0, lost.requests)
    lane.ends.clear()
    lane.at(NOW + HELD_SECONDS + 5.0)
    assert len(lane.dropped) == 2
    assert list(lane.batcher.offline.waiting) == lost.requests
    assert lane.batcher.load().running == 0
    lane.batcher.attach(NOW + 20.0, 7)
    lane.gather()
    assert lane.starts[-1].requests == lost.requests


def test_what_is_removed_is_given_and_counts_for_nothing():
    lane = Lane(workers=0)
    made = [lane.push(NOW, offline=True), lane.push(NOW)]
    assert lane.batcher.remove(NOW, lambda _: True) == made[::-1]
    assert lane.batcher.depth == 0
    assert not lane.batcher.aside


@pytest.mark.parametrize("policy", POLICIES)
@given(offline=st.integers(1, 6), most=st.integers(1, 4), workers=st.integers(1, 3), delay=st.sampled_from([0.0, 0.05]))
def test_one_whose_worker_died_runs_again_alone_within_a_bound_however_much_online_ones_ask(
    policy, offline, most, workers, delay
):
    lane = Lane(policy, most, delay, workers)
    queries = [lane.push(NOW, offline=True) for _ in range(offline)]
    now = NOW
    for _ in range(2):  # as many deaths as it survives
        died = next(batch for _, _, batch in sorted(lane.ends) if batch.offline)
        lane.ends = [each for each in lane.ends if each[2] is not died]
        heapq.heapify(lane.ends)
        lane.batcher.lose(now, died.worker)
        for each in died.requests:
            each.deaths += 1
        lane.starts.clear()
        lane.batcher.requeue(now, died.requests)
        lane.batcher.attach(now, 100 + next(lane.numbers))
        lane.gather()
        end = now + HELD_SECONDS + 3 * (offline + 1) * (took(most) + delay)
        while now < end and not any(
            set(map(id, died.requests)) & set(map(id, batch.requests)) for batch in lane.starts
        ):
            now += took(most) / (4 * workers * most)  # more than they can do
            lane.push(now, budget=1e9)
        again = [batch for batch in lane.starts if set(map(id, died.requests)) & set(map(id, batch.requests))]
        assert again
        assert all(len(batch.requests) == 1 for batch in again)
    lane.at(now + 10_000)
    assert not lane.batcher.offline.waiting
    assert not [each for each, _ in lane.dropped if each.deaths]
    assert len(queries) == offline


@given(workers=st.integers(1, 2), deaths=st.integers(1, 2))
def test_one_whose_worker_died_is_handed_back_where_no_other_comes(workers, deaths):
    lane = Lane(workers=workers)
    query = lane.push(NOW, offline=True)
    for number in range(workers):
        lane.batcher.lose(NOW, number)
    query.deaths = deaths
    lane.ends.clear()
    lane.batcher.requeue(NOW, [query])
    lane.at(NOW + UNSERVED_SECONDS - 1)
    assert not lane.dropped
    lane.at(NOW + UNSERVED_SECONDS)
    assert [(each, why.reason) for each, why in lane.dropped] == [(query, NO_SPARE_TIME)]
