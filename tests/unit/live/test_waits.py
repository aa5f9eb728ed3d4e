"""What a process says of its waiting is believed for as long as the loop that says it goes on."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest

from agents.live.metrics import BELIEVED_SECONDS, GateMetrics, StageMetrics, StateFigures, WaitsTold
from agents.supervise.registry import Entry
from agents.supervise.scrape import figures, parse


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def told(metrics):
    """What the watchdog reads of a process with these metrics."""
    registry = CollectorRegistry()
    registry.register(metrics)
    entry = Entry("p", metrics.stage, 0, 1, 1, 0.0, metrics.role)
    return figures(entry, parse(generate_latest(registry).decode(), 1.0), None)


def test_a_loop_that_falls_silent_is_not_believed_for_long():
    clock = Clock()
    waits = WaitsTold(clock)
    waits.say(frozenset({1, 3}))
    assert (waits.partitions, waits.due) == ({1, 3}, False)
    clock.now += BELIEVED_SECONDS
    assert (waits.partitions, waits.due) == ({1, 3}, True)
    clock.now += 0.1
    assert waits.partitions == frozenset()


def test_the_watchdog_reads_it_of_stages_and_gate():
    for metrics in (StageMetrics("p", "back", 0), GateMetrics("p")):
        assert told(metrics).waits == ()
        metrics.waits.say(frozenset({3, 1}))
        assert told(metrics).waits == (1, 3)


def test_it_reads_the_bytes_that_a_member_has_moved():
    metrics = StageMetrics("p", "learn", 0)
    assert told(metrics).moved == 0
    metrics.state = StateFigures()
    metrics.state.moved = 5_000
    assert told(metrics).moved == 5_000
