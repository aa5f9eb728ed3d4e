"""L_sub of eq. 3 over the stages that are still before a request."""

import pytest

from agents.core.estimates.outlook import Later, Outlook
from agents.core.policy import StageFacts, StageState, StageView
from lineage.errors import UsageError

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


def test_every_term_is_summed_along_the_path():
    made = outlook()
    made.hear(
        1.0,
        states(
            b=[told("b", 0, queueing=0.010, entered=30, waits=[0.020] * 5), told("b", 1, queueing=0.030, entered=10)],
            d=[told("d", queueing=0.002, entered=1, waits=[0.005] * 9)],
        ),
    )
    assert near(made.later("a")) == ((0.017, 0.06, 0.025), ("b", "d"))
    assert near(made.later("c")) == ((0.002, 0.02, 0.005), ("d",))


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


def test_the_same_states_are_taken_in_once_for_all_queues():
    made, said = outlook(), states()
    made.hear(1.0, said)
    found = made.later("a")
    made.hear(1.0, said)
    assert made.later("a") is found
    made.hear(2.0, said)
    assert made.later("a") is not found


def test_too_many_paths_are_a_users_mistake():
    wide = {}
    for layer in range(8):
        here, there = [f"l{layer}{each}" for each in range(3)], [f"l{layer + 1}{each}" for each in range(3)]
        wide |= dict.fromkeys(here, tuple(there))
    wide |= dict.fromkeys([f"l8{each}" for each in range(3)], ())
    with pytest.raises(UsageError, match="more than 1000 paths"):
        outlook(wide).later("l00")
