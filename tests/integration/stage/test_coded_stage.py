"""A coded stage: workers that stand still or die are answered for, exactly, as its linear model is its own parity."""

import time

import numpy as np
import psutil

from spillway.agents.chaos.strikes import model_of
from spillway.agents.live.sizes import Sizes
from spillway.topology.sizes import Size, key_of
from tests.parity_models import write_parity

PIPELINE = """
partitions: 4
stages:
  - name: f
    model: stage_models:Linear
    workers: {count: 4, where: process, timeout: 120s}
    batching: {limit: fixed, size: 2}
    coding: {k: 2, parity: parity, finish: 'stage_models:finished', group_wait: 20ms}
"""
W = np.arange(12.0).reshape(3, 4) - 5
PARITY = "spillway.agents.coding.parity:Parity"


def parity_of(folder):
    write_parity(folder, "stage_models:Linear", W)


def workers_of(process, model="stage_models:Linear"):
    return [each for each in process.children() if model_of(each) == model]


def test_workers_that_stand_still_or_die_are_answered_for(stage, until):
    one = stage(PIPELINE)
    parity_of(one.folder / "parity")
    process = psutil.Process(one.start("f").pid)
    until(lambda: one.metrics("f").get("spillway_model_instances") == 4)
    out = one.reader("outcomes")
    stopped = []
    draw = np.random.default_rng(0)
    asked = draw.integers(-9, 9, (600, 4)).astype(float)
    for number in range(600):
        if number % 100 == 50:
            for each in stopped:
                each.resume()
            stopped = [workers_of(process)[number // 100 % 4]]
            stopped[0].suspend()
        if number == 420:
            next(each for each in workers_of(process) if each not in stopped).kill()
        if number == 300:
            workers_of(process, PARITY)[0].kill()
        one.send(f"q{number}", {"x": asked[number]}, within=120)
        time.sleep(0.004)
    one.flush()
    out.wait(600)
    for each in stopped:
        each.resume()
    told = out.answers(600)
    for number in range(600):
        outcome = told[f"q{number}"]
        assert outcome.kind == "prediction"
        assert outcome.outputs == {"total": float((W @ asked[number]).sum())}
    made = [outcome for outcome in told.values() if outcome.flags]
    assert made
    assert all(outcome.flags == {"f": {"reconstructed": True, "expected": 0.9}} for outcome in made)
    until(lambda: one.committed("f") == one.ends())
    assert one.metrics("f")["spillway_recovered_total"] == len(made)


LAST = """
partitions: 1
stages:
  - name: f
    model: stage_models:Linear
    policy: naive
    workers: {count: 2, where: process, timeout: 120s}
    batching: {limit: fixed, size: 1}
    coding: {k: 2, parity: parity, finish: 'stage_models:finished', release: budget}
    default: {total: -0.5}
"""


def test_what_was_made_and_then_the_default_wait_for_the_last_moment(stage, until):
    one = stage(LAST)
    parity_of(one.folder / "parity")
    process = psutil.Process(one.start("f").pid)
    until(lambda: one.metrics("f").get("spillway_model_instances") == 2)
    out = one.reader("outcomes")
    asked = np.random.default_rng(0).integers(-9, 9, (8, 4)).astype(float)

    def ask(numbers):
        for number in numbers:
            one.send(f"q{number}", {"x": asked[number]}, within=4)
        one.flush()
        out.wait(numbers[-1] + 1)
        return {
            int(told.request_id[1:]): (outcome, message.timestamp()[1] / 1e3 - told.deadline_us / 1e6)
            for (told, outcome), message in zip(out.outcomes(), out.messages, strict=True)
        }

    first, second = workers_of(process)
    first.suspend()
    told = ask([0, 1])
    kinds = [told[n][0].flags.get("f", {}) for n in (0, 1)]
    assert sorted(kinds, key=len) == [{}, {"reconstructed": True, "expected": 0.9}]
    for number, flags in enumerate(kinds):
        outcome, late = told[number]
        assert outcome.outputs == {"total": float((W @ asked[number]).sum())}
        assert not flags or late > -1, late
    (parity,) = workers_of(process, PARITY)
    second.suspend()
    parity.suspend()
    told = ask([2, 3, 4])
    for number in (2, 3, 4):
        outcome, late = told[number]
        assert (outcome.outputs, outcome.flags) == ({"total": -0.5}, {"f": {"default": True}})
        assert late > -1, late
    for each in (first, second, parity):
        each.resume()
    told = ask([5, 6, 7])
    assert all(not told[n][0].flags for n in (5, 6, 7))
    assert len(out.settle()) == 8
    until(lambda: one.committed("f") == one.ends())
    counted = one.metrics("f")
    assert (counted["spillway_defaults_total"], counted["spillway_recovered_total"]) == (3, 1)
    assert counted["spillway_coding_graded_total"] >= 1  # by what came when its worker went on
    for count, parities in ((5, 3), (2, 1)):
        with Sizes(one.settings, one.name) as table:
            table.write({key_of("f"): Size(count, "test", "", time.time(), 9, "")})
        until(lambda parities=parities: len(workers_of(process, "spillway.agents.coding.parity:Parity")) == parities)
