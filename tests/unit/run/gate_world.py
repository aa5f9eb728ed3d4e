"""A world in memory with gates as they ship: replicas that are killed and started again, and what came of it."""

import asyncio
from functools import partial
from types import SimpleNamespace

from spillway.agents.core.gate import GateCore
from spillway.agents.live.gate.metrics import GateMetrics
from spillway.agents.live.gate.states import GateStates
from spillway.agents.memory.groups import Group
from spillway.agents.memory.ports import (
    ABORTED,
    MemoryClock,
    MemoryExecutor,
    MemoryLog,
    MemorySpans,
    MemoryTransactions,
)
from spillway.agents.memory.processes import AFTER, BEFORE
from spillway.agents.memory.pulled_input import MemoryPulledInput
from spillway.agents.memory.records import kept
from spillway.agents.memory.world import DriverWorld
from spillway.agents.run.gate import Gate
from spillway.agents.run.gate_context import GateContext, GateTopics
from spillway.agents.run.gate_wire import GateWire
from spillway.agents.run.inputs import Inputs, of_gate
from spillway.checkpoint import version_log
from spillway.lineage import headers
from spillway.lineage.errors import FencedError, OustedError
from spillway.lineage.hops import Hop
from spillway.lineage.limits import Limits
from spillway.lineage.marks import INITIAL, Mark, Version
from spillway.lineage.message import PREDICTION, Outcome
from spillway.lineage.ports import Outgoing
from spillway.lineage.replication import Base, Fence, Manifest
from spillway.lineage.values import codec
from spillway.lineage.values.codec import Decoder
from spillway.lineage.values.replication import encode
from tests.unit.core.shapes import SHAPES

SHARD = ("learn", 0)
VERSIONS = "p.learn.versions"
CHAIN = ((1, INITIAL),)
TOPICS = GateTopics("p.outcomes", "p.egress", "p.dead")
GROUP = "p.gate"
LIMITS = Limits()


class GateWorld:
    """Gates between `p.outcomes` and `p.egress`; `sinks` of the pipeline's shape report.

    `stateful`: what they report rests on the newest version of a shard, whose manifest comes later.
    """

    def __init__(self, seed, *, shape="chain", sinks=("c",), stateful=False, partitions=3, replicas=2, kind=Gate):
        topics = dict.fromkeys((TOPICS.outcomes, TOPICS.egress, TOPICS.dead), partitions)
        self.world = DriverWorld(seed, topics | {VERSIONS: 1}, gaps=seed % 3)
        self.random = self.world.random
        self.shape, self.sinks, self.kind = SHAPES[shape], sinks, kind
        self.partitions, self.replicas = partitions, replicas
        self.places = (SHARD,) if stateful else ()
        self.version = 0  # the newest
        self.rests_on = {}  # by query: the versions that its reports rest on
        self.kills = self.breaks = 0.0  # at each call of a port; of each transaction
        self.group = Group(self.world, GROUP, TOPICS.outcomes)
        self.gates = [None] * replicas
        self.asked = []  # the queries
        self._sequences = [0] * partitions
        self._halves = {}  # by partition: what no commit can pass
        self._versions_at = 0.0  # when the last one is written
        self._said = {}  # by stage and partition: when it reports last
        self._open = [[] for _ in range(partitions)]  # what a stage has not committed, and says again
        self.counts = dict.fromkeys(("killed", "aborted", "silent", "stopped", "suspended", "ousted"), 0)

    # Gates -----------------------------------------------------------------------------------------------------

    def context(self, process, replica):
        world = self.world
        pulled = MemoryPulledInput(world, process, self.group, f"gate.{replica}")
        transactions = MemoryTransactions(world, process, f"p.gate.{replica}", GROUP, pulled.ticket)
        transactions.breaks = self._breaks
        spans, executor, clock = MemorySpans(world, process), MemoryExecutor(), MemoryClock(process)
        graph = self.shape.graph()
        metrics = GateMetrics("p", replica)
        versions = durability = None
        if self.places:
            log = MemoryLog(world, process)
            versions = GateStates(lambda _post: log, "p", self.places, asyncio.sleep, now=clock.monotonic)
            durability = versions.logs
        return GateContext(
            name=f"p.{replica}",
            topics=TOPICS,
            input=pulled,
            transactions=transactions,
            spans=spans,
            clock=clock,
            sleep=asyncio.sleep,
            begin=executor.run,
            reread=lambda places: asyncio.ensure_future(spans.pick(TOPICS.outcomes, places)),
            wire=GateWire(graph.order, Decoder(LIMITS), LIMITS, clock, places=self.places),
            inputs=Inputs(TOPICS.outcomes, of_gate(GROUP, TOPICS.outcomes), metrics.stopped),
            recorder=metrics,
            core=lambda: GateCore(graph, sinks=self.shape.sinks, durability=durability),
            versions=versions,
            poll=0.5,
        )

    def _breaks(self):
        if self.random.random() >= self.breaks:
            return ""
        breaks = self.random.choice((ABORTED, BEFORE, AFTER))
        self.counts["aborted" if breaks == ABORTED else "silent"] += 1
        return breaks

    def _strikes(self, _process):
        if self.random.random() >= self.kills:
            return ""
        self.counts["killed"] += 1
        return self.random.choice((BEFORE, AFTER))

    def start(self, replica):
        """Start a replica's process, as its supervisor does."""
        process = self.world.process(f"gate.{replica}")
        process.strikes = self._strikes
        self.gates[replica] = SimpleNamespace(process=process, gate=None, stopping=False)
        self.gates[replica].task = process.start(self._serve(self.gates[replica], replica))

    async def _serve(self, own, replica):
        context = self.context(own.process, replica)
        own.gate = gate = self.kind(context)
        if context.versions is not None:
            await context.versions.await_ends(bool)
        await gate.start()
        while True:
            try:
                await gate.run(lambda: own.stopping)
            except OustedError:
                self.counts["ousted"] += 1
                await gate.rejoin()
            else:
                await gate._input.close(leave=True)
                return

    def stop(self, replica):
        """Stop a replica in order; its partitions move."""
        self.counts["stopped"] += 1
        self.gates[replica].stopping = True

    def suspend(self, replica):
        """Have a replica stand still for longer or shorter than a session, and go on."""
        process = self.gates[replica].process
        if process.alive and process.withheld is None:
            self.counts["suspended"] += 1
            process.stop()
            self.world.at(self.world.now + 2 * self.random.random(), lambda: process.alive and process.go_on())

    def supervise(self):
        """Start again what has died, or has ended as another one has its place."""
        for replica, own in enumerate(self.gates):
            if own is None or not own.process.alive or own.task.done():
                if own is not None and own.process.alive and own.task.done():
                    error = own.task.exception()
                    if error is not None and not isinstance(error, FencedError):
                        raise error
                self.start(replica)

    # Stages ----------------------------------------------------------------------------------------------------

    def _query(self, request_id, partition):
        query = request_id, self.world.now, self._sequences[partition]
        self.asked.append(request_id)
        self._sequences[partition] += 1
        self._open[partition].append(query)
        return query

    def ask_halves(self):
        """Have all sinks but the last report a query in each partition, so that no commit can pass it."""
        for partition in range(self.partitions):
            half = self._halves[partition] = self._query(f"half{partition}", partition)
            for sink in self.sinks[:-1]:
                self._report(sink, partition, half)

    def complete_halves(self):
        for partition, half in self._halves.items():
            self._report(self.sinks[-1], partition, half)

    def ask(self, number):
        """Have the sinks report a query, and as they crash now and then, what they had not committed again."""
        chance, partition = self.random.random, self.random.randrange(self.partitions)
        half, query = self._halves.get(partition), self._query(f"q{number}", partition)
        for sink in self.sinks:
            self._report(sink, partition, query)
            if chance() < 0.1:
                for earlier in self._open[partition]:
                    if earlier is not half or sink != self.sinks[-1]:
                        self._report(sink, partition, earlier)
        if self.shape.sinks is None and chance() < 0.2:  # a stage before took it again, and dropped it as it was late
            self._report("b", partition, query, Outcome("dropped", reason="expired", stage="b"))
        if chance() < 0.2:
            self._open[partition] = [earlier for earlier in self._open[partition] if earlier is half]

    def _report(self, stage, partition, query, outcome=None):
        """Report now or a while later; what a stage says comes in its order."""
        request_id, sent, sequence = query
        committed = self._open[partition][0][2]
        hop = Hop(stage, 0, partition, sequence, committed, self._marks(request_id))
        said = headers.Headers(request_id, int(sent * 1e6), int((sent + 60) * 1e6), hop)
        outcome = outcome or Outcome(PREDICTION, outputs={"id": request_id}, stage=stage)
        pairs, value = tuple(headers.encode(said)), codec.encode_outcome(outcome)
        record = kept(Outgoing(TOPICS.outcomes, partition, request_id.encode(), value, pairs))
        late = self.random.choice((0.0, 0.0, self.random.random(), 3 * self.random.random()))
        when = self._said[stage, partition] = max(self._said.get((stage, partition), 0.0), self.world.now + late)
        self.world.at(when, lambda: self.world.broker.append((TOPICS.outcomes, partition), record))

    def _marks(self, request_id):
        """Return what a report rests on: the shard's newest version, which is made for it."""
        if not self.places:
            return ()
        if not self.version:
            self._write_version(Fence(1, "m", 0), Base(1, "m", INITIAL, CHAIN), late=0.0)
        self.version += 1
        self._write_version(Manifest(Version(1, self.version), CHAIN, (), "m"), late=2 * self.random.random())
        self.rests_on.setdefault(request_id, []).append(self.version)
        return (Mark(*SHARD, Version(1, self.version)),)

    def _write_version(self, *records, late):
        """Write records of the version log a while later, in their order."""
        self._versions_at = max(self._versions_at, self.world.now + late)
        for record in records:
            made = kept(Outgoing(VERSIONS, 0, version_log.key(record).encode(), encode(record)))
            self.world.at(self._versions_at, partial(self.world.broker.append, (VERSIONS, 0), made))

    # What came of it -------------------------------------------------------------------------------------------

    def released(self):
        """Return the ids of all outcomes that readers see."""
        return [
            dict(one.headers)[headers.REQUEST_ID].decode()
            for partition in range(self.partitions)
            for one in self.world.broker.read((TOPICS.egress, partition), 0)
            if one.headers
        ]

    def busy(self):
        """Return the gates that still hold something."""
        return [own.process.name for own in self.gates if own.process.alive and own.gate and not own.gate.idle]

    def early(self):
        """Return the outcomes that were written before any of what their reports rest on was."""
        broker = self.world.broker
        manifests = [one.appended for one in broker.read((VERSIONS, 0), 0)][2:]
        return [
            request_id
            for partition in range(self.partitions)
            for one in broker.read((TOPICS.egress, partition), 0)
            if (versions := self.rests_on.get(request_id := one.key.decode()))
            and one.appended < manifests[min(versions) - 1]
        ]

    def behind(self):
        """Return the partitions that are not committed to their end."""
        broker = self.world.broker
        return [
            partition
            for partition in range(self.partitions)
            if broker.committed(GROUP, partition)[0] < broker.end((TOPICS.outcomes, partition))
        ]
