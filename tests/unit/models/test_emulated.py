import pytest

from agents.models import bare
from agents.models.bare import EmulatedModel
from agents.models.inputs import Inputs


def test_it_sleeps_as_long_as_the_batch_takes_and_passes_inputs_on(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(bare.time, "perf_counter", lambda: clock[0])

    def sleep(seconds):
        clock[0] += seconds * 0.75  # wakes early

    monkeypatch.setattr(bare.time, "sleep", sleep)
    batch = [Inputs({"x": 1}, {}, "a"), Inputs({"x": 2}, {}, "b")]
    assert EmulatedModel(lambda size: 1.0 + 0.5 * size).predict(batch) == [{"x": 1}, {"x": 2}]
    assert clock[0] == pytest.approx(102.0)
