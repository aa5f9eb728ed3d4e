"""A primary of the tests' own: writes versions of a shard's state to a real broker in the order of the protocol."""

import itertools

from confluent_kafka import Producer

from spillway.agents.live.topics import ensure
from spillway.checkpoint import claims
from spillway.checkpoint.capture import Capture
from spillway.checkpoint.chunks import ChunkLog
from spillway.checkpoint.manifests import INLINE_BYTES, describe, seal
from spillway.checkpoint.pages import Pages
from spillway.checkpoint.version_log import key
from spillway.checkpoint.versions import History
from spillway.lineage.marks import INITIAL, Version
from spillway.lineage.replication import Base, Batch, Beat, Claim, Fence, InputPlace, InputRecord, Manifest
from spillway.lineage.values.replication import encode
from spillway.producers.connection import ClientSettings
from spillway.producers.schema_log import SchemaLog
from spillway.topology import topics

CHUNK_BYTES = 4_096


class ShardWriter:
    """One shard. Epochs are told by the caller; versions count on."""

    def __init__(self, bootstrap, spec, stage, shard=0, *, keyed=False):
        self.spec, self.stage, self.shard = spec, stage, shard
        settings = ClientSettings(bootstrap=bootstrap)
        ensure(settings, topics.topic_plan(spec))
        SchemaLog(settings, spec.name).open()
        self.producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 0})
        self.history, self.newest = History(), INITIAL
        self._keyed = keyed
        self._beats = itertools.count(1)

    def append(self, topic, name, value, partition=None):
        at = self.shard if partition is None else partition
        self.producer.produce(topic, value, name, at)
        assert self.producer.flush(30) == 0

    def log(self, record):
        self.append(topics.versions(self.spec.name, self.stage), key(record), encode(record))

    def begin(self, epoch, base=None):
        """A reign: claim, fence, base."""
        self.claimant, self.epoch = f"{self.stage}.{self.shard}.m{epoch}", epoch
        base = self.newest if base is None else base
        claim = Claim(self.stage, self.shard, epoch, self.claimant)
        self.append(topics.control(self.spec.name), claims.key(claim), encode(claim), 0)
        self.log(Fence(epoch, self.claimant))
        self.history = self.history.begun(epoch, base)
        self.log(Base(epoch, self.claimant, base, self.history.links))
        self.newest = base
        pages = Pages(CHUNK_BYTES) if self._keyed else None
        self.capture = Capture(chunk_bytes=CHUNK_BYTES, own_bytes=CHUNK_BYTES, pages=pages)
        self.chunks = ChunkLog(epoch)
        return self

    def write(self, state, keyed=None, *, requires=(), position=0, inline_bytes=INLINE_BYTES, **more):
        """The next version, of one batch; its manifest."""
        version = Version(self.epoch, self.newest.n + 1)
        captured = self.capture.take(state, keyed)
        writing = self.chunks.write(version, captured)
        topic = topics.state(self.spec.name, self.stage)
        for name, value in writing.records():
            self.append(topic, name, bytes(value))
        batch = Batch(version.n, (InputRecord(f"r{version.n}", self.shard, version.n),))
        contents = describe(
            captured,
            writing,
            batches=[batch],
            inputs=[InputPlace(self.shard, position, "r1:", ((position + 2, position + 3),))],
            **more,
        )
        head = Manifest(version, self.history.links, tuple(requires), self.claimant, at_us=1_700_000_000_000_000)
        manifest, spilled = seal(head, contents, writing, inline_bytes=inline_bytes)
        for name, value in spilled:
            self.append(topic, name, bytes(value))
        self.chunks.acknowledged(writing)
        self.log(manifest)
        self.newest = version
        captured.release()
        return manifest

    def damage(self, chunk, value):
        """Put another value in a chunk's place."""
        self.append(topics.state(self.spec.name, self.stage), b"%d/%d/%d" % chunk, value)

    def beat(self, role="primary"):
        """One heartbeat."""
        beat = Beat(self.stage, self.shard, "m", 1, role, next(self._beats), 0)
        self.append(topics.beat(self.spec.name), "m", encode(beat), 0)
