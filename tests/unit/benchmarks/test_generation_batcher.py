"""The running batch against schedules worked out by hand, and what must hold of every schedule."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.core.policies.fifo import Expired, Fifo
from agents.core.policy import Refusal, StageView
from benchmarks.rag.batcher import ContinuousBatcher
from benchmarks.rag.generation import Generation, TokenProfile

VIEW = StageView("generate")
# Binary fractions: sums of them are exact.
PLAIN = TokenProfile(alpha=1.0, beta=0.25, gamma=0.125)


class Taking(Fifo):
    """Drops nothing."""


def sequence(name, prompt=4, output=3, deadline=1e9):
    return Generation(name, 0.0, deadline, prompt=prompt, output=output)


def drive(batcher, arrivals):
    """Run single iterations; arrivals (time, sequence) join between them. Gives what happened: (time, what, name)."""
    told, now, waiting = [], 0.0, list(arrivals)
    while True:
        while waiting and waiting[0][0] <= now:
            batcher.push(*waiting.pop(0))
        iteration = batcher.begin(now)
        told += [(now, "dropped", request.request_id) for request, _ in batcher.drops]
        batcher.drops.clear()
        if iteration is None:
            if not waiting:
                return told
            now = waiting[0][0]
            continue
        now += iteration.seconds
        progress = batcher.end(now)
        told += [(now, "first", request.request_id) for request in progress.first]
        told += [(now, "ended", request.request_id) for request in progress.ended]


def test_one_sequence_is_read_in_the_first_iteration_which_brings_its_first_token():
    told = drive(ContinuousBatcher(Taking(VIEW), PLAIN), [(0.0, sequence("a"))])
    # 1 + .25 + 4 * .125 = 1.75; then two tokens of 1.25 each
    assert told == [(1.75, "first", "a"), (4.25, "ended", "a")]


def test_an_arrival_joins_when_the_running_iteration_ends_and_its_prompt_delays_the_others():
    told = drive(ContinuousBatcher(Taking(VIEW), PLAIN), [(0.0, sequence("a")), (0.5, sequence("b", 8, 1))])
    # a is read until 1.75; then both run: 1 + 2 * .25 + 8 * .125 = 2.5, to 4.25; then a alone: 1.25
    assert told == [(1.75, "first", "a"), (4.25, "first", "b"), (4.25, "ended", "b"), (5.5, "ended", "a")]


def test_a_chunk_bounds_what_an_iteration_reads_and_what_is_half_read_goes_first():
    profile = TokenProfile(1.0, 0.25, 0.125, chunk=4)
    told = drive(ContinuousBatcher(Taking(VIEW), profile), [(0.0, sequence("a", 6, 1)), (0.0, sequence("b", 4, 1))])
    # a: 4 tokens, alone: 1.75. Then 2 of a and 2 of b: 1 + .5 + .5 = 2, to 3.75. Then 2 of b alone: 1.5.
    assert told == [(3.75, "first", "a"), (3.75, "ended", "a"), (5.25, "first", "b"), (5.25, "ended", "b")]


def test_no_more_run_than_the_cap_and_the_next_joins_when_one_leaves():
    profile = TokenProfile(1.0, 0.25, 0.125, most=1)
    told = drive(ContinuousBatcher(Taking(VIEW), profile), [(0.0, sequence("a", 4, 1)), (0.0, sequence("b", 4, 1))])
    assert told == [(1.75, "first", "a"), (1.75, "ended", "a"), (3.5, "first", "b"), (3.5, "ended", "b")]


def test_the_latest_gives_way_where_tokens_find_no_room_and_begins_anew_with_what_it_had():
    profile = TokenProfile(1.0, 0.25, 0.125, kv=14)
    batcher = ContinuousBatcher(Taking(VIEW), profile)
    one, other = sequence("a", 4, 6), sequence("b", 4, 6)
    told = drive(batcher, [(0.0, one), (0.0, other)])
    # Together 8 tokens; 10, 12, 14 after three iterations (2.5, 1.5, 1.5), then b gives way with three of its six.
    # a needs three more alone (1.25 each) and ends at 9.25; b is read again (4 + 3 tokens: 2.125) and needs two more.
    assert told == [(2.5, "first", "a"), (2.5, "first", "b"), (9.25, "ended", "a"), (13.875, "ended", "b")]
    assert batcher.preempted == 1
    assert (one.held, other.held) == (6, 6)


def test_a_policy_judges_at_the_moment_of_joining_and_nothing_is_spent_on_what_it_drops():
    profile = TokenProfile(1.0, 0.25, 0.125, most=1)
    late = sequence("b", deadline=1.0)
    batcher = ContinuousBatcher(Expired(VIEW), profile)
    told = drive(batcher, [(0.0, sequence("a", 4, 1)), (0.0, late), (0.0, sequence("c", 4, 1))])
    assert told[2:] == [(1.75, "dropped", "b"), (3.5, "first", "c"), (3.5, "ended", "c")]
    assert late.charged == 0.0
    assert batcher.busy == 3.5


def test_reading_is_charged_to_its_own_and_the_rest_in_equal_parts():
    one, other = sequence("a", 4, 2), sequence("b", 8, 1)
    drive(ContinuousBatcher(Taking(VIEW), PLAIN), [(0.0, one), (0.5, other)])
    # a: 1.25 and .5 of its own, then half of 1.5; b: the other half and 1 of its own
    assert (one.charged, other.charged) == (1.75 + 0.75, 0.75 + 1.0)


def test_what_can_never_be_held_is_refused_with_its_size():
    with pytest.raises(ValueError, match="4 \\+ 3 tokens can never be held; the stage holds 6"):
        ContinuousBatcher(Taking(VIEW), TokenProfile(1, 1, 1, kv=6)).push(0.0, sequence("a", 4, 3))


class Expiring(Taking):
    """Lets what waits go at its deadline."""

    def next_expiry(self):
        return min((request.deadline for request in self._waiting), default=None)

    def expire(self, now, drops):
        drops += [(request, Refusal("expired")) for request in self.remove(lambda each: each.deadline <= now)]


def test_what_expires_while_it_waits_is_dropped_before_the_next_iteration():
    batcher = ContinuousBatcher(Expiring(VIEW), TokenProfile(1.0, 0.25, 0.125, most=1))
    told = drive(batcher, [(0.0, sequence("a", 4, 2)), (0.0, sequence("b", deadline=1.5)), (0.0, sequence("c", 4, 1))])
    assert told[:2] == [(1.75, "first", "a"), (1.75, "dropped", "b")]
    assert batcher.total_drops == 1


lengths = st.tuples(st.integers(1, 20), st.integers(1, 12))
bounds = st.tuples(st.sampled_from([3, 7, 1e9]), st.sampled_from([1, 2, 5, 1e9]), st.sampled_from([32, 40, 1e9]))


@given(st.lists(st.tuples(st.integers(0, 40), lengths), min_size=1, max_size=12), bounds)
def test_every_token_is_produced_once_within_the_bounds_and_every_second_is_charged(arrivals, limits):
    chunk, most, kv = limits
    profile = TokenProfile(1.0, 0.25, 0.125, chunk=chunk, most=most, kv=kv)
    batcher = ContinuousBatcher(Taking(VIEW), profile)
    queue = [(float(at), sequence(str(n), *size)) for n, (at, size) in enumerate(sorted(arrivals))]
    begin, end = batcher.begin, batcher.end
    spans = []

    def checked(now):
        iteration = begin(now)
        if iteration is not None:
            spans.append((now, now + iteration.seconds))
            assert iteration.running <= most
            assert iteration.prefill <= chunk
            assert batcher.tokens <= kv
        return iteration

    def ended(now, repeats=1):
        progress = end(now, repeats)
        assert batcher.tokens <= kv
        return progress

    class Watched:
        push, drops = batcher.push, batcher.drops
        begin, end = staticmethod(checked), staticmethod(ended)

    told = drive(Watched, queue)
    requests = [request for _, request in queue]
    assert sorted(name for _, what, name in told if what == "ended") == sorted(r.request_id for r in requests)
    assert all(request.held == request.output for request in requests)
    assert all(later >= sooner for (_, sooner), (later, _) in itertools.pairwise(spans))
    assert sum(request.charged for request in requests) == pytest.approx(batcher.busy)
    assert sum(finish - start for start, finish in spans) == pytest.approx(batcher.busy)
    assert (batcher.tokens, batcher.running, batcher.queued) == (0, 0, 0)
    if kv == 1e9:
        read = sum(request.prompt for request in requests)
        produced = sum(request.output - 1 for request in requests)  # a token each beside the first
        alike = profile.alpha * batcher.iterations + profile.gamma * read
        # beta is paid for each token, and for each chunk that brings none
        assert batcher.busy >= alike + profile.beta * (produced + len(requests)) - 1e-9
