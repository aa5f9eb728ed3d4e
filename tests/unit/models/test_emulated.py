import pytest

from agents.models import emulated
from agents.models.emulated import EmulatedModel
from agents.models.inputs import Inputs


def test_duration_is_linear():
    assert EmulatedModel(alpha=0.01, beta=0.002).duration(4) == pytest.approx(0.018)


@pytest.mark.parametrize(("size", "seconds"), [(1, 1.0), (2, 1.5), (4, 2.5), (8, 4.5), (16, 8.5), (0, 0.5)])
def test_a_table_is_interpolated_and_goes_on_beyond_its_ends(size, seconds):
    assert EmulatedModel(table={1: 1.0, 4: 2.5, 8: 4.5}).duration(size) == pytest.approx(seconds)


def test_one_entry_holds_for_every_size():
    assert EmulatedModel(table={4: 2.5}).duration(9) == 2.5


def test_it_sleeps_as_long_as_the_batch_takes_and_passes_inputs_on(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(emulated.time, "perf_counter", lambda: clock[0])

    def sleep(seconds):
        clock[0] += seconds * 0.75  # wakes early

    monkeypatch.setattr(emulated.time, "sleep", sleep)
    batch = [Inputs({"x": 1}, {}, "a"), Inputs({"x": 2}, {}, "b")]
    assert EmulatedModel(alpha=1.0, beta=0.5).predict(batch) == [{"x": 1}, {"x": 2}]
    assert clock[0] == pytest.approx(102.0)
