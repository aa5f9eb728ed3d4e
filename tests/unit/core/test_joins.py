"""What a join makes of every order of results, losses, time and room."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.core import joins
from spillway.agents.core.join_rules import Rule, Verdict
from spillway.agents.core.joins import JoinTable
from tests.unit.core.builders import NOW, delivery

SENDERS = ("b", "c", "d")
RULES = {"all": Rule(), "partial": Rule("all", "partial"), "any": Rule("any")}


def table(rule="all", **options):
    return JoinTable(RULES[rule], lambda path: path.get("a", SENDERS), **options)


def hear(join, offset, sender, **more):
    return join.hear(NOW, delivery("q", offset, sender, **more))


def expected_verdict(rule, reports):
    """The closing verdict by the rule's words, for reports (sender, is a result) in their order; and after how many."""
    results = losses = 0
    for number, (_, result) in enumerate(reports, start=1):
        results += result
        losses += not result
        everybody = number == len(SENDERS)
        if rule == "any":
            verdict = Verdict.READY if results else Verdict.LOST if everybody else None
        elif rule == "all":
            verdict = Verdict.LOST if losses else Verdict.READY if everybody else None
        else:
            verdict = (Verdict.READY if results else Verdict.LOST) if everybody else None
        if verdict is not None:
            return verdict, number
    raise AssertionError("a join always closes")


@pytest.mark.parametrize("rule", RULES)
def test_every_order_of_results_and_losses(rule):
    for order in permutations(SENDERS):
        for outcome in range(2 ** len(SENDERS)):
            reports = [(sender, bool(outcome >> index & 1)) for index, sender in enumerate(order)]
            verdict, closes_at = expected_verdict(rule, reports)
            join = table(rule)
            for number, (sender, result) in enumerate(reports, start=1):
                got, entry = hear(join, number, sender, lost=() if result else (sender,))
                if number < closes_at:
                    assert got is Verdict.WAITING
                elif number > closes_at:
                    assert (got, entry) == (Verdict.LATE, None)
                else:
                    assert got is verdict
                    assert entry.offsets == list(range(1, number + 1))
                    results, losses = entry.hand_over()
                    assert [part.predecessor for part in results] == [s for s, r in reports[:number] if r]
                    assert len(results) + len(losses) == number
            assert join.waiting == 0


def test_a_tombstone_speaks_for_all_it_names_and_overlaps_are_heard_once():
    join = table("partial")
    assert hear(join, 1, "b")[0] is Verdict.WAITING
    assert hear(join, 2, "a", lost=("b", "c"))[0] is Verdict.WAITING
    assert hear(join, 3, "a", lost=("c",))[0] is Verdict.LATE
    verdict, entry = hear(join, 4, "d")
    assert verdict is Verdict.READY
    assert entry.offsets == [1, 2, 4]


def test_only_chosen_senders_are_waited_for():
    join = table()
    assert hear(join, 1, "b", path={"a": ("b",)})[0] is Verdict.READY


def test_a_sender_that_its_path_does_not_announce_is_one():
    join = table()
    assert hear(join, 1, "x", path={"a": ()})[0] is Verdict.READY


def test_paths_of_all_parts_go_on_and_the_nearest_deadline_counts():
    join = table()
    hear(join, 1, "b", path={"s": ("t",)}, deadline=NOW + 3)
    hear(join, 2, "c", path={"u": ()}, deadline=NOW + 2)
    _, entry = hear(join, 3, "d")
    assert entry.path == {"s": ("t",), "u": ()}
    assert entry.deadline == NOW + 1


def test_a_late_deadline_is_waited_for_with_its_grace():
    join = table()
    hear(join, 1, "b", deadline=NOW + 100)
    assert join.next_expiry() == NOW + 100 + joins.GRACE_SECONDS


def test_a_restart_does_not_begin_the_wait_anew():
    join = table()
    hear(join, 1, "b", appended=NOW - 100.0)
    assert join.next_expiry() == NOW + joins.READ_SECONDS


def test_no_wait_is_longer_than_said():
    for slo in (0.1, 60.0):
        join = table()
        hear(join, 1, "b", deadline=NOW + slo)
        assert join.next_expiry() == NOW + joins.longest_wait(slo)


def test_expiries_of_closed_requests_take_no_memory():
    join = JoinTable(Rule(), lambda path: ("b",))
    for offset in range(5_000):
        join.hear(NOW, delivery(f"q{offset}", offset, "b"))
        join.committed(offset + 1)
    assert len(join._expiries) <= 257
    assert len(join) == 0


def test_what_was_forgotten_lately_is_still_recognised():
    join = table("any")
    for offset, sender in enumerate(SENDERS):
        hear(join, offset, sender)
    join.committed(3)
    assert not join.knows("q")
    assert hear(join, 4, "b")[0] is Verdict.LATE


def test_an_id_sent_at_another_time_is_another_query():
    join = table("any")
    hear(join, 0, "b")
    assert hear(join, 1, "b", sent=NOW + 601)[0] is Verdict.READY
    for offset, sender in enumerate(("c", "d"), start=2):
        hear(join, offset, sender, sent=NOW + 601)
    join.committed(10)
    assert len(join) == 0
    assert hear(join, 11, "b", sent=NOW + 601)[0] is Verdict.LATE
    assert hear(join, 12, "b", sent=NOW + 1_300)[0] is Verdict.READY


def test_closed_requests_with_a_silent_sender_are_bounded(monkeypatch):
    monkeypatch.setattr(joins, "INCOMPLETE_LIMIT", 10)
    join = table("any")
    for offset in range(25):
        join.hear(NOW, delivery(f"q{offset}", offset, "b"))
    assert len(join) == 10
    assert not join.knows("q14")
    assert join.knows("q15")


def test_a_poisoned_part_keeps_its_own_reason():
    join = table()
    join.hear(NOW, delivery("q", 0, "b"))
    verdict, entry = join.hear(NOW, delivery("q", 1, "c", lost=("c",)), "why")
    assert verdict is Verdict.LOST
    assert entry.hand_over()[1][0][1] == "why"


@given(
    rule=st.sampled_from(sorted(RULES)),
    reports=st.lists(
        st.tuples(st.sampled_from(("q1", "q2", "q3")), st.sampled_from(SENDERS), st.booleans()), max_size=30
    ),
    commits=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=6),
    crash=st.integers(0, 30),
)
def test_a_restart_closes_nothing_twice(rule, reports, commits, crash):
    """Crash after some records, rebuild from the last commit, read on: no request closes twice below and above it."""
    first_copies = list({(request_id, sender): (request_id, sender, ok) for request_id, sender, ok in reports}.values())
    records = [
        delivery(request_id, offset, sender, lost=() if ok else (sender,))
        for offset, (request_id, sender, ok) in enumerate(first_copies)
    ]
    join, open_, closed = table(rule), {}, {}
    committed, spans = 0, []
    for record in records[:crash]:
        verdict, entry = join.hear(NOW, record)
        if verdict is Verdict.WAITING:
            open_[record.request_id] = entry.first
        elif entry is not None:
            open_.pop(record.request_id, None)
            closed[record.request_id] = entry.first
        for at, wish in commits:
            upto = min(wish, record.offset + 1, *open_.values())
            if at == record.offset and upto > committed:
                committed, spans = upto, join.spans()
                join.committed(committed)
    done = {request_id for request_id, first in closed.items() if first < committed}
    again = table(rule)
    wanted = {offset for start, end in spans for offset in range(start, min(end, committed))}
    for offset in sorted(wanted):
        again.remember(records[offset])
    for record in records[committed:]:
        verdict, _ = again.hear(NOW, record)
        assert record.request_id not in done or verdict is Verdict.LATE
