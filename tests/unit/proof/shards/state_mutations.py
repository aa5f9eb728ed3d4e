"""The guards of stateful serving, broken."""

from collections import deque
from dataclasses import replace

from spillway.agents.core.gate import GateCore
from spillway.agents.core.stage import StageCore
from spillway.agents.core.stateful_stage import StatefulCore, StatefulShare
from spillway.agents.proof.shards.schedule.scenario import TOPOLOGIES, Fault, Guards, Kind, Scenario
from spillway.checkpoint.dedup import HopLane, PartitionMemory
from spillway.checkpoint.durability import Stateless
from spillway.checkpoint.logs import Fate, Logs
from spillway.checkpoint.promotion import Member
from spillway.checkpoint.reign import Reign
from spillway.checkpoint.versions import INITIAL
from spillway.lineage.errors import CheckpointError
from spillway.lineage.ports import Commit
from spillway.lineage.replication import Fence, Manifest
from tests.unit.proof.shards.parts import made


class HastyGate(GateCore):
    """A gate that waits for nothing."""

    def __init__(self, graph, **options):
        super().__init__(graph, **options | {"durability": Stateless()})


class OutOfOrder(Logs):
    """A version is durable with its manifest, whatever it rests on."""

    def take(self, place, record):
        return super().take(place, replace(record, requires=()) if isinstance(record, Manifest) else record)


class OldEpochIsDead(Logs):
    """The chain itself is kept right, so that claimants still find their bases."""

    def fate(self, mark):
        old = mark.version != INITIAL and mark.version.epoch < self.log(mark.place).history.epoch
        return Fate.DEAD if old else super().fate(mark)


class BaseBeforeFence(Member):
    """What it knew when its claim had won is its base; nothing is read up to the fence."""

    def _fence(self):
        try:
            self._known = self.logs.candidate(self.place)
        except CheckpointError:
            self._known = None
        return super()._fence()

    def choose(self):
        return super().choose() if self._known is None else self._known


def without_epoch(record):
    if isinstance(record, Manifest):
        return f"manifest/{record.version.n}"
    return f"fence/{record.claimant}" if isinstance(record, Fence) else "base"


class CommitsEarly(StageCore):
    """What is acknowledged is committed, durable or not."""

    def commits(self):
        if self.unsettled or self.waiting:
            return {}
        found = {}
        for partition, share in self._shares.items():
            offset = share.offsets._last + 1
            if offset > share.committed:
                found[partition] = Commit(offset, "")
        return found


class ShortLane(HopLane):
    """It remembers the newest few messages, as if the others were too old."""

    def __init__(self):
        super().__init__()
        self._newest = deque()

    def fresh(self, said, offset, hop):
        fresh = super().fresh(said, offset, hop)
        if fresh:
            self._newest.append((said, hop))
            if len(self._newest) > 2:
                self.forget(*self._newest.popleft())
        return fresh


def newest_complete(logs, place):
    """What two slots would keep: the version that is captured, and the one that is complete."""
    try:
        return logs.candidate(place)
    except CheckpointError:
        return logs.newest_durable(place)


MUTATIONS = {
    "release before durable": Guards(gate=HastyGate),
    "apply out of causal order": Guards(member_logs=OutOfOrder, stage_logs=OutOfOrder, gate_logs=OutOfOrder),
    "skip the fence": Guards(member=BaseBeforeFence),
    "no epoch in the chunks' keys": Guards(chunk_epoch=lambda _epoch: 1),
    "no epoch in the versions' keys": Guards(version_key=without_epoch),
    "manifest before outputs": Guards(reign=made(Reign, sealable=lambda *_: True)),
    "dead is old epoch": Guards(stage_logs=OldEpochIsDead, gate_logs=OldEpochIsDead),
    "commit before durable": Guards(stage=CommitsEarly),
    "forget by the clock": Guards(
        stateful=made(
            StatefulCore, share_type=made(StatefulShare, memory_type=made(PartitionMemory, lane_type=ShortLane))
        )
    ),
    "two slots": Guards(keeps=newest_complete),
}


CHAIN = TOPOLOGIES["chain"]
# Where a mutation does harm; others are found by any schedules.
HARM = {
    "skip the fence": Scenario(
        CHAIN,
        write_seconds=0.002,
        faults=(Fault(Kind.SLOW, "a", "backup", 0.1, seconds=3.0), Fault(Kind.SWITCH, "a", at=0.15)),
    ),
    "no epoch in the chunks' keys": Scenario(
        CHAIN,
        write_seconds=0.05,
        faults=(Fault(Kind.PAUSE, "a", "primary", 0.2, "chunks.before", seconds=1.6, reported=True),),
    ),
    "no epoch in the versions' keys": Scenario(
        CHAIN,
        queries=6,
        batch=1,
        rate=400.0,
        faults=(Fault(Kind.PAUSE, "a", "primary", 0.0, "manifest.before", 2, seconds=1.6, reported=True),),
    ),
    "manifest before outputs": Scenario(
        CHAIN,
        queries=40,
        rate=300.0,
        write_seconds=0.0005,
        faults=(Fault(Kind.CRASH, "a", "primary", 0.1, "manifest.after"),),
    ),
    "forget by the clock": Scenario(
        TOPOLOGIES["diamond"], rate=200.0, commit_every=0.2, faults=(Fault(Kind.CRASH, "a", at=0.15, seconds=0.02),)
    ),
}
