"""Version logs as their reader tells of them: in order, behind what was read, over gaps, and in logs that rest."""

import asyncio
from functools import wraps

import pytest

from spillway.agents.memory.ports import MemoryLog
from spillway.agents.memory.records import kept
from spillway.agents.memory.world import DriverWorld
from spillway.agents.run.log_reader import CONTROL, LogReader, LogsFeed
from spillway.checkpoint import claims, version_log
from spillway.lineage.errors import BrokerError, CheckpointError, CorruptError, TopicError, UnreachableError
from spillway.lineage.marks import INITIAL, Mark, Version
from spillway.lineage.ports import Outgoing
from spillway.lineage.replication import Base, Claim, Fence, Manifest
from spillway.lineage.values.replication import encode

PLACE = ("learn", 0)
PLACES = (PLACE, ("learn", 1))
VERSIONS = "p.learn.versions"
CHAIN = ((1, INITIAL),)
REIGN = [Fence(1, "m", 0), Base(1, "m", INITIAL, CHAIN)]


def manifest(n):
    return Manifest(Version(1, n), CHAIN, (), "m")


class Told:
    """What a listener is told, in order."""

    def __init__(self):
        self.calls = []

    def records(self, batch):
        self.calls += [("record", read.place, read.record) for read in batch]

    def caught_up(self, place):
        self.calls.append(("caught_up", place))

    def fell_behind(self, place):
        self.calls.append(("fell_behind", place))

    def failed(self, error):
        self.calls.append(("failed", error))

    def of(self, kind):
        return [call for call in self.calls if call[0] == kind]


class Logs:
    """The logs of one stage in a memory world, and who reads them."""

    def __init__(self):
        self.world = DriverWorld(3, {VERSIONS: 2, "p.control": 1}, gaps=1)
        self.log = MemoryLog(self.world, self.world.process("reader"))
        self.told = Told()

    def write(self, *records, partition=0):
        for record in records:
            is_claim = isinstance(record, Claim)
            slot = ("p.control", 0) if is_claim else (VERSIONS, partition)
            key = (claims if is_claim else version_log).key(record).encode()
            self.world.broker.append(slot, kept(Outgoing(*slot, key, encode(record))))

    def reader(self, places=(PLACE,), **options):
        reader = LogReader(self.log, "p", places, self.told, now=lambda: self.world.now, **options)
        reader.tick_on(asyncio.get_running_loop())
        return reader

    def read(self):
        return [call[2].version.n for call in self.told.of("record")]

    async def until(self, condition, seconds=60.0):
        until = self.world.now + seconds
        while not condition():
            assert self.world.now < until, self.told.calls[-5:]
            await asyncio.sleep(0.01)


@pytest.fixture
def logs():
    return Logs()


def on_its_loop(play):
    """Run a test on the loop of its logs' world."""

    @wraps(play)
    def test(logs, **parameters):
        logs.world.run_until(play(logs, **parameters))

    return test


@on_its_loop
async def test_records_come_in_order_behind_them_that_all_was_read_and_then_who_asked(logs):
    claim = Claim("learn", 0, 1, "m")
    logs.write(claim, *REIGN)
    reader = logs.reader(with_control=True)
    for place in (PLACE, CONTROL):
        reader.read_to_end(place, lambda: logs.told.calls.append(("asked",)))
    await logs.until(lambda: len(logs.told.of("asked")) == 2)
    for place, records in ((PLACE, REIGN), (CONTROL, [claim])):
        of_place = [call for call in logs.told.calls if call[1:2] == (place,)]
        assert [type(call[2]) for call in of_place[:-1]] == [type(record) for record in records]
        assert of_place[-1] == ("caught_up", place)
    assert logs.told.calls[-1] == ("asked",)
    ends = []
    reader.read_to_ends(lambda: ends.append(1))
    await logs.until(lambda: ends)
    assert len(logs.told.of("caught_up")) == 2


@on_its_loop
async def test_what_is_appended_before_the_wish_is_read_before_it_is_fulfilled(logs):
    reader, seen = logs.reader(soon=()), []
    for n in range(1, 60):
        logs.write(manifest(n))
        reader.read_to_end(PLACE, lambda: seen.append(logs.read()[-1]))
        await asyncio.sleep(0.01 * (n % 7))
    await logs.until(lambda: len(seen) == 59)
    assert all(read > n for n, read in enumerate(seen))


@on_its_loop
async def test_all_logs_are_read_to_the_ends_that_they_have_from_then_on(logs):
    reader = logs.reader(PLACES)
    for n in range(1, 5):
        read = []
        logs.write(manifest(n), partition=n % 2)
        reader.read_to_ends(lambda read=read: read.append(logs.read()))
        await logs.until(lambda read=read: read)
        assert read == [[*range(1, n + 1)]]


@pytest.mark.parametrize("ask", [lambda reader: reader.look(), lambda reader: reader.follow([PLACE])])
@on_its_loop
async def test_a_log_that_rests_is_read_twice_a_second_and_when_somebody_asks(logs, ask):
    reader = logs.reader(soon=())
    await logs.until(lambda: logs.told.of("caught_up"))
    unread = set()
    for n in range(1, 200):
        logs.write(manifest(n))
        await asyncio.sleep(0.2)
        unread.add(n - len(logs.read()))
    assert {1, 2} <= unread <= {*range(5)}
    logs.write(manifest(200), manifest(201))
    ask(reader)
    await asyncio.sleep(0.3)
    assert logs.read() == [*range(1, 202)]


@on_its_loop
async def test_who_was_away_for_long_says_so_before_what_came_meanwhile_and_catches_up_anew(logs):
    logs.reader(away=2.0)
    logs.write(*REIGN)
    await logs.until(lambda: len(logs.told.of("record")) == 2 and logs.told.of("caught_up"))
    logs.world.away(logs.world.now, logs.world.now + 5)
    logs.write(Fence(2, "m"))
    await logs.until(lambda: len(logs.told.of("caught_up")) == 2)
    assert [call[0] for call in logs.told.calls if call[0] != "record"] == ["caught_up", "fell_behind", "caught_up"]
    assert [call[0] for call in logs.told.calls][-3:] == ["fell_behind", "record", "caught_up"]
    await asyncio.sleep(20)
    assert len(logs.told.of("fell_behind")) == 1  # an idle log is none that nobody reads


@pytest.mark.parametrize("look", [lambda reader: reader.tick(), lambda reader: reader.read_to_end(PLACE, bool)])
@on_its_loop
async def test_who_was_suspended_for_long_has_fallen_behind(logs, look):
    """The monotonic clock stands still meanwhile, and the logs may have been compacted."""
    ahead = [0.0]
    reader = LogReader(logs.log, "p", [PLACE], logs.told, away=60.0, now=lambda: logs.world.now + ahead[0])
    await logs.until(lambda: logs.told.calls == [("caught_up", PLACE)])
    ahead[0] = 3_600.0
    look(reader)
    await logs.until(lambda: len(logs.told.calls) == 3)
    assert logs.told.calls[1:] == [("fell_behind", PLACE), ("caught_up", PLACE)]


@on_its_loop
async def test_a_log_that_ends_before_what_was_read_of_it_ends_its_reader(logs):
    reader = logs.reader()
    logs.write(*REIGN)
    reader.read_to_end(PLACE, lambda: logs.world.broker.cut((VERSIONS, 0), 1))
    await logs.until(lambda: logs.world.broker.end((VERSIONS, 0)) == 1)
    logs.write(Fence(2, "m"))
    await logs.until(lambda: logs.told.of("failed"))
    [(_, error)] = logs.told.of("failed")
    assert isinstance(error, CheckpointError)
    assert "p.learn.versions[0] ends before the offset that was read" in str(error)


class TroubledLog:
    """A log that only tells what is wrong."""

    def follow(self, _slot, _start, _accept, *, trouble, **_more):
        self.trouble = trouble
        return self

    def when_read(self, _then):
        pass

    def stop(self):
        pass


def test_what_time_heals_is_waited_for_and_what_it_does_not_ends_the_reader():
    for error, text in ((CorruptError("the CRC"), "the CRC; make another replica"), (BrokerError("no"), "no")):
        log, told = TroubledLog(), Told()
        LogReader(log, "p", [PLACE], told, now=float)
        for healed in (UnreachableError("away"), TopicError("none yet")):
            log.trouble(healed)
        assert told.calls == []
        log.trouble(error)
        log.trouble(error)
        [(_, failed)] = told.calls
        assert str(failed).startswith(text)


@on_its_loop
async def test_a_reader_that_cannot_learn_a_schema_fails_and_tells_nothing_more(logs):
    def relearn():
        raise BrokerError("nobody answers")

    logs.reader(relearn=relearn)
    slot = (VERSIONS, 0)
    logs.world.broker.append(slot, kept(Outgoing(*slot, b"fence/1/m", b"\xc3\x01" + bytes(8))))
    logs.write(*REIGN)
    await logs.until(lambda: logs.told.of("failed"))
    await asyncio.sleep(20)
    assert [call[0] for call in logs.told.calls if call[0] != "caught_up"] == ["failed"]


@on_its_loop
async def test_the_feed_knows_what_is_durable_and_ends_at_a_log_that_contradicts_itself(logs):
    changes, errors = [], []
    feed = LogsFeed(logs.log, "p", [PLACE], lambda: changes.append(1), errors.append, now=float)
    await logs.until(lambda: feed.ready)
    mark = Mark(*PLACE, Version(1, 1))
    assert not feed.logs.durable(mark)
    logs.write(*REIGN, manifest(1))
    await logs.until(lambda: feed.logs.durable(mark))
    assert changes
    logs.write(Manifest(Version(1, 3), ((1, Version(0, 0)), (7, Version(1, 1))), (), "m"), manifest(4))
    await logs.until(lambda: errors)
    await asyncio.sleep(20)
    assert "another chain" in str(errors[0])
    assert len(errors) == 1
    assert feed.logs.newest_durable(PLACE) == Version(1, 1)
