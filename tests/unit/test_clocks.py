"""Ages are measured on the judge's own monotonic clock, without its own time away; what compares hosts bears 2 s."""

import re
import socket
import ssl
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.core.board import Board
from spillway.agents.core.estimates.observed import Transfer
from spillway.agents.core.gate import GateCore
from spillway.agents.core.joins import MIN_WAIT_SECONDS
from spillway.agents.live.ingress import Ingress
from spillway.agents.metrics import Distribution
from spillway.agents.run.intake import effective
from spillway.agents.supervise.tuner import TunerLoop
from spillway.agents.workers.links import _LOOK_SECONDS, Links, _Link
from spillway.agents.workers.tls import SILENT_SECONDS, Secured
from spillway.lineage.message import PREDICTION, Outcome, PlanWord
from spillway.producers.offline.job import Job, Progress
from spillway.producers.offline.pace import LOOK, Pace
from spillway.topology.capacity.tuner import Basis
from tests.planned import planned
from tests.unit.core.builders import delivery
from tests.unit.core.shapes import SHAPES

SKEWS = [-2.0, -0.5, 0.0, 0.5, 2.0]
UNIX = 1_800_000_000.0
TIMEOUT = 5.0
GOOD = SimpleNamespace(outcome=Outcome(PREDICTION))


class Time:
    """A module `time` whose clocks go as the test says."""

    def __init__(self):
        self.now, self.set = 1_000.0, 0.0

    def monotonic(self):
        return self.now

    def time(self):
        return UNIX + self.now + self.set


@pytest.fixture
def clock():
    return Time()


# Workers ------------------------------------------------------------------------------------------------------------


class Front:
    """The links of a front, on the test's thread, with one worker that has a batch."""

    def __init__(self, clock, monkeypatch, *, peer):
        monkeypatch.setattr("spillway.agents.workers.links.time", clock)
        unstarted = SimpleNamespace(start=lambda: None)
        monkeypatch.setattr("spillway.agents.workers.links.threading", SimpleNamespace(Thread=lambda **_: unstarted))
        self.clock, self.lost_with = clock, []
        self.links = Links(self, timeout=TIMEOUT)
        ours, self.theirs = socket.socketpair()
        ours.settimeout(0.0)
        self.link = _Link(0, ours, None, clock.now, peer, heard=clock.now, pinged=clock.now, hello=True)
        self.link.job, self.link.queries = "a batch", [{}, {}]
        self.links._add(self.link)

    def lost(self, worker, job, answered, why, *, failed):
        self.lost_with.append((job, answered))

    def look_after(self, seconds):
        self.clock.now += seconds
        self.links._look(self.clock.now)


@given(st.lists(st.floats(2 * _LOOK_SECONDS + 0.01, 600.0), min_size=1, max_size=6))
def test_what_a_front_was_away_is_no_silence_and_no_time_of_a_batch(stalls):
    with pytest.MonkeyPatch.context() as monkeypatch:
        front = Front(Time(), monkeypatch, peer="elsewhere:1")
        for stall in stalls:
            front.look_after(stall)
        assert front.lost_with == []
        for _ in range(int(SILENT_SECONDS / _LOOK_SECONDS) + 2):
            front.look_after(_LOOK_SECONDS)
        assert front.lost_with  # a silence that it was there for counts


def test_a_batch_still_has_its_timeout_after_stalls(clock, monkeypatch):
    front = Front(clock, monkeypatch, peer="")
    for _ in range(3):
        front.look_after(100.0)
    for _ in range(int(TIMEOUT / _LOOK_SECONDS) - 4):
        front.look_after(_LOOK_SECONDS)
    assert front.lost_with == []
    for _ in range(8):
        front.look_after(_LOOK_SECONDS)
    assert front.lost_with == [("a batch", 0)]


@pytest.mark.parametrize(("away", "blamed"), [(0.1, True), (4.0, False)])
def test_no_query_is_to_blame_for_a_peer_that_left_as_its_front_was_away(away, blamed, clock, monkeypatch):
    front = Front(clock, monkeypatch, peer="elsewhere:1")
    clock.now += away
    front.theirs.close()
    front.links._serve(front.link, 1)
    assert front.lost_with == [("a batch", 0 if blamed else 2)]


def test_a_worker_that_was_away_reads_what_has_come_before_it_judges(clock, monkeypatch):
    monkeypatch.setattr("spillway.agents.workers.tls.time", clock)
    ours, theirs = socket.socketpair()

    class Stalls:
        """As a TLS connection: its thread is stopped for long just before it finds that there is nothing yet."""

        def __init__(self):
            self.calls = 0

        settimeout, fileno = ours.settimeout, ours.fileno

        def recv_into(self, room):
            self.calls += 1
            if self.calls == 1:
                clock.now += 60.0
                theirs.send(b"late")
                raise ssl.SSLWantReadError
            return ours.recv_into(room)

    assert Secured(Stalls()).recv_into(memoryview(bytearray(9))) == 4


# Words of other hosts -----------------------------------------------------------------------------------------------


def word(said, **more):
    return PlanWord("a", 0, 0, round(1e6 * said), 1.0, completion_rate=20.0, recent_batch=2.0, **more)


@pytest.mark.parametrize("skew", [*SKEWS, -3_600.0, 3_600.0])
def test_a_job_pauses_by_when_words_came(skew):
    pace = Pace()
    pace.hear(10.0, word(UNIX + skew, utilisation=0.9))
    assert pace.paused(10.0 + LOOK - 0.1, 1)
    assert not pace.paused(10.0 + LOOK + 0.1, 1)


@pytest.mark.parametrize("skew", SKEWS)
def test_a_replica_is_silent_by_when_its_words_came(skew):
    board = Board(["a"], 1, silence=0.8)
    for number in range(5):  # our own clock is set meanwhile
        assert (
            board.hear(UNIX + number + (2.0 if number > 2 else 0.0), word(UNIX + number + skew), 10.0 + number) is None
        )
        assert board.states(10.7 + number)
    assert not board.states(14.9)


@pytest.mark.parametrize("skew", SKEWS)
def test_hops_are_no_shorter_than_nothing_nor_longer_than_what_counts(skew):
    transfer, distribution = Transfer(), Distribution()
    transfer.hear(UNIX, skew)
    distribution.observe(skew)
    assert all(0.0 <= hop <= 1.0 for hop in transfer.samples(UNIX))
    assert distribution.total == max(0.0, skew)


@pytest.mark.parametrize("skew", SKEWS)
def test_a_client_two_seconds_off_has_its_whole_budget(skew):
    sent = round(1e6 * (UNIX + skew))
    times = effective(sent, sent + 300_000, round(1e6 * UNIX), 300_000)
    assert times.deadline_us - times.sent_us == 300_000
    assert abs(times.sent_us - 1e6 * UNIX) <= 1e6


@pytest.mark.parametrize("skew", SKEWS)
def test_a_join_waits_as_much_longer_as_the_brokers_clock_is_ahead(skew):
    core = GateCore(SHAPES["sinks-all"].graph(), sinks="all")
    core.assign(0, 0)
    core.deliver(UNIX, delivery("q", 0, "b", deadline=UNIX, appended=UNIX + skew, payload=GOOD))
    assert core.next_wake() == UNIX + MIN_WAIT_SECONDS + skew


# The tuner ----------------------------------------------------------------------------------------------------------


class Counted(Ingress):
    """An ingress with `rate` queries a second, on a broker whose clock is ahead, and that takes long to answer."""

    def __init__(self, clock, rate, ahead, slow):
        self.clock, self.rate, self.ahead, self.slow, self._partitions = clock, rate, ahead, slow, 1

    def _offsets(self, timestamp):
        end = int(self.rate * self.clock.now)
        at = int(self.rate * (timestamp / 1000 - UNIX - self.ahead))
        self.clock.now += self.slow
        return [end if timestamp < 0 else at if at < end else -1]


@pytest.mark.parametrize("ahead", SKEWS)
@pytest.mark.parametrize("slow", [0.0, 0.02, 0.5])
def test_what_comes_while_history_is_read_is_no_load(clock, monkeypatch, ahead, slow):
    for module in ("spillway.agents.supervise.tuner", "spillway.agents.live.ingress"):
        monkeypatch.setattr(f"{module}.time", clock)
    basis = Basis(100.0, {0.25: 26, 1.0: 101, 5.0: 502, 30.0: 3_005}, {"a": planned(10, 15.0)})
    stop, orders, excess = threading.Event(), [], []

    def tick(seconds):
        clock.now += max(0.05, seconds)
        excess.append(tuning._metrics.excess)
        return stop.set() if len(excess) > 40 else None

    size = SimpleNamespace(count=10, epoch=1, why="tuned")
    tuning = SimpleNamespace(
        _config=SimpleNamespace(basis=basis, form="envelope"),
        _ingress=Counted(clock, 100.0, ahead, slow),
        _stop=SimpleNamespace(is_set=stop.is_set, wait=tick),
        _metrics=SimpleNamespace(excess=0.0),
        _mine=lambda: ("a",),
        _newest=lambda _stage: size,
        _write=lambda found, _epoch: orders.append(found),
    )
    TunerLoop._tune(tuning, ("a",), 1, threading.Event())
    assert max(excess) < 1.1
    assert not any(orders)


# A wall clock that is set -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("jump", [-3_600.0, -2.0, 2.0, 3_600.0])
def test_a_job_counts_its_pauses_by_the_monotonic_clock(clock, monkeypatch, jump):
    monkeypatch.setattr("spillway.producers.offline.job.time", clock)
    job = Job("p", None, None, None, parameters={})
    job._state, job._pace = Progress(1), SimpleNamespace(paused=lambda _now, _under_way: "busy")
    job._outputs = SimpleNamespace(note=lambda *_: None, write=lambda _rows: 0, written=0)

    def take(seconds):
        clock.now, clock.set = clock.now + seconds, jump

    job._take = take
    for _ in range(10):
        job._step(iter(()))
    assert job._state.paused_seconds == pytest.approx(1.0)


# Each use of the wall clock in the rooms: to stamp what others read or show, or to compare it with what another host
# has stamped, which has a tolerance.
STAMP = "stamp"
COMPARES = {
    "agents/live/clock.py": "the stage's clock follows it, at most 1 % slower, and at once where it leads by a second",
    "agents/live/ingress.py": "what the broker has beyond our clock counts as come before",
    "lineage/ids.py": "where a search by an id begins: 5 s earlier (`_EARLIER`)",
    "producers/offline/job.py": "since when outcomes are looked for after a crash: 10 s earlier (`_SKEW`)",
}
STAMPS = {
    *("agents/cli/commands/inspect.py", "agents/gateway/page.py"),
    *("agents/cli/commands/record.py", "agents/cli/commands/scale.py", "agents/cli/members.py"),
    *("agents/live/gate/process.py", "agents/live/operator/changes.py"),
    *("agents/live/operator/dead_letters.py", "agents/live/operator/switch.py", "agents/live/registry.py"),
    *("agents/live/sizes.py", "agents/live/stage/crash_watch.py", "agents/live/stage/scaling.py"),
    *("agents/live/stateful/process.py", "agents/live/stateful/build_reign.py"),
    *("agents/live/states/beats.py", "agents/registry/register.py", "agents/supervise/child.py"),
    *("agents/supervise/ownership.py", "agents/supervise/service.py", "agents/supervise/tuner.py"),
    *("producers/generations.py", "producers/load/generator.py"),
}


def test_whoever_reads_the_wall_clock_is_known_for_why():
    root = Path(__file__).parents[2]
    rooms = ("agents", "checkpoint", "lineage", "producers", "topology", "spillway")
    read = {
        str(file.relative_to(root))
        for room in rooms
        for file in (root / room).rglob("*.py")
        if re.search(r"time\.time(_ns)?\(", file.read_text())
    }
    assert read == {*COMPARES, *STAMPS}
