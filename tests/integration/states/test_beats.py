"""Heartbeats over a real broker: soon, also while state streams, through a restart; and reports."""

import threading
import time

import numpy as np
import pytest

from spillway.agents.live.states.beats import Beats, Reporter, Standing, _Mouth
from spillway.checkpoint.leases import Emission, Lease
from spillway.checkpoint.silence import Peer, Watch
from spillway.lineage.marks import Version

from .conftest import PLACE, STAGE, Bench, Told
from .test_state_writer import Primary


class Member:
    """One member's heart, and what it hears; `watched` is the peer whose silence it counts."""

    def __init__(self, bench, name, told, watched=None):
        self.name = name
        self.told = told
        self.sent_at, self.returned_at, self.heard_from, self.reports = {}, {}, {}, []
        self.emission = Emission(Lease(), 1)
        self.watch = Watch(Lease(), watched, time.monotonic()) if watched else None
        self.due = []
        self.beats = bench.keep(Beats(bench.settings, bench.pipeline, PLACE, name, Standing("backup"), self, told.post))

    def sent(self, at, sequence):
        self.sent_at[sequence] = at
        if self.watch:
            self.watch.probe_sent(at, sequence)

    def heard(self, beat, at):
        self.heard_from.setdefault(beat.member, []).append(beat)
        if beat.member == self.name:
            self.returned_at[beat.sequence] = at
            self.emission.beat_returned(at, self.sent_at[beat.sequence])
            if self.watch and self.watch.probe_returned(at, beat.sequence):
                self.due.append(at)
        elif self.watch:
            self.watch.heard(at, beat.member)

    def reported(self, report):
        self.reports.append(report)
        if self.watch and any(self.watch.reported(member) for member in report.members):
            self.due.append(time.monotonic())

    def failed(self, error):
        self.told.failed(error)


def test_members_hear_one_another_and_what_they_are(bench):
    told = Told()
    one, other = Member(bench, "m1", told), Member(bench, "m2", told)
    stranger = bench.keep(Beats(bench.settings, bench.pipeline, (STAGE, 1), "m3", Standing("primary"), one, told.post))
    told.until(lambda: one.heard_from.get("m2") and other.heard_from.get("m1") and one.returned_at)
    other.beats.standing = Standing("primary", 7, Version(7, 3))
    told.until(lambda: one.heard_from["m2"][-1].version == Version(7, 3))
    assert (one.heard_from["m2"][-1].role, one.heard_from["m2"][-1].epoch) == ("primary", 7)
    assert [beat.sequence for beat in one.heard_from["m2"]] == sorted({b.sequence for b in one.heard_from["m2"]})
    assert "m3" not in other.heard_from
    assert stranger is not None


def test_silence_and_a_report_tell_of_a_dead_peer(bench):
    told = Told()
    one, other = Member(bench, "m1", told, watched="m2"), Member(bench, "m2", told)
    told.until(lambda: one.heard_from.get("m2"))
    other.beats.close()
    ended = time.monotonic()
    told.until(lambda: one.due)
    assert one.watch.state is Peer.SILENT
    assert one.due[0] - ended > 0.8
    reporter = Reporter(bench.settings, bench.pipeline)
    reporter.report(STAGE, 0, "m2")
    reporter.close()
    told.until(lambda: one.reports)
    assert one.watch.state is Peer.DEAD
    assert one.reports[0].members == ("m2",)


@pytest.mark.nightly
def test_beats_go_on_when_the_broker_is_back_and_nobody_is_suspected(own_broker, unique_name):
    bench, told = Bench(own_broker.bootstrap, unique_name), Told()
    one, other = Member(bench, "m1", told, watched="m2"), Member(bench, "m2", told, watched="m1")
    told.until(lambda: one.heard_from.get("m2") and other.heard_from.get("m1"))
    own_broker.stop()
    told.run_for(2.0)
    assert not one.emission.may_emit(time.monotonic())
    own_broker.start()
    back = max(one.sent_at)
    told.until(lambda: max(one.returned_at) > back and max(other.returned_at) > back, 60)
    told.run_for(1.5)
    assert not one.due
    assert not other.due
    bench.close()


def write_versions(member, primary, versions):
    """Write versions of 100 MB, each with all of it changed; for each, the beats that left and came back meanwhile."""
    state = {f"w{n}": np.random.default_rng(n).random(2_500_000, np.float32) for n in range(10)}
    spans = []
    for _ in range(versions):
        for name in state:
            state[name] += 1
        began = time.monotonic()
        version = primary.write(state).version
        spans.append((began, time.monotonic()))
        primary.durable(version)
    returned = [(member.sent_at[sequence], at) for sequence, at in member.returned_at.items()]
    return [sum(began < sent and at < ended for sent, at in returned) for began, ended in spans]


@pytest.mark.nightly
def test_beats_leave_and_come_back_while_100_mb_are_captured_and_written(bench):
    told = Told()
    member = Member(bench, "m1", told)
    told.until(lambda: len(member.returned_at) >= 20)
    assert min(write_versions(member, Primary(bench, told, chunk_bytes=256 << 10), 8)) > 0


@pytest.mark.nightly
def test_a_heart_that_waits_for_the_writer_is_seen(bench, monkeypatch):
    told, writing = Told(), threading.Lock()
    say, write = _Mouth.say, Primary.write

    def waits(self, key, value):
        with writing:
            say(self, key, value)

    def holds(self, state):
        with writing:
            return write(self, state)

    monkeypatch.setattr(_Mouth, "say", waits)
    monkeypatch.setattr(Primary, "write", holds)
    member = Member(bench, "m1", told)
    told.until(lambda: len(member.returned_at) >= 5)
    assert max(write_versions(member, Primary(bench, told, chunk_bytes=256 << 10), 2)) <= 1
