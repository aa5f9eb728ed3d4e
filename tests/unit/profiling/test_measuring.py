"""Timing a model: sizes, warm-up, repeats, percentiles, samples; on a clock that the model moves."""

import subprocess
import sys

import numpy as np
import pytest

from spillway.agents.profiling.process import Effort, Memory, measure, own_samples
from spillway.agents.profiling.profiler import parse_sizes, sizes_up_to
from spillway.lineage.errors import ModelError, UsageError
from spillway.topology.spec import StageSpec

PLACE = "stage 'a': model 'm:M'"


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Model:
    """Takes 10 ms and 1 ms for each query, ten times that for its first batches, and now and then a pause."""

    def __init__(self, clock: Clock, pause: float = 0.0, cold: int = 3) -> None:
        self.clock, self.pause, self.cold, self.batches = clock, pause, cold, []

    def predict(self, batch):
        self.batches.append(batch)
        slow = 10 if len(self.batches) <= self.cold else 1
        self.clock.now += slow * (0.010 + 0.001 * len(batch)) + (self.pause if len(self.batches) % 10 == 0 else 0)
        return [{} for _ in batch]


def run(model: Model, size: int, **effort):
    memory = Memory("cpu", [])
    return measure(PLACE, model, [{"x": 1}, {"x": 2}, {"x": 3}], size, Effort(**effort), memory, model.clock)


def test_warming_up_is_not_counted_and_pauses_show_in_the_tail():
    model = Model(Clock(), pause=0.5)
    found = run(model, 4)
    assert found.p50 == pytest.approx(0.014)
    assert found.p95 == pytest.approx(0.514)
    assert (found.runs, len(model.batches)) == (30, 33)


def test_batches_are_made_of_the_samples_in_turn():
    model = Model(Clock())
    run(model, 5, runs=1)
    assert [query["x"] for query in model.batches[-1]] == [1, 2, 3, 1, 2]
    assert len({query.request_id for query in model.batches[-1]}) == 5


def test_a_slow_model_is_run_less_often():
    model = Model(Clock(), cold=1)
    assert run(model, 490, seconds=3.0).runs == 6  # half a second each
    slow = Model(Clock(), cold=1)
    assert run(slow, 4_990, seconds=3.0).runs == 5  # at least, though it takes 25 s
    assert len(slow.batches) == 6  # the first warm-up took 50 s


PEAK = """
import os
import numpy as np
from spillway.agents.profiling.process import Memory
memory = Memory("cpu", [os.getpid()])
memory.reset()
before = memory.peak()
held = np.ones(40 << 20, np.uint8)
print(memory.peak() - before)
"""


def test_the_peak_of_memory_is_that_of_the_process():
    # In a process of its own, as models are measured: here what earlier tests have freed may be used again.
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 30 << 20


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (
            lambda batch: 1 / 0,
            "failed on a batch of 2: ZeroDivisionError: division by zero; check that the samples fit",
        ),
        (lambda batch: [{}], "did not return 2 results for a batch of 2, but list"),
        (lambda batch: None, "did not return 2 results for a batch of 2, but NoneType"),
    ],
)
def test_a_model_that_fails(answer, text):
    model = type("M", (), {"predict": staticmethod(answer)})()
    with pytest.raises(ModelError) as caught:
        measure(PLACE, model, [{}], 2, Effort(), Memory("cpu", []), Clock())
    assert f"{PLACE} {text}" in str(caught.value)


def test_sizes_between():
    assert parse_sizes("1,2,4..64") == (1, 2, 4, 6, 8, 12, 16, 24, 32, 48, 64)
    assert parse_sizes("5..20") == (5, 6, 8, 12, 16, 20)
    assert parse_sizes(" 7 , 3") == (3, 7)
    assert sizes_up_to(20) == (1, 2, 3, 4, 6, 8, 12, 16, 20)
    assert sizes_up_to(20, (8, 64)) == (1, 8, 20)
    assert sizes_up_to(1) == (1,)


@pytest.mark.parametrize("text", ["", "0", "4..2", "1;2", "x", "1..", "99999999"])
def test_sizes_that_are_none(text):
    with pytest.raises(UsageError, match=r"is not a list of batch sizes; write them as in 1,2,4..64"):
        parse_sizes(text)


def stage(**fields):
    return StageSpec(name="a", model="m:M", **fields)


def test_samples_after_declared_inputs_are_the_same_for_a_seed():
    spec = stage(inputs={"x": {"dtype": "uint8", "shape": [3, "n"]}, "t": {"dtype": "str"}})
    first, again, other = (own_samples(spec, object(), seed) for seed in (1, 1, 2))
    assert len(first) == 64
    assert first[0]["x"].dtype == np.uint8
    assert first[0]["x"].shape == (3, 8)
    assert np.array_equal(first[5]["x"], again[5]["x"])
    assert not np.array_equal(first[5]["x"], other[5]["x"])


def test_a_models_own_example_comes_first():
    one, several = (
        type("M", (), {"example": lambda self, made=made: made})() for made in ({"x": 1}, [{"x": 1}, {"x": 2}])
    )
    spec = stage(inputs={"x": {"dtype": "int"}})
    assert own_samples(spec, one, 0) == [{"x": 1}]
    assert own_samples(spec, several, 0) == [{"x": 1}, {"x": 2}]
    bad = type("M", (), {"example": lambda self: 3})()
    with pytest.raises(
        ModelError, match=r"example\(\) of 'm:M' must return a mapping of inputs, or a list of them, not 3"
    ):
        own_samples(spec, bad, 0)


def test_a_stage_without_inputs_or_example_has_no_samples():
    assert own_samples(stage(), object(), 0) is None
    signed = type("M", (), {"input_signature": {"x": {"dtype": "float32", "shape": [2]}}})()
    assert own_samples(stage(), signed, 0)[0]["x"].shape == (2,)
