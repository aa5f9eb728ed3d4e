"""The guards broken that concern what surrounds the members: the gate's rounds, room, replicas, what inputs lose."""

import asyncio

from spillway.agents.core.gate import GateCore, GateShare
from spillway.agents.core.input_tail import InputTail
from spillway.agents.core.outcomes import ReleasedMemory
from spillway.agents.core.share import Share
from spillway.agents.core.speculation import Speculation
from spillway.agents.core.stage import StageCore
from spillway.agents.core.stateful_stage import StatefulCore
from spillway.agents.proof.shards.schedule.scenario import TOPOLOGIES, Fault, Guards, Kind, Scenario
from spillway.agents.run.gate import Gate
from spillway.agents.run.log_reader import LogsFeed
from spillway.checkpoint.dedup import HopLane, PartitionMemory
from spillway.checkpoint.logs import Logs
from spillway.checkpoint.notes import Note
from spillway.lineage.ports import Commit
from tests.unit.proof.shards.parts import everywhere, made, nothing


class ShortTail(InputTail):
    """It lets go of more than what is durable."""

    def trim(self, partition, position, note):
        super().trim(partition, position + 2, note)


class Unnoted(Share):
    """Its note names nothing to read again."""

    __slots__ = ()

    def commit(self, egress=None):
        return Commit(self.offsets.position, Note((), egress).encode(self.offsets.position))


class Unrecalled(ReleasedMemory):
    """A new owner reads nothing of what was released."""

    @property
    def egress(self):
        return self.egress_next


def remember_the_dead(share, delivery):
    """What is dead counts as taken, once it lies below the committed offset."""
    if share._fresh(delivery) and share.joins is not None:
        share.joins.remember(delivery)


class ReadAtStart(LogsFeed):
    """It reads the version logs to their ends when its process begins, and not when a partition comes."""

    def __init__(self, *given, **options):
        super().__init__(*given, **options)
        self._read_to_ends, self.reader.read_to_ends = self.reader.read_to_ends, self._read

    def _read(self, then):
        if self.ready:
            asyncio.get_running_loop().call_soon(then)
        else:
            self._read_to_ends(then)


class ForgetsWhenRead(HopLane):
    """It goes by what was read, and not by what is committed."""

    def fresh(self, said, offset, hop):
        fresh = super().fresh(said, offset, hop)
        self.committed(offset + 1)
        return fresh


NeverBehind = made(Logs, fell_behind=nothing)


class Unwatched(HopLane):
    """It knows repetitions by their ids alone, as long as it remembers these."""

    def fresh(self, said, offset, hop):
        self.rise(offset, hop)
        if said in self._ids:
            return False
        self._ids[said] = hop
        self._entries.append((offset, said, hop))
        return True


class HoldsNothing(Speculation):
    """It takes every version that is not dead for durable."""

    def __init__(self, durability, memory, offsets, joins):
        super().__init__(durability, memory, offsets, joins)
        self._awaited.add = lambda _thing, _marks: None


class GoesOnAfterAnAbort(Gate):
    """It takes what an aborted transaction held for written."""

    async def _begin_again(self):
        pass


class LeavesStandingOffsetsOut(Gate):
    """It writes outcomes without an offset where they commit nothing new, so that nothing tells whose they are."""

    async def start(self):
        write = self._transactions.write
        self._transactions.write = lambda records, offsets: write(
            records, {p: commit for p, commit in offsets.items() if commit != self._standing.get(p)}
        )
        await super().start()


class HearsNoVersions(Gate):
    """It does not look at what has become durable."""

    def _hear(self, records):
        self._versions = None
        return super()._hear(records)


MUTATIONS = {
    "a tail that forgets what is not durable": Guards(tail=ShortTail),
    "a new owner remembers nothing": Guards(stage=made(StageCore, share_type=Unnoted)),
    "a new gate does not know what was released": Guards(gate=made(GateCore, released_type=Unrecalled)),
    # It makes no version for what leads to none, however long reading waits for it.
    "reading waits for a version that nobody makes": Guards(stateful=made(StatefulCore, cover=nothing)),
    "a new owner takes the dead for taken": Guards(
        stage=made(StageCore, share_type=made(Share, remember=remember_the_dead)),
        gate=made(GateCore, share_type=made(GateShare, remember=remember_the_dead)),
    ),
    "a new owner judges by logs read before": Guards(feed=ReadAtStart),
    # It judges on after it was away for so long that the log may have been compacted meanwhile.
    "a reader never says that it fell behind": Guards(
        member_logs=NeverBehind, stage_logs=NeverBehind, gate_logs=NeverBehind
    ),
    "a lane asks no watermark": everywhere(memory_type=made(PartitionMemory, lane_type=Unwatched)),
    "the gate releases what is open": Guards(
        gate=made(GateCore, share_type=made(GateShare, speculation_type=HoldsNothing))
    ),
    "the gate goes on after an abort": Guards(gate_driver=GoesOnAfterAnAbort),
    "the gate leaves standing offsets out": Guards(gate_driver=LeavesStandingOffsetsOut),
    "the gate hears nothing of versions": Guards(gate_driver=HearsNoVersions),
    "a lane forgets before its commit": Guards(
        stage=made(StageCore, share_type=made(Share, memory_type=made(PartitionMemory, lane_type=ForgetsWhenRead)))
    ),
    "an input that lost records is read on": Guards(is_lost=lambda _position, _bounds: False),
}
# Outcomes wait for versions of their own, and gates die while some wait behind others that have been released; or a
# gate stands still that commits nothing new, as the oldest query waits for a shard that is away.
HARM = {
    "the gate leaves standing offsets out": Scenario(
        TOPOLOGIES["conditional"],
        queries=60,
        rate=30.0,
        replicas=2,
        backups=0,
        faults=(
            Fault(Kind.CRASH, "b", "primary", 0.1, seconds=4.0),
            *(
                Fault(Kind.PAUSE, "gate", at=at, point="outputs.before", seconds=1.5, moves=True)
                for at in (0.4, 0.5, 0.6)
            ),
        ),
    ),
    "a new gate does not know what was released": Scenario(
        TOPOLOGIES["conditional"],
        batch=1,
        write_seconds=0.02,
        queries=40,
        faults=tuple(Fault(Kind.CRASH, "gate", at=at, seconds=0.02) for at in (0.2, 0.35, 0.5, 0.65)),
    ),
}
