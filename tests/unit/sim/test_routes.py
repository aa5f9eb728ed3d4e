"""Joins, choices, sinks, partitions, delays and the policies' synchronisation in the simulator."""

from random import Random
from typing import ClassVar

import numpy as np
import pytest

from spillway.agents.core import policies
from spillway.agents.core.policies.fifo import Fifo
from spillway.agents.core.policy import Refusal, StageState
from spillway.agents.sim.simulation import simulate
from spillway.lineage.errors import UsageError
from spillway.producers.report import DROPPED, PREDICTION
from spillway.topology.load import parse

from .reckoning import Stage, reckon

DIAMOND = """
name: diamond
slo: {slo}
partitions: 2
sinks: {sinks}
stages:
  - {{name: a, batching: {{size: 1}}, emulated: {{alpha: 10ms, beta: 0}} {a} }}
  - {{name: b, batching: {{size: 1}}, emulated: {{alpha: 5ms, beta: 0}}, after: a {b} }}
  - {{name: c, batching: {{size: 1}}, emulated: {{alpha: 30ms, beta: 0}}, after: a {c} }}
"""
JOINED = DIAMOND + "  - {{name: d, batching: {{size: 1}}, emulated: {{alpha: 1ms, beta: 0}}, after: [b, c] {d} }}\n"


def pipeline(text, *, slo=1.0, sinks="null", **stages):
    return parse(text.format(slo=slo, sinks=sinks, **{name: stages.get(name, "") for name in "abcd"}))


def ends(result):
    """Milliseconds from arrival to outcome; negative for a drop."""
    took = 1000 * (result.finished - result.due)
    return np.where(result.kind == DROPPED, -took, took).round(6).tolist()


class DropsSecond(Fifo):
    __slots__ = ("seen",)

    def __init__(self, view):
        super().__init__(view)
        self.seen = 0

    def judge(self, now, starts, request):
        self.seen += 1
        return Refusal("second") if self.seen % 2 == 0 else None


@pytest.fixture
def drops_second(monkeypatch):
    monkeypatch.setitem(policies.POLICIES, "second", DropsSecond)
    return ", policy: second"


def test_a_join_of_any_goes_on_with_the_first_branch(drops_second):
    joined = pipeline(JOINED, d=", join: {mode: any}")
    assert ends(simulate(joined, [0.0, 1.0])) == [16.0, 16.0]
    joined = pipeline(JOINED, d=", join: {mode: any}", b=drops_second)
    result = simulate(joined, [0.0, 1.0])
    assert ends(result) == [16.0, 41.0]  # b drops the second, c delivers it
    assert result.stages["d"].received == 2
    joined = pipeline(JOINED, d=", join: {mode: any}", b=drops_second, c=drops_second)
    assert ends(simulate(joined, [0.0, 1.0])) == [16.0, -10.0]


def test_a_partial_join_goes_on_with_what_arrived(drops_second):
    partial = ", join: {mode: all, on_loss: partial}"
    assert ends(simulate(pipeline(JOINED, d=partial, b=drops_second), [0.0, 1.0])) == [41.0, 41.0]
    assert ends(simulate(pipeline(JOINED, d=partial, c=drops_second), [0.0, 1.0])) == [41.0, 16.0]
    both = pipeline(JOINED, d=partial, b=drops_second, c=drops_second)
    assert ends(simulate(both, [0.0, 1.0])) == [41.0, -10.0]


def test_a_loss_before_the_fork_is_told_to_the_join_once(drops_second):
    result = simulate(pipeline(JOINED, a=drops_second), [0.0, 1.0])
    assert ends(result) == [41.0, 0.0]
    assert result.kind.tolist() == [PREDICTION, DROPPED]
    assert result.stages["a"].dropped == 1
    assert result.stages["d"].received == 1


@pytest.mark.parametrize(("sinks", "both", "one"), [("all", 40.0, -10.0), ("any", 15.0, 40.0)])
def test_sinks_make_the_outcome_together_or_alone(drops_second, sinks, both, one):
    assert ends(simulate(pipeline(DIAMOND, sinks=sinks), [0.0])) == [both]
    assert ends(simulate(pipeline(DIAMOND, sinks=sinks, b=drops_second), [0.0, 1.0])) == [both, one]


CHOOSES = ", choose: 'm:f'"


def test_a_join_waits_for_the_chosen_branches_only():
    chooser = pipeline(JOINED, a=CHOOSES)
    for choices, took in [({"b": 1.0}, 16.0), ({"c": 1.0}, 41.0), ({"b+c": 1.0}, 41.0), ({"": 1.0}, 10.0)]:
        result = simulate(chooser, [0.0, 1.0], choices={"a": choices})
        assert ends(result) == [took, took]
    assert result.stages["b"].received == result.stages["d"].received == 0


def test_choices_are_drawn_as_likely_as_told_and_the_same_for_a_seed():
    chooser = pipeline(JOINED, a=CHOOSES)
    sent = np.arange(2000) * 0.1
    first = simulate(chooser, sent, choices={"a": {"b": 0.25, "c": 0.25, "": 0.5}}, seed=1)
    assert first.stages["b"].received == pytest.approx(500, abs=80)
    assert first.stages["c"].received == pytest.approx(500, abs=80)
    assert (first.kind == PREDICTION).all()
    again = simulate(chooser, sent, choices={"a": {"b": 0.25, "c": 0.25, "": 0.5}}, seed=1)
    assert (first.finished == again.finished).all()
    other = simulate(chooser, sent, seed=2)  # one of the two, as likely each
    assert other.stages["b"].received == pytest.approx(1000, abs=120)
    assert other.stages["b"].received + other.stages["c"].received == 2000


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        ({"x": 1.0}, "cannot choose 'x'; its successors: b, c"),
        ({"b": 0.7}, "add up to 1"),
        ({"b": 2, "c": -1}, "at least"),
    ],
)
def test_choices_that_cannot_be_are_refused(choices, words):
    with pytest.raises(UsageError, match=words):
        simulate(pipeline(JOINED, a=CHOOSES), [0.0], choices={"a": choices})


ONE = "name: one\nslo: 1\npartitions: 3\n"
ONE += "stages: [{{name: a, batching: {{size: 2}}, emulated: {{alpha: 10ms, beta: 1ms}} {more} }}]"


def test_partitions_are_spread_over_the_replicas_in_turn():
    rng = np.random.default_rng(7)
    sent = np.cumsum(rng.exponential(0.006, 400))
    result = simulate(parse(ONE.format(more=", workers: {fronts: 2}")), sent, seed=5)
    random = Random(5)
    replica = np.array([random.randrange(3) % 2 for _ in sent])  # partitions 0 and 2 belong to replica 0
    for own in (0, 1):
        expected, _ = reckon([Stage("a", 2, 1, 0.010, 0.001, ())], sent[replica == own].tolist())
        assert result.finished[replica == own].tolist() == expected


def test_workers_over_replicas_must_come_out_even():
    two = parse(ONE.format(more=", workers: {fronts: 2}"))
    with pytest.raises(UsageError, match="3 workers cannot be spread evenly over its 2 fronts"):
        simulate(two, [0.0], workers=[3])
    assert simulate(two, [0.0], workers=[3], dispatch="shared").stages["a"].instances == 3
    assert simulate(two, [0.0], workers=[4]).stages["a"].instances == 4


def test_a_batching_delay_passes_in_virtual_time():
    delayed = parse(ONE.replace("size: 2", "size: 2, delay: 5ms").format(more=""))
    # The first two fill a batch at 3; the third's delay is over at 25.
    assert ends(simulate(delayed, [0.0, 0.003, 0.020])) == [15.0, 12.0, 16.0]


class Reporting(Fifo):
    """Tells its backlog, hears all, and drops what enters while any stage's last word was of a backlog of 2 or more."""

    __slots__ = ("overload",)
    log: ClassVar[list] = []

    def __init__(self, view):
        super().__init__(view)
        self.overload = False

    def report(self, now, load):
        return StageState(self.view.stage, self.view.replica, now, backlog=load.queued + load.forming)

    def tick(self, now, load, states):
        self.log.append((now, self.view.stage, {name: [s.backlog for s in told] for name, told in states.items()}))
        self.overload = any(state.backlog >= 2 for told in states.values() for state in told)

    def judge(self, now, starts, request):
        return Refusal("overload") if self.overload else None


def test_policies_hear_of_all_stages_once_a_period(monkeypatch):
    monkeypatch.setitem(policies.POLICIES, "reporting", Reporting)
    Reporting.log.clear()
    slow = pipeline(JOINED, c=", workers: {count: 1}")
    result = simulate(slow, [0.0, 0.001, 0.002, 0.003], policy="reporting", period=0.045)
    # At 45 ms a has served all four, and c works on its second, with the third in its forming batch and the fourth
    # waiting: that one would enter at 70.
    assert Reporting.log[0] == (0.045, "a", {"a": [0], "b": [0], "c": [2], "d": [0]})
    assert [stage for _, stage, _ in Reporting.log[:4]] == ["a", "b", "c", "d"]
    assert result.stages["c"].dropped == 1
    assert (result.kind[3], round(result.finished[3], 9)) == (DROPPED, 0.070)
    assert Reporting.log[-1][0] < 0.25  # it ends when nothing is left


def test_policies_know_where_they_stand(monkeypatch):
    views = []

    class Curious(Fifo):
        __slots__ = ()

        def __init__(self, view):
            super().__init__(view)
            views.append(view)

    monkeypatch.setitem(policies.POLICIES, "curious", Curious)
    simulate(pipeline(JOINED), [0.0], policy="curious", workers=[1, 2, 3, 1], dispatch="worker", slo=0.3)
    assert [(view.stage, view.replica) for view in views] == [
        ("a", 0), ("b", 0), ("b", 1), ("c", 0), ("c", 1), ("c", 2), ("d", 0)
    ]  # fmt: skip
    view = views[0]
    assert view.slo == 0.3
    assert view.successors == {"a": ("b", "c"), "b": ("d",), "c": ("d",), "d": ()}
    assert (view.facts["c"].workers, view.facts["c"].batch, view.facts["c"].duration(4)) == (3, 1, 0.03)
