import numpy as np
import pytest

from spillway.lineage.errors import UsageError
from spillway.topology.capacity.envelope import envelope, windows


def test_windows_double_up_to_a_minute():
    assert windows(0.1) == pytest.approx([0.1 * 2**power for power in range(10)])
    assert windows(60) == (60,)
    for wrong in (0, -1, 61, float("nan")):
        with pytest.raises(UsageError, match="service time"):
            windows(wrong)


def test_an_envelope_is_the_fullest_window_of_each_width():
    rng = np.random.default_rng(7)
    for _ in range(200):
        times = np.sort(np.round(rng.uniform(0, 5, rng.integers(0, 60)), 1))  # with ties
        widths = rng.choice([0.1, 0.25, 1, 3, 10], 3)
        slow = [
            max((int(((times >= t) & (times < t + width - 1e-9)).sum()) for t in times), default=0) for width in widths
        ]
        assert envelope(times, widths) == tuple(slow)
