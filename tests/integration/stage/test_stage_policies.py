"""Policies as live stages run them, on a real broker: what a drop tells, whose clock counts."""

import re
import time

import pytest

from spillway.lineage import headers, reasons
from spillway.lineage import metric_names as names
from spillway.lineage.message import DROPPED, PREDICTION
from spillway.producers.client import Client
from tests.waiting import PATIENT_SECONDS

CHAIN = """
partitions: 4
stages:
  - {name: one, emulated: {alpha: 20ms, beta: 1ms}, batching: {size: 4}}
  - {name: two, emulated: {alpha: 30ms, beta: 1ms}, batching: {size: 8}, after: one}
"""
PERIOD = 0.1
HOUR = 3600.0


def send_with(chain, count, budget, ago=0.0, prefix="q"):
    """Send queries that are due `budget` seconds after their sending, which they say was `ago` seconds ago."""
    for number in range(count):
        sent = time.time_ns() // 1000 - int(1e6 * ago)
        came = headers.Headers(f"{prefix}-{number}", sent, sent + int(1e6 * budget))
        chain.send(f"{prefix}-{number}", {"x": number}, pairs=headers.encode(came))
    chain.flush()


def test_a_drop_tells_every_term_of_its_estimate(chain, until):
    chain.start("one", policy="pard", plan_period=PERIOD)
    until(lambda: chain.metrics("one"))
    reader = chain.reader("outcomes")
    send_with(chain, 100, 0.15)  # far more than two stages can serve within it, though some reach the second
    until(lambda: reader.poll(0.1) or len(reader.messages) > 50)
    drops = [outcome for _, outcome in reader.outcomes() if outcome.reason == reasons.TOO_LATE]
    assert drops
    for outcome in drops:
        assert (outcome.kind, outcome.stage) == (DROPPED, "one")
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
    figures = chain.metrics("one")
    assert figures["spillway_shortfall_seconds_count"] >= len(drops)


class Shifted:
    """The `time` of a client whose clock is off."""

    def __init__(self, seconds):
        self._seconds = seconds

    def __getattr__(self, name):
        return getattr(time, name)

    def time(self):
        return time.time() + self._seconds

    def time_ns(self):
        return time.time_ns() + int(1e9 * self._seconds)


@pytest.fixture
def chain(stage):
    return stage(CHAIN)


@pytest.mark.parametrize("policy", ["pard", pytest.param("expired", marks=pytest.mark.nightly)])
def test_a_client_whose_clock_is_off_is_served_as_if_it_were_right(chain, until, monkeypatch, policy):
    for name in ("one", "two"):
        chain.start(name, policy=policy, plan_period=PERIOD)
    chain.gate()
    until(lambda: all(chain.metrics(name) for name in ("one", "two", "gate")))
    for turn, shift in enumerate((HOUR - 30, 30 - HOUR, -2.0), 1):
        monkeypatch.setattr("spillway.producers.client.queries.time", Shifted(shift))
        with Client(chain.name, chain.settings, slo=PATIENT_SECONDS) as client:
            futures = [client.submit({"x": number}) for number in range(40)]
            outcomes = [future.result(PATIENT_SECONDS) for future in futures]
        assert [outcome.kind for outcome in outcomes] == [PREDICTION] * 40
        until(lambda good=40 * turn: chain.metrics("gate").get(names.GOOD_TOTAL, 0) == good)
        assert chain.metrics("gate")[names.LATE_TOTAL] == 0
        assert chain.metrics("one")[names.CLOCK_SKEW_TOTAL] == 40 * turn  # re-based once, at the root
        assert chain.metrics("two")[names.CLOCK_SKEW_TOTAL] == 0


def test_a_clock_that_is_ahead_buys_no_time(chain, until):
    """A client an hour ahead names a deadline an hour from now, and is held to the 30 ms that it asked for."""
    chain.start("one", policy="pard", plan_period=PERIOD)
    until(lambda: chain.metrics("one"))
    reader = chain.reader("outcomes")
    for turn, (shift, skewed) in enumerate(((0.0, 0), (30 - HOUR, 40), (HOUR - 30, 80)), 1):
        send_with(chain, 40, 0.03, ago=-shift, prefix=f"t{turn}")
        reader.wait(40 * turn)
        assert {(outcome.kind, outcome.reason) for _, outcome in reader.outcomes()} == {(DROPPED, reasons.TOO_LATE)}
        assert chain.metrics("one")[names.CLOCK_SKEW_TOTAL] == skewed
