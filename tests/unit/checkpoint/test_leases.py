"""A primary's right to emit, and when a peer's silence counts (rule 13)."""

from __future__ import annotations

from random import Random

import pytest

from checkpoint.leases import TABLE, Emission, Lease, Order, Right, Turn
from checkpoint.silence import Peer, Watch

LEASE = Lease()  # 1 s, less .2 s of margin; beats every .1 s


def holding(now=100.0):
    return Emission(LEASE, 3, sent=now)


# The right to emit --------------------------------------------------------------------------------------------------


def test_the_right_ends_before_the_lease_by_the_holders_clock():
    right = holding()
    assert right.may_emit(100.79)
    assert not right.may_emit(100.8)


def test_a_beat_that_came_back_prolongs_the_right_from_when_it_was_sent():
    right = holding()
    right.beat_sent(100.1, 1)
    assert right.beat_returned(100.7, 1) == []
    assert right.may_emit(100.89)
    assert not right.may_emit(100.9)
    assert right.next_wake() == pytest.approx(100.9)


def test_a_beat_that_never_came_back_prolongs_nothing():
    right = holding()
    for n in range(1, 8):
        right.beat_sent(100.0 + n / 10, n)
    assert not right.may_emit(100.8)
    assert right.advance(100.8) == [Order.STOP]
    assert right.advance(100.9) == []


def test_a_process_that_was_stopped_finds_its_right_ended():
    """SIGSTOP beyond the lease, and back: nothing has called in between."""
    right = holding()
    right.beat_sent(100.1, 1)
    assert not right.may_emit(103.0)
    assert right.beat_returned(103.0, 1) == [Order.STOP]
    assert not right.may_emit(103.0)


def test_after_a_lapse_the_log_is_read_before_it_goes_on():
    """A broker that was away for some seconds costs no failover."""
    right = holding()
    assert right.advance(105.0) == [Order.STOP]
    right.beat_sent(105.0, 1)
    assert right.beat_returned(105.1, 1) == [Order.CHECK]
    assert not right.may_emit(105.1)
    assert right.checked(105.2, right.checks) == [Order.GO_ON]
    assert right.may_emit(105.3)


def test_a_check_that_took_too_long_is_made_again():
    right = holding()
    right.advance(105.0)
    right.beat_sent(105.0, 1)
    right.beat_returned(105.1, 1)
    first = right.checks
    assert right.checked(106.0, first) == [Order.STOP]
    right.beat_sent(106.0, 2)
    assert right.beat_returned(106.1, 2) == [Order.CHECK]
    assert right.checked(106.2, first) == []
    assert right.checked(106.2, right.checks) == [Order.GO_ON]


@pytest.mark.parametrize("state", ["held", "lapsed", "checking"])
def test_a_newer_fence_ends_it_for_good(state):
    right = holding()
    if state != "held":
        right.advance(105.0)
    right.beat_sent(105.0, 1)
    if state == "checking":
        right.beat_returned(105.1, 1)
    assert right.right.value == state
    assert right.fenced(3) == []
    assert right.fenced(4) == [Order.STAND_DOWN]
    right.beat_sent(105.1, 2)
    assert right.beat_returned(105.2, 2) == []
    assert right.checked(105.2, right.checks) == []
    assert not right.may_emit(105.2)
    assert right.fenced(5) == []
    assert right.next_wake() is None


def test_without_a_beat_so_far_the_right_begins_with_a_check():
    right = Emission(LEASE, 1)
    assert right.advance(0.0) == []
    assert right.next_wake() is None
    right.beat_sent(0.0, 0)
    assert right.beat_returned(0.01, 0) == [Order.CHECK]
    assert right.checked(0.02, right.checks) == [Order.GO_ON]


def test_foreign_and_repeated_beats_change_nothing():
    right = holding()
    assert right.beat_returned(100.5, 77) == []
    right.beat_sent(100.1, 1)
    right.beat_returned(100.2, 1)
    assert right.beat_returned(100.3, 1) == []
    assert not right.may_emit(100.9)


def test_beats_under_way_are_bounded():
    right = holding()
    for n in range(10_000):
        right.beat_sent(100.0, n)
    assert len(right._sent) <= 256


def test_the_table_of_the_right():
    """Everything that is not in it changes nothing; this is the list of what is not."""
    held = {(Right.HELD, Turn.BEAT), (Right.HELD, Turn.CHECKED)}
    lapsed = {(Right.LAPSED, Turn.OVER), (Right.LAPSED, Turn.CHECKED), (Right.CHECKING, Turn.BEAT)}
    ended = {(Right.ENDED, turn) for turn in Turn}
    assert {(right, turn) for right in Right for turn in Turn} - TABLE.keys() == held | lapsed | ended


@pytest.mark.parametrize("bad", [{"seconds": 0.9}, {"margin": 0.6}, {"margin": 0.0}, {"beat": 0.3}, {"beat": 0.0}])
def test_a_lease_that_ordinary_gaps_would_end_is_refused(bad):
    with pytest.raises(ValueError, match="it must be 1"):
        Lease(**bad)


# Silence ------------------------------------------------------------------------------------------------------------


class Clock:
    """A watch, and beats that come as asked."""

    def __init__(self, now=50.0):
        self.now = now
        self.watch = Watch(LEASE, "m1", now)
        self.sequence = 0

    def probe(self, *, sent=0.0, takes=0.01):
        """Send a probe now (or `sent` seconds ago) and have it back."""
        self.sequence += 1
        self.watch.probe_sent(self.now - sent, self.sequence)
        self.now += takes
        return self.watch.probe_returned(self.now, self.sequence)

    def go_on(self, seconds, *, beats=False):
        """Live on for a while, with probes every .1 s; say when a failover was due."""
        end = self.now + seconds
        while self.now < end:
            self.now += 0.1
            if beats:
                self.watch.heard(self.now, "m1")
            if self.probe():
                return self.now
        return None


def test_a_peer_that_is_silent_for_a_lease_is_suspected():
    clock = Clock()
    assert clock.go_on(3.0, beats=True) is None
    since = clock.now
    due = clock.go_on(3.0)
    assert since + 1.0 <= due <= since + 1.3
    assert clock.watch.state is Peer.SILENT


def test_it_is_suspected_once():
    clock = Clock()
    clock.go_on(3.0)
    assert clock.go_on(3.0) is None


def test_silence_counts_only_while_probes_come_back():
    """A broker's stall fells nobody: nothing comes for 5 s, then everything."""
    clock = Clock()
    clock.go_on(1.0, beats=True)
    clock.now += 5.0
    assert not clock.probe(sent=4.9)
    assert not clock.probe(sent=0.1)
    clock.watch.heard(clock.now, "m1")
    assert clock.go_on(3.0, beats=True) is None
    assert clock.watch.stalls >= 1


def test_after_a_stall_the_peer_gets_a_whole_lease():
    clock = Clock()
    clock.go_on(0.8)
    clock.now += 5.0
    again = clock.now
    due = clock.go_on(3.0)
    assert again + 1.0 <= due <= again + 1.4


def test_a_member_that_was_stopped_itself_suspects_nobody_when_it_wakes():
    clock = Clock()
    clock.go_on(0.5, beats=True)
    clock.watch.probe_sent(clock.now, 999)
    clock.now += 4.0
    assert not clock.watch.probe_returned(clock.now, 999)


def test_a_reader_that_lags_hears_its_probes_late_and_suspects_nobody():
    clock = Clock()
    for _ in range(100):
        clock.now += 0.1
        assert not clock.probe(sent=0.6, takes=0.0)


def test_without_probes_nothing_is_ever_due():
    clock = Clock()
    clock.now += 100.0
    clock.watch.heard(clock.now, "m2")
    assert not clock.watch.probe_returned(clock.now, 5)
    assert clock.watch.state is Peer.HEARD


def test_a_supervisors_word_counts_at_once():
    clock = Clock()
    clock.go_on(1.0, beats=True)
    assert clock.watch.reported("m1")
    assert clock.watch.state is Peer.DEAD
    assert not clock.watch.reported("m1")


def test_what_a_reported_process_had_sent_does_not_bring_it_back():
    clock = Clock()
    clock.watch.reported("m1")
    clock.watch.heard(clock.now, "m1")
    assert clock.watch.state is Peer.DEAD
    assert clock.go_on(3.0) is None


def test_a_report_names_one_process():
    clock = Clock()
    assert not clock.watch.reported("m0")
    assert clock.watch.state is Peer.HEARD


def test_a_report_counts_for_one_that_is_silent_already():
    clock = Clock()
    clock.go_on(3.0)
    assert clock.watch.reported("m1")


def test_a_peer_that_is_heard_again_is_suspected_anew():
    clock = Clock()
    clock.go_on(3.0)
    clock.watch.heard(clock.now, "m1")
    assert clock.watch.state is Peer.HEARD
    assert clock.go_on(0.9) is None
    assert clock.go_on(1.0) is not None


def test_probes_under_way_are_bounded():
    watch = Watch(LEASE, "m1", 0.0)
    for n in range(10_000):
        watch.probe_sent(0.0, n)
    assert len(watch._sent) <= 256


# Both together ------------------------------------------------------------------------------------------------------


def beats_and_reads(random):
    """All that happens to the beats of a primary "p", which stops, and a watcher "w": (when, reader, sender, number).

    Their log has delays and stalls, and either may read late. Without a reader, it is the sending.
    """
    happens, stall, appended = [], 0.0, 0.0
    stops = random.uniform(1.0, 4.0)
    for number in range(1, 100):
        now = number * LEASE.beat
        if random.random() < 0.03:
            stall = now + random.uniform(0.3, 2.0)
        for who in "pw" if now < stops else "w":
            happens.append((now, "", who, number))
            appended = max(appended, now, stall) + random.uniform(0.001, 0.05)
            for reader in "pw":
                late = random.uniform(0.0, 1.5) if random.random() < 0.1 else random.uniform(0.001, 0.2)
                happens.append((appended + late, reader, who, number))
    return sorted(happens)


def play(seed, emission_type=Emission, drift=0.05):
    """When the watcher found the primary silent, and whether that one might emit then, or later; clocks run apart."""
    random = Random(seed)
    rate = random.uniform(1 - drift, 1 + drift)  # of the primary's clock
    primary, watch = emission_type(LEASE, 1, sent=0.0), Watch(LEASE, "p", 0.0)
    suspected, overlap = None, False
    for at, reader, who, number in beats_and_reads(random):
        overlap |= suspected is not None and primary.may_emit(at * rate)
        if (reader, who) == ("", "p"):
            primary.beat_sent(at * rate, number)
        elif (reader, who) == ("", "w"):
            watch.probe_sent(at, number)
        elif (reader, who) == ("p", "p"):
            primary.beat_returned(at * rate, number)
        elif (reader, who) == ("w", "p"):
            watch.heard(at, "p")
        elif (reader, who) == ("w", "w") and watch.probe_returned(at, number):
            suspected = at
            overlap |= primary.may_emit(at * rate)
    return suspected, overlap


def test_a_primary_has_stopped_before_its_silence_counts():
    found = [play(seed) for seed in range(200)]
    assert not any(overlap for _, overlap in found)
    assert sum(suspected is not None for suspected, _ in found) > 150


def test_one_that_goes_by_when_its_beat_came_back_has_not():
    """Mutation: the right is counted from the return of a beat."""

    class FromItsReturn(Emission):
        def beat_returned(self, now, sequence):
            if sequence in self._sent:
                self._sent[sequence] = now
            return super().beat_returned(now, sequence)

    assert any(play(seed, FromItsReturn)[1] for seed in range(200))


def test_one_whose_right_outlasts_the_lease_has_not():
    class OutlastsTheLease(Emission):
        def __init__(self, lease, epoch, sent=None):
            super().__init__(lease, epoch, sent)
            self._lease = Lease(seconds=lease.seconds + 3 * lease.margin, margin=lease.margin, beat=lease.beat)

    assert any(play(seed, OutlastsTheLease)[1] for seed in range(200))
