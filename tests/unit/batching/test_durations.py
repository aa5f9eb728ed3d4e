"""What is expected of a batch's duration, with a profile and without one."""

import pytest

from spillway.agents.core.batching import Batcher
from spillway.agents.core.durations import Estimate
from spillway.agents.core.policies import make
from spillway.agents.core.policy import StageFacts, StageView
from tests.unit.core.builders import request


def seen(estimate, *batches, times):
    """Show an estimate batches of these sizes and durations, in turns."""
    for _ in range(times):
        for count, seconds in batches:
            estimate.observe(count, seconds)
    return estimate


def test_nothing_known_expects_nothing():
    assert Estimate()(4) == 0.0


def test_sizes_not_seen_lie_on_the_line_through_those_seen():
    estimate = seen(Estimate(), (1, 0.030), (4, 0.060), times=50)
    assert estimate(2) == pytest.approx(0.040, rel=0.01)
    assert estimate(3) == pytest.approx(0.050, rel=0.01)


def test_no_line_is_drawn_beyond_the_largest_size_that_ran():
    """A hundred milliseconds from the noise of small batches would have a policy drop what it could serve."""
    estimate = seen(Estimate(), (1, 0.004), (2, 0.012), times=50)
    assert estimate(16) == pytest.approx(0.012, rel=0.01)


def test_the_first_batch_of_all_counts_only_until_the_second():
    estimate = Estimate()
    estimate.observe(8, 2.0)  # a model's first call
    assert estimate(8) == 2.0
    estimate.observe(1, 0.01)
    assert estimate(8) == estimate(1) == 0.01


def test_new_measurements_displace_old_ones():
    estimate = Estimate()
    estimate.observe(1, 1.0)
    seen(estimate, (1, 2.0), times=100)
    assert estimate(1) == pytest.approx(2.0, rel=1e-3)


def profile(count: int) -> float:
    return 0.010 + 0.005 * count


def test_a_profile_holds_while_batches_take_what_it_says():
    estimate = seen(Estimate(profile), (4, profile(4)), times=1_000)
    assert [estimate(n) for n in (1, 4, 64)] == [profile(n) for n in (1, 4, 64)]


def test_one_slow_batch_says_little_against_a_profile():
    estimate = Estimate(profile)
    estimate.observe(1, 30.0)  # a model's first call
    assert estimate(1) < 1.25 * profile(1)
    assert estimate(8) == pytest.approx(1.1 * profile(8))


def test_a_profile_of_the_wrong_shape_is_mended_where_batches_show_it():
    estimate = seen(Estimate(profile), (1, profile(1)), (16, 1.5 * profile(16)), times=100)
    assert estimate(1) == pytest.approx(profile(1), rel=0.01)
    assert estimate(16) == pytest.approx(1.5 * profile(16), rel=0.01)


def test_a_size_that_was_not_run_for_long_is_expected_as_the_others_are_now():
    estimate = Estimate(profile)
    estimate.observe(16, profile(16))
    seen(estimate, (1, 3.0 * profile(1)), times=120)
    assert estimate(16) == pytest.approx(3.0 * profile(16), rel=0.01)


# A stage that refuses everything by a duration that it measured comes to doubt the duration.

SLO = 0.4


def batcher(profile=None):
    facts = {"s": StageFacts(4, profile or (lambda _n: 0.0), 1)}
    policy = make("pard", StageView("s", slo=SLO, facts=facts, successors={"s": ()}))
    return Batcher(policy, 4, duration=Estimate(profile))


def synchronise(batcher, now):
    batcher.tick(now, {"s": [batcher.report(now)]})


def run_one(batcher, now, takes):
    """Let a request in and its batch take so long; False if it was refused."""
    batcher.push(now, request(f"r{now}", sent=now, within=SLO))
    if not batcher.starts:
        batcher.drops.clear()
        return False
    (batch,) = batcher.starts
    batcher.starts.clear()
    batcher.complete(now + takes, batch.worker, takes)
    return True


def slowed(profile=None):
    """A batcher whose model was too slow for its SLO for so long that it refuses everything."""
    made = batcher(profile)
    now = 0.0
    while run_one(made, now, 0.9):
        now += 1.0
        synchronise(made, now)
        assert now < 100
    return made, now


@pytest.mark.parametrize("profile", [None, lambda n: 0.02 + 0.005 * n], ids=["without a profile", "with one"])
def test_it_lets_requests_in_again_after_a_period_of_nothing_but_drops(profile):
    made, now = slowed(profile)
    synchronise(made, now + 1.0)
    assert run_one(made, now + 1.5, 0.03)
    for period in range(40):  # the model is fast again, and each measurement tells a little of it
        synchronise(made, now + 2.0 + period)
        run_one(made, now + 2.5 + period, 0.03)
    assert all(run_one(made, now + 50 + turn, 0.03) for turn in range(5))


def test_a_size_that_was_slow_is_not_expected_to_be_slow_for_good_where_only_smaller_ones_run():
    """Else a policy that drops for it asks one query at a time from then on, and never learns better."""
    estimate = seen(Estimate(), (2, 0.6), (8, 1.2), times=5)  # the machine was busy
    estimate.observe(1, 0.05)
    assert estimate(2) == pytest.approx(0.1)
    assert estimate(8) == pytest.approx(0.4)
    estimate.observe(2, 0.08)
    assert estimate(2) == pytest.approx(0.098)  # and it is learned from there


def test_a_slow_start_is_forgotten_after_five_batches():
    """While its first batches were slow, a policy lets one query a second through: the mean alone took 20 of them."""
    estimate = Estimate()
    for seconds in (2.0, 2.0, 2.0, 0.03, 0.03, 0.03, 0.03):
        estimate.observe(1, seconds)
    assert estimate(1) > 1.0
    estimate.observe(1, 0.03)
    assert estimate(1) == 0.03


def test_a_profiled_stage_recovers_from_a_slow_spell_by_single_probes():
    estimate = seen(Estimate(profile), (1, 4 * profile(1)), (4, 4 * profile(4)), times=60)
    seen(estimate, (1, profile(1)), times=5)
    assert estimate(1) == pytest.approx(profile(1))
    assert estimate(4) == pytest.approx(4 * profile(1))
