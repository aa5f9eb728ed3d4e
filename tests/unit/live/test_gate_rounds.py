"""The gate over a consumer that keeps a pause as librdkafka does: it reads on whenever there is room."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from hypothesis import example, given
from hypothesis import strategies as st

from spillway.agents.core.gate import GateCore
from spillway.agents.core.joins import Fetch
from spillway.agents.core.request import Delivery
from spillway.agents.live.gate import pulled_input
from spillway.agents.live.gate.blocking import block, complete, in_thread
from spillway.agents.live.gate.metrics import GateMetrics
from spillway.agents.live.gate.pulled_input import KafkaPulledInput
from spillway.agents.run import background
from spillway.agents.run.gate import Gate
from spillway.agents.run.gate_context import GateContext, GateTopics
from spillway.agents.run.gate_wire import Poison
from spillway.lineage.errors import AbortedError, BrokerError, OustedError
from spillway.lineage.headers import ACCEPT
from spillway.lineage.hops import Hop
from spillway.lineage.marks import Mark, Version
from spillway.lineage.message import PREDICTION, Outcome
from spillway.lineage.ports import Bounds
from spillway.producers.kafka.records import record_of
from tests import mock_cluster
from tests.modelled_client import Message
from tests.unit.core.builders import Known
from tests.unit.core.shapes import SHAPES
from tests.unit.live.endless_inputs import endless
from tests.waiting import Bound

NOW = 1_000.0
GONE = 7
MARK = Mark("s", 0, Version(1, 1))


class Consumer:
    """A member of a group of one. What it was told to pause stays paused through any assignment."""

    def __init__(self, topic):
        self.topic = topic  # by partition: the offsets that are there
        self.positions, self.paused = {}, set()
        self.lost = {}  # by partition that is out of range: whether that was said

    def subscribe(self, _topics, on_assign, on_revoke, on_lost):
        self.on_assign, self.on_revoke = on_assign, on_revoke

    def committed(self, places, timeout):
        assert timeout
        return [TopicPartition(place.topic, place.partition) for place in places]

    def pause(self, partitions):
        self.paused |= {place.partition for place in partitions}

    def resume(self, partitions):
        self.paused -= {place.partition for place in partitions}

    def incremental_assign(self, places):
        self.positions |= {place.partition: place.offset for place in places}

    def incremental_unassign(self, places):
        for place in places:
            del self.positions[place.partition]
            self.lost.pop(place.partition, None)

    def consumer_group_metadata(self):
        return None

    def poll(self, _seconds):
        for partition in self.positions.keys() - self.paused:
            if partition in self.lost:
                if not self.lost[partition]:
                    self.lost[partition] = True
                    return message(partition, self.positions[partition], KafkaError(KafkaError._AUTO_OFFSET_RESET))
            elif self.positions[partition] < self.topic[partition]:
                self.positions[partition] += 1
                return message(partition, self.positions[partition] - 1)
        return None

    def consume(self, _most, _seconds):
        return []


def message(partition, offset, error=None):
    return Message("o", partition, offset, error=error)


@dataclass
class Carried:
    outcome: Outcome
    taken: float = 0.0
    key: bytes = b""
    headers: list[Any] = field(default_factory=list)


def read(taken):
    """Each a report of its own query, which rests on one state."""
    partition, offset = taken.partition, taken.offset
    hop = Hop("c", 0, partition, offset, 0, (MARK,))
    payload = Carried(Outcome(PREDICTION))
    return Delivery(f"q{partition}.{offset}", partition, offset, NOW, NOW + 1, "c", hop, {}, (), NOW, payload)


def failing(delivery):
    delivery.payload.outcome = Outcome("failed", reason="model-raised", stage="c")
    return delivery


class Writer:
    def __init__(self):
        self.aborts, self.written = 0, []

    @property
    def released(self):
        return len(self.written)

    async def write(self, records, _offsets):
        if self.aborts:
            self.aborts -= 1
            raise AbortedError("aborted")
        self.written += records
        return [(self.released - len(records) + nth, 1) for nth in range(len(records))]


class Logs:
    """Of which nothing is read again, and which begin at 0."""

    async def bounds(self, _topic, partitions):
        return dict.fromkeys(partitions, Bounds(0, 30))

    async def read(self, _topic, _spans, *, values):
        assert not values
        for nothing in ():
            yield nothing


class Reader:
    def __init__(self):
        self.free, self.error = threading.Event(), None

    def records(self, places):
        assert self.free.wait(60)
        if self.error is not None:
            raise self.error
        return {place: record_of(message(*place)) for place in places if place[1] != GONE}


class Bench:
    """A gate that holds everything until `known` says that its state is durable; ten outcomes are all it may hold."""

    def __init__(self, monkeypatch):
        self.known, self.writer = Known(), Writer()
        self.consumer = Consumer({0: 30, 1: 30})
        monkeypatch.setattr(pulled_input, "Consumer", lambda _settings, logger: self.consumer)
        self.reader = Reader()
        self.wire = SimpleNamespace(read=read, message=lambda _release: (b"", ()))
        self.clock = SimpleNamespace(now=lambda: NOW, monotonic=time.monotonic)
        pulled = KafkaPulledInput("o", {"group.instance.id": "p.gate.0"}, lambda _partition: Bounds(0, 30))
        context = GateContext(
            name="p.0",
            topics=GateTopics("o", "e", "d"),
            input=pulled,
            transactions=self.writer,
            spans=Logs(),
            clock=self.clock,
            sleep=block,
            begin=ThreadPoolExecutor(1).submit,
            reread=lambda places: in_thread("reading", lambda: self.reader.records(places)),
            wire=self.wire,
            inputs=endless(),
            recorder=GateMetrics("p", 0),
            core=lambda: GateCore(SHAPES["chain"].graph(), sinks=None, durability=self.known, held_limit=10),
            versions=Mock(news=lambda: True, read_to_ends=AsyncMock()),
        )
        self.gate = Gate(context)
        complete(pulled.join(self.gate))
        self.give(0)

    def give(self, *partitions):
        self.consumer.on_assign(self.consumer, [TopicPartition("o", number) for number in partitions])

    def take(self, *partitions):
        self.consumer.on_revoke(self.consumer, [TopicPartition("o", number) for number in partitions])

    def rounds(self, count):
        for _ in range(count):
            complete(self.gate.round())

    def until(self, condition):
        """Go round until a condition holds: what others do for the gate takes milliseconds."""
        bound = Bound(60)
        while not condition():
            assert not bound.over
            self.rounds(1)
            time.sleep(0.001)

    def fill(self):
        self.rounds(20)
        assert self.gate._core.pending == 10
        assert self.consumer.positions[0] == 10

    def durable(self):
        self.known.alive = {MARK}


LONG = 1 << 20


def test_a_long_conversion_holds_nobody_but_its_partition(bench):
    bench.gate._core._held_limit = 100
    free, written = threading.Event(), bench.writer.written

    def long(taken):
        """Every third outcome of partition 0 is long, and asked for in JSON."""
        delivery = read(taken)
        if (taken.partition, taken.offset % 3) == (0, 1):
            delivery.size = LONG
            delivery.payload.headers = [(ACCEPT, b"application/json; charset=utf-8")]
        return delivery

    def message(release):
        if release.source.size == LONG:
            assert threading.current_thread() is not threading.main_thread()
            assert free.wait(60)
        return release.request_id.encode(), []

    bench.wire.read, bench.gate._conversions._message = long, message
    bench.give(1)
    bench.durable()
    bench.until(lambda: len(written) >= 31)
    assert [record.value for record in written if record.partition == 1] == [b"q1.%d" % n for n in range(30)]
    assert [record.value for record in written if record.partition == 0] == [b"q0.0"]
    free.set()
    bench.until(lambda: len(written) == 60)
    assert [record.value for record in written if record.partition == 0] == [b"q0.%d" % n for n in range(30)]
    assert not bench.gate._conversions.waiting


def test_the_gate_stops_reading_while_too_much_waits_for_its_conversion(bench, monkeypatch):
    monkeypatch.setattr(background, "_MOST_WAITING", 3 * LONG)
    free = threading.Event()

    def long(taken):
        delivery = read(taken)
        delivery.size, delivery.payload.headers = LONG, [(ACCEPT, b"application/json")]
        return delivery

    bench.wire.read = long
    bench.gate._conversions._message = lambda _release: (free.wait(60), (b"", []))[1]
    bench.durable()
    bench.rounds(30)
    assert bench.consumer.positions[0] == 3
    free.set()
    bench.until(lambda: bench.writer.released == 30)


@pytest.fixture
def bench(monkeypatch):
    return Bench(monkeypatch)


@pytest.mark.parametrize("seconds", [0.0, 0.2, 0.999, 1.0, 1.001, 3.0])
def test_an_outcome_counts_when_clients_could_read_it(bench, monkeypatch, seconds):
    now = SimpleNamespace(seconds=NOW)
    write = bench.writer.write

    async def slow(records, offsets):
        now.seconds += seconds  # a transaction that takes so long
        return await write(records, offsets)

    monkeypatch.setattr(bench.writer, "write", slow)
    bench.clock.now = lambda: now.seconds
    bench.durable()
    bench.until(lambda: bench.writer.released)
    metrics, first = bench.gate._recorder, bench.writer.released
    assert (metrics.good, metrics.late) == ((first, 0) if seconds <= 1.0 else (0, first))  # each has a second
    buckets = dict(zip(metrics.latency["prediction"].bounds, metrics.latency["prediction"].counts, strict=False))
    assert sum(count for bound, count in buckets.items() if bound >= seconds > bound / 2) == (first if seconds else 0)


def test_drops_and_failures_are_kept_once_they_are_released(bench, monkeypatch):
    monkeypatch.setattr(bench.wire, "read", lambda taken: failing(read(taken)))
    bench.rounds(3)
    assert bench.gate._recorder.recent() == []
    bench.durable()
    bench.until(lambda: bench.writer.released)
    told = bench.gate._recorder.recent()
    assert len(told) == bench.writer.released
    assert {(each["at"], each["reason"], each["request_id"][:3]) for each in told} == {(NOW, "model-raised", "q0.")}


def test_what_is_held_stops_the_reading_until_it_leaves(bench):
    bench.fill()
    bench.durable()
    bench.rounds(60)
    assert bench.writer.released == 30


def test_an_abort_while_the_gate_is_full_does_not_stop_it_for_good(bench):
    bench.fill()
    bench.writer.aborts = 1
    bench.durable()
    bench.rounds(100)
    assert bench.writer.aborts == 0
    assert bench.gate._recorder.aborted == 1
    assert bench.writer.released == 30
    assert bench.consumer.paused == set()


def test_a_partition_that_comes_while_the_gate_is_full_is_paused_as_well(bench):
    bench.fill()
    bench.give(1)
    bench.rounds(20)
    assert bench.gate._core.pending == 10
    bench.durable()
    bench.rounds(150)
    assert bench.writer.released == 60


def test_a_partition_that_went_while_it_was_paused_is_read_when_it_comes_back(bench):
    bench.give(1)
    bench.rounds(30)
    assert bench.consumer.paused == {0, 1}
    bench.take(1)
    assert bench.consumer.paused == {0}
    bench.durable()
    bench.rounds(60)
    bench.give(1)
    bench.rounds(60)
    assert bench.writer.released == 60


class Turns:
    """What may happen to a gate's partitions, full or not."""

    def __init__(self, bench):
        self.bench, self.consumer = bench, bench.consumer

    def move(self, partition):
        (self.bench.take if partition in self.consumer.positions else self.bench.give)(partition)

    def lose(self, partition):
        """Have it out of range for as long as it is not assigned anew."""
        if partition in self.consumer.positions:
            self.consumer.lost.setdefault(partition, False)

    def abort(self, _partition):
        self.bench.writer.aborts = 1

    def work(self, partition):
        self.bench.rounds(15 * partition + 1)

    def end(self):
        for partition in {0, 1} - self.consumer.positions.keys():
            self.bench.give(partition)
        self.bench.durable()
        self.bench.rounds(150)


@given(st.lists(st.tuples(st.sampled_from([Turns.move, Turns.lose, Turns.abort, Turns.work]), st.integers(0, 1))))
@example([(Turns.lose, 0), (Turns.work, 0)])
def test_a_gate_reads_on_whatever_happens_to_its_partitions(turns):
    with pytest.MonkeyPatch.context() as patch:
        played = Turns(Bench(patch))
        for turn, partition in turns:
            turn(played, partition)
        played.end()
        assert played.consumer.positions == {0: 30, 1: 30}
        assert not played.consumer.paused
        standing = played.bench.gate._standing
        assert {partition: commit.offset for partition, commit in standing.items()} == {0: 30, 1: 30}


PAUSED = """
import time
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.mock_cluster import MockCluster
from tests.waiting import until
cluster = MockCluster()
cluster.topic("t", 1)
producer = Producer({"bootstrap.servers": cluster.bootstrap})
producer.produce("t", b"v", partition=0)
producer.flush()
consumer = Consumer({
    "bootstrap.servers": cluster.bootstrap, "group.id": "g", "auto.offset.reset": "earliest",
    "partition.assignment.strategy": "cooperative-sticky", "enable.auto.commit": False,
})
consumer.subscribe(["t"])
until(lambda: consumer.poll(0.1), 60)
ours = [TopicPartition("t", 0, 0)]
def again():
    consumer.incremental_unassign(ours)
    consumer.incremental_assign(ours)
consumer.pause(ours)
again()
print("paused", consumer.poll(1.0) is not None)
consumer.resume(ours)
until(lambda: consumer.poll(0.1), 60)
consumer.pause(ours)
consumer.resume(ours)
again()
until(lambda: consumer.poll(0.1), 60)
print("resumed before")
"""


def fetching(bench, monkeypatch, fetches):
    """Have the core want reports again; gives those that it was answered, and whether they were there."""
    core, answered = bench.gate._core, []
    monkeypatch.setattr(core, "take_fetches", lambda: [fetches.pop()] if fetches else [])
    monkeypatch.setattr(core, "fetched", lambda _now, fetch, _payload, loss: answered.append((fetch, loss is None)))
    bench.wire.again = lambda _fetch, found: (Carried(None), None if found else "gone")
    return answered


def test_the_gate_reads_on_while_payloads_are_read_again(bench, monkeypatch):
    wanted = [Fetch(0, 5), Fetch(0, GONE)]
    answered = fetching(bench, monkeypatch, list(wanted))
    bench.rounds(8)
    assert bench.consumer.positions[0] == 8
    assert not answered
    bench.reader.free.set()
    bench.until(lambda: len(answered) == 2)
    assert set(answered) == {(wanted[0], True), (wanted[1], False)}


def test_what_cannot_be_read_again_ends_the_gate(bench, monkeypatch):
    fetching(bench, monkeypatch, [Fetch(0, 5)])
    bench.reader.error = BrokerError("the topic is gone")
    bench.reader.free.set()
    with pytest.raises(BrokerError, match="the topic is gone"):
        bench.until(lambda: False)


@pytest.mark.parametrize("found", [[], [message(0, 3)]], ids=["nothing", "a record"])
def test_what_is_revoked_while_nothing_is_waited_for_is_left_out(bench, monkeypatch, found):
    def consume(_most, _seconds):
        bench.take(0)
        return found

    monkeypatch.setattr(bench.consumer, "consume", consume)
    assert complete(bench.gate._input.take(10, 0)) == []


@pytest.mark.parametrize(
    ("code", "raised"), [(KafkaError.FENCED_INSTANCE_ID, OustedError), (KafkaError._STATE, BrokerError)]
)
def test_what_the_client_raises_ends_the_reading_by_an_error_of_ours(bench, monkeypatch, code, raised):
    def poll(_seconds):
        raise KafkaException(KafkaError(code))

    monkeypatch.setattr(bench.consumer, "poll", poll)
    with pytest.raises(raised, match=r"p\.gate\.0"):
        complete(bench.gate._input.take(10, 1))


@pytest.mark.skipif(not mock_cluster.available(), reason="this system does not tell which libraries are loaded")
def test_librdkafka_keeps_a_pause_beyond_the_assignment():
    program = subprocess.run(
        [sys.executable, "-c", PAUSED], cwd=Path(__file__).parents[3], capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert program.stdout.splitlines() == ["paused False", "resumed before"], program.stderr


def test_a_letter_of_a_partition_that_went_before_it_was_written_is_its_next_owners(bench, monkeypatch):
    taken, consume = [], bench.consumer.consume

    def second(*how):
        taken.append(how)
        if len(taken) == 2:  # of the same round
            bench.take(0)
        return consume(*how)

    bench.wire.read = lambda raw: Poison(raw, "bad-value", "odd", failing(read(raw)))
    bench.wire.letter = lambda _unusable: (b"", [])
    monkeypatch.setattr(bench.consumer, "consume", second)
    monkeypatch.setattr(bench.gate._gathering, "pause", lambda _now: 0.001)
    bench.durable()
    bench.rounds(1)
    assert len(taken) == 2
    assert bench.writer.written == []
