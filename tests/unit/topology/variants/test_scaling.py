"""The greedy heuristic and the integer program: Table 3, the constraints, and each other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.infaas.family import family, of
from benchmarks.infaas.program import grown, solve
from spillway.topology.variants.scaling import (
    PUBLISHED,
    Candidate,
    Patience,
    Weights,
    candidates_of,
    in_time,
    needed,
    scale_down,
    scale_up,
)

RESNET = of("ResNet50")
A, B, C = RESNET[0], RESNET[1], RESNET[3]  # Table 2
PAPER = Weights(slack=1.0, unpredictability=0.0)


def anything(_variant):
    return 1 << 20


def with_counts(**counts):
    by_letter = {"A": A, "B": B, "C": C}
    return candidates_of((A, B, C), {by_letter[letter].name: count for letter, count in counts.items()})


def deltas(action):
    letters = {A.name: "A", B.name: "B", C.name: "C"}
    return {letters[name]: delta for name, delta in action.deltas.items()}


@pytest.mark.parametrize(
    ("load", "slo", "counts", "cost"),
    [(10, 0.3, {"A": 2}, 2), (10, 0.05, {"B": 1}, 3), (1000, 0.3, {"B": 2, "C": 1}, 22)],
)
def test_the_program_gives_table_3(load, slo, counts, cost):
    found = solve(with_counts(), load, slo, PAPER)
    assert deltas(found) == counts
    assert found.cost == pytest.approx(cost)


def test_as_published_the_heuristic_gives_the_first_two_rows_and_is_dearer_in_the_third_which_a_mix_is_not():
    rows = [(10, 0.3), (10, 0.05), (1000, 0.3)]
    found = [scale_up(with_counts(), *row, PAPER._replace(late=None), anything).action for row in rows]
    assert [deltas(each) for each in found] == [{"A": 2}, {"B": 1}, {"B": 10}]
    assert found[2].cost == pytest.approx(30)
    mixed = scale_up(with_counts(), *rows[2], PAPER, anything).action
    assert (deltas(mixed), mixed.cost) == ({"B": 2, "C": 1}, pytest.approx(22))


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in (1, 2))])
def test_growth_costs_little_more_than_the_program_s(seed):
    assert max(grown(seed, 40)) < 1.15


def test_a_mix_has_to_fit_together():
    def one(_variant):
        return 1

    kinds = (("x", 100.0, 3.0), ("y", 30.0, 1.0))
    twins = [Candidate(B.model_copy(update={"name": name, "cost": cost}), rate, 0.02) for name, rate, cost in kinds]
    assert scale_up(twins, 120, 0.3, PAPER, anything).action.deltas == {"x": 1, "y": 1}
    assert scale_up(twins, 120, 0.3, PAPER, one).action.deltas == {"x": 1}  # as much as there is room for


def test_the_load_is_met_where_it_is_met_already():
    assert scale_up(with_counts(A=3), 10, 0.3, Weights(), anything) == (None, None)
    assert scale_up(with_counts(A=2), 10, 0.3, Weights(), anything).action is not None  # the slack
    assert scale_up(with_counts(A=3), 10, 0.05, Weights(), anything).action is not None  # not within the SLO


def test_a_small_rise_is_replicated_and_a_large_one_upgraded_in_place_of_what_runs():
    assert deltas(scale_up(with_counts(A=1), 9, 0.3, PAPER, anything).action) == {"A": 1}
    upgraded = scale_up(with_counts(A=1), 80, 0.3, PAPER, anything).action
    assert deltas(upgraded) == {"B": 1}
    assert upgraded.cost == pytest.approx(3 - 1)


def test_a_load_that_nobody_can_predict_is_met_by_what_loads_sooner():
    steady = scale_up(with_counts(A=1), 24, 0.3, Weights(1.0, 0.0), anything).action
    spiky = scale_up(with_counts(A=1), 24, 0.3, Weights(1.0, 10.0), anything).action
    assert deltas(steady) == {"B": 1}
    assert spiky.cost > steady.cost
    assert deltas(scale_up(with_counts(A=1), 12, 0.3, Weights(1.0, 10.0), anything).action) == {"A": 2}


def test_where_there_is_no_room_the_next_is_taken_and_a_host_is_wanted_where_there_is_none_for_any():
    def cores(variant):
        return 2 if variant is A else 0

    fitting = scale_up(with_counts(), 10, 0.3, PAPER, cores)
    assert deltas(fitting.action) == {"A": 2}
    some = scale_up(with_counts(), 80, 0.3, PAPER, cores)
    assert deltas(some.action) == {"A": 2}
    assert some.short is B
    none = scale_up(with_counts(), 10, 0.05, PAPER, cores)
    assert (none.action, none.short) == (None, B)


def test_what_failed_is_not_loaded_again():
    without = [each._replace(usable=each.variant is not B) for each in with_counts()]
    assert deltas(scale_up(without, 10, 0.05, PAPER, anything).action) == {"C": 1}
    assert deltas(solve(without, 10, 0.05, PAPER)) == {"C": 1}


def test_what_can_be_spared_goes_and_what_is_too_dear_is_replaced_first():
    assert deltas(scale_down(with_counts(A=3), 9, 0.3, PAPER, anything)) == {"A": -1}
    cheaper = scale_down(with_counts(C=1), 4, 0.3, PAPER, anything)
    assert (deltas(cheaper), cheaper.victim) == ({"A": 1}, C.name)
    assert scale_down(with_counts(C=1), 4, 0.05, PAPER, anything).deltas == {B.name: 1}
    both = scale_down(with_counts(A=1, C=1), 4, 0.3, PAPER, anything)
    assert (deltas(both), both.victim) == ({"C": -1}, C.name)
    assert scale_down(with_counts(A=1), 0, 0.3, PAPER, anything) is None  # the last one stays
    assert scale_down(with_counts(A=1), 4, 0.3, PAPER, anything) is None


def test_nothing_goes_for_what_is_not_ready():
    def halfway(ready):
        return [Candidate(C, 800, 0.015, 1, 1), Candidate(A, 5, 0.2, 1, ready)]

    assert scale_down(halfway(0), 4, 0.3, PAPER, anything) is None
    assert deltas(scale_down(halfway(1), 4, 0.3, PAPER, anything)) == {"C": -1}


def test_patience_begins_anew_with_another_victim():
    patience = Patience()
    assert [patience.due(now, "a", 2.0) for now in (0.0, 1.0, 2.0)] == [False, False, True]
    assert [
        patience.due(now, victim, 2.0) for now, victim in ((3.0, "b"), (4.0, None), (5.0, "b"), (6.0, "b"))
    ] == 4 * [False]


def test_the_program_ends_what_is_too_dear():
    assert deltas(solve(with_counts(C=1, A=1), 4, 0.3, PAPER)) == {"C": -1}
    assert deltas(solve(with_counts(C=1), 4, 0.3, PAPER)) == {"A": 1, "C": -1}


groups = st.sampled_from(sorted({each.architecture for each in family()})).flatmap(
    lambda name: st.tuples(
        st.just(of(name)), st.dictionaries(st.sampled_from([each.name for each in of(name)]), st.integers(1, 5))
    )
)


@given(groups, st.floats(0.1, 2000), st.none() | st.floats(0.05, 6), st.floats(0, 2))
def test_what_the_heuristic_does_serves_the_load_and_costs_no_less_than_the_program(group, load, slo, unpredictability):
    variants, running = group
    weights, candidates = Weights(1.05, unpredictability), candidates_of(variants, running)
    up = scale_up(candidates, load, slo, weights, anything).action
    if up is None:
        return
    after = {each.name: each.ordered + up.deltas.get(each.name, 0) for each in candidates}
    keeping = [each for each in candidates if slo is None or each.latency <= slo]
    assert sum(each.rate * after[each.name] for each in keeping) >= needed(load, weights) - 1e-6
    assert set(up.deltas) <= {each.name for each in keeping}
    assert all(delta > 0 for delta in up.deltas.values())
    assert solve(candidates, load, slo, weights).cost <= up.cost + 1e-6


@given(groups, st.floats(0, 500), st.none() | st.floats(0.05, 6), st.data())
def test_whatever_goes_the_rest_that_is_ready_serves_the_load(group, load, slo, data):
    variants, running = group
    candidates = [
        each._replace(ready=data.draw(st.integers(0, each.ordered))) for each in candidates_of(variants, running)
    ]
    down = scale_down(candidates, load, slo, Weights(), anything)
    if down is None:
        return
    assert down.cost < 0
    assert down.victim in running
    ends = {name: delta for name, delta in down.deltas.items() if delta < 0}
    assert not ends or ends == down.deltas  # never both at once
    keeping = [each for each in candidates if slo is None or each.latency <= slo]
    rest = sum(each.rate * (each.ready + ends.get(each.name, 0)) for each in keeping)
    assert not ends or rest >= needed(load, Weights()) - 1e-6


def test_a_fast_variant_that_nobody_asks_keeps_one_worker():
    fast = A.model_copy(update={"name": "fast", "saturation": 50_000.0})
    loaded = scale_up(candidates_of([fast]), 0.0, None, Weights(), anything).action
    assert loaded.deltas == {"fast": 1}
    assert scale_down(candidates_of([fast], {"fast": 1}), 0.0, None, Weights(), anything) is None


def test_in_time_is_the_peak_as_published_and_less_the_less_an_slo_leaves():
    assert in_time(A, 0.3, PUBLISHED) == in_time(A, None, Weights()) == A.rate
    found = [in_time(A, slo, Weights()) / A.rate for slo in (0.1, 0.2, 0.3, 1.0, 1e6)]
    assert found == sorted(found)
    assert found[:2] == [0.05, 0.05]  # nothing may wait, so one in twenty finds it busy
    assert found[-1] == pytest.approx(1.0, abs=1e-4)
    assert in_time(A, 0.6, Weights(), slower=2.0) == pytest.approx(in_time(A, 0.3, Weights()) / 2)


@pytest.mark.parametrize("slo", [0.25, 0.3, 0.5, 1.0, 3.0])
def test_one_in_twenty_waits_too_long_at_most_with_as_much_as_is_served_in_time(slo):
    random = np.random.default_rng(7)
    arrivals = np.cumsum(random.exponential(1 / in_time(A, slo, Weights()), 20_000))
    free, late = 0.0, 0
    for at in arrivals.tolist():
        began = max(at, free)
        free = began + A.duration(1)
        late += free - at > slo
    assert 0.002 < late / len(arrivals) < 0.055
