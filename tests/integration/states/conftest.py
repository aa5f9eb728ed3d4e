"""The logs of a stateful stage on a real broker, and a listener that keeps what it is told."""

import threading
import time
from types import SimpleNamespace

import pytest
from confluent_kafka.admin import NewTopic

from spillway.agents.live.clock import since_boot
from spillway.agents.live.states.worker import Mailbox
from spillway.agents.run.log_reader import LogReader
from spillway.producers.connection import ClientSettings
from spillway.producers.kafka.log import KafkaLog
from spillway.producers.kafka.reading import Reading
from tests.made_topics import make_all
from tests.waiting import Bound

STAGE = "learn"
PLACE = (STAGE, 0)
_COMPACT = {"cleanup.policy": "compact", "max.message.bytes": str(1 << 20)}


class Told:
    """What a `LogReader` posts, in order; each call is taken by the test's own thread."""

    def __init__(self):
        self.mailbox = Mailbox()
        self.calls = []
        self.error = None
        self.tick = bool

    post = property(lambda self: self.mailbox.post)

    def records(self, batch):
        self.calls += [("record", read.place, read.record, read.key) for read in batch]

    def caught_up(self, place):
        self.calls.append(("caught_up", place))

    def fell_behind(self, place):
        self.calls.append(("fell_behind", place))

    def failed(self, error):
        self.error = error

    def of(self, kind):
        return [call for call in self.calls if call[0] == kind]

    def until(self, condition, seconds=90.0):
        bound = Bound(seconds)
        while not condition():
            assert self.error is None, self.error
            assert not bound.over, self.calls[-5:]
            self.tick()
            if not self.mailbox.deliver():
                time.sleep(0.001)

    def run_for(self, seconds):
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() >= end)


class Bench:
    def __init__(self, bootstrap, pipeline, shards=1):
        self.settings = ClientSettings(bootstrap=bootstrap)
        self.pipeline = pipeline
        topics = {f"{pipeline}.{STAGE}.{kind}": shards for kind in ("versions", "state")}
        wanted = [NewTopic(name, count, 1, config=_COMPACT) for name, count in topics.items()]
        wanted += [NewTopic(f"{pipeline}.control", 1, 1, config=_COMPACT), NewTopic(f"{pipeline}.beat", 1, 1)]
        make_all(bootstrap, wanted)
        self.closing = []

    def keep(self, what):
        self.closing.append(what)
        return what

    def log(self):
        follower = KafkaLog(self.settings)
        self.keep(SimpleNamespace(close=follower.shut))
        return follower

    def reader(self, told, listener=None, **options):
        """A reader of the version log, whose owner is whoever takes what `told` is posted."""
        reader = LogReader(
            self.log().through(told.post), self.pipeline, [PLACE], listener or told, now=since_boot, **options
        )
        told.tick = reader.tick
        return reader

    def records(self, kind, partition=0):
        with Reading(self.settings, [(f"{self.pipeline}.{STAGE}.{kind}", partition)]) as reading:
            return [(record.key, record.value) for record in reading.to_the_end()]

    def close(self):
        for what in reversed(self.closing):
            what.close()
        alive = [thread.name for thread in threading.enumerate() if thread.name == "log"]
        assert not alive


@pytest.fixture
def bench(broker, unique_name):
    """The topics of one stage with one shard on the session's broker."""
    made = Bench(broker, unique_name)
    yield made
    made.close()
