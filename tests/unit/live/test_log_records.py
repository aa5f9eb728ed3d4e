"""A bad record in a log is believed by nobody and told of with its place; in a version log it is damage."""

import random
from contextlib import closing
from dataclasses import replace

import pytest

from spillway.agents.live.states.beats import _spoken
from spillway.agents.live.states.standby import StandbyReader
from spillway.agents.run import log_reader as log_records
from spillway.agents.run.log_reader import CONTROL, LogRecords
from spillway.checkpoint import claims, version_log
from spillway.checkpoint.chunks import encode_key
from spillway.checkpoint.damage import Damage
from spillway.lineage.marks import INITIAL, Mark, Version
from spillway.lineage.ports import Record
from spillway.lineage.replication import Base, Beat, ChunkKey, Claim, Fence, Manifest, Report, Yield
from spillway.lineage.values.replication import ReplicationDecoder, encode
from tests.modelled_client import Message

PLACE = ("learn", 0)
VERSIONS, CLAIMS = ("p.learn.versions", 0), ("p.control", 0)
CHAIN = ((1, INITIAL),)
FENCE, BASE, MANIFEST = Fence(1, "m"), Base(1, "m", INITIAL, CHAIN), Manifest(Version(1, 1), CHAIN, (), "m")
CLAIM, YIELD = Claim("learn", 0, 1, "m"), Yield("learn", 0, 1, "m", 0, "")
UNKNOWN = b"\xc3\x01" + bytes(8)


def message(key, value, slot=VERSIONS, log_append=False):
    return Record(*slot, 17, 5_000, log_append, key, value, ())


def key_of(record):
    return (claims.key(record) if isinstance(record, (Claim, Yield)) else version_log.key(record)).encode()


def records(relearn=bool, decoder=None):
    return LogRecords({VERSIONS: PLACE, CLAIMS: CONTROL}, decoder or ReplicationDecoder(), relearn)


def test_good_records_are_handed_on_with_their_places():
    reader = records()
    for record in (FENCE, BASE, MANIFEST):
        read = reader.read(message(key_of(record), encode(record)))
        assert (read.place, read.record, read.offset) == (PLACE, record, 17)
        assert read.where == "the record in p.learn.versions[0] at offset 17"
    for record in (CLAIM, YIELD):
        assert reader.read(message(key_of(record), encode(record), CLAIMS)).record == record
    assert reader.read(message(b"manifest/1/1", None)).record is None
    assert reader.bad == 0


@pytest.mark.parametrize(("log_append", "at_us"), [(True, 5_000_000), (False, 0)])
def test_the_time_of_a_fence_is_the_brokers_or_none(log_append, at_us):
    """A claimant whose clock was days ahead had links cut that messages in flight needed."""
    fence = replace(FENCE, at_us=10**18)
    read = records().read(message(key_of(fence), encode(fence), log_append=log_append))
    assert read.record == replace(FENCE, at_us=at_us)


@pytest.mark.parametrize(
    ("slot", "key", "value", "says"),
    [
        (CLAIMS, b"hello", b"rubbish", "cannot be read"),
        (CLAIMS, b"", UNKNOWN, "fingerprint"),
        (CLAIMS, key_of(CLAIM), UNKNOWN, "another release"),
        (CLAIMS, key_of(FENCE), encode(FENCE), "a Fence does not belong"),
        (CLAIMS, key_of(CLAIM), encode(CLAIM)[:-2], "cannot be read"),
        (CLAIMS, b"claim/learn/0/9/m", encode(CLAIM), "instead of 'claim/learn/0/1/m'"),
    ],
)
def test_a_bad_record_of_the_control_log_is_reported_with_its_place_and_passed_over(caplog, slot, key, value, says):
    reader = records()
    assert reader.read(message(key, value, slot)) is None
    assert reader.bad == 1
    assert f"{slot[0]}[0] at offset 17" in caplog.text
    assert says in caplog.text
    assert "find the other writer" in caplog.text


def other_bits(data, *bits):
    changed = bytearray(data)
    for bit in bits:
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        (b"manifest/1/1", b"rubbish", "does not start as Avro"),
        (b"manifest/1/1", b"", "does not start as Avro"),
        (b"manifest/1/1", encode(MANIFEST)[:-1], "checksum"),
        (b"manifest/1/1", other_bits(encode(MANIFEST), 170), "checksum"),
        (b"manifest/1/1", other_bits(encode(MANIFEST), 17), "fingerprint"),
        (b"manifest/1/2", encode(MANIFEST), "instead of 'manifest/1/1'"),
        (b"manifest/1/1", encode(CLAIM), "a Claim does not belong"),
        (b"fence/1/m", b"rubbish", "does not start as Avro"),
        (b"base/1", encode(MANIFEST), "instead of 'manifest/1/1'"),
        (b"base/1", encode(CLAIM), "a Claim does not belong"),
        (None, encode(FENCE), "instead of 'fence/1/m'"),
        (b"\xff", encode(FENCE), "instead of 'fence/1/m'"),
        (b"hello", other_bits(encode(BASE), 130), "checksum"),
        (other_bits(b"manifest/1/1", 3), b"rubbish", "does not start as Avro"),
        (b"hello", b"rubbish", "does not start as Avro"),
        (b"", UNKNOWN, "another release"),
        (b"manifest/2/9", UNKNOWN, "another release"),
        (key_of(CLAIM), encode(CLAIM), "a Claim does not belong"),
        (b"beat", encode(Beat("learn", 0, "m", 1, "primary", 1, 0, INITIAL)), "a Beat does not belong"),
    ],
)
def test_any_record_of_a_version_log_that_cannot_be_read_is_damage(caplog, key, value, says):
    """Rule 16: a newest version, or the fence that makes others void, may have stood there."""
    reader = records()
    read = reader.read(message(key, value))
    assert isinstance(read.record, Damage)
    assert (read.record.key, reader.bad) == (key or b"", 0)
    assert read.raw_key == read.record.key
    assert "p.learn.versions[0] at offset 17" in read.record.where
    assert says in read.record.why
    assert "is damaged" in caplog.text


def test_schemas_are_looked_for_where_one_is_unknown():
    class Learning(ReplicationDecoder):
        known = False

        def record(self, value):
            return MANIFEST if self.known else super().record(value)

    def learn():
        Learning.known = True
        return True

    assert records(learn, Learning()).read(message(key_of(MANIFEST), UNKNOWN)).record == MANIFEST


def test_a_manifest_that_rests_on_a_foreign_shard_is_told_of(caplog):
    manifest = Manifest(Version(1, 1), CHAIN, (Mark("away", 3, Version(1, 1)),), "m")
    read = records().read(message(key_of(manifest), encode(manifest)))
    assert read.record == manifest  # it is void for everybody who judges (`spillway.checkpoint.logs`)
    assert "requires away/3 e1.v1, of a shard that the pipeline does not have" in caplog.text


GENUINE = [FENCE, BASE, MANIFEST, CLAIM, YIELD]


def noise(dice):
    """A key and a value: random bytes, and genuine ones cut off, changed in a byte, or under another's key."""
    value = encode(dice.choice(GENUINE))
    at = dice.randrange(len(value))
    changed = bytes([*value[:at], value[at] ^ dice.randrange(1, 256), *value[at + 1 :]])
    rubbish = dice.randbytes(dice.randrange(40))
    key = dice.choice([None, rubbish[:12], *map(key_of, GENUINE)])
    return key, dice.choice([None, value, value[:at], changed, rubbish, UNKNOWN + rubbish])


@pytest.mark.parametrize("slot", [VERSIONS, CLAIMS])
def test_whatever_the_bytes_they_are_read_or_damaged_or_reported(monkeypatch, slot):
    monkeypatch.setattr(log_records.log, "warning", lambda *_arguments: None)
    dice, seen = random.Random(7), set()
    for _ in range(500):
        key, value = noise(dice)
        reader = records()
        read = reader.read(message(key, value, slot))
        assert (read is None) == (reader.bad == 1)
        if read is not None and isinstance(read.record, Damage):
            seen.add("damaged")
            continue
        if read is not None and read.record is not None:
            assert key == key_of(read.record)
        seen.add("reported" if read is None else "read")
    assert seen == {"read", "damaged" if slot == VERSIONS else "reported"}


# Records that are none of a shard's, where its members listen: they are told of with their place, and fell nobody.

BEAT = Beat(*PLACE, "m", 1, "primary", 7, 0, INITIAL)
REPORT = Report(*PLACE, ("m",), 0, "its supervisor saw it end")


def spoken(value):
    return _spoken(Message("p.beat", 0, 17, key=b"learn/0/m", value=value), PLACE, ReplicationDecoder())


@pytest.mark.parametrize("record", [BEAT, REPORT])
def test_a_shards_own_words_are_heard(record, caplog):
    assert spoken(encode(record)) == record
    assert not caplog.text


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"", "does not start as Avro"),
        (b"rubbish", "does not start as Avro"),
        (encode(BEAT)[:-3], "p.beat offset 17"),
        (encode(Claim(*PLACE, 3, "m")), "a Claim does not belong in it"),
        (encode(Beat("other", 0, "m", 1, "primary", 7, 0, INITIAL)), "to another shard"),
        (encode(Beat("learn", 1, "m", 1, "primary", 7, 0, INITIAL)), "to another shard"),
    ],
)
def test_what_is_no_word_of_the_shards_is_told_of(value, why, caplog):
    assert spoken(value) is None
    assert "p.beat offset 17 is ignored" in caplog.text
    assert why in caplog.text


@pytest.mark.parametrize("key", [None, b"", b"1/2", b"\xff/1/1", b"a chunk"])
def test_a_chunk_under_no_chunks_key_does_not_end_a_backup(key, caplog):
    where = (lambda _post: None, "p", PLACE)
    own, slot = ChunkKey(1, 1, 0), ("p.learn.state", 0)
    with closing(StandbyReader(*where, print, print, pytest.fail, on_missing=pytest.fail)) as reader:
        reader._take([message(key, b"x", slot), message(encode_key(own), b"y", slot)])
    assert reader._standby.held.present == {own}
    assert "p.learn.state[0] offset 17 is ignored" in caplog.text
