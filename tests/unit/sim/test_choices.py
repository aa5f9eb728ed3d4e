"""Choices in the simulator: drawn beforehand, by class where told so, and foretold to policies that ask."""

import numpy as np
import pytest

from agents.sim.choices import Crossroads, chooser
from agents.sim.simulation import simulate
from lineage.errors import UsageError
from producers.report import DROPPED, PREDICTION
from topology.load import parse

FORK = """
name: fork
slo: 200ms
stages:
  - {name: a, emulated: {alpha: 10ms}, batch: 1, choose: "m:f"}
  - {name: slow, after: a, emulated: {alpha: 300ms}, batch: 1, instances: 50}
  - {name: fast, after: a, emulated: {alpha: 10ms}, batch: 1}
  - {name: end, after: [slow, fast], emulated: {alpha: 10ms}, batch: 1}
"""
PIPELINE = parse(FORK)
BY_CLASS = {"s": {"slow": 0.9, "fast": 0.1}, "f": {"slow": 0.1, "fast": 0.9}}
SENT = np.arange(400) * 0.05
PROBES = np.arange(400) % 20 == 0  # the first of each second, which is let in where all would be dropped
CLASSES = ["sf"[number % 2] for number in range(400)]


PATIENT = np.where(np.arange(400) < 60, 1.0, 0.2)  # the first can go any way, and are learned from


def kinds(policy: str, choices=BY_CLASS, classes=CLASSES, budgets=None):
    result = simulate(PIPELINE, SENT, policy=policy, choices={"a": choices}, classes=classes, seed=3, budgets=budgets)
    return result.kind, result.stages


def test_the_same_requests_go_the_same_ways_whatever_is_dropped():
    roads = Crossroads({"a": chooser(PIPELINE.spec.stage("a"), ("slow", "fast"), BY_CLASS)}, 400, CLASSES, 3)
    ways = [roads.choose("a", index) for index in range(400)]
    _, stages = kinds("naive")
    assert stages["slow"].received == ways.count(("slow",))
    found, _ = kinds("pard:paths=oracle")
    # The oracle keeps exactly those that go the fast way: the others cannot be in time.
    assert [kind == PREDICTION for kind in found] == [way == ("fast",) for way in ways]


def test_all_open_paths_drop_what_only_the_slow_one_is_too_slow_for():
    found, _ = kinds("pard:paths=max")
    assert (found[~PROBES] == DROPPED).all()
    assert (kinds("pard")[0] == found).all()  # max is the default


def test_classes_foretell_the_way():
    found, stages = kinds("pard:paths=predicted", budgets=PATIENT)
    fast = np.array([kind == "f" for kind in CLASSES])
    later = np.arange(400) >= 60
    assert (found[~fast & later] == PREDICTION).mean() < 0.1
    assert (found[fast & later] == PREDICTION).mean() > 0.6
    assert stages["slow"].received < 100


def test_a_quantile_that_covers_all_choices_reckons_with_all():
    found, _ = kinds("pard:paths=predicted,quantile=.99", budgets=PATIENT)
    assert (found[~PROBES & (np.arange(400) >= 60)] == DROPPED).all()


def test_chances_by_class_are_those_that_were_given():
    draws = chooser(PIPELINE.spec.stage("a"), ("slow", "fast"), {"s": {"slow": 1.0}, "": {"fast": 0.75, "": 0.25}})
    rng = np.random.default_rng(0)
    found = draws.draw(rng.random(8_000), ["s", "other"] * 4_000)
    assert set(found[::2]) == {("slow",)}
    assert found[1::2].count(()) == pytest.approx(1_000, rel=0.1)


@pytest.mark.parametrize(
    ("choices", "classes", "text"),
    [
        ({"s": {"slow": 1.0}}, CLASSES, "nothing says what requests of class 'f' choose"),
        ({"slow": 0.5, "fast": 0.4}, (), "the probabilities of its choices must be at least 0 and add up to 1"),
        (BY_CLASS, ["s"], "1 classes for 400 arrivals; give one each"),
        ({"s": {"none": 1.0}}, CLASSES, "stage a cannot choose 'none'; its successors: slow, fast"),
    ],
)
def test_what_cannot_be_drawn(choices, classes, text):
    with pytest.raises(UsageError, match=text):
        kinds("naive", choices, classes)
