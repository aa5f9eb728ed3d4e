"""From what the processes know of one another to what a person sees of it."""

from __future__ import annotations

import io
import time

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from rich.console import Console

from agents.core.board import Board
from agents.core.policy import StageFacts
from agents.live.metrics import StageMetrics
from agents.supervise.scrape import parse
from agents.supervise.table import plan_line, plan_rows, plan_table, plan_title
from lineage.message import PlanWord

FACTS = {"a": StageFacts(4, lambda _n: 0.02, 2), "b": StageFacts(8, lambda _n: 0.04, 1)}


def word(stage, replica, ago, **said):
    at = int(1e6 * (time.time() - ago))
    return PlanWord(stage, replica, at, at, **said)


def reading(*words):
    metrics = StageMetrics("p", "a", 0)
    metrics.plan, metrics.plan_facts = Board(FACTS, 4, 3.0), FACTS
    for one in words:
        assert metrics.plan.hear(time.time(), one) is None
    registry = CollectorRegistry()
    registry.register(metrics)
    return parse(generate_latest(registry).decode(), 0.0)


def test_of_each_replica_the_newest_word_that_any_process_knows():
    one = reading(word("a", 0, 0.5, queueing=0.01, batch=4), word("b", 0, 2.0, queueing=0.03))
    other = reading(word("a", 0, 1.5, queueing=0.02), word("b", 0, 0.1, queueing=0.04, hbf=True, drop_rate=0.25))
    first, second = plan_rows([one, other])
    assert (first.stage, first.queueing, first.batch, first.high_first) == ("a", pytest.approx(0.01), 4, False)
    assert (second.stage, second.queueing, second.high_first) == ("b", pytest.approx(0.04), True)
    assert (first.profile, first.duration) == (0.02, 0.0)
    assert first.age == pytest.approx(0.5, abs=0.4)
    assert second.as_json()["drops"] == 0.25


def test_the_load_is_that_of_the_whole_stage_by_what_its_workers_can_take():
    fresh = [word("a", replica, 0.1, arrival_rate=60.0, batch=4) for replica in (0, 1)]
    (first, second, third) = plan_rows([reading(*fresh, word("a", 2, 10.0, arrival_rate=1e6))])
    assert first.load == second.load == third.load == pytest.approx(120 * 0.02 / (2 * 4))
    slower = [word("a", replica, 0.1, arrival_rate=60.0, duration=0.08) for replica in (0, 1)]
    assert plan_rows([reading(*slower)])[0].load == pytest.approx(120 * 0.08 / (2 * 4))


def test_whoever_fell_silent_is_said_to_be():
    rows = plan_rows([reading(word("a", 0, 0.2), word("b", 0, 7.0, duration=0.05))])
    assert [row.silent for row in rows] == [False, True]
    assert "b.0: silent for 7." in plan_line(rows[1])
    assert "measured" not in plan_line(rows[1])
    text = io.StringIO()
    Console(file=text, width=200).print(plan_table(rows))
    assert "silent for 7." in text.getvalue()
    assert "ago" in text.getvalue()


def test_the_table_fits_a_small_terminal():
    rows = plan_rows([reading(word("a", 3, 0.2, queueing=1.5), word("b", 0, 7.0, duration=0.05))])
    text = io.StringIO()
    Console(file=text, width=80).print(plan_table(rows, 1.0, 80))
    assert "a.3" in text.getvalue()
    assert "silent for 7." in text.getvalue()
    assert "…" not in text.getvalue()


def test_how_often_they_speak_is_said_where_it_is_known():
    assert plan_title(0.1) == "as the stages tell one another, every 0.1 s"
    assert plan_title(None) == "as the stages tell one another"
    text = io.StringIO()
    Console(file=text, width=200).print(plan_table(plan_rows([reading(word("a", 0, 0.2))]), 1.0))
    assert "every 1 s" in text.getvalue()


def test_a_process_that_knows_nothing_shows_nothing():
    assert plan_rows([reading()]) == []
