"""A version log with a damaged record: it is not believed, and nobody goes on from an older version (rule 16)."""

import asyncio
import random
from types import SimpleNamespace

import pytest

from spillway.agents.memory.ports import MemoryLog
from spillway.agents.memory.world import DriverWorld
from spillway.agents.run import log_reader
from spillway.agents.run.log_reader import CONTROL, LogRecords, LogsFeed
from spillway.checkpoint import version_log
from spillway.checkpoint.claims import Claims
from spillway.checkpoint.damage import DamageError
from spillway.checkpoint.logs import Fate, Logs
from spillway.lineage.errors import CheckpointError
from spillway.lineage.marks import INITIAL, Mark, Version
from spillway.lineage.ports import Record
from spillway.lineage.replication import Base, Claim, Fence, Manifest
from spillway.lineage.values.replication import ReplicationDecoder, encode

PLACE, UP = ("learn", 0), ("up", 0)
SLOTS = {("p.learn.versions", 0): PLACE, ("p.control", 0): CONTROL}
FIRST = ((1, INITIAL),)
SECOND = (*FIRST, (2, Version(1, 4)))
DECODER = ReplicationDecoder()
OPEN_MARK = Mark("up", 0, Version(1, 7))  # nobody knows yet what becomes of it
HISTORY = [
    Fence(1, "a"),
    Base(1, "a", INITIAL, FIRST),
    Manifest(Version(1, 3), FIRST, (), "a", 17, contents=b"c" * 40),
    Manifest(Version(1, 4), FIRST, (), "a", 18, contents=b"d" * 40),
    Fence(2, "b", 19),
    Base(2, "b", Version(1, 4), SECOND),
    Manifest(Version(2, 5), SECOND, (), "b", 20, contents=b"e" * 40),
    Manifest(Version(2, 6), SECOND, (OPEN_MARK,), "b", 21, digest=bytes(16), contents=b"f" * 40),
]


def message(key, value, offset, topic="p.learn.versions"):
    return Record(topic, 0, offset, 0, True, key, value, ())


def log_of(history):
    return [(version_log.key(record).encode(), encode(record)) for record in history]


def read(log, logs=None):
    """What somebody finds who reads a log of bytes from its beginning to its end."""
    logs = logs or Logs([PLACE, UP])
    reader = LogRecords(SLOTS, DECODER)
    for offset, (key, value) in enumerate(log):
        found = reader.read(message(key, value, offset))
        if found is None:
            continue
        if found.record is None:
            logs.tombstoned(PLACE, found.raw_key)
        else:
            logs.take(PLACE, found.record)
    logs.caught_up(PLACE)
    return logs


def flipped(data, bit):
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    monkeypatch.setattr(log_reader.log, "warning", lambda *_arguments: None)
    monkeypatch.setattr(log_reader.log, "error", lambda *_arguments: None)


def refuses(log, history=()):
    """How a log is refused, by a claimant who would choose its base, or by all who read it; None if it is not.

    `history`: what has been read of it before.
    """
    logs = Logs([PLACE, UP])
    for record in history:
        logs.take(PLACE, record)
    try:
        read(log, logs).candidate(PLACE)
    except CheckpointError as error:
        return str(error)
    return None


def test_the_log_as_it_was_written_is_no_damage():
    logs = read(log_of(HISTORY))
    assert logs.candidate(PLACE) == Version(2, 6)
    assert logs.newest_durable(PLACE) == Version(2, 5)
    assert logs.doubtful(PLACE) is None


@pytest.mark.parametrize("at", [7, 5, 4], ids=["manifest", "base", "fence"])
def test_no_bit_of_the_newest_record_changes_what_is_believed(at):
    """Of a manifest, 2,896 of 4,000 were accepted with other contents, and 92 gave the version before."""
    [(key, value)] = log_of([HISTORY[at]])
    told = [refuses([(key, flipped(value, bit))], HISTORY[:at]) for bit in range(8 * len(value))]
    told += [refuses([(flipped(key, bit), value)], HISTORY[:at]) for bit in range(8 * len(key))]
    assert all(text is not None and "p.learn.versions[0]" in text and "offset 0" in text for text in told)
    assert all("spillway state rewind" in text for text in told)


@pytest.mark.parametrize("at", [7, 5, 4], ids=["manifest", "base", "fence"])
def test_a_key_that_is_damaged_as_well_hides_nothing(at):
    [(key, value)], dice = log_of([HISTORY[at]]), random.Random(at)
    for _ in range(4_000):
        worse = flipped(key, dice.randrange(8 * len(key))), flipped(value, dice.randrange(8 * len(value)))
        assert refuses([worse], HISTORY[:at]) is not None


def test_no_bit_of_a_claim_makes_another_winner():
    claim = Claim("learn", 0, 2, "b", 5, "why")
    key, value = b"claim/learn/0/2/b", encode(claim)
    damaged = [(key, flipped(value, bit)) for bit in range(8 * len(value))]
    damaged += [(flipped(key, bit), value) for bit in range(8 * len(key))]
    for each in damaged:
        claims, reader = Claims(), LogRecords(SLOTS, DECODER)
        found = reader.read(message(*each, 0, "p.control"))
        assert found is None  # it gives nothing without its fence (`spillway.checkpoint.claims`)
        assert claims.take(claim)


def damaged_at(at, history=HISTORY):
    log = log_of(history)
    key, value = log[at]
    return [*log[:at], (key, flipped(value, 4 * len(value))), *log[at + 1 :]]


def test_a_base_does_not_pass_the_manifest_that_it_starts_from():
    """What e1.v4 requires is in no other record; that its manifest is gone would mean that it was durable."""
    logs = read(damaged_at(3, HISTORY[:6]))
    assert logs.fate(Mark(*PLACE, Version(1, 4))) is Fate.UNREAD
    assert logs.damage(PLACE).key == b"manifest/1/4"


@pytest.mark.parametrize("at", [4, 5], ids=["fence", "base"])
def test_a_damaged_fence_or_base_is_passed_with_what_stands_for_it(at):
    logs = read(damaged_at(at))
    assert logs.damage(PLACE) is None
    log = logs.log(PLACE)
    assert (log.epoch, log.claimant, log.history.links) == (2, "b", SECOND)
    assert logs.candidate(PLACE) == Version(2, 6)


def test_a_late_record_of_the_reign_before_does_not_pass_a_damaged_fence():
    late = Manifest(Version(1, 5), FIRST, (), "a")
    log = [*damaged_at(4, HISTORY[:5]), *log_of([late])]
    assert "offset 4" in refuses(log)
    logs = read([*log, *log_of([HISTORY[5]])])
    assert logs.candidate(PLACE) == Version(1, 4)
    assert logs.dead(Mark(*PLACE, Version(1, 5)))


@pytest.mark.parametrize("key", [b"hello", b"\xff\xfe", b"manifold", b"fence/", b""])
def test_what_a_stranger_writes_stops_the_shard_until_its_key_is_tombstoned_or_somebody_goes_back(key):
    log = [*log_of(HISTORY), (key, b"\xc3\x01 hello"), *log_of([Manifest(Version(2, 7), SECOND, (), "b", 22)])]
    assert "offset 8" in refuses(log)
    assert read([*log, (key, None)]).candidate(PLACE) == Version(2, 7)
    logs = read(log)
    assert [damage.key for damage in logs.accept(PLACE)] == [key]
    assert logs.candidate(PLACE) == Version(2, 7)


def test_the_gate_waits_for_what_rests_on_a_damaged_log_and_goes_on_when_it_is_passed():
    failures, changes = [], []
    world = DriverWorld(0, {"p.learn.versions": 1, "p.up.versions": 1})
    log = MemoryLog(world, world.process("gate"))
    feed = LogsFeed(log, "p", [PLACE, UP], lambda: changes.append(1), failures.append, now=float)
    reader = LogRecords(SLOTS, DECODER)
    log = [*damaged_at(6), (b"manifest/2/5", None)]
    reads = [reader.read(message(key, value, offset)) for offset, (key, value) in enumerate(log)]
    feed.records(reads[:-1])
    feed.caught_up(PLACE)
    assert not failures
    assert not feed.logs.durable(Mark(*PLACE, Version(1, 4)))
    feed.records(reads[-1:])
    assert feed.logs.durable(Mark(*PLACE, Version(1, 4)))
    assert changes


def test_the_member_of_a_damaged_shard_ends_and_says_where(monkeypatch):
    from spillway.agents.run.shard_member import ShardMember
    from tests.unit.live.stateful.shard_doubles import Shard

    roles = Shard(monkeypatch).members[0]
    errors = []
    made = asyncio.Event()
    monkeypatch.setattr(asyncio, "Event", lambda: made)
    ignored = {"reign": None, "ended": None, "changed": lambda: None}
    member = ShardMember(PLACE, [PLACE, UP], crashed=errors.append, **ignored)
    copies = SimpleNamespace(heard=lambda *_a, **_k: None, durable=lambda *_a: None)
    member.join(roles, copies, SimpleNamespace())
    for place in (PLACE, UP, CONTROL):
        member.caught_up(place)
    reader = LogRecords(SLOTS, DECODER)
    log = damaged_at(7)
    member.records([reader.read(message(key, value, offset)) for offset, (key, value) in enumerate(log)])
    assert [type(error) for error in errors] == [DamageError]
    assert "p.learn.versions[0] at offset 7" in str(errors[0])
