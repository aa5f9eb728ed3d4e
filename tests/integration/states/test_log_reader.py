"""A version log as it is read from a real broker through a restart."""

from confluent_kafka import Producer

from spillway.checkpoint import version_log
from spillway.lineage.marks import INITIAL
from spillway.lineage.replication import Base, Fence
from spillway.lineage.values.replication import encode

from .conftest import PLACE, STAGE, Bench, Told

CHAIN = ((1, INITIAL),)
REIGN = [Fence(1, "m"), Base(1, "m", INITIAL, CHAIN)]


class Writer:
    """Appends records one by one."""

    def __init__(self, bench):
        self._topic = f"{bench.pipeline}.{STAGE}.versions"
        self._producer = Producer({"bootstrap.servers": bench.settings.bootstrap, "linger.ms": 0, "acks": "all"})

    def send(self, record):
        self._producer.produce(self._topic, encode(record), version_log.key(record), 0)

    def write(self, record):
        self.send(record)
        assert self._producer.flush(90) == 0


def test_reading_goes_on_when_the_broker_is_back(own_broker, unique_name):
    bench, told = Bench(own_broker.bootstrap, unique_name), Told()
    reader = bench.reader(told, away=2.0)
    writer = Writer(bench)
    told.until(lambda: told.of("caught_up"))
    for record in REIGN:
        writer.write(record)
    told.until(lambda: len(told.of("record")) == 2)
    own_broker.stop()
    appended = [Fence(epoch, "m") for epoch in range(2, 6)]
    for record in appended:
        writer.send(record)
    done = []
    reader.read_to_end(PLACE, lambda: done.append(1))
    told.run_for(2.5)
    own_broker.start()
    told.until(lambda: len(told.of("caught_up")) == 2 and done, 120)
    told.until(lambda: len(told.of("record")) == 6, 120)
    assert [call[2] for call in told.of("record")] == [*REIGN, *appended]
    kinds = [call[0] for call in told.calls]
    assert kinds.index("fell_behind") == 3  # behind what came before the gap, before what came after it
    bench.close()
