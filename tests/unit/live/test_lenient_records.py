"""Batches are built with aiokafka's own pure-Python builder, whose header keys may be any object with `encode`."""

import pytest
from aiokafka import TopicPartition
from aiokafka.record.default_records import DefaultRecordBatch, _DefaultRecordBatchBuilderPy

from agents.live.consumer.fetching import salvage

TP = TopicPartition("t", 0)
GZIP = 1


class NotUtf8(str):
    __slots__ = ()

    def encode(self, *_):
        return b"\xff\xfe" + str(self).encode()


def batch(base, records, compression=0):
    builder = _DefaultRecordBatchBuilderPy(2, compression, 0, -1, -1, -1, 1 << 20)
    for index, (key, value, headers) in enumerate(records):
        assert builder.append(index, 1_000 + index, key, value, headers)
    raw = bytearray(builder.build())
    raw[:8] = base.to_bytes(8, "big")
    return bytes(raw)


GOOD = (b"k", b"v", [("a", b"1")])
BAD = (None, b"bad", [(NotUtf8("x"), b"2"), ("b", None)])


def test_the_trap_is_real():
    raw = batch(0, [GOOD, BAD, GOOD])
    with pytest.raises(Exception, match=r"utf-8|invalid"):
        list(DefaultRecordBatch(raw))


@pytest.mark.parametrize("compression", [0, GZIP])
def test_a_key_that_is_not_utf8_stays_bytes_and_its_neighbours_are_whole(compression):
    records, after = salvage(TP, batch(10, [GOOD, BAD, GOOD], compression), 10)
    assert [record.offset for record in records] == [10, 11, 12]
    assert after == 13
    assert records[1].headers == ((b"\xff\xfex", b"2"), ("b", None))
    assert (records[1].key, records[1].value) == (None, b"bad")
    assert records[0].headers == records[2].headers == (("a", b"1"),)
    assert records[2].timestamp == 1002


def test_records_below_the_position_are_left_out_but_later_batches_are_read():
    raw = batch(0, [GOOD, BAD]) + batch(2, [GOOD, GOOD])
    records, after = salvage(TP, raw, 1)
    assert [record.offset for record in records] == [1, 2, 3]
    assert after == 4


def test_a_batch_that_the_broker_cut_is_left_for_the_next_fetch():
    whole, cut = batch(0, [BAD]), batch(1, [GOOD])
    records, after = salvage(TP, whole + cut[:-3], 0)
    assert [record.offset for record in records] == [0]
    assert after == 1


def test_a_batch_that_cannot_be_read_at_all_becomes_one_record():
    raw = bytearray(batch(5, [GOOD, GOOD]))
    raw[61] = 0xFE  # the first record's length, and what follows, make no sense
    raw[62:70] = b"\xff" * 8
    records, after = salvage(TP, bytes(raw), 5)
    assert [(record.offset, record.value, record.headers) for record in records] == [(6, bytes(raw), ())]
    assert after == 7
