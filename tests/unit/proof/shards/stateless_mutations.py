"""The guards of stateless stages and the gate, broken: deduplication, the tracker, joins, what is read again."""

from spillway.agents.core.gate import GateCore
from spillway.agents.core.join_rules import Verdict
from spillway.agents.core.joins import JoinTable
from spillway.agents.core.outcomes import ReleasedMemory
from spillway.agents.core.share import Share
from spillway.agents.core.stage import StageCore
from spillway.agents.proof.shards.schedule.scenario import Guards
from spillway.checkpoint.dedup import PartitionMemory
from spillway.checkpoint.offsets import PartitionOffsets
from tests.unit.proof.shards.parts import made, nothing


class TakesEverything(PartitionMemory):
    __slots__ = ()

    def fresh(self, *record):
        super().fresh(*record)
        return True


class CommitsPastHoles(PartitionOffsets):
    __slots__ = ()

    def done(self, offset):
        before = self.position
        super().done(offset)
        self.position = max(self.position, before, offset + 1)


class DeafToTombstones(JoinTable):
    __slots__ = ()

    def hear(self, now, delivery, loss=None):
        return (Verdict.LATE, None) if delivery.lost else super().hear(now, delivery, loss)


class ForgetsClosed(JoinTable):
    """Forgets a request as soon as it is closed."""

    __slots__ = ()

    def hear(self, now, delivery, loss=None):
        verdict, entry = super().hear(now, delivery, loss)
        if verdict in {Verdict.READY, Verdict.LOST}:
            self._forget(entry)
        return verdict, entry


class ReadsNoEgress(ReleasedMemory):
    __slots__ = ()

    def recall(self, offset, *record):
        self.egress_next = max(self.egress_next, offset + 1)


def stage(**parts):
    return Guards(stage=made(StageCore, **parts))


def share(**parts):
    """Guards whose stages have these parts of a share."""
    return stage(share_type=made(Share, **parts))


def gate(released):
    return Guards(gate=made(GateCore, released_type=released))


MUTATIONS = {
    "everything is new": share(memory_type=TakesEverything),
    "a commit passes what is not done": share(offsets_type=CommitsPastHoles),
    "a join is deaf to tombstones": stage(joins_type=DeafToTombstones),
    "a join forgets what is closed": stage(joins_type=ForgetsClosed),
    "the gate forgets what it has released": gate(made(ReleasedMemory, knows=lambda *_: False)),
    "a new gate reads no egress": gate(ReadsNoEgress),
    "a new owner reads nothing again": share(remember=nothing),
}
