"""What the demonstration of InferLine rests on: time that is stretched and nothing else, and what workers cost."""

from types import SimpleNamespace

import numpy as np
import pytest

from examples.inferline import slowed
from examples.inferline.demonstration import windowed
from examples.inferline.followed import Run, Workers
from spillway.agents.sim.estimator import Estimator
from spillway.topology.capacity.hardware import options_of, read_catalogue
from spillway.topology.capacity.planner import Sizing
from spillway.topology.load import load
from spillway.topology.profiles import read_profile_file


def sizes(file, profiles):
    options = options_of(load(file), read_catalogue(slowed.HARDWARE), read_profile_file(profiles), "profiles.yaml")
    return {name: Sizing(3, min(2, each[0].largest), each[0].duration) for name, each in options.items()}


@pytest.mark.parametrize("which", ["image", "social", "video", "cascade"])
def test_a_slowed_pipeline_answers_slowed_arrivals_in_as_much_longer(tmp_path, which):
    due, factor = np.cumsum(np.random.default_rng(1).exponential(1 / 100, 500)), 8.0  # a power of two rounds nothing
    fast, slow = slowed.FOLDER / f"{which}.yaml", slowed.pipeline_file(which, f"slow-{which}", tmp_path, factor)
    assert load(slow).spec.slo == factor * load(fast).spec.slo
    quick = Estimator(load(fast), due)(sizes(fast, slowed.FOLDER / "profiles.yaml"))
    long = Estimator(load(slow), factor * due)(sizes(slow, slowed.profiles_file(tmp_path, factor)))
    assert long == pytest.approx(factor * quick)


def test_a_worker_costs_from_its_order_until_it_has_drained_and_a_stage_that_is_silent_is_as_it_was():
    plan = SimpleNamespace(
        stages={"a": SimpleNamespace(price=3600.0, count=2), "b": SimpleNamespace(price=36.0, count=1)}
    )
    workers = Workers(plan)
    for now, a in ((0.0, (2, 2)), (1.0, (2, 4)), (3.0, (4, 4)), (4.0, None), (5.0, (4, 1)), (6.0, (1, 1))):
        workers.note(now, {"b": (1, 1)} if a is None else {"a": a, "b": (1, 1)})
    assert workers.ready["a"] == [2, 2, 4, 4, 4, 1]
    seconds = 2 + 2 * 4 + 4 + 4 + 4
    assert workers.costs()[-1] == pytest.approx(seconds + 6 * 0.01)


def test_what_was_not_answered_misses_the_slo_and_is_lost():
    result = SimpleNamespace(due=np.array([0.0, 1.0, 6.0, 7.0]), finished=np.array([0.5, 3.5, np.nan, 8.0]))
    run = Run(SimpleNamespace(slo=1.0), result, None)
    assert (run.misses.tolist(), run.lost) == ([False, True, True, False], 1)
    times, shares = windowed(result.due, run.misses, np.mean)
    assert (times.tolist(), shares) == ([2.5, 7.5], [0.5, 0.5])
