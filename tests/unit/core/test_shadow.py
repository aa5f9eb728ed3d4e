"""Coding rests where a shadow of the stage without it has no slower tail, and is tried again later and later."""

import random

from spillway.agents.core.shadow import REST, SEEN, Shadow
from spillway.agents.core.workers import Batch
from tests.unit.core.builders import NOW, request


def play(shadow, now, count, *, waits=0.0, saves=False):
    """Batches of two workers, one second apart; one in fifty straggles, and is answered by others where coding saves.

    `waits`: seconds that each waits for a worker that runs an extra.
    """
    draw = random.Random(1)
    for n in range(count):
        now += 1.0
        batch = Batch(0, [request(str(n), sent=now, within=60.0)], now + waits, 0.0)
        shadow.started(batch)
        straggles = draw.random() < 0.02
        if straggles and saves:
            shadow.recovered(now + 0.3, batch)
        shadow.answered(batch.started + (0.9 if straggles else 0.1), batch, 2)
    return now


def test_it_goes_on_while_it_shortens_the_tail():
    shadow = Shadow()
    now = play(shadow, NOW, 3 * SEEN, saves=True, waits=0.01)
    assert not shadow.resting(now)


def test_it_rests_where_batches_wait_and_nothing_is_saved_and_twice_as_long_each_time():
    shadow = Shadow()
    now = NOW
    for rest in (REST, 2 * REST, 4 * REST):
        now = play(shadow, now, SEEN, waits=0.05)
        assert shadow.resting(now + rest - 1)
        assert not shadow.resting(now + rest + 1)
        now += rest + 1
    now = play(shadow, now, SEEN, saves=True)
    now = play(shadow, now, SEEN, waits=0.05)
    assert not shadow.resting(now + REST + 1)


def test_where_no_answer_comes_sooner_it_rests():
    shadow = Shadow()
    assert shadow.resting(play(shadow, NOW, SEEN))


def test_the_shadow_waits_for_its_own_workers():
    """Who waits for a stage that is full would do so without coding, too: then what is saved still counts."""
    shadow, now, ends = Shadow(), NOW, [NOW, NOW]
    for n in range(SEEN):
        now += 0.4
        ends.sort()
        begins = max(now, ends[0])
        ends[0] = begins + 1.0
        batch = Batch(0, [request(str(n), sent=now, within=60.0)], begins, 0.0)
        shadow.started(batch)
        shadow.recovered(begins + 0.5, batch)
        shadow.answered(begins + 1.0, batch, 2)
    assert not shadow.resting(ends[0])


def test_batches_of_lost_workers_hold_up_nothing():
    shadow = Shadow()
    lost = Batch(0, [request("0", sent=NOW, within=60.0)], NOW, 0.0)
    shadow.started(lost)
    shadow.lost(lost)
    assert shadow.resting(play(shadow, NOW, SEEN))
