"""The running batch against schedules worked out by hand, and what must hold of every schedule."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.core.policies.fifo import Fifo
from agents.core.policy import StageView
from benchmarks.rag.batcher import ContinuousBatcher
from benchmarks.rag.generation import Generation, TokenProfile

VIEW = StageView("generate")
# Binary fractions: sums of them are exact.


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
