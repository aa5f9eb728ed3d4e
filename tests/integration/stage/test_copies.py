"""Copies of batches: a worker that stands still costs its queries the time of a copy, and nothing is doubled."""

import time

import psutil

from tests.worker_processes import workers_of

PIPELINE = """
partitions: 4
stages:
  - name: f
    model: stage_models:Slow
    workers: {count: 2, where: process, timeout: 120s}
    batching: {size: 4}
    copies: {workers: 1, quantile: .9, model: 'stage_models:Pass'}
"""


def test_a_worker_that_stands_still_is_answered_for(stage, until):
    one = stage(PIPELINE)
    process = psutil.Process(one.start("f").pid)
    until(lambda: one.metrics("f").get("spillway_model_instances") == 2)
    stopped = None
    out = one.reader("outcomes")
    for number in range(300):
        if number == 150:
            stopped = workers_of(process)[1]  # of three; one of them runs the copies
            stopped.suspend()
        one.send(f"q{number}", {"x": number}, within=120)
        time.sleep(0.004)
    one.flush()
    out.wait(300)
    stopped.resume()
    told = out.answers(300)
    assert all(told[f"q{number}"].outputs["x"] == number for number in range(300))
    until(lambda: one.committed("f") == one.ends())
    metrics = one.metrics("f")
    assert metrics["spillway_recovered_total"] > 0
    assert metrics["spillway_extras_total"] > 0
    models = {outcome.timings[-1].model for outcome in told.values()}
    assert models == {"stage_models:Slow", "stage_models:Pass"}
