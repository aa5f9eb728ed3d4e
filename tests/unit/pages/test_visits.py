"""Visits from a simulation and from outcomes' timings, and the page that is made of them."""

import numpy as np
import pytest

from spillway.agents.cli.main import run
from spillway.agents.pages.run_report import examples
from spillway.agents.pages.visits import between, simulated_series, stage_loads, told
from spillway.agents.sim.observe import Observer
from spillway.agents.sim.simulation import simulate
from spillway.lineage.message import DROPPED, PREDICTION, Outcome, StageTiming
from spillway.producers.load.tally import Witness
from spillway.topology.load import parse

SPEC = """
name: small
slo: 60ms
stages:
  - {name: a, emulated: {alpha: 10ms, beta: 0}, batching: {size: 1}}
  - {name: b, after: a, emulated: {alpha: 20ms, beta: 0}, batching: {size: 1}}
"""


def simulated(every=1, **options):
    observer = Observer(every)
    result = simulate(parse(SPEC), np.arange(30) / 60, policy="expired", observer=observer, **options)
    return simulated_series(result, observer)


def test_a_querys_visits_end_when_its_latency_does():
    run_, visits = simulated()
    for query in np.flatnonzero(run_.prediction).tolist():
        a, b = (visits.of(query).take(np.array([place])) for place in (0, 1))
        assert b.arrived[0] == pytest.approx(a.arrived[0] + a.queued[0] + a.waited[0] + a.executed[0])
        assert b.arrived[0] + b.queued[0] + b.waited[0] + b.executed[0] == pytest.approx(run_.latency[query])
        assert (a.executed[0], b.executed[0]) == pytest.approx((0.01, 0.02))


def test_a_dropped_query_has_a_visit_without_execution_and_a_place():
    run_, visits = simulated()
    (lost, *_) = np.flatnonzero(~run_.prediction).tolist()
    mine = visits.of(lost)
    assert mine.executed[-1] == mine.waited[-1] == 0
    assert run_.stage[lost] == visits.stages[mine.stage[-1]]
    assert mine.arrived[-1] + mine.queued[-1] > run_.slo


def test_only_some_queries_may_be_followed():
    run_, visits = simulated(every=7)
    assert set(visits.query.tolist()) <= set(range(0, 30, 7))
    assert len(run_.due) == 30


def test_examples_are_of_each_kind():
    run_, visits = simulated()
    names = [name for name, _ in examples(run_, visits)]
    assert names[:3] == ["good, p50", "good, p90", "good, p99"]
    assert "late" in names
    assert names[-1].startswith("lost at ")


def test_what_timings_do_not_explain_is_spread_over_the_hops():
    timings = {0: [StageTiming("a", 0.01, 0.02, 0.03, 2), StageTiming("b", 0, 0, 0.1, 1)], 1: []}
    visits = told(timings, np.array([0.19, np.nan]), {"a": (), "b": ("a",)})
    assert visits.arrived.tolist() == pytest.approx([0.01, 0.08])
    assert visits.executed.tolist() == [0.03, 0.1]


def test_branches_begin_when_what_is_before_them_ended():
    passed = [StageTiming(name, 0, 0, seconds, 1) for name, seconds in (("a", 0.1), ("c", 0.2), ("b", 0.4), ("d", 0.1))]
    visits = told({0: passed}, np.array([0.6]), {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")})
    begins = dict(zip((visits.stages[number] for number in visits.stage), visits.arrived.tolist(), strict=True))
    assert begins == pytest.approx({"a": 0.0, "b": 0.1, "c": 0.1, "d": 0.5})


def test_what_is_in_no_stage_is_on_a_hop_and_branches_run_at_once():
    passed = [StageTiming(name, 0, 0, seconds, 1) for name, seconds in (("a", 0.1), ("c", 0.2), ("b", 0.4), ("d", 0.1))]
    latency = np.array([0.68, np.nan])
    visits = told({0: passed, 1: passed}, latency, {"a": (), "b": ("a",), "c": ("a",), "d": ("b", "c")})
    queries, hops = between(visits, latency)
    assert queries.tolist() == [0]
    assert hops.tolist() == pytest.approx([0.08])


def test_a_stage_that_is_not_the_pipelines_is_left_out():
    assert len(told({0: [StageTiming("x", 0, 0, 1, 1)]}, np.array([1.0]), {"a": ()}).query) == 0


def test_a_witness_keeps_some_timings_and_all_losses():
    witness = Witness(every=2)
    timing = StageTiming("a", 0, 0, 1, 1)
    for index in range(4):
        kind = PREDICTION if index < 3 else DROPPED
        witness.observe(index, Outcome(kind, stage="a", timings=[timing]))
    assert witness.lost_at == {3: "a"}
    assert list(witness.timings) == [0, 2]


ONCE = ("whatif", "small.yaml", "constant:60", "--once")


def test_one_run_writes_a_page_with_time_lines(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SPEC)
    code = run(
        ["whatif", "small.yaml", "--once", "constant:60", "--duration", "1s", "--policy", "expired", "--html", "s.html"]
    )
    assert code == 0, capsys.readouterr().err
    page = (tmp_path / "s.html").read_text()
    assert page.count("<svg") == 7
    for words in ("Drop rate by the time", "Single queries from stage to stage", "budget"):
        assert words in page
    assert run([*ONCE, "--duration", "1s", "--html", "no/s.html"]) == 2
    assert "cannot write no/s.html" in capsys.readouterr().err


def test_a_policy_that_tells_of_itself_brings_a_chart_of_loads(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.yaml").write_text(SPEC)
    code = run(
        ["whatif", "small.yaml", "--once", "constant:60", "--duration", "4s", "--policy", "pard", "--html", "s.html"]
    )
    assert code == 0, capsys.readouterr().err
    page = (tmp_path / "s.html").read_text()
    assert page.count("<svg") == 8
    assert "How loaded each stage was" in page


def test_mu_is_arrivals_by_capacity():
    observer = Observer()
    pipeline = parse(SPEC)
    result = simulate(pipeline, np.arange(300) / 60, policy="pard", observer=observer)
    found = stage_loads(pipeline, result, observer)
    assert found["a"].mu.tolist()[:4] == pytest.approx([0.6] * 4, abs=0.02)  # 60 a second of 100
    assert found["a"].at.tolist()[:4] == pytest.approx([1, 2, 3, 4])
