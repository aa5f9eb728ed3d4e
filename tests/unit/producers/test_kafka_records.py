"""A header's key may be any bytes; who reads many messages is told so of each, and meets the error nowhere else."""

import asyncio

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy
from confluent_kafka import Consumer, TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from spillway.producers.kafka.records import _KEYS, header_pairs
from tests.mock_cluster import MockCluster, available

MANY = 200  # calls after which Python has specialized its code


class NotUtf8(str):
    __slots__ = ()

    def encode(self, *_):
        return b"\xff\xfe"


async def write(bootstrap, topic, headers):
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        batch = producer.create_batch()
        batch._builder = _DefaultRecordBatchBuilderPy(2, 0, 0, -1, -1, -1, 1 << 20)
        for pairs in headers:
            assert batch.append(key=None, value=b"v", timestamp=None, headers=pairs) is not None
        batch.close()
        await (await producer.send_batch(batch, topic, partition=0))
    finally:
        await producer.stop()


@pytest.mark.skipif(not available(), reason="librdkafka's functions cannot be found")
def test_a_key_that_is_not_utf8_is_told_of_each_time():
    cluster = MockCluster()
    cluster.topic("t", 1)
    good, bad = [("a", b"1"), ("b", None)], [("a", b"1"), (NotUtf8(), b"2")]
    asyncio.run(write(cluster.bootstrap, "t", [good, bad, []] * MANY))
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition("t", 0, 0)])
    read = []
    while len(read) < 3 * MANY:
        read += [header_pairs(message) for message in consumer.consume(3 * MANY, 1.0)]
    consumer.close()
    assert read == [good, None, []] * MANY


class Message:
    """As confluent-kafka makes them: each message has its headers' keys anew."""

    def __init__(self, pairs):
        self._pairs = pairs

    def headers(self):
        return [(key.encode().decode(), value) for key, value in self._pairs] or None


@given(st.lists(st.tuples(st.sampled_from(sorted(_KEYS)) | st.text(), st.none() | st.binary()), max_size=8))
def test_equal_keys_of_ours_are_one_object_in_many_messages(pairs):
    one, other = header_pairs(Message(pairs)), header_pairs(Message(pairs))
    assert one == other == pairs
    assert all(first is second for (first, _), (second, _) in zip(one, other, strict=True) if first in _KEYS)
