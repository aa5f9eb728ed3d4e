"""The evaluation: coding answers for what is slow, under the same arrivals and slowdowns, compared pair by pair."""

from collections import Counter
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np

from benchmarks.parm import live
from benchmarks.parm.simulated import Setting, latencies, released
from examples.parm import contest


def test_every_strategy_answers_all_queries_and_coding_cuts_the_tail():
    setting = Setting(270, queries=3_000)
    tails = {}
    for strategy in ("none", "equal-resources", "coded", "coded-shared", "hedged", "replicate", "approximate"):
        seconds = latencies(strategy, setting, 1)
        assert len(seconds) == 3_000
        assert (seconds > 0).all()
        tails[strategy] = float(np.percentile(seconds, 99.5))
    assert tails["coded"] < tails["equal-resources"]


def test_shared_workers_take_what_waits_where_the_stage_is_busy():
    setting = Setting(390, queries=3_000)
    tails = {name: float(np.percentile(latencies(name, setting, 1), 99)) for name in ("coded", "coded-shared")}
    assert tails["coded-shared"] < tails["coded"]


def test_slow_instances_make_a_few_queries_late():
    usual, slowed = (latencies("none", Setting(210, shuffles=0, slowdowns=each, queries=3_000), 1) for each in (0, 1))
    assert np.percentile(slowed, 99) > 1.3 * np.percentile(usual, 99)


def test_a_made_answer_that_waits_for_its_deadline_is_rarer_and_later():
    setting = Setting(270, queries=3_000)
    first, made = released(setting, 1)
    waited, fewer = released(Setting(270, held=0.035, queries=3_000), 1)
    assert 0 < fewer < made
    assert np.percentile(waited, 99.5) > np.percentile(first, 99.5)
    assert np.percentile(waited, 99.5) <= 0.035 + 1e-9


def test_live_tells_each_repeats_ratio_and_their_spread(monkeypatch):
    served = []

    def run(strategy, _name, _settings, due, _events, _folder, _say, *, timed):
        assert timed
        served.append(strategy)
        factor = {live.BASE: 4.0, "coded": 2.0 if len(served) == 2 else 1.0}[strategy]
        taken = np.full(len(due), 0.01)
        taken[-20:] = 0.01 + 0.1 * factor
        result = SimpleNamespace(due=due, finished=due + taken, duplicates=0)
        made = np.arange(len(due)) < (100 if strategy == "coded" else 0)
        return contest.Run(result, Counter(), 1.0, made, np.arange(len(due)) % 2 == 0)

    monkeypatch.setattr(contest, "run", run)
    monkeypatch.setattr(contest, "train", lambda *_, **__: None)
    monkeypatch.setattr(live, "kafka", lambda: nullcontext((None, None)))
    table = live.live(3, 1_000)
    assert served == [live.BASE, "coded", "coded", live.BASE, live.BASE, "coded"]  # in turns
    base, coded, times = ([cell.split()[0] if cell else "" for cell in row[1:]] for row in table.rows)
    assert base[:4] == ["10", "410", "410", "400"]
    assert coded == ["10", "110", "110", "100", "10.0", "50.0", "1.0"]
    assert times[:4] == ["1.00", "3.73", "3.73", "4.00"]
    assert table.rows[2][4] == "4.00 (2.00 to 4.00)"
    assert len({len(row) for row in (*table.rows, table.columns)}) == 1
