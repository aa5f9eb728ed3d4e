"""A primary's right to emit where its loop is too busy to follow its own beats, as in a backlog."""

from __future__ import annotations

import pytest

from agents.live.stateful import right as module
from agents.live.stateful.right import EmitRight
from checkpoint.leases import Lease
from tests.unit.live.stateful.shard_doubles import Clock


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(module.asyncio, "get_running_loop", lambda: made)
    return made


def test_what_was_held_back_is_sent_when_beats_that_came_in_time_are_told_late(clock):
    """Held back by the time alone, it would wait for ever: no message overtakes it, and the right seems never lost."""
    sent_again = []
    right = EmitRight("m", Lease(1.0), read_to_end=lambda then: then(), emit_again=lambda: sent_again.append(clock.now))
    right.sent(100.0, 1)
    right.returned(100.05, 1)
    right.begin(1)
    assert right.may_emit()
    clock.now = 101.0  # the loop was busy: neither timers nor beats were served
    assert not right.may_emit()
    for sequence in range(2, 12):  # sent and read by other threads, in time
        right.sent(100 + (sequence - 1) / 10, sequence)
        right.returned(100.05 + (sequence - 1) / 10, sequence)
    assert sent_again
    assert right.may_emit()
