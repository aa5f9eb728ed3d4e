"""A chain of two stateful stages as its topics would hold it, made by hand: what goes wrong is each test's own.

`World.serve` plays both primaries for one batch; all times are a millisecond apart, in the order of what is done.
"""

from pathlib import Path

from spillway.agents.models.inputs import Inputs
from spillway.agents.models.loading import load_stateful_model
from spillway.agents.models.stateful import Machine
from spillway.checkpoint.capture import Capture
from spillway.checkpoint.chunks import ChunkLog
from spillway.checkpoint.manifests import describe, seal
from spillway.checkpoint.pages import Pages
from spillway.checkpoint.version_log import key as log_key
from spillway.checkpoint.versions import INITIAL, Version
from spillway.lineage import headers
from spillway.lineage.hops import Hop
from spillway.lineage.marks import Mark
from spillway.lineage.message import PREDICTION, Outcome, Query
from spillway.lineage.replication import Base, Batch, Fence, InputPlace, InputRecord, Manifest
from spillway.lineage.values.codec import Decoder, encode_outcome, encode_query
from spillway.lineage.values.replication import encode
from spillway.topology import topics
from spillway.topology.load import parse
from tests.state_oracle import Judge
from tests.state_topics import Recording, Written

PIPELINE = """
name: p
slo: 100s
partitions: 2
stages:
  - {name: a, model: "tests.torture.models:Chain", state: shared}
  - {name: b, model: "tests.torture.models:%s", state: %s, after: a}
"""

JOIN = """
name: p
slo: 100s
partitions: 2
stages:
  - {name: a, model: "tests.torture.models:Chain", state: shared}
  - {name: s, model: "tests.torture.models:Through"}
  - {name: b, model: "tests.torture.models:%s", state: %s, after: [a, s]}
"""


class Shard:
    def __init__(self, world, stage):
        self.world = world
        self.stage = stage
        spec = world.recording.pipeline.spec.stage(stage)
        self.machine = Machine(stage, load_stateful_model(stage, spec.model, spec.arguments))
        self.chain = ()
        self.n = 0
        self.epoch = 0
        self.name = ""
        self.requires = {}
        self.recorded = []

    def reign(self, epoch: int, base: Version = INITIAL) -> None:
        self.epoch, self.n, self.name = epoch, base.n, f"m{epoch}"
        below = [link for link in self.chain if link[0] <= base.epoch]
        self.chain = (*below, (epoch, base))
        self.log(Fence(epoch, self.name))
        self.log(Base(epoch, self.name, base, self.chain))
        keyed = self.machine.kind == "keyed"
        self.capture = Capture(chunk_bytes=4_096, own_bytes=1_024, pages=Pages(4_096) if keyed else None)
        self.chunks = ChunkLog(epoch)

    def log(self, record) -> None:
        topic = topics.versions("p", self.stage)
        self.world.write(topic, 0, log_key(record).encode(), encode(record))

    @property
    def mark(self) -> Mark:
        return Mark(self.stage, 0, Version(self.epoch, self.n))

    def take(self, records: list[tuple[str, int, int, bytes]]) -> list[tuple[str, int, int, dict]]:
        """Compute and update a batch of (request, partition, offset, value); gives what is to be sent."""
        batch = [Inputs(Decoder().query(value).inputs, {}, request) for request, _, _, value in records]
        outputs = self.machine.compute(batch)
        self.machine.update()
        self.n += 1
        taken = tuple(InputRecord(request, partition, offset) for request, partition, offset, _ in records)
        self.recorded.append(Batch(self.n, taken))
        return [(request, p, o, dict(out)) for (request, p, o, _), out in zip(records, outputs, strict=True)]

    def complete(self, **changes) -> None:
        keyed = self.machine.kind == "keyed"
        captured = self.capture.take({}, self.machine.state) if keyed else self.capture.take(self.machine.state)
        writing = self.chunks.write(self.mark.version, captured)
        for key, value in writing.records():
            self.world.write(topics.state("p", self.stage), 0, key, bytes(value))
        self.chunks.acknowledged(writing)
        inputs = tuple(InputPlace(p, 1_000) for p in range(2))
        contents = describe(captured, writing, batches=self.recorded, inputs=inputs)
        requires = tuple(sorted(self.requires.values(), key=str))
        manifest, records = seal(Manifest(self.mark.version, self.chain, requires, self.name), contents, writing)
        for key, value in records:
            self.world.write(topics.state("p", self.stage), 0, key, value)
        self.recorded, self.requires = [], {}
        self.log(manifest)
        assert not changes


class World:
    def __init__(self, model: str = "Chain", kind: str = "shared", pipeline: str = PIPELINE) -> None:
        self.recording = Recording(parse(pipeline % (model, kind), Path("p.yaml")))
        self.now = 1_000
        self.accepted: list[str] = []
        self.a, self.b = Shard(self, "a"), Shard(self, "b")
        self.a.reign(1)
        self.b.reign(1)

    def write(self, topic, partition, key, value, pairs=()) -> int:
        self.now += 1
        records = self.recording.topics[topic]
        offset = sum(record.partition == partition for record in records)
        records.append(Written(partition, offset, key, value, list(pairs), self.now))
        return offset

    def ask(self, *numbers: int) -> list:
        """Put queries on the ingress; what stage a takes of them."""
        asked = []
        for number in numbers:
            request, partition = f"q{number}", number % 2
            value = encode_query(Query({"x": number}))
            self.accepted.append(request)
            offset = self.write("p.ingress", partition, request.encode(), value, self.pairs(request))
            asked.append((request, partition, offset, value))
        return asked

    @staticmethod
    def pairs(request: str, hop: Hop | None = None):
        return headers.encode(headers.Headers(request, 1, 2, hop))

    def send(self, shard: Shard, made: list) -> list:
        """Send what stage a has made to b; what b takes of it."""
        sent = []
        for request, partition, offset, output in made:
            hop = Hop(shard.stage, shard.epoch, partition, offset, 0, (shard.mark,))
            value = encode_query(Query(output))
            at = self.write("p.b", partition, request.encode(), value, self.pairs(request, hop))
            sent.append((request, partition, at, value))
        self.b.requires[shard.mark.version.epoch] = shard.mark
        return sent

    def report(self, made: list) -> list:
        sent = []
        for request, partition, offset, output in made:
            hop = Hop("b", self.b.epoch, partition, offset, 0, (self.b.mark,))
            value = encode_outcome(Outcome(PREDICTION, output, stage="b"))
            pairs = self.pairs(request, hop)
            self.write("p.outcomes", partition, request.encode(), value, pairs)
            sent.append((partition, request.encode(), value, pairs))
        return sent

    def release(self, reports: list) -> None:
        for report in reports:
            self.write("p.egress", *report)

    def serve(self, *numbers: int) -> None:
        """One batch from the ingress to the egress, as it should be."""
        passed = self.send(self.a, self.a.take(self.ask(*numbers)))
        self.a.complete()
        reports = self.report(self.b.take(passed))
        self.b.complete()
        self.release(reports)

    def problems(self, **options) -> list[str]:
        return Judge(self.recording, **options).problems(self.accepted)
