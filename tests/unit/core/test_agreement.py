"""How well made answers agree with the exact ones, and when that suspends a code."""

import random

from spillway.agents.core.agreement import AGAIN, LEAST, SEEN, Agreement
from tests.unit.core.builders import NOW


def test_the_share_is_of_the_last_that_were_graded():
    for seed in range(50):
        draw = random.Random(seed)
        floor = draw.choice([None, 0.3, 0.8])
        agreement, seen, until, now = Agreement(floor), [], None, NOW
        for _ in range(300):
            now += draw.random()
            agreed = draw.randint(0, 3)
            agreement.hear(agreed, 3)
            if until is None:
                seen = [*seen, *([True] * agreed), *([False] * (3 - agreed))][-SEEN:]
            share = sum(seen) / len(seen) if len(seen) >= LEAST else None
            assert agreement.share == share
            if until is not None and now >= until:
                until = None
            elif until is None and floor is not None and share is not None and share < floor:
                until, seen = now + AGAIN, []
            assert agreement.paused(now) == (until is not None)
        assert agreement.graded == 900
        assert bool(agreement.pauses) == (floor == 0.8)
