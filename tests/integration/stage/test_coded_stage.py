"""A coded stage: workers that stand still or die are answered for, exactly, as its linear model is its own parity."""

import time

import numpy as np
import psutil

from agents.coding.card import Card, Tensor, digest_of, weights_file, write_card, write_reference

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


def parity_of(folder):
    folder.mkdir()
    np.savez(weights_file(folder, 0), w=W)
    write_card(
        folder,
        Card(
            model="stage_models:Linear",
            model_hash=None,
            k=2,
            row=0,
            encoder="sum",
            architecture="stage_models:Linear",
            arguments={},
            inputs={"x": Tensor(dtype="float64", shape=(4,))},
            outputs={"y": Tensor(dtype="float64", shape=(3,))},
            weights=digest_of(weights_file(folder, 0)),
            degraded=0.9,
        ),
    )
    write_reference(folder, {"x": np.ones(4)}, {"y": W @ np.ones(4)})


def workers_of(process, model="stage_models:Linear"):
    found = [each for each in process.children() if "agents.workers.local" in each.cmdline()]
    return [each for each in found if f'"model": "{model}"' in each.cmdline()[-1]]


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
            workers_of(process, "agents.coding.parity:Parity")[0].kill()
        one.send(f"q{number}", {"x": asked[number]}, within=120)
        time.sleep(0.004)
    one.flush()
    out.wait(600)
    for each in stopped:
        each.resume()
    out.settle()
    told = {told.request_id: outcome for told, outcome in out.outcomes()}
    assert len(out.messages) == len(told) == 600
    for number in range(600):
        outcome = told[f"q{number}"]
        assert outcome.kind == "prediction"
        assert outcome.outputs == {"total": float((W @ asked[number]).sum())}
    made = [outcome for outcome in told.values() if outcome.flags]
    assert made
    assert all(outcome.flags == {"f": {"reconstructed": True, "expected": 0.9}} for outcome in made)
    until(lambda: one.committed("f") == one.ends())
    assert one.metrics("f")["spillway_recovered_total"] == len(made)
