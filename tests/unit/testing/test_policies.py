"""Policies in memory: what a drop tells, whose clock counts, what stages tell one another, the page's own policy."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from spillway import Pipeline
from spillway.agents.cli.main import run
from spillway.lineage import headers, reasons
from spillway.lineage import metric_names as names
from spillway.lineage.message import DROPPED, PREDICTION, PlanWord, Query
from spillway.lineage.schemas import MARKER
from spillway.lineage.values import codec

CHAIN = """
name: p
slo: 120s
policy: POLICY
partitions: 4
stages:
  - {name: one, emulated: {alpha: 20ms, beta: 1ms}, batching: {size: 4}}
  - {name: two, emulated: {alpha: 30ms, beta: 1ms}, batching: {size: 8}, after: one}
"""
HOUR = 3600.0


@pytest.fixture
def chain(served, request):
    return served(Pipeline.parse(CHAIN.replace("POLICY", getattr(request, "param", "pard"))))


def send(pipeline, count, budget, *, ahead=0.0, seconds=10.0):
    """Return all outcomes so many seconds after sending queries with this budget, by a clock that is so much ahead."""
    before = len(pipeline.records("ingress"))
    sent = int(1e6 * (pipeline.now + ahead))
    for number in range(count):
        request_id = f"q{before + number}"
        told = headers.encode(headers.Headers(request_id, sent, sent + int(1e6 * budget)))
        pipeline.produce("ingress", codec.encode_query(Query({"x": 1})), key=request_id.encode(), headers=told)
    pipeline.sleep(seconds)
    return [codec.Decoder().outcome(record.value) for record in pipeline.records("egress")]


def test_a_drop_tells_every_term_of_its_estimate(chain):
    outcomes = send(chain, 100, 0.15)  # far more than two stages can serve within it, though some reach the second
    drops = [outcome for outcome in outcomes if outcome.reason == reasons.TOO_LATE and outcome.stage == "one"]
    assert len(drops) > 50
    for outcome in drops:
        assert outcome.kind == DROPPED
        assert outcome.text.startswith("one: needs ")
        told = re.search(
            r"needs (?P<needs>\S+) ms more, (?:(?P<left>\S+) ms are left to|is (?P<past>\S+) ms past) its deadline; "
            r"spent (?P<spent>\S+), "
            r"batch wait (?P<wait>\S+), execution (?P<execution>\S+), later queueing (?P<queueing>\S+), "
            r"later execution (?P<later>\S+), later waits and hops (?P<waits>\S+) ms",
            outcome.text,
        )
        terms = {name: float(value) for name, value in told.groupdict(default="0").items()}
        terms["left"] -= terms["past"]
        assert terms["needs"] >= terms["left"]  # of 65.72 and 65.68 both are told as 65.7
        assert terms["left"] + terms["spent"] == pytest.approx(150, abs=0.2)
        parts = [terms[name] for name in ("wait", "execution", "queueing", "later", "waits")]
        assert terms["needs"] == pytest.approx(sum(parts), abs=0.4)
        assert terms["later"] == pytest.approx(38)  # the profile of the second stage, which nobody has heard of
    assert chain.metrics("one")["spillway_shortfall_seconds_count"] >= len(drops)


@pytest.mark.parametrize("chain", ["pard", "expired"], indirect=True)
def test_a_client_whose_clock_is_off_is_served_as_if_it_were_right(chain):
    for turn, ahead in enumerate((HOUR - 30, 30 - HOUR, -2.0), 1):
        assert [outcome.kind for outcome in send(chain, 40, 120.0, ahead=ahead)] == [PREDICTION] * 40 * turn
        gate = chain.metrics("gate")
        assert (gate[names.GOOD_TOTAL], gate[names.LATE_TOTAL]) == (40 * turn, 0)
        assert chain.metrics("one")[names.CLOCK_SKEW_TOTAL] == 40 * turn  # re-based once, at the root
        assert chain.metrics("two")[names.CLOCK_SKEW_TOTAL] == 0


def test_a_clock_that_is_ahead_buys_no_time(chain):
    """A client an hour ahead names a deadline an hour from now, and is held to the 30 ms that it asked for."""
    for turn, (ahead, skewed) in enumerate(((0.0, 0), (HOUR - 30, 40), (30 - HOUR, 80)), 1):
        outcomes = send(chain, 40, 0.03, ahead=ahead, seconds=0.25)
        assert [(outcome.kind, outcome.reason) for outcome in outcomes] == [(DROPPED, reasons.TOO_LATE)] * 40 * turn
        assert chain.metrics("one")[names.CLOCK_SKEW_TOTAL] == skewed


def word(pipeline, at, of, what):
    """What the process of `at` knows of the replica of `of`; None while that is nothing."""
    return pipeline.metrics(at, of_stage=of, of_replica="0", what=what).get(names.PLAN_WORD)


def silent(pipeline, at, of):
    return pipeline.metrics(at, of_stage=of).get(names.PLAN_SILENT)


def test_two_stages_tell_each_other_how_they_fare(chain):
    chain.sleep(3.0)
    send(chain, 100, 120.0)
    assert (word(chain, "one", "two", "batch"), word(chain, "two", "one", "batch")) == (8, 4)
    assert word(chain, "one", "two", "profile") == pytest.approx(0.038)
    assert 0.03 < word(chain, "one", "two", "duration") < 0.04
    assert 0.02 < word(chain, "two", "one", "duration") < 0.025
    counts = chain.metrics("one")
    assert counts[names.PLAN_WORDS_TOTAL] > 2
    assert counts["spillway_plan_age_seconds_count"] > 0
    assert counts["spillway_plan_delay_seconds_count"] > 0
    assert counts["spillway_consumed_seconds_count"] == 100
    assert counts[names.HAPPENED_SECONDS_TOTAL] > 0
    fates = {fate: chain.metrics("one", fate=fate, le="+Inf") for fate in ("kept", "refused")}
    assert {fate: found["spillway_budget_seconds_bucket"] for fate, found in fates.items()} == {
        "kept": 100, "refused": 0
    }  # fmt: skip


def test_a_stage_that_stands_still_or_dies_falls_silent_until_it_speaks_again(chain):
    chain.sleep(3.0)
    assert silent(chain, "one", "two") == 0
    chain.stop("two")
    chain.sleep(10.0)
    assert silent(chain, "one", "two") == 1
    assert word(chain, "one", "two", "age") > 3.0
    chain.go_on("two")
    chain.kill("two")
    chain.sleep(3.0)
    assert silent(chain, "one", "two") == 0
    assert word(chain, "one", "two", "age") < 3.0


def test_lies_are_refused_and_counted_and_change_nothing(chain):
    chain.sleep(3.0)
    now = int(1e6 * chain.now)
    truth = PlanWord("two", 0, now, now)
    lies = {
        "negative": replace(truth, queueing=-1.0),
        "not-a-number": replace(truth, duration=float("nan")),
        "too-much": replace(truth, duration=1e4),
        "future": replace(truth, at_us=truth.at_us + 3_600_000_000),
        "unknown-stage": replace(truth, stage="three"),
        "outdated": replace(truth, began_us=1, at_us=1),
    }
    for value in [*map(codec.encode_word, lies.values()), MARKER + b"garbage", b"", b"\xff" * 60_000, b"no avro"]:
        chain.produce("plan", value, key=b"two.0")
    chain.produce("plan", None, key=b"\xff.nonsense.-1")
    chain.sleep(3.0)
    refused = {reason: chain.metrics("one", reason=reason).get(names.PLAN_REFUSED_TOTAL) for reason in lies}
    assert refused == dict.fromkeys(lies, 1)
    assert chain.metrics("one")[names.PLAN_REFUSED_TOTAL] == len(lies) + 4  # and four that cannot be read
    assert silent(chain, "one", "two") == 0
    assert word(chain, "one", "two", "queueing") >= 0


PAGE = (Path(__file__).parents[3] / "docs/policies.md").read_text()
(EXAMPLE,) = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
OWN = "policies:Impatient:longest=.2"


def test_the_policy_of_the_page_drops_what_it_says_and_is_checked_and_compared_with_ours(
    served, tmp_path, monkeypatch, capsys
):
    file = tmp_path / "pipeline.yaml"
    (tmp_path / "policies.py").write_text(EXAMPLE)
    file.write_text(f"""
name: p
slo: 30s
stages: [{{name: one, emulated: {{alpha: 100ms}}, batching: {{size: 1}}, policy: "{OWN}"}}]
""")
    monkeypatch.setattr(sys, "path", [*sys.path])
    outcomes = [outcome for _, outcome in served(file).outcomes([{"x": x} for x in range(20)])]  # two seconds of work
    drops = [outcome for outcome in outcomes if outcome.kind == DROPPED]
    assert drops
    assert {(drop.stage, drop.reason) for drop in drops} == {("one", "impatient")}
    assert all(float(re.match(r"waited (\S+) s", drop.text)[1]) >= 0.2 for drop in drops)
    assert {outcome.kind for outcome in outcomes} == {DROPPED, PREDICTION}

    def said(*words):
        assert run(list(map(str, words))) == 0
        return capsys.readouterr().out

    assert "policies and functions: all were found" in said("check", file, "--load")
    asked = ("poisson:20", "--duration", "10", "--policy", "naive", "--policy", OWN, "--json")
    rows = {row["policy"]: row for row in json.loads(said("whatif", file, *asked))["alternatives"]}
    assert (rows["naive"]["dropped"], set(rows)) == (0, {"naive", OWN})
    assert rows[OWN]["dropped"] > 0


@pytest.mark.parametrize("method", ["judge", "push"])
def test_what_a_policy_raises_is_raised_to_who_waits_for_the_query(served, tmp_path, monkeypatch, method):
    code = f"""
from spillway.agents.core.policies.fifo import Fifo


class Faulty(Fifo):
    def {method}(self, *_arguments):
        raise ZeroDivisionError("of a policy")
"""
    (tmp_path / f"faulty_{method}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    pipeline = served(Pipeline.parse(CHAIN.replace("POLICY", f"faulty_{method}:Faulty")))
    with pytest.raises(ZeroDivisionError, match="of a policy"):
        list(pipeline.outcomes([{"x": 1}] * 40))
