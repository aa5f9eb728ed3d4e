"""Version logs as they are read from a real broker: in order, soon, up to their ends, and through a restart."""

import statistics
import time

import pytest
from confluent_kafka import Producer

from spillway.agents.live.states.log_reader import CONTROL, LogReader, LogsFeed
from spillway.agents.live.states.sending import Appender
from spillway.checkpoint import version_log
from spillway.checkpoint.damage import Damage
from spillway.lineage.errors import CheckpointError
from spillway.lineage.marks import INITIAL, Mark, Version
from spillway.lineage.replication import Base, Claim, Fence, Manifest, Yield
from spillway.lineage.values.replication import encode

from .conftest import PLACE, STAGE, Bench, Told

CHAIN = ((1, INITIAL),)
REIGN = [Fence(1, "m"), Base(1, "m", INITIAL, CHAIN)]


def reader_of(bench, told, **options):
    return bench.keep(LogReader(bench.settings, bench.pipeline, [PLACE], told, told.post, **options))


def appender_of(bench, told):
    return bench.keep(Appender(bench.settings, bench.pipeline, PLACE, told.post, told.failed))


class Writer:
    """Appends manifests one by one, and says when each was acknowledged."""

    def __init__(self, bench):
        self.topic = f"{bench.pipeline}.{STAGE}.versions"
        self.producer = Producer({"bootstrap.servers": bench.settings.bootstrap, "linger.ms": 0, "acks": "all"})
        self.acked = []

    def write(self, record, key=None, value=None):
        before = len(self.acked)
        key = version_log.key(record) if key is None else key
        self.producer.produce(
            self.topic,
            encode(record) if value is None else value,
            key,
            0,
            on_delivery=lambda *_: self.acked.append(time.monotonic()),
        )
        while len(self.acked) == before:
            self.producer.poll(0.1)


def test_records_come_in_order_behind_them_that_all_was_read(bench):
    told = Told()
    appender = appender_of(bench, told)
    claim, wish = Claim(STAGE, 0, 1, "m"), Yield(STAGE, 0, 1, "me")
    for record in (claim, wish, *REIGN):
        appender.append(record, lambda record=record: told.calls.append(("acked", record)))
    told.until(lambda: len(told.of("acked")) == 4)
    reader = reader_of(bench, told, with_control=True)
    told.until(lambda: len(told.of("caught_up")) == 2)
    assert [call[2] for call in told.of("record") if call[1] == PLACE] == REIGN
    assert [call[2] for call in told.of("record") if call[1] == CONTROL] == [claim, wish]
    for place in (PLACE, CONTROL):
        records = [at for at, call in enumerate(told.calls) if call[:2] == ("record", place)]
        assert told.calls.index(("caught_up", place)) > max(records)
    with pytest.raises(CheckpointError):
        appender.append(claim)
    done = []
    reader.read_to_end(PLACE, lambda: done.append(len(told.of("record"))))
    told.until(lambda: done)


@pytest.mark.nightly
def test_what_is_appended_before_the_wish_is_read_before_it_is_fulfilled(bench):
    told = Told()
    reader = reader_of(bench, told)
    told.until(lambda: told.of("caught_up"))
    writer, seen = Writer(bench), []
    for n in range(1, 30):
        writer.write(Manifest(Version(1, n), CHAIN, (), "m"))
        reader.read_to_end(PLACE, lambda: seen.append(len(told.of("record"))))
        told.until(lambda n=n: len(seen) == n)
        assert seen[-1] >= n


def test_a_log_that_rests_is_read_whole_and_at_once_where_it_is_asked_for(bench):
    told, writer, ends = Told(), Writer(bench), []
    reader = reader_of(bench, told, with_control=True, soon=[CONTROL])
    told.until(lambda: len(told.of("caught_up")) == 2)
    for n in range(1, 400):
        writer.write(Manifest(Version(1, n), CHAIN, (), "m"))
        if n % 100 == 0:
            reader.read_to_end(PLACE, lambda: ends.append(len(told.of("record"))))
            told.until(lambda n=n: ends and ends[-1] >= n)
        elif n % 150 == 0:
            reader.follow([PLACE, CONTROL] if n == 150 else ())
        elif n % 7 == 0:
            reader.look()
        time.sleep(0.005)
        told.mailbox.deliver()
    told.until(lambda: len(told.of("record")) == 399)
    assert [call[2].version.n for call in told.of("record")] == [*range(1, 400)]


def test_tombstones_are_told_of(bench):
    told = Told()
    reader_of(bench, told)
    writer = Writer(bench)
    manifest = Manifest(Version(1, 1), CHAIN, (), "m")
    writer.write(manifest)
    writer.write(None, "manifest/1/1", b"")  # an empty value is no tombstone
    writer.producer.produce(writer.topic, None, "manifest/1/1", 0)
    writer.producer.flush(90)
    told.until(lambda: len(told.of("record")) == 3, 120)
    told_of = [call[2] for call in told.of("record")]
    assert (told_of[0], type(told_of[1]), told_of[2]) == (manifest, Damage, None)


def test_a_manifest_is_told_of_soon_after_it_was_acknowledged(bench, capsys):
    told = Told()
    reader_of(bench, told)
    told.until(lambda: told.of("caught_up"))
    writer = Writer(bench)
    writer.write(Fence(1, "m"))
    told.until(lambda: len(told.times) == 1)
    for n in range(1, 201):
        writer.write(Manifest(Version(1, n), CHAIN, (), "m", contents=bytes(9_000)))
        told.until(lambda n=n: len(told.times) == n + 1)
    gaps = sorted(max(0.0, read - acked) for acked, read in zip(writer.acked, told.times, strict=True))[:-1]
    with capsys.disabled():
        print(f"\nfrom ack to post: p50 {statistics.median(gaps) * 1e3:.2f} ms, p99 {gaps[197] * 1e3:.2f} ms")
    assert statistics.median(gaps) < 0.02


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"base/1", b"rubbish"), (b"manifest/1/2", encode(Manifest(Version(1, 1)))), (b"\xff", b"rubbish")],
)
def test_what_is_damaged_stands_in_its_place_and_keeps_the_feed_from_judging(bench, key, value):
    told = Told()
    feed = bench.keep(LogsFeed(bench.settings, bench.pipeline, [PLACE], told.post, lambda: None, told.failed))
    writer = Writer(bench)
    for record in (*REIGN, Manifest(Version(1, 1), CHAIN, (), "m")):
        writer.write(record)
    writer.write(None, key, value)
    told.until(lambda: feed.logs.damage(PLACE) is not None)
    assert feed.logs.damage(PLACE).where == f"the record in {writer.topic}[0] at offset 3"
    writer.producer.produce(writer.topic, None, key, 0)
    writer.write(Manifest(Version(1, 2), CHAIN, (), "m"))
    told.until(lambda: feed.logs.newest_durable(PLACE) == Version(1, 2))


def test_the_feed_knows_what_is_durable(bench):
    told, changes = Told(), []
    feed = bench.keep(
        LogsFeed(bench.settings, bench.pipeline, [PLACE], told.post, lambda: changes.append(1), told.failed)
    )
    told.until(lambda: feed.ready)
    writer = Writer(bench)
    mark = Mark(STAGE, 0, Version(1, 1))
    assert not feed.logs.durable(mark)
    for record in (*REIGN, Manifest(Version(1, 1), CHAIN, (), "m")):
        writer.write(record)
    told.until(lambda: feed.logs.durable(mark))
    assert changes
    writer.write(Manifest(Version(1, 3), ((1, Version(0, 0)), (7, Version(1, 1))), (), "m"))
    with pytest.raises(AssertionError, match="another chain"):
        told.until(lambda: False, 20)


def test_reading_goes_on_when_the_broker_is_back(own_broker, unique_name):
    bench, told = Bench(own_broker.bootstrap, unique_name), Told()
    reader = reader_of(bench, told, away=2.0)
    appender = appender_of(bench, told)
    told.until(lambda: told.of("caught_up"))
    for record in REIGN:
        appender.append(record)
    told.until(lambda: len(told.of("record")) == 2)
    own_broker.stop()
    appended = [Fence(epoch, "m") for epoch in range(2, 6)]
    for record in appended:
        appender.append(record)
    done = []
    reader.read_to_end(PLACE, lambda: done.append(1))
    until = time.monotonic() + 2.5
    while time.monotonic() < until:
        told.mailbox.deliver()
        time.sleep(0.01)
    own_broker.start()
    told.until(lambda: len(told.of("caught_up")) == 2 and done, 120)
    told.until(lambda: len(told.of("record")) == 6, 120)
    assert [call[2] for call in told.of("record")] == [*REIGN, *appended]
    kinds = [call[0] for call in told.calls]
    assert kinds.index("fell_behind") == 3  # behind what came before the gap, before what came after it
    bench.close()
