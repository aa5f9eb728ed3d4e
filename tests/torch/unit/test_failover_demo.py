"""What the demo that kills a primary takes for the kill's silence."""

import numpy as np

from examples.stateful.failover import silences


def test_a_silence_at_another_time_is_not_the_kills() -> None:
    finished = np.array([0.0, 0.6, 0.7, 0.8, 0.9, 1.2, 1.3, 1.4])
    gap, other = silences(finished, killed=1.0)
    assert round(gap, 3) == 0.3
    assert round(other, 3) == 0.6
