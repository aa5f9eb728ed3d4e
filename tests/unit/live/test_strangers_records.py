"""Records that are none of a shard's, where its members listen: they are told of with their place, and fell nobody."""

import pytest

from agents.live.states.beats import _spoken
from agents.live.states.standby import StandbyReader
from checkpoint.chunks import encode_key
from checkpoint.standby import Standby
from lineage.marks import INITIAL
from lineage.replication import Beat, ChunkKey, Claim, Report
from lineage.values.replication import ReplicationDecoder, encode
from producers.connection import ClientSettings

PLACE = ("learn", 0)
BEAT = Beat(*PLACE, "m", 1, "primary", 7, 0, INITIAL)
REPORT = Report(*PLACE, ("m",), 0, "its supervisor saw it end")


class Record:
    """As the client gives it."""

    def __init__(self, key, value):
        self._key, self._value = key, value

    def topic(self):
        return "p.beat"

    def offset(self):
        return 17

    def key(self):
        return self._key

    def value(self):
        return self._value


def spoken(value):
    return _spoken(Record(b"learn/0/m", value), PLACE, ReplicationDecoder())


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
        (encode(Claim(*PLACE, 3, "m")), "a Claim has no place in it"),
        (encode(Beat("other", 0, "m", 1, "primary", 7, 0, INITIAL)), "of another shard"),
        (encode(Beat("learn", 1, "m", 1, "primary", 7, 0, INITIAL)), "of another shard"),
    ],
)
def test_what_is_no_word_of_the_shards_is_told_of(value, why, caplog):
    assert spoken(value) is None
    assert "p.beat offset 17 is passed over" in caplog.text
    assert why in caplog.text


class Partition:
    """Gives records once."""

    def __init__(self, records):
        self._records = records

    def end(self, _slot):
        return 2

    def poll(self, _seconds, _most):
        records, self._records = self._records, []
        return records, {}


@pytest.mark.parametrize("key", [None, b"", b"1/2", b"\xff/1/1", b"a chunk"])
def test_a_chunk_under_no_chunks_key_does_not_end_a_backup(key, caplog):
    standby = Standby()
    reader = StandbyReader(
        ClientSettings(bootstrap="nowhere:1"), "p", PLACE, print, print, pytest.fail, standby=standby
    )
    try:
        own = ChunkKey(1, 1, 0)
        reader._read(Partition([Record(key, b"x"), Record(encode_key(own), b"y")]))
    finally:
        reader.close()
    assert standby.held.present == {own}
    assert "p.learn.state[0] offset 17 is passed over" in caplog.text
