"""From what a process counts to what a person sees; and what the run directory says of processes."""

import json
import math
import os
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from io import StringIO
from types import SimpleNamespace

import pytest
from rich.console import Console

from spillway.agents.core.board import Board
from spillway.agents.core.cache import PredictionCache
from spillway.agents.core.policy import StageFacts
from spillway.agents.core.routes.ensemble import Shares
from spillway.agents.live.gate.metrics import GateMetrics
from spillway.agents.live.registry import Address, MetricsServer, samples_of
from spillway.agents.live.stage.member_metrics import MemberMetrics
from spillway.agents.metrics import StageMetrics
from spillway.agents.supervise import table as tables
from spillway.agents.supervise.registry import Entry, ServeEntry, entries, with_learners
from spillway.agents.supervise.scrape import Distribution, Snapshot, figures, scrape
from spillway.agents.supervise.table import Row, cells, details, line, plan_rows, plan_table, plan_title, table
from spillway.agents.supervise.view import finite
from spillway.lineage import metric_names as names
from spillway.lineage.message import PlanWord
from spillway.topology.sizes import FROM_FILE

STAGE = Entry("p", "detect", 0, os.getpid(), 1, time.time(), "stage", ready=True)
GATE = replace(STAGE, stage="gate", role="gate")


def reading(metrics, at):
    """What another process reads of one with these metrics."""
    return Snapshot(at, json.loads(json.dumps(samples_of(metrics))))


def told(metrics, entry=STAGE):
    """What a person is told of a process with these metrics."""
    return details(figures(entry, reading(metrics, 1.0), None))


def printed(shown, width=80):
    text = StringIO()
    Console(file=text, width=width).print(shown)
    return text.getvalue()


def members(*, ready=dict, wanted=dict, caches=dict, shares=None, **more):
    """The metrics of an ensemble's members."""
    lanes = SimpleNamespace(ready=ready, refused={}, caches=caches)
    return MemberMetrics(
        lanes, shares or Shares(), SimpleNamespace(**{"wanted": wanted, "troubles": {}, "record": None, **more})
    )


def a_stage(received=0, seconds=0.0):
    metrics = StageMetrics("p", "detect", 0, queue_limit=64)
    metrics.received = lambda: received
    metrics.batched = received
    metrics.depth = lambda: 7
    metrics.duplicates = lambda: 3
    metrics.outcomes["dropped", "expired"] = 5
    metrics.outcomes["failed", "bad_input"] = 2
    metrics.outcomes["failed", "model_error"] = 1
    metrics.dead_letters["not_avro",] = 4
    metrics.committed[0] = 11
    for _ in range(received):
        metrics.queued.observe(seconds)
        metrics.waited.observe(seconds)
    for _ in range(received // 4):
        metrics.executed.observe(seconds)
    return metrics


def test_every_number_of_a_stage_is_found_again():
    snapshot = reading(a_stage(8, 0.01), 5.0)
    assert snapshot.counts(names.COMMITTED_OFFSET, names.PARTITION) == {"0": 11}
    assert snapshot.distribution("spillway_queue_seconds").count == 8
    shown = figures(STAGE, snapshot, None)
    assert (shown.received, shown.queue, shown.queue_limit, shown.duplicates) == (8, 7, 64, 3)
    assert shown.outcomes == {"dropped": {"expired": 5}, "failed": {"bad_input": 2, "model_error": 1}}
    assert shown.dead_letters == {"not_avro": 4}
    assert math.isnan(shown.rate)


def test_workers_are_shown_with_how_many_are_wanted_until_all_are_ready():
    metrics = a_stage()
    metrics.instances, metrics.wanted = 2, 3
    assert cells(figures(STAGE, reading(metrics, 5.0), None))[0] == "2/3"
    metrics.instances = 3
    assert cells(figures(STAGE, reading(metrics, 5.0), None))[0] == "3"


def test_at_a_join_queries_count_and_not_their_parts():
    parts = a_stage(80, 0.5)
    parts.batched = 38
    parts.outcomes["dropped", "expired"] = 2
    shown = figures(STAGE, reading(parts, 5.0), None)
    assert (shown.received, shown.queries) == (80, 40)
    assert cells(shown)[6] == "40"


def test_rates_and_means_are_of_the_last_interval():
    before = reading(a_stage(100, 0.5), 10.0)
    now = a_stage(100, 0.5)
    now.received = lambda: 140
    now.batched = 140
    for distribution, times in ((now.queued, 40), (now.waited, 40), (now.executed, 5)):
        for _ in range(times):
            distribution.observe(0.01)
    shown = figures(STAGE, reading(now, 12.0), before)
    assert shown.rate == 20.0
    assert shown.batch == pytest.approx(40 / 5)
    assert shown.executed == pytest.approx(0.01)
    assert shown.latency == pytest.approx(0.03)


def test_a_restarted_process_does_not_run_backwards():
    shown = figures(STAGE, reading(a_stage(4, 0.1), 12.0), reading(a_stage(100, 0.5), 10.0))
    assert shown.rate == 4.5
    assert shown.queued == pytest.approx(0.1)


def test_the_gates_score():
    metrics = GateMetrics("p")
    metrics.received, metrics.good, metrics.late = 10, 8, 1
    metrics.outcomes["prediction", ""] = 9
    metrics.outcomes["dropped", "expired"] = 1
    for n in range(10):
        metrics.latency["prediction"].observe(0.04 if n < 9 else 4.0)
        metrics.latency["dropped"].observe(9.0)
    shown = figures(GATE, reading(metrics, 1.0), None)
    assert (shown.good, shown.late, shown.count("prediction"), shown.count("dropped")) == (8, 1, 9, 1)
    assert 0.0 < shown.latency <= 0.05
    assert 3.0 < shown.latency_p99 <= 5.0
    assert "gate.0: 8 good, 1 late" in details(shown)
    assert "gate.0: 1 dropped (expired)" in details(shown)


def test_what_members_caches_answered_is_shown():
    caches = {"forest": PredictionCache(1_000), "linear": PredictionCache(1_000)}
    caches["forest"].hits, caches["forest"].misses = 6, 2
    metrics = a_stage()
    metrics.lanes = members(shares=Shares(asked={"forest": 8}), caches=lambda: caches)
    shown = figures(STAGE, reading(metrics, 1.0), None)
    assert asdict(shown)["caches"] == {"forest": {"hits": 6, "misses": 2}, "linear": {"hits": 0, "misses": 0}}
    assert "detect.0: forest's cache: 6 hits, 2 misses" in details(shown)


def test_status_says_where_one_query_alone_is_beyond_the_objective_of_batches():
    metrics = a_stage(8, 0.1)
    metrics.limit, metrics.unmet = lambda: 12, lambda: True
    text = "detect.0: one query alone often takes longer than the objective of batches; they hold up to 12"
    assert text in told(metrics)
    metrics.unmet = lambda: False
    assert not any("one query alone" in line for line in told(metrics))


def test_members_are_shown_with_who_changed_them_and_why_one_does_not_serve():
    record = SimpleNamespace(who="ada@host", why="the new net", at=1_700_000_000.25)
    metrics = a_stage()
    metrics.lanes = members(
        ready=lambda: {"linear": 1, "forest": 1},
        wanted=lambda: {"linear": 1, "forest": 2, "cnn": 1},
        troubles={"cnn": 'no "file"\nthere'},
        record=record,
    )
    assert reading(metrics, 1.0).ensemble.at == record.at
    lines = told(metrics)
    assert "detect.0: members ready: linear 1/1, forest 1/2, cnn 0/1" in lines
    assert any(line.startswith("detect.0: its ensemble was changed by ada@host, ") for line in lines)
    assert 'detect.0: member cnn does not serve: no "file"\nthere' in lines
    record.why = FROM_FILE
    assert not any("its ensemble" in line for line in told(metrics))


def test_what_was_aborted_defaulted_and_combined_in_part_is_counted():
    gate = GateMetrics("p")
    assert not any("aborted" in line for line in told(gate, GATE))
    gate.aborted = 2
    assert "gate.0: 2 transactions aborted and done again" in told(gate, GATE)
    metrics = a_stage()
    metrics.defaults = lambda: 3
    metrics.lanes = members(shares=Shares(combined=9, partial=4))
    shown = figures(STAGE, reading(metrics, 1.0), None)
    assert "detect.0: 3 queries got the default outputs" in details(shown)
    assert "detect.0: 4 of 9 combined without all members" in details(shown)
    assert (shown.defaults, shown.partial, shown.combined) == (3, 4, 9)


def test_the_versions_of_a_model_are_shown_with_their_workers():
    metrics = a_stage()
    metrics.versions = lambda: {"1": 0, "2": 3, "": 1}
    shown = figures(STAGE, reading(metrics, 1.0), None)
    assert asdict(shown)["versions"] == {"1": 0, "2": 3, "": 1}
    assert "detect.0: version of its model, and workers that have it: 1 (0), 2 (3), none (1)" in details(shown)
    metrics.versions = lambda: {"": 1}
    assert not any("version" in line for line in told(metrics))


def test_partitions_that_are_stopped_are_shown():
    metrics = a_stage()
    metrics.stopped |= {2: 40, 10: 7}
    assert reading(metrics, 1.0).stopped == {2: 40, 10: 7}
    text = "detect.0: partition 10 is stopped: its log lost the records from offset 7 (see the process's log)"
    assert text in told(metrics)


def test_quantiles_are_linear_within_a_bucket():
    one = Distribution(((1.0, 10.0), (2.0, 30.0), (math.inf, 40.0)), 60.0)
    assert one.quantile(0.25) == 1.0
    assert one.quantile(0.5) == 1.5
    assert one.quantile(0.99) == 2.0  # beyond the last bound nothing is known but that
    assert one.mean() == 1.5
    assert math.isnan(Distribution().quantile(0.5))
    assert one.since(one).count == 0


def test_what_is_not_known_is_a_dash_and_null():
    shown = figures(STAGE, Snapshot(1.0), None)
    assert cells(None) == ("-",) * 10
    assert cells(shown)[:2] == ("-", "-")
    assert finite(asdict(shown))["rate"] is None
    assert line(Row("detect.0", "failed", None, 2)) == "detect.0: failed (2 restarts)"
    assert line(Row("detect.0", "failed", None, 1)) == "detect.0: failed (1 restart)"
    assert "0 restarts" not in line(Row("detect.0", "running", shown))
    assert table([Row("detect.0", "running", shown), Row("b.0", "gone", None)], "p").row_count == 2


def test_the_table_fits_a_small_terminal():
    shown = replace(figures(STAGE, reading(a_stage(12345, 0.1), 5.0), None), rate=1234.5, batch=63.9, queue_limit=4096)
    text = printed(table([Row("recognise.10", "running", shown, 2), Row("gate.0", "backing off", None)], "plates"))
    assert "recognise.10" in text
    assert "1234.5" in text
    assert "backing off" in text
    assert "…" not in text


def test_a_process_is_asked_at_its_port():
    metrics = a_stage(8, 0.01)
    metrics.outcomes["failed", 'no "JSON"\n\ud800'] = 1
    with closing(MetricsServer(metrics, Address())) as server:
        snapshot = scrape(replace(STAGE, port=server.address.port), 5.0)
    assert snapshot == reading(metrics, 5.0)
    assert scrape(STAGE, 0.0) is None  # nobody listens on port 1


def put(run_dir, entry, name=None):
    folder = run_dir / entry.pipeline
    folder.mkdir(parents=True, exist_ok=True)
    (folder / (name or f"{entry.name}.json")).write_text(json.dumps(asdict(entry)))


def test_entries_are_read_in_order_and_rubbish_is_passed_over(tmp_path):
    for entry in (GATE, replace(STAGE, replica=1), STAGE, replace(STAGE, pipeline="other")):
        put(tmp_path, entry)
    (tmp_path / "p" / "half.json").write_text('{"pipeline": "p"')
    (tmp_path / "p" / "notes.json").write_text('{"anything": 1}')
    (tmp_path / "p" / "list.json").write_text("[1]")
    assert [entry.name for entry in entries(tmp_path, "p")] == ["detect.0", "detect.1", "gate.0"]
    assert len(entries(tmp_path)) == 4
    assert entries(tmp_path / "nowhere") == []


def test_a_dead_process_and_a_later_one_of_the_same_id_are_not_alive():
    assert STAGE.alive()
    assert not replace(STAGE, pid=2**22 - 1).alive()
    assert not replace(STAGE, started_unix=1000.0).alive()


def test_the_supervisors_entry_is_written_whole(tmp_path):
    entry = ServeEntry("p", "p.yaml", "localhost:1", None, os.getpid(), time.time())
    entry.write(tmp_path)
    assert ServeEntry.read(tmp_path, "p") == entry
    assert entry.alive()
    assert ServeEntry.read(tmp_path, "q") is None
    assert entry.plan_period is None  # as in an entry that an earlier version wrote
    replace(entry, plan_period=0.1).write(tmp_path)
    assert ServeEntry.read(tmp_path, "p").plan_period == 0.1
    assert entries(tmp_path, "p") == []


def test_a_pipeline_is_read_with_its_learners_and_no_other(tmp_path):
    file = tmp_path / "p.yaml"
    for name, path in {"p": file, "p-theta": f"{file}#theta", "p-2": tmp_path / "p-2.yaml"}.items():
        ServeEntry(name, str(path), "localhost:1", None, os.getpid(), time.time()).write(tmp_path)
    assert with_learners(tmp_path, "p") == ["p", "p-theta"]
    assert with_learners(tmp_path, "p-theta") == ["p-theta"]
    assert with_learners(tmp_path, "never") == ["never"]


def test_a_query_of_an_ensemble_counts_once_whatever_its_members():
    ran = {names.BATCHED_QUERIES_TOTAL: [({}, 15.0)], names.COMBINED_TOTAL: [({}, 5.0)]}
    assert figures(STAGE, Snapshot(1.0, ran), None).queries == 5
    del ran[names.COMBINED_TOTAL]
    assert figures(STAGE, Snapshot(1.0, ran), None).queries == 15


# From what the processes know of one another to what a person sees of it.

FACTS = {"a": StageFacts(4, lambda _n: 0.02, 2), "b": StageFacts(8, lambda _n: 0.04, 1)}


def word(stage, replica, ago, **said):
    at = int(1e6 * (time.time() - ago))
    return PlanWord(stage, replica, at, at, **said)


def heard(*words):
    metrics = StageMetrics("p", "a", 0)
    metrics.plan, metrics.plan_facts = Board(FACTS, 4, 3.0), FACTS
    for one in words:
        said = one.at_us / 1e6
        assert metrics.plan.hear(said, one, time.monotonic() - (time.time() - said)) is None
    return reading(metrics, 0.0)


def test_of_each_replica_the_newest_word_that_any_process_knows():
    one = heard(word("a", 0, 0.5, queueing=0.01, batch=4), word("b", 0, 2.0, queueing=0.03))
    other = heard(word("a", 0, 1.5, queueing=0.02), word("b", 0, 0.1, queueing=0.04, hbf=True, drop_rate=0.25))
    first, second = plan_rows([one, other])
    assert (first.stage, first.queueing, first.batch, first.high_first) == ("a", pytest.approx(0.01), 4, False)
    assert (second.stage, second.queueing, second.high_first) == ("b", pytest.approx(0.04), True)
    assert (first.profile, first.duration) == (0.02, 0.0)
    assert first.age == pytest.approx(0.5, abs=0.4)
    assert asdict(second)["drops"] == 0.25


def test_the_load_is_that_of_the_whole_stage_by_what_its_workers_can_take():
    fresh = [word("a", replica, 0.1, arrival_rate=60.0, batch=4) for replica in (0, 1)]
    (first, second, third) = plan_rows([heard(*fresh, word("a", 2, 10.0, arrival_rate=1e6))])
    assert first.load == second.load == third.load == pytest.approx(120 * 0.02 / (2 * 4))
    slower = [word("a", replica, 0.1, arrival_rate=60.0, duration=0.08) for replica in (0, 1)]
    assert plan_rows([heard(*slower)])[0].load == pytest.approx(120 * 0.08 / (2 * 4))


def test_whoever_fell_silent_is_said_to_be():
    rows = plan_rows([heard(word("a", 0, 0.2), word("b", 0, 7.0, duration=0.05))])
    assert [row.silent for row in rows] == [False, True]
    text = printed(plan_table(rows), 200)
    assert "silent for 7." in text
    assert "ago" in text


def test_the_plans_table_fits_a_small_terminal():
    rows = plan_rows([heard(word("a", 3, 0.2, queueing=1.5), word("b", 0, 7.0, duration=0.05))])
    text = printed(plan_table(rows, 1.0, 80))
    assert "a.3" in text
    assert "silent for 7." in text
    assert "…" not in text


def test_how_often_they_speak_is_said_where_it_is_known():
    assert plan_title(0.1) == "latest status of the replicas, every 0.1 s"
    assert plan_title(None) == "latest status of the replicas"
    assert "every 1 s" in printed(plan_table(plan_rows([heard(word("a", 0, 0.2))]), 1.0), 200)


def test_a_process_that_knows_nothing_shows_nothing():
    assert plan_rows([heard()]) == []


# What `spillway serve` shows on a terminal.


def test_an_event_is_printed_as_it_is_and_the_table_below_without_its_markup(monkeypatch):
    shown = StringIO()
    monkeypatch.setattr(tables, "Console", partial(Console, file=shown, force_terminal=True, width=200))
    with tables.Display("greet", quiet=False) as made:
        made.show([Row("greet.0", "running", None)])
        made.say("[greet] is ready")
    assert "[greet] is ready" in shown.getvalue()
    assert "running" in shown.getvalue()
    assert "[green]" not in shown.getvalue()


def test_a_line_is_said_again_only_when_it_has_changed(monkeypatch):
    shown = StringIO()
    monkeypatch.setattr(tables, "Console", partial(Console, file=shown, force_terminal=False, width=200))
    with tables.Display("greet", quiet=False) as made:
        made.tell([Row("greet.0", "running", None), Row("gate.0", "starting", None)])
        made.tell([Row("greet.0", "running", None), Row("gate.0", "running", None)])
        made.tell([Row("greet.0", "running", None), Row("gate.0", "running", None)])
    assert shown.getvalue().splitlines() == ["greet.0: running", "gate.0: starting", "gate.0: running"]


SHOWN = """
import os, sys
from spillway.agents.supervise.table import Display, Row
with Display("greet", quiet=False) as made:
    made.show([Row("greet.0", "running", None)])
    made.ready()
    os.read(0, 1)
    made.say("a long line " * 1000)
    made.show([Row("greet.0", "backing off", None)])
    made.ready()
os._exit(7)
"""


def test_ready_is_on_stdout_beside_a_terminal_and_serving_goes_on_when_both_are_gone():
    terminal, theirs = os.openpty()
    line = [sys.executable, "-c", SHOWN]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=theirs) as shows:
        os.close(theirs)
        assert shows.stdout.readline() == b"ready\n"
        shows.stdout.close()
        os.close(terminal)
        shows.stdin.write(b"x")
        shows.stdin.close()
        assert shows.wait(60) == 7


def test_a_process_that_dies_while_it_tells_its_figures_has_none():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.recv(1 << 16)
                connection.sendall(b"HTTP/1.0 200 OK\r\nContent-Length: 100\r\n\r\n{")

        thread = threading.Thread(target=answer)
        thread.start()
        assert scrape(replace(STAGE, port=server.getsockname()[1]), 0.0) is None
        thread.join()
