"""The log of generations: what counts of what is appended, whoever appends it and however often."""

from hypothesis import given
from hypothesis import strategies as st

from spillway.producers.generations import Generations


def said(text):
    kind, *number = text.split()
    event = {"event": kind, **({"generation": int(number[0])} if number else {})}
    return {**event, "theta": f"theta-{number[0]}"} if kind == "trained" else event


def played(*texts):
    log = Generations()
    return log, [log.take(said(text)) for text in texts]


def test_the_course_of_a_generation():
    log, counts = played("asked", "trained 1", "switched 1")
    assert all(counts)
    assert (log.current, log.held, log.open) == (1, (0, 1), None)
    assert log.known[1].theta == "theta-1"


def test_of_two_triggers_the_second_joins_the_first_and_of_two_trainers_the_first_counts():
    log, counts = played("asked", "asked", "trained 1", "trained 1", "kept 1", "asked", "switched 1")
    assert counts == [True, False, True, False, True, True, False]
    assert log.known[1].end == "kept"
    assert (log.open.number, log.current, log.held) == (2, 0, (0,))


def test_what_is_not_better_or_fails_changes_nothing():
    for end in ("kept 1", "failed 1"):
        log, _ = played("asked", end)
        assert (log.current, log.held, log.open) == (0, (0,), None)
        assert not log.take(said("switched 1"))
        assert not log.take(said("current 1"))
    log, counts = played("asked", "trained 1", "failed 1")
    assert all(counts)
    assert (log.current, log.held) == (0, (0,))


def test_a_rollback_is_to_what_is_held_and_the_next_generation_is_beside_it():
    log, counts = played("asked", "trained 1", "switched 1", "current 0", "current 0", "current 2")
    assert counts == [True, True, True, True, False, False]
    assert (log.current, log.held) == (0, (0, 1))
    assert log.take(said("current 1"))
    for text in ("asked", "trained 2"):
        assert log.take(said(text))
    assert log.held == (1, 2)
    assert not log.take(said("current 2"))  # not every row has it
    assert not log.take(said("current 0"))
    assert log.take(said("switched 2"))
    assert log.take(said("current 1"))


WORDS = st.sampled_from(
    [
        "asked",
        *(f"{kind} {n}" for kind in ("trained", "kept", "failed", "switched", "current") for n in range(4)),
        "odd",
    ]
)


@given(st.lists(WORDS, max_size=40))
def test_at_most_two_are_held_and_the_current_one_is_among_them(texts):
    log = Generations()
    for text in texts:
        before = log.current, log.held, len(log.known)
        if not log.take(said(text)):
            assert (log.current, log.held, len(log.known)) == before
        assert log.current in log.held
        assert len(set(log.held)) <= 2
        assert all(log.known[number].theta for number in log.held if number)
        assert sum(not each.end for each in log.known.values()) <= 1
