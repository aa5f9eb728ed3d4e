"""The simulated evaluation: coding answers for what is slow, from the same arrivals and slowdowns."""

import numpy as np

from benchmarks.parm.simulated import Setting, latencies


def test_every_strategy_answers_all_queries_and_coding_cuts_the_tail():
    setting = Setting(270, queries=3_000)
    tails = {}
    for strategy in ("none", "equal-resources", "coded", "hedged", "replicate", "approximate"):
        seconds = latencies(strategy, setting, 1)
        assert len(seconds) == 3_000
        assert (seconds > 0).all()
        tails[strategy] = float(np.percentile(seconds, 99.5))
    assert tails["coded"] < tails["equal-resources"]
