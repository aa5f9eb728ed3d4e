"""Records whose headers have keys that are not UTF-8, which most producers do not write."""

from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy


class NotUtf8(str):
    __slots__ = ()

    def encode(self, *_):
        return b"\xff\xfe" + str(self).encode()


async def send_raw(bootstrap, topic, partition, records):
    """Write one batch in which header keys may be any bytes."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap)
    await producer.start()
    try:
        batch = producer.create_batch()
        batch._builder = _DefaultRecordBatchBuilderPy(2, 0, 0, -1, -1, -1, 1 << 20)
        for key, value, pairs in records:
            assert batch.append(key=key, value=value, timestamp=None, headers=pairs) is not None
        batch.close()
        await (await producer.send_batch(batch, topic, partition=partition))
    finally:
        await producer.stop()
