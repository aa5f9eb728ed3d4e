"""The headers of a record whose header keys are not UTF-8 are read all the same, from the bytes of a fetch."""

import asyncio

import pytest
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from hypothesis import given
from hypothesis import strategies as st

from spillway.agents.live.consumer import lenient
from spillway.agents.live.consumer.lenient import LenientReader, strange_headers
from spillway.lineage.errors import BrokerError
from spillway.producers.connection import ClientSettings
from tests.mock_cluster import MockCluster, available
from tests.strange_headers import NotUtf8
from tests.unit.producers.test_kafka_records import write

GZIP, ZSTD = 1, 4


def batch(base, records, compression=0):
    """Built with aiokafka's own pure-Python builder, whose header keys may be any object with `encode`."""
    builder = _DefaultRecordBatchBuilderPy(2, compression, 0, -1, -1, -1, 1 << 20)
    for index, (key, value, headers) in enumerate(records):
        assert builder.append(index, 1_000 + index, key, value, headers)
    raw = bytearray(builder.build())
    raw[:8] = base.to_bytes(8, "big")
    return bytes(raw)


GOOD = (b"k", b"v", [("a", b"1")])
BAD = (None, b"bad", [(NotUtf8("x"), b"2"), ("b", None)])
READ = ((b"\xff\xfex", b"2"), ("b", None))


def marked(raw, compression):
    """A batch that says that it is compressed in some way, and is not: as one whose codec is not installed."""
    return raw[:22] + bytes([compression]) + raw[23:]


@pytest.mark.parametrize("compression", [0, GZIP])
def test_a_key_that_is_not_utf8_stays_bytes(compression):
    fetched = batch(8, [GOOD, GOOD]) + batch(10, [GOOD, BAD, GOOD], compression)
    assert strange_headers(fetched) == (13, {11: READ})


def test_a_batch_that_cannot_be_read_is_passed_over():
    for broken in (marked(batch(0, [BAD, BAD]), ZSTD), marked(batch(0, [BAD, BAD]), GZIP)):
        assert strange_headers(broken + batch(2, [BAD])) == (3, {2: READ})


def test_what_the_broker_has_cut_is_not_there():
    assert strange_headers(batch(0, [BAD, BAD]) + batch(5, [GOOD])[:-3]) == (2, {0: READ, 1: READ})
    assert strange_headers(b"") == (0, {})


batches = st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=8)


@given(batches, st.integers(1, 8), st.sampled_from([0, GZIP, ZSTD]))
def test_a_fetch_is_read_once_whatever_is_strange_in_it(flags, at_once, compression):
    topic, base = [], 0
    for number, strange in enumerate(flags):
        raw = batch(base, [BAD if bad else GOOD for bad in strange])
        topic.append((base, strange, marked(raw, ZSTD) if compression == ZSTD and number % 2 else raw))
        base += len(strange)
    reader, fetches = LenientReader(ClientSettings(bootstrap="nowhere:1"), "t"), []

    def fetch(_tp, offset):
        fetches.append(offset)
        there = [raw for start, strange, raw in topic if start + len(strange) > offset]
        return strange_headers(b"".join(there[:at_once]))

    reader._fetch = fetch
    for number, (start, strange, _) in enumerate(topic):
        lost = compression == ZSTD and number % 2
        for offset in [start + index for index, bad in enumerate(strange) if bad]:
            assert reader.headers(0, offset) == (() if lost else READ)
    assert len(fetches) <= -(-len(topic) // at_once)


@pytest.mark.skipif(not available(), reason="librdkafka's functions cannot be found")
def test_hundreds_of_strange_records_are_fetched_once(monkeypatch):
    cluster, count, clients = MockCluster(), 500, []
    cluster.topic("t", 1)
    asyncio.run(
        write(cluster.bootstrap, "t", [[("a", b"%d" % number), (NotUtf8("x"), b"")] for number in range(count)])
    )
    made = lenient.AIOKafkaClient
    monkeypatch.setattr(lenient, "AIOKafkaClient", lambda **told: clients.append(1) or made(**told))
    reader = LenientReader(ClientSettings(bootstrap=cluster.bootstrap), "t")
    assert [reader.headers(0, n)[0] for n in range(count)] == [("a", b"%d" % n) for n in range(count)]
    assert len(clients) == 1


def test_what_the_log_has_no_more_has_no_headers(monkeypatch):
    async def fetched(_client, _tp, _offset):
        raise answer

    monkeypatch.setattr(lenient, "_fetched", fetched)
    monkeypatch.setattr(lenient, "_WITHIN", 0.3)
    answer = lenient.OffsetOutOfRangeError()
    assert LenientReader(ClientSettings(bootstrap="127.0.0.1:1"), "t").headers(0, 7) == ()
    answer = lenient.LeaderNotAvailableError()
    with pytest.raises(BrokerError, match="cannot be read within"):
        LenientReader(ClientSettings(bootstrap="127.0.0.1:1"), "t").headers(0, 7)
