"""L_sub of eq. 3 over the stages that are still before a request."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spillway.agents.core.board import sketch
from spillway.agents.core.estimates.outlook import Later, Outlook, Sampler, pool, quantile, uniform
from spillway.agents.core.policy import StageFacts, StageState, StageView
from spillway.lineage.errors import UsageError

# a hands over to b and c, which meet in d.
FORK = {"a": ("b", "c"), "b": ("d",), "c": ("d",), "d": ()}
TAKES = {"a": 0.05, "b": 0.04, "c": 0.03, "d": 0.02}


def outlook(successors=FORK, share=0.1):
    facts = {name: StageFacts(4, lambda n, name=name: TAKES.get(name, 0.01) * n / 4, 2) for name in successors}
    return Outlook(StageView("a", facts=facts, successors=successors), share, 100)


def told(stage, replica=0, **said):
    waits = said.pop("waits", [])
    return StageState(stage, replica, 1.0, waits=waits, waits_seen=len(waits), batch=4, **said)


def states(**replicas):
    return {name: replicas.get(name, [told(name)]) for name in FORK}


def near(later):
    return tuple(round(each, 9) for each in (later.queueing, later.execution, later.waits)), later.path


def test_before_anything_was_said_only_durations_count_along_the_longer_path():
    made = outlook()
    assert near(made.later("a")) == ((0.0, 0.06, 0.0), ("b", "d"))
    assert made.later("d") == Later()


def test_the_worst_path_is_that_with_the_largest_sum():
    made = outlook()
    made.hear(1.0, states(c=[told("c", queueing=0.011, entered=1)]))
    assert made.later("a").path == ("c", "d")
    made.hear(2.0, states(c=[told("c", queueing=0.009, entered=1)]))
    assert made.later("a").path == ("b", "d")


def test_only_paths_count_that_may_still_be_taken():
    made = outlook()
    assert made.later("a", {"a": ("c",)}).path == ("c", "d")
    assert made.later("a", {"a": ()}) == Later()
    assert made.later("a", {"a": ("c",), "c": ()}).path == ("c",)
    assert made.later("b", {"a": ("c",)}).path == ("d",)


def test_what_was_measured_stands_for_the_profile():
    made = outlook()
    made.hear(1.0, states(d=[told("d", 0, duration=0.03), told("d", 1, duration=0.05), told("d", 2)]))
    assert made.duration("d") == pytest.approx(0.04)
    assert made.duration("b") == 0.04


def test_the_planned_size_that_a_stage_tells_counts():
    made = outlook()
    made.hear(1.0, states(d=[StageState("d", 0, 1.0, batch=8)]))
    assert made.duration("d") == 0.04


def test_a_silent_stage_is_taken_for_idle_with_waits_spread_over_its_batch():
    made = outlook(share=0.5)
    made.hear(1.0, states(b=[told("b", queueing=9.0, entered=1, waits=[9.0])]))
    made.hear(2.0, {name: said for name, said in states().items() if name != "b"})
    later = made.later("a")
    assert later.path == ("b", "d")
    assert later.queueing == 0.0
    assert later.waits == pytest.approx(0.02, abs=0.005)  # the median of what is spread over [0, .04]


def test_too_many_paths_are_a_users_mistake():
    wide = {}
    for layer in range(8):
        here, there = [f"l{layer}{each}" for each in range(3)], [f"l{layer + 1}{each}" for each in range(3)]
        wide |= dict.fromkeys(here, tuple(there))
    wide |= dict.fromkeys([f"l8{each}" for each in range(3)], ())
    with pytest.raises(UsageError, match="more than 1000 paths"):
        outlook(wide).later("l00")


# The distribution of batch waits, from samples, from quantiles, and where nothing is said.


def waited(waits, seen=None):
    return StageState("s", 0, 0.0, waits=waits, waits_seen=len(waits) if seen is None else seen)


def test_samples_are_joined_as_they_are():
    assert sorted(pool([waited([1.0, 2.0]), waited([]), waited([3.0])], 10)) == [1.0, 2.0, 3.0]
    assert len(pool([waited([])], 10)) == 0


def test_quantiles_count_for_as_many_waits_as_they_stand_for():
    joined = pool([waited([0.0] * 24, 9_000), waited([1.0] * 24, 1_000)], 1_000)
    assert len(joined) == 1_000
    assert joined.mean() == pytest.approx(0.1)


@example([1.0] * 183 + [0.0] * 33, 0.1484375)
@given(st.lists(st.floats(0, 1), min_size=200, max_size=400), st.floats(0.02, 0.98))
def test_a_quantile_of_a_sketch_is_one_of_the_samples_nearby(samples, share):
    """The sketch says its error: 1/(2n) + 1/(2N); the pool adds a step of its own size."""
    off = 1 / 48 + 1 / 400 + 2 / len(samples)
    found = quantile(pool([waited(sketch(samples), len(samples))], 10_000), share)
    ordered = np.sort(samples)
    low, high = (
        np.quantile(ordered, min(1, max(0, each)), method="closest_observation") for each in (share - off, share + off)
    )
    assert low - 1e-9 <= found <= high + 1e-9


def test_the_quantile_is_the_smallest_value_that_covers_the_share():
    values = np.array([4.0, 1.0, 3.0, 2.0])
    assert [quantile(values, share) for share in (0, 0.25, 0.26, 0.5, 1)] == [1, 1, 2, 2, 4]


@pytest.mark.parametrize(("stages", "w"), [(1, 0.10), (2, 0.44), (3, 0.84), (4, 1.24)])
def test_the_sums_of_even_waits_have_the_quantiles_that_the_paper_gives(stages, w):
    """Section 4.2: with equal durations d and lambda = .1, w is .10 d, .44 d, .84 d, 1.24 d."""
    sampler, waits = Sampler(10_000, seed=0), uniform(1.0, 10_000)
    total = sum(sampler.draw(place, waits) for place in range(stages))
    assert quantile(total, 0.1) == pytest.approx(w, abs=0.02)


def test_draws_of_two_stages_are_independent_and_repeat():
    sampler, waits = Sampler(10_000, seed=0), uniform(1.0, 10_000)
    one, other = sampler.draw(0, waits), sampler.draw(1, waits)
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.03
    assert (Sampler(10_000, seed=0).draw(1, waits) == other).all()
