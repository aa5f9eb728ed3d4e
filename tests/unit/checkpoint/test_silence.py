"""When a peer's silence counts, and that it has stopped by then (rule 13)."""

from random import Random

from spillway.checkpoint.leases import Emission, Lease
from spillway.checkpoint.silence import Peer, Watch

LEASE = Lease()  # 1 s, less .2 s of margin; beats every .1 s


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


def test_silence_counts_only_while_probes_come_back():
    """A broker's stall fells nobody: nothing comes for 5 s, then everything."""
    clock = Clock()
    clock.go_on(1.0, beats=True)
    clock.now += 5.0
    assert not clock.probe(sent=4.9)
    assert not clock.probe(sent=0.1)
    clock.watch.heard(clock.now, "m1")
    assert clock.go_on(3.0, beats=True) is None


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
    suspected, overlap, sent = None, False, {}
    for at, reader, who, number in beats_and_reads(random):
        overlap |= suspected is not None and primary.may_emit(at * rate)
        if (reader, who) == ("", "p"):
            sent[number] = at * rate
        elif (reader, who) == ("", "w"):
            watch.probe_sent(at, number)
        elif (reader, who) == ("p", "p"):
            primary.beat_returned(at * rate, sent[number])
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
        def beat_returned(self, now, sent):
            return super().beat_returned(now, now)

    assert any(play(seed, FromItsReturn)[1] for seed in range(200))


def test_one_whose_right_outlasts_the_lease_has_not():
    class OutlastsTheLease(Emission):
        def __init__(self, lease, epoch, sent=None):
            super().__init__(lease, epoch, sent)
            self._lease = Lease(seconds=lease.seconds + 3 * lease.margin, margin=lease.margin, beat=lease.beat)

    assert any(play(seed, OutlastsTheLease)[1] for seed in range(200))
