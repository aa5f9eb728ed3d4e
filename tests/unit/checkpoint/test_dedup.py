"""Decisions about repetitions are a function of the log: the same from wherever memory is rebuilt."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.checkpoint.dedup import HopLane, IngressLane, PartitionMemory
from spillway.checkpoint.notes import merge
from spillway.lineage.hops import Hop


def hop(sequence, committed=0, stage="a", epoch=1):
    return Hop(stage, epoch, 0, sequence, committed)


def sender_log(random, length):
    """What a crashing sender leaves in its successor's log: (request id, hop) in order, and a zombie's repetitions."""
    committed = position = 0
    sent, log = [], []
    while len(log) < length:
        chance = random.random()
        if chance < 0.55:
            window = range(position, position + 3)
            fresh = [s for s in window if s not in sent] or [position + 3]
            sequence = random.choice(fresh)
            sent.append(sequence)
            while position in sent:
                position += 1
            log.append((f"q{sequence}", hop(sequence, committed)))
        elif chance < 0.75:
            committed = random.randint(committed, position)
        elif chance < 0.9 and sent:  # a crash: everything not committed comes again, in another order
            again = [s for s in sent if s >= committed]
            random.shuffle(again)
            log += [(f"q{s}", hop(s, committed)) for s in again]
        elif log:  # a zombie: an old message as it was
            log.append(random.choice(log))
    return log


@given(st.integers(0, 10_000))
def test_only_the_first_copy_is_fresh_whatever_the_sender_repeats(seed):
    seen = set()
    lane = HopLane()
    random = Random(seed)
    committed = 0
    for offset, (request_id, mark) in enumerate(sender_log(random, 60)):
        assert lane.fresh(request_id, offset, mark) == (request_id not in seen)
        seen.add(request_id)
        if random.random() < 0.2:
            committed = random.randint(committed, offset + 1)
            lane.committed(committed)


def decisions_after_restart(memory_type, records, committed_at, crash_at, lane):
    """Take records with commits on the way; at `crash_at` start again from the last commit and its note.

    `committed_at`: after which record which offset was committed. Returns the decisions of both, by offset.
    """
    memory = memory_type(IngressLane(seconds=10.0, limit=8))
    committed, spans, decisions = 0, (), {}
    for offset, record in enumerate(records[:crash_at]):
        decisions[offset] = take(memory, offset, record, lane)
        upto = committed_at.get(offset)
        if upto is not None and upto > committed:
            committed, spans = upto, merge(memory.spans(), upto)
            memory.committed(committed)
    rebuilt = memory_type(IngressLane(seconds=10.0, limit=8))
    for start, end in spans:
        for offset in range(start, end):
            take(rebuilt, offset, records[offset], lane)
    again = {offset: take(rebuilt, offset, records[offset], lane) for offset in range(committed, len(records))}
    return decisions, again


def take(memory, offset, record, lane):
    request_id, mark = record
    if lane == "hops":
        return memory.fresh(request_id, offset, "a", mark, 0.0)
    if lane == "truths":
        own, *ids = request_id
        return memory.repeated(ids, offset, mark), memory.fresh(own, offset, "", None, mark)
    return memory.fresh(request_id, offset, "", None, mark)


def commits_at(random, length):
    return {offset: random.randint(0, offset + 1) for offset in range(length) if random.random() < 0.3}


def restart_is_seen(memory_type, seed, lane):
    random = Random(seed)
    if lane == "hops":
        records = sender_log(random, 60)
    else:
        now, records = 0.0, []
        for _ in range(60):
            now += random.choice((0.0, 0.5, 1.0, 4.0))
            ids = [f"q{random.randrange(12)}" for _ in range(random.randint(1, 5) if lane == "truths" else 1)]
            records.append((ids if lane == "truths" else ids[0], now))
    crash_at = random.randint(1, len(records))
    before, again = decisions_after_restart(memory_type, records, commits_at(random, len(records)), crash_at, lane)
    straight = memory_type(IngressLane(seconds=10.0, limit=8))
    expected = {offset: take(straight, offset, record, lane) for offset, record in enumerate(records)}
    return any(before[offset] != expected[offset] for offset in before) or any(
        again[offset] != expected[offset] for offset in again
    )


@pytest.mark.parametrize("lane", ["hops", "ingress", "truths"])
@given(seed=st.integers(0, 100_000))
def test_a_restart_at_any_commit_changes_no_decision(lane, seed):
    assert not restart_is_seen(PartitionMemory, seed, lane)


def test_memory_is_the_senders_uncommitted_window():
    lane = HopLane()
    for sequence in range(10_000):
        assert lane.fresh(f"q{sequence}", sequence, hop(sequence, max(0, sequence - 50)))
        if sequence % 20 == 19:
            lane.committed(sequence + 1)
    assert len(lane) <= 51 + 20


def test_a_silent_sender_keeps_its_own_span_only():
    memory = PartitionMemory()
    memory.fresh("q0", 0, "quiet", hop(0, stage="quiet"), 0.0)
    for offset in range(1, 5_000):
        memory.fresh(f"q{offset}", offset, "busy", hop(offset, offset - 1, "busy"), 0.0)
        memory.committed(offset)
    assert merge(memory.spans(), 4_999) == ((0, 1), (4_997, 4_999))


def test_what_a_dead_message_says_of_its_sender_is_known_after_a_restart():
    """By it another was forgotten, which a zombie may still repeat."""
    memory = PartitionMemory()
    assert memory.fresh("q5", 10, "a", hop(5, 3), 0.0)
    memory.opened("a").rise(11, hop(9, 8))  # it is dead, so it is not remembered itself
    memory.committed(12)
    restarted = PartitionMemory()
    if any(start <= 11 < end for start, end in memory.spans()):
        restarted.opened("a").rise(11, hop(9, 8))
    assert not restarted.fresh("q5", 12, "a", hop(5, 3), 0.0)


def test_what_a_repetition_says_of_its_sender_is_known_after_a_restart():
    memory = PartitionMemory()
    log = {10: ("q5", hop(5, 3)), 11: ("q9", hop(9, 3)), 12: ("q9", hop(9, 8))}
    assert [memory.fresh(q, offset, "a", said, 0.0) for offset, (q, said) in log.items()] == [True, True, False]
    memory.committed(13)
    restarted = PartitionMemory()
    for start, end in memory.spans():
        for offset in range(start, end):
            q, said = log[offset]
            restarted.fresh(q, offset, "a", said, 0.0)
    assert not restarted.fresh("q5", 13, "a", hop(5, 3), 0.0)


def test_an_id_may_come_again_once_its_sender_has_committed_it():
    lane = HopLane()
    assert lane.fresh("q", 0, hop(0))
    assert not lane.fresh("q", 1, hop(0))
    assert lane.fresh("q", 2, hop(7, 7))
    assert not lane.fresh("q", 3, hop(7, 7))
    lane.committed(4)
    assert not lane.fresh("q", 4, hop(7, 7))


def test_a_hop_that_no_stage_can_send_raises_no_watermark():
    lane = HopLane()
    lane.fresh("q0", 0, hop(5, committed=1 << 60))
    assert lane.watermark == 0
    assert lane.fresh("q1", 1, hop(6, 2))


def test_a_clients_repetition_within_ten_minutes_is_the_same_query():
    lane = IngressLane()
    assert lane.fresh("q", 0, 0.0)
    assert not lane.fresh("q", 1, 600.0)
    assert not lane.fresh("q", 2, 1_100.0)  # each repetition prolongs the memory
    assert lane.fresh("q", 3, 1_701.0)


def test_the_ingress_memory_is_bounded():
    lane = IngressLane(limit=100)
    for offset in range(1_000):
        assert lane.fresh(f"q{offset}", offset, 0.0)
        lane.committed(offset + 1)
    assert len(lane) == 100
    assert not lane.fresh("q950", 1_000, 0.0)
    assert lane.fresh("q899", 1_001, 0.0)
