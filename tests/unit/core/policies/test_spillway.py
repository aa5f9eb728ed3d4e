"""What `spillway` does otherwise than PARD, each in a scene that fails when that is taken out. See `scenes`."""

from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from spillway.agents.core.batching import Batcher
from spillway.agents.core.policies import make
from spillway.agents.core.policy import Load

from .scenes import FACTS, IDLE, request, states, told, view

# d is 50, 40 and 30 ms for 5, so 10, 8 and 6 ms alone.
ALONE = 0.024


def policy(stage="a", setting="spillway", **more):
    made = make(setting, view(stage, **more))
    made.tick(2.0, IDLE, states())
    return made


def latest(made, waiting=0, since=99.0, deadline=101.0):
    """The latest t_e, in ms after t_s, that is let in; `waiting` others came at `since`, and have until `deadline`."""
    if not waiting:
        return next(ms for ms in range(500, 0, -1) if made.judge(100.0, 100.0 + ms / 1000, request()) is None)
    return next(ms for ms in range(500, 0, -1) if filled(made, ms, waiting, since, deadline))


def filled(made, ms, waiting, since, deadline):
    """Whether one request enters the batch of t_e = `ms` after t_s, with others behind it in the line."""
    made.remove(lambda _: True)
    made.push(since, request())
    for _ in range(waiting):
        made.push(since, request("other", sent=deadline - 0.5))
    batch, drops = [], []
    made.fill(100.0, 100.0 + ms / 1000, 1, batch, drops)
    return batch[0].request_id == "r"


def spread():
    """Let b and c have delays of [0, 30] and [0, 2] ms, evenly: .7 of the sums are below 22, .9 below 28."""
    there = states()
    there["b"] = [told("b", waits=[(i + 0.5) * 0.0003 for i in range(100)])]
    there["c"] = [told("c", waits=[(i + 0.5) * 0.00002 for i in range(100)])]
    return there


def test_strict_where_others_wait():
    # 500 - 50 at a - 17 of queues - 14 of batches of one - 25 of delays
    assert latest(policy(), waiting=1) == pytest.approx(500 - 50 - 56, abs=1)


@pytest.mark.parametrize(
    ("since", "delays", "why"), [(99.0, 28, "they have waited for a second"), (99.6, 22, "the burst is young")]
)
def test_less_strict_as_long_as_a_burst_is_young(since, delays, why):
    made = policy()
    made.tick(3.0, IDLE, spread())
    assert latest(made, waiting=1, since=since) == pytest.approx(500 - 50 - 14 - delays, abs=2), why


def strictness(setting="spillway", *, since=99.9, late=0.0, waiting=1):
    """The quantile with which a batch of t_e = 100 is filled, `late` being what the last in line would be late by."""
    made = policy(setting=setting)
    needed = waiting * 0.05 / 5 + made._shares[0.7 if 100.0 - since < 0.5 else 0.9]
    for _ in range(waiting):
        made.push(since, request(sent=100.0 + needed - late - 0.5))
    made.fill(100.0, 100.0, 0, [], [])
    return made._share


def test_strict_as_soon_as_the_last_in_line_would_be_late():
    assert strictness(late=-0.001) == 0.7
    assert strictness(late=0.001) == 0.97
    assert strictness(late=0.001, waiting=20) == 0.97  # 20 take 200 ms
    assert strictness(late=-0.001, waiting=20) == 0.7
    assert strictness(late=0.001, since=99.0) == 0.97
    assert strictness(late=-0.001, since=99.0) == 0.9


def test_strictest_in_a_deep_or_a_long_overload():
    assert strictness(late=0.051) == 1.0
    assert strictness(late=0.049) == 0.97
    assert strictness(late=0.001, since=97.9) == 1.0
    assert strictness(late=-0.001, since=90.0) == 0.9  # long, but nothing would be late


def test_no_more_are_dropped_than_have_to_be():
    # Each of whom lets the others wait 10 ms longer; without two of them the last, 15 ms late, is in time.
    made = policy()
    made.tick(3.0, IDLE, spread())
    for number in range(10):
        made.push(99.9, request(str(number), sent=100.0 + made._shares[0.7] + 0.001 - 0.5))
    made.push(99.9, request("last", sent=100.0 + 11 * 0.01 + made._shares[0.7] - 0.015 - 0.5))
    batch, drops = [], []
    made.fill(100.0, 100.0, 5, batch, drops)
    assert [each.request_id for each, _ in drops] == ["0", "1"]
    assert [each.request_id for each in batch] == ["2", "3", "4", "5", "6"]


def test_the_time_of_waiting_begins_anew_when_the_line_was_empty():
    made = policy()
    made.push(90.0, request())
    made.pop(91.0)
    made.push(99.9, request())
    made.fill(100.0, 100.0, 0, [], [])
    assert made._share == 0.7


def test_several_instances_get_through_the_line_sooner():
    made = policy(instances=2)
    for _ in range(20):
        made.push(99.9, request(sent=100.0 + 20 * 0.05 / 10 + made._shares[0.7] + 0.001 - 0.5))
    made.fill(100.0, 100.0, 0, [], [])
    assert made._share == 0.7


def test_lenient_where_none_waits():
    assert latest(policy()) == pytest.approx(500 - 1000 * ALONE, abs=1)


def test_what_is_refused_says_why():
    made = policy()
    made.push(100.0, request("other", sent=101.0))
    refusal = made.judge(100.0, 100.45, request())
    assert "later queueing 17.0" in refusal.text
    assert refusal.remaining == pytest.approx(0.45 + 0.05 + 0.056)


def test_where_none_waits_it_says_what_that_request_alone_needs():
    refusal = policy().judge(100.0, 100.48, request())
    assert refusal.remaining == pytest.approx(0.48 + ALONE)
    assert (refusal.queueing, refusal.waits) == (0.0, 0.0)


def test_an_idle_last_stage_saves_nothing_for_the_gate():
    slow = states() | {"gate": [told("gate", hops=[0.1])]}
    last, before = policy("c"), policy("b")
    for made in (last, before):
        made.tick(3.0, IDLE, slow)
    assert last.judge(100.49, 100.49, request()) is None  # 6 ms alone
    assert last.judge(100.495, 100.495, request()).remaining == pytest.approx(0.006)
    assert latest(last) == pytest.approx(500 - 6 - 100, abs=1)  # in the next batch, which others wait for
    assert before.judge(100.39, 100.39, request()) is not None
    assert latest(before) == pytest.approx(500 - 8 - 6 - 100, abs=1)


def test_hops_that_vary_count_as_delays_do_where_others_wait_and_else_as_the_fast_ones_are():
    line, alone = policy("c"), policy("c")
    for made in (line, alone):
        made.tick(3.0, IDLE, states() | {"gate": [told("gate", hops=[(i + 0.5) / 1000 for i in range(100)])]})
    assert latest(line, waiting=1) == pytest.approx(500 - 30 - 90, abs=3)
    assert latest(alone) == pytest.approx(500 - 6 - 10, abs=2)


def test_it_tells_what_waits_now_not_what_waited():
    made = policy()
    load = Load(40, 0, 10, 10, 2, 0.1, 20, 5, 5)
    state = made.report(3.0, load)
    assert state.queueing == pytest.approx(20 * 0.05 / 5)  # 20 queued, 5 of them in 50 ms
    assert state.entered == 1.0
    assert made.report(4.0, replace(load, queued=0)).queueing == 0.0


def run(made, waits, now=100.0):
    """Start a batch of requests that waited so long in it, in seconds."""
    batch = [request(sent=now - 0.1) for _ in waits]
    for each, wait in zip(batch, waits, strict=True):
        each.entered = now - wait
    made.started(now, batch)


def seen(made, *batches):
    """The newest delays that are told after these batches."""
    told_before = sorted(made.report(99.0, IDLE).waits)
    for waits in batches:
        run(made, waits)
    told_now = sorted(made.report(101.0, IDLE).waits)
    for each in told_before:
        if each in told_now:
            told_now.remove(each)
    return told_now


def test_delays_under_load_do():
    made = policy()
    for _ in range(3000):
        run(made, [0.0])
    assert set(made.report(3.0, IDLE).waits) == {0.0}


def test_a_delay_is_the_wait_and_what_a_fuller_batch_takes_longer():
    # Three share a batch of 30 ms, which is 20 more than one alone takes.
    assert seen(policy(), [0.02, 0.03, 0.04]) == pytest.approx([0.02 + 0.02, 0.03 + 0.02, 0.04 + 0.02])
    assert seen(policy(), [0.01]) == pytest.approx([0.01])


def test_a_wait_counts_as_it_was_not_as_it_was_expected():
    made = policy()
    made.report(99.0, IDLE)
    batcher = Batcher(made, 5, duration=FACTS["a"].duration)
    batcher.push(100.0, request(sent=100.0))  # alone: 10 ms
    batcher.push(100.004, request(sent=100.0))  # is to start at 100.010
    batcher.complete(100.013, 0)  # 3 ms over
    delays = list(made.report(101.0, IDLE).waits)
    assert delays[-2:] == pytest.approx([0.0, 0.009])


def test_a_burst_soon_outweighs_what_was_reckoned_with():
    # 100 delays of the stage, over its workers; seen ones take their place as soon as there are more of them
    made = policy()
    assert len(made.report(3.0, IDLE).waits) == 50
    run(made, [0.0] * 5)
    assert len(made.report(3.1, IDLE).waits) == 55


def test_delays_are_drawn_anew_at_every_synchronisation():
    made = policy()
    before = made._shares[0.9]
    there = states()
    there["c"] = [told("c", waits=[0.1] * 8, queueing=0.002, entered=1.0)]
    made.tick(2.1, IDLE, there)
    assert made._shares[0.9] == pytest.approx(before + 0.095)


def test_measured_durations_stand_in_for_profiled_ones():
    made = policy()
    made.tick(3.0, replace(IDLE, duration=0.1), states())  # twice as long
    assert latest(made) == pytest.approx(500 - 20 - 14, abs=1)
    assert seen(made, [0.04, 0.04]) == pytest.approx([0.04 + 0.02] * 2)


def test_the_smallest_budgets_come_first_however_long_an_overload_lasts():
    made = policy()
    for second in range(3, 60):
        made.tick(float(second), IDLE, states(rate=600.0))
    for name, sent in (("old", 100.0), ("new", 100.1)):
        made.push(100.1, request(name, sent=sent))
    assert made.pop(100.1).request_id == "old"


def test_a_silent_stage_is_taken_for_what_is_expected():
    made = policy()
    there = {name: some for name, some in states().items() if name != "b"}
    made.tick(3.0, IDLE, there)
    # b: 8 ms alone, waits of up to one of these, .9 of them below 7 ms; c: 2 ms of queue, 6 ms alone, 5 ms of delays
    assert latest(made, waiting=1) == pytest.approx(500 - 50 - 8 - 7 - 2 - 6 - 5, abs=1)


@given(st.floats(0, 0.47), st.sampled_from(["a", "b", "c"]))
def test_an_idle_stage_never_drops_what_makes_it_alone(spent, stage):
    made = policy(stage)
    batcher = Batcher(made, 5, duration=FACTS[stage].duration)
    behind = {"a": ALONE, "b": 0.014, "c": 0.006}[stage]
    assume(abs(spent + behind - 0.5) > 1e-6)  # sums of times are not exact
    batcher.push(100.0 + spent, request())
    assert bool(batcher.starts) == (spent + behind <= 0.5)
    assert len(batcher.starts) + len(batcher.drops) == 1
