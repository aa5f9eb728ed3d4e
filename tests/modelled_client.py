"""A model of confluent-kafka's Consumer: what it keeps over assignments, and what it says while it is being closed.

`tests/unit/live/test_reading_on.py` compares it with the library on a mock cluster.
"""

import threading
from collections import deque

from confluent_kafka import KafkaError, KafkaException, TopicPartition


class Message:
    """A record as the library gives it; what is not `said` of it is as of any other."""

    def __init__(self, topic, partition, offset, **said):
        any_other = {"key": None, "value": b"v", "timestamp": (1, 5), "error": None, "headers": []}
        self._said = {"topic": topic, "partition": partition, "offset": offset, **any_other, **said}

    def __getattr__(self, name):
        return lambda: self._said[name]


class Cluster:
    """The log of one topic, and the clients that read it; the newest is the group's only member."""

    def __init__(self, topic, partitions):
        self.topic = topic
        self.ends = dict.fromkeys(range(partitions), 0)
        self.headers = {}  # by partition and offset, of the records that have some
        self.silent = False  # whether nobody says where a partition ends
        self.clients = []
        self.came = threading.Condition()
        self.answers = True  # to commits; what is not answered at once is by the next `answer`, or as its client closes

    def client(self, settings, logger=None):
        self.clients.append(ModelledConsumer(self, settings))
        return self.clients[-1]

    @property
    def newest(self):
        return self.clients[-1]

    def append(self, partition, count, headers=None):
        with self.came:
            if headers is not None:
                self.headers[partition, self.ends[partition]] = headers
            self.ends[partition] += count
            self.came.notify_all()

    def say(self, *events):
        """Have the newest client call these when it is polled next."""
        with self.came:
            self.newest.events.extend(events)
            self.came.notify_all()

    def revoke(self):
        client = self.newest
        self.say(lambda: client.on_revoke(client, client.assignment()))

    def deal(self, partitions):
        client = self.newest
        self.say(lambda: client.on_assign(client, [TopicPartition(self.topic, each) for each in partitions]))

    def strike(self, partition, code):
        """Have the next fetch of a partition fail, if it is read."""
        with self.came:
            self.newest.struck[partition] = KafkaError(code)
            self.came.notify_all()

    def answer(self):
        client = self.newest
        self.say(client.answer)


class ModelledConsumer:
    """A pause belongs to a partition, not to an assignment; one that was out of range is read once assigned anew."""

    def __init__(self, cluster, settings):
        self._cluster, self._settings = cluster, settings
        self.events = deque()
        self.struck = {}  # by partition: the error that its next fetch ends with
        self._positions = {}
        self._paused = set()
        self._dead = set()  # out of range
        self._commits = deque()
        self.subscribed = False
        self.closed = False

    def subscribe(self, _topics, on_assign, on_revoke):
        self.on_assign, self.on_revoke, self.subscribed = on_assign, on_revoke, True

    def unsubscribe(self):
        self.subscribed = False

    def memberid(self):
        return "m" if self.subscribed else ""

    @property
    def busy(self):
        """Whether there is anything that the next poll brings."""
        return bool(self.events or self._ready())

    @property
    def committing(self):
        return len(self._commits)

    # Reading --------------------------------------------------------------------------------------------------------

    def poll(self, seconds):
        with self._cluster.came:
            self._cluster.came.wait_for(lambda: self.busy, seconds)
        return self._next()

    def consume(self, most, _seconds):
        found = []
        while len(found) < most and (message := self._next()) is not None:
            found.append(message)
        return found

    def _next(self):
        while self.events:
            self.events.popleft()()
        ready = self._ready()
        if not ready:
            return None
        partition = ready[sum(self._positions.values()) % len(ready)]
        offset = self._positions[partition]
        beyond = KafkaError(KafkaError._AUTO_OFFSET_RESET) if offset > self._cluster.ends[partition] else None
        error = self.struck.pop(partition, beyond)
        if error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._dead.add(partition)
        else:
            self._positions[partition] += 1  # behind a damaged batch, too
        headers = [*self._cluster.headers.get((partition, offset), ())]
        return Message(self._cluster.topic, partition, offset, error=error, headers=headers)

    def _ready(self):
        there = self._positions.keys() - self._paused - self._dead
        return sorted(each for each in there if self._positions[each] != self._cluster.ends[each])

    # What it reads --------------------------------------------------------------------------------------------------

    def assign(self, places):
        self._positions = {place.partition: place.offset for place in places}
        self._dead.clear()

    def incremental_assign(self, places):
        if any(place.partition in self._positions for place in places):
            raise KafkaException(KafkaError(KafkaError._CONFLICT))
        self._positions |= {place.partition: place.offset for place in places}

    def incremental_unassign(self, places):
        for place in places:
            del self._positions[place.partition]
            self._dead.discard(place.partition)

    def seek(self, place):
        if place.partition in self._dead:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self._positions[place.partition] = place.offset

    def unassign(self):
        self.assign([])

    def assignment(self):
        return [TopicPartition(self._cluster.topic, partition) for partition in self._positions]

    def pause(self, places):
        self._paused |= {place.partition for place in places}

    def resume(self, places):
        self._paused -= {place.partition for place in places}

    def get_watermark_offsets(self, place, timeout):
        if self._cluster.silent:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        return 0, self._cluster.ends[place.partition]

    # Commits and the end --------------------------------------------------------------------------------------------

    def commit(self, offsets, asynchronous=True):
        if asynchronous:
            self._commits.append(offsets)
            if self._cluster.answers:
                self.events.append(self.answer)
        return offsets

    def answer(self, error=None):
        while self._commits:
            self._settings["on_commit"](error, self._commits.popleft())

    def close(self):
        """Let go of everything, as one whose name another client has taken: it hears that it is fenced."""
        if self.subscribed:
            self.on_revoke(self, self.assignment())
        self.answer(KafkaError(KafkaError._DESTROY))
        self._settings["error_cb"](KafkaError(KafkaError._FATAL, "fenced", True))
        self.closed = True
