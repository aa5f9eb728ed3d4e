"""What the tuner orders: by how much, when, and when not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.topology.capacity.envelope import envelope, windows
from spillway.topology.capacity.tuner import BAND, GAP, RECENT, SETTLE, Basis, Tuner
from tests.planned import planned

LENGTHS = windows(0.25)
STAGES = {"a": planned(4, 30.0, 1.0, "cpu"), "b": planned(3, 25.0, 0.5, "gpu")}
STEADY = Basis(100.0, {length: round(100 * length) for length in LENGTHS}, STAGES)


class Run:
    """A tuner whose orders stand at once, and what it ordered: (when, stage, count)."""

    def __init__(self, basis, form="envelope", tick=0.05):
        self.tuner, self.orders, self.said = Tuner(basis, form), [], []
        self.now, self.total, self._tick = 0.0, 0.0, tick
        for name, stage in basis.stages.items():
            self.tuner.stands(0.0, name, stage.count)

    def go(self, seconds, rate, *, told=True):
        """Queries come evenly for a while; not `told`, nobody can count them."""
        until = self.now + seconds
        while self.now < until:
            self.now += self._tick
            self.total += rate * self._tick
            if told:
                self.tuner.count(self.now, self.total)
            self.decide()

    def decide(self):
        for name, order in self.tuner.orders(self.now).items():
            self.orders.append((self.now, name, order.count))
            self.tuner.stands(self.now, name, order.count)
        self.said += self.tuner.said()

    @property
    def sizes(self):
        return {name: count for _, name, count in self.orders}


def test_the_paper_has_as_many_as_the_rate_above_the_samples_needs_at_the_plans_ratio():
    run = Run(STEADY, "paper")
    run.go(61, 100)
    assert run.orders == []
    run.go(60, 150)
    # rho_a = 100 / (4 x 30), rho_b = 50 / (3 x 25): k = ceil(150 s / (mu rho))
    assert run.sizes == {"a": 6, "b": 5}


def test_the_envelope_goes_up_at_once_beyond_its_band_and_down_to_the_plan_when_the_load_is_over():
    run = Run(STEADY)
    run.go(61, 100)
    run.go(60, 100 * (1 + BAND) - 1)
    assert run.orders == []
    begun = run.now
    run.go(30, 200)
    assert run.sizes == {"a": 8, "b": 6}
    assert run.orders[0][0] - begun < 3.0
    assert run.orders[-1][0] - begun < 15.0
    over = run.now
    run.go(100, 100)  # the longest window must end before the memory does
    assert run.sizes == {"a": 4, "b": 3}
    down = [when for when, _, _ in run.orders if when > over]
    assert min(down) - over >= SETTLE
    assert max(down) - over <= LENGTHS[-1] + RECENT + SETTLE
    run.go(120, 10)
    assert run.sizes == {"a": 1, "b": 1}
    run.go(10, 95)
    assert run.sizes == {"a": 4, "b": 3}, "back at the plan, though the sample had as much"


@pytest.mark.parametrize("cv2", [1, 4])
def test_traffic_like_the_samples_is_hardly_answered_and_never_swings(cv2):
    rng = np.random.default_rng(5)
    sample, live = (np.cumsum(rng.gamma(1 / cv2, cv2 / 100, 60_000)) for _ in range(2))
    stages = {"a": planned(5, 30.0, 1.0, "cpu", load=5.0)}
    basis = Basis(100.0, dict(zip(LENGTHS, envelope(sample, LENGTHS), strict=True)), stages)
    ordered = {}
    for form in ("paper", "envelope"):
        run = Run(basis, form)
        for now in np.arange(0.05, 590, 0.05):
            run.now = float(now)
            run.tuner.count(run.now, int(np.searchsorted(live, now)))
            run.decide()
        ordered[form] = [count for _, _, count in run.orders]
    assert ordered["envelope"] == sorted(ordered["envelope"])
    assert len(ordered["envelope"]) <= 3
    assert cv2 == 1 or len(ordered["paper"]) > 3


def test_a_load_that_grows_is_answered_by_what_it_is_when_workers_have_loaded():
    stages = {name: planned(4, 30.0, 1.0, "cpu", load=load) for name, load in (("slow", 10.0), ("quick", 0.0))}
    run = Run(Basis(100.0, STEADY.envelope, stages))
    run.go(61, 100)
    for rate in range(100, 600, 20):
        run.go(1, rate)
    assert run.sizes["slow"] > run.sizes["quick"] >= 20


@pytest.mark.parametrize("form", ["paper", "envelope"])
def test_no_data_is_not_no_load(form):
    run = Run(STEADY, form)
    run.go(31, 100)
    run.go(120, 0, told=False)
    assert run.orders == [], "nothing is known"
    run.go(29, 100)
    assert run.orders == [], "the last 30 s are not known yet"
    run.go(5, 0)
    run.go(GAP / 2, 0, told=False)
    run.go(60, 0)
    assert run.sizes == {"a": 1, "b": 1}, "what was counted and is nothing is no load"


def test_a_plan_that_was_just_served_stands_until_its_first_query_however_late_that_comes():
    run = Run(STEADY)
    run.tuner = Tuner(STEADY, fresh=True)
    for name, stage in STAGES.items():
        run.tuner.stands(0.0, name, stage.count)
    run.total = 70.0  # it was served before
    run.go(300, 0)
    run.go(60, 100)
    assert run.orders == []
    run.go(100, 0)
    assert run.sizes == {"a": 1, "b": 1}


def test_a_topic_that_was_made_anew_is_counted_anew():
    run = Run(STEADY)
    run.go(61, 100)
    run.total = 0.0
    run.go(20, 100)
    assert run.orders == []
    run.go(20, 200)
    assert run.sizes == {"a": 8, "b": 6}


def test_a_limit_that_is_reached_is_said_once_and_anew_after_it_was_enough():
    run = Run(Basis(STEADY.rate, STEADY.envelope, STAGES, {"gpu": 5}))
    for _ in range(2):
        run.go(70, 100)
        run.go(40, 300)
        assert (run.sizes["a"] > 10, run.sizes["b"]) == (True, 5)
        assert run.tuner.short == {"b"}
    assert len(run.said) == 2
    assert "of 5 of gpu 5 are left" in run.said[0]


@given(
    st.lists(st.tuples(st.floats(0.5, 25), st.sampled_from([0, 20, 90, 105, 130, 400]), st.booleans()), max_size=12),
    st.sampled_from(["paper", "envelope"]),
)
def test_whatever_comes_orders_change_something_are_bounded_and_never_go_down_too_soon(stretches, form):
    run = Run(Basis(STEADY.rate, STEADY.envelope, STAGES, {"gpu": 7}), form, tick=0.25)
    for seconds, rate, told in stretches:
        run.go(seconds, rate, told=told)
    sizes, changed = {name: stage.count for name, stage in STAGES.items()}, -SETTLE
    for when in sorted({when for when, _, _ in run.orders}):
        together = [(name, count) for at, name, count in run.orders if at == when]
        for name, count in together:
            assert count != sizes[name]
            assert 1 <= count <= (7 if name == "b" else 1000)
            assert count > sizes[name] or when - changed >= SETTLE - 1e-6
            sizes[name] = count
        changed = when
