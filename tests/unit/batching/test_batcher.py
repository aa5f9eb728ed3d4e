"""Hand-worked cases of batch forming. A batch of n takes 10 + n unless a test says otherwise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.core.batching import Batcher
from spillway.agents.core.durations import Estimate
from spillway.agents.core.policies import make
from spillway.agents.core.policies.fifo import Fifo
from spillway.agents.core.policy import Refusal, StageState, StageView
from spillway.agents.core.request import Delivery, Request
from spillway.agents.core.workers import BATCH_BYTES
from tests.unit.core.builders import request


def names(requests):
    return [each.request_id for each in requests]


def batcher(batch=3, delay=0.0, workers=1, policy="naive", duration=lambda n: 10.0 + n):
    return Batcher(make(policy, StageView("stage")), batch, delay, workers, duration)


def drain(made: Batcher):
    """The batches started since the last call, as (instance, names, started, expected end)."""
    found = [(b.worker, names(b.requests), b.started, b.expected_end) for b in made.starts]
    made.starts.clear()
    return found


def push(made: Batcher, now: float, *ids: str, **more) -> None:
    for name in ids:
        made.push(now, request(name, **more))


def test_entered_and_started_are_noted():
    made = batcher(batch=2)
    push(made, 0.0, "a", "b", "c")
    push(made, 3.0, "d")  # the forming batch is full: b, c
    made.complete(11.0, 0)
    first, second = made.starts
    assert [(each.entered, each.started) for each in first.requests] == [(0.0, 0.0)]
    assert [(each.entered, each.started) for each in second.requests] == [(0.0, 11.0), (0.0, 11.0)]
    made.complete(23.0, 0)
    (last,) = made.starts[2:]
    assert [(each.request_id, each.entered, each.started) for each in last.requests] == [("d", 11.0, 23.0)]


def test_an_instance_that_ends_early_takes_over_what_forms_for_one_that_still_runs():
    made = batcher(batch=2, workers=2)
    push(made, 0.0, "a")  # until 11, as expected
    push(made, 1.0, "b")  # until 12, as expected
    push(made, 2.0, "c")  # behind a
    made.complete(3.0, 1, executed=2.0)
    assert drain(made)[2:] == [(1, ["c"], 3.0, 14.0)]
    push(made, 4.0, "d")  # behind a again, which still ends first
    made.complete(11.0, 0)
    assert drain(made) == [(0, ["d"], 11.0, 22.0)]


def test_a_batching_delay_waits_for_more_until_it_is_over():
    made = batcher(delay=5.0)
    push(made, 0.0, "a")
    push(made, 3.0, "b")
    assert not made.starts
    assert made.next_wake(3.0) == 5.0
    made.advance(4.9)
    assert not made.starts
    made.advance(5.0)
    assert drain(made) == [(0, ["a", "b"], 5.0, 17.0)]
    assert made.next_wake(5.0) is None


def test_a_delay_that_is_not_over_when_the_instance_gets_free_is_waited_out():
    made = batcher(delay=5.0)
    push(made, 0.0, "a")
    made.advance(5.0)  # runs until 16
    push(made, 14.0, "b")
    made.complete(16.0, 0)
    assert made.next_wake(16.0) == 19.0
    made.advance(19.0)
    assert drain(made)[1] == (0, ["b"], 19.0, 30.0)
    push(made, 20.0, "c")
    made.complete(30.0, 0)
    assert drain(made) == [(0, ["c"], 30.0, 41.0)]


def test_idle_instances_do_not_split_what_waits_for_a_delay():
    made = batcher(batch=2, delay=5.0, workers=2)
    push(made, 0.0, "a")
    push(made, 1.0, "b")
    assert drain(made) == [(0, ["a", "b"], 1.0, 13.0)]
    push(made, 2.0, "c")
    assert made.next_wake(2.0) == 7.0
    made.advance(7.0)
    assert drain(made) == [(1, ["c"], 7.0, 18.0)]


class Listening(Fifo):
    """Notes every decision it is asked for; refuses names with an x; drops names with an o after 50 s of waiting."""

    __slots__ = ("asked", "heard")

    def __init__(self, view: StageView) -> None:
        super().__init__(view)
        self.asked: list[tuple[str, float, float]] = []
        self.heard = {}

    def judge(self, now, starts, request):
        self.asked.append((request.request_id, now, starts))
        return Refusal("no") if "x" in request.request_id else None

    def expire(self, now, drops):
        for gone in self.remove(lambda each: "o" in each.request_id and each.arrived + 50 <= now):
            drops.append((gone, Refusal("old")))

    def next_expiry(self):
        return min((each.arrived + 50 for each in self._waiting if "o" in each.request_id), default=None)

    def report(self, now, load):
        return StageState("stage", 0, now, backlog=load.queued + load.forming)

    def tick(self, now, load, states):
        self.heard = states


def test_with_a_delay_the_expected_start_is_its_end_or_now_for_the_one_that_fills_the_batch():
    policy = Listening(StageView("stage"))
    made = Batcher(policy, 2, 5.0, 1, lambda n: 10.0 + n)
    push(made, 1.0, "a")
    push(made, 2.0, "b")  # starts at 2, until 14
    push(made, 12.0, "c")  # opened at 12: starts at 17, not at 14
    push(made, 13.0, "d")  # fills it: starts when the instance is free
    assert policy.asked == [("a", 1.0, 6.0), ("b", 2.0, 2.0), ("c", 12.0, 17.0), ("d", 13.0, 14.0)]


def test_an_overdue_batch_is_expected_to_end_now():
    policy = Listening(StageView("stage"))
    made = Batcher(policy, 2, 0.0, 1, lambda n: 10.0 + n)
    push(made, 0.0, "a")
    push(made, 40.0, "b")
    assert policy.asked[-1] == ("b", 40.0, 40.0)


def test_what_is_never_popped_expires():
    made = Batcher(Listening(StageView("stage")), 1, 0.0, 1, lambda n: 100.0)
    push(made, 0.0, "a", "b", "o")
    assert made.next_wake(0.0) == 50.0
    made.advance(50.0)
    assert [(each.request_id, refusal.reason) for each, refusal in made.drops] == [("o", "old")]
    assert made.next_wake(50.0) is None
    assert made.depth == 1


def test_states_pass_through_to_the_policy():
    policy = Listening(StageView("stage"))
    made = Batcher(policy, 1, 0.0, 1, lambda n: 100.0)
    push(made, 0.0, "a", "b", "c")
    state = made.report(1.0)
    assert state is not None
    assert state.backlog == 2
    made.tick(1.0, {"stage": [state]})
    assert policy.heard == {"stage": [state]}
    assert made.reports
    assert not batcher().reports


def test_a_revoked_partition_leaves_the_queue_and_the_forming_batches_and_others_take_the_room():
    made = batcher(batch=2)
    push(made, 0.0, "a")
    push(made, 0.0, "p1", partition=1)
    push(made, 0.0, "b")
    push(made, 1.0, "p2", partition=1)
    push(made, 1.0, "c", "d")
    removed = made.remove(2.0, lambda each: each.partition == 1)
    assert sorted(names(removed)) == ["p1", "p2"]
    assert made.depth == 3
    made.complete(11.0, 0)
    made.complete(23.0, 0)
    assert [names(batch.requests) for batch in made.starts] == [["a"], ["b", "c"], ["d"]]
    assert made.starts[1].requests[1].entered == 2.0
    made.complete(34.0, 0)
    assert made.depth == made.load().running == 0


def test_a_removal_during_a_delay_keeps_or_ends_the_wait():
    made = batcher(delay=5.0)
    push(made, 0.0, "p", partition=1)
    push(made, 2.0, "a")
    made.remove(3.0, lambda each: each.partition == 1)
    assert made.next_wake(3.0) == 7.0
    made.remove(4.0, lambda each: True)
    assert made.next_wake(4.0) is None
    made.advance(9.0)
    assert not made.starts


def test_counters_add_up():
    made = batcher(batch=2, policy="expired")
    push(made, 0.0, "a", "b", "c", "d", "e")
    push(made, 0.0, "late", within=-1.0)
    load = made.load()
    assert (load.arrived, load.started, load.forming, load.queued, load.running) == (6, 1, 2, 3, 1)
    made.complete(11.0, 0, executed=10.5)
    made.complete(23.0, 0)
    load = made.load()
    assert (load.completed, load.batches, load.dropped) == (3, 2, 1)
    assert load.busy == 10.5 + 12.0
    assert made.depth == load.queued + load.forming == 0


def test_durations_that_learn_hear_what_was_measured():
    learned = Estimate()
    made = batcher(duration=learned)
    push(made, 0.0, "a")
    assert drain(made)[0][3] == 0.0  # nothing is known yet
    made.complete(7.0, 0, executed=7.0)
    push(made, 10.0, "b")
    assert drain(made)[0][3] == 17.0


def test_ending_an_idle_instance_is_an_error():
    with pytest.raises(ValueError, match="runs nothing"):
        batcher().complete(0.0, 0)


@pytest.mark.parametrize("bad", [{"batch": 0}, {"workers": -1}, {"delay": -1.0}])
def test_sizes_that_make_no_sense_are_refused(bad):
    with pytest.raises(ValueError, match="at least"):
        batcher(**bad)


def heavy(name: str, size: int, **more) -> Request:
    return Request(name, 0, 0.0, 1e9, 0.0, (Delivery(name, 0, 0, 0.0, 1e9, "", None, size=size),), {}, **more)


@given(st.lists(st.integers(0, 2 * BATCH_BYTES), max_size=30), st.integers(1, 8), st.integers(1, 3), st.booleans())
def test_a_batch_is_bounded_by_bytes_and_all_are_run_once(sizes, most, workers, offline):
    made = batcher(batch=most, workers=workers)
    for number, size in enumerate(sizes):
        made.push(0.0, heavy(str(number), size, offline=offline))
    now, ran = 0.0, []
    while made.starts:
        batches, made.starts = made.starts, []
        for batch in batches:
            held = [request.parts[0].size for request in batch.requests]
            assert len(held) == 1 or sum(held) <= BATCH_BYTES
            assert len(held) <= most
            ran += names(batch.requests)
            now += 1.0
            made.complete(now, batch.worker)
    assert sorted(ran) == sorted(map(str, range(len(sizes))))
