"""The rules of joins, losses, choices and shards, broken."""

from dataclasses import replace

from spillway.agents.core.gate import GateCore
from spillway.agents.core.join_rules import Rule
from spillway.agents.core.joins import JoinTable
from spillway.agents.core.outbox import Outbox, StatefulOutbox
from spillway.agents.core.outcomes import ReleasedMemory
from spillway.agents.core.request import Taken
from spillway.agents.core.share import Share
from spillway.agents.core.speculation import Speculation
from spillway.agents.core.stage import StageCore
from spillway.agents.core.stateful_stage import StatefulCore, StatefulShare
from spillway.agents.proof.shards.schedule.scenario import Guards
from spillway.checkpoint.dedup import HopLane, PartitionMemory, said_by
from spillway.checkpoint.logs import Logs
from spillway.lineage.hops import Hop
from spillway.lineage.marks import Mark, merged
from tests.unit.proof.shards.parts import everywhere, joining, made, nothing, sending

# What rests on what ----------------------------------------------------------------------------------------------


class LostPartsForgotten(StatefulOutbox):
    """A version requires what came, and not what was lost."""

    __slots__ = ()

    def _rest_on(self, work):
        work.final = True
        self._requires += [part.hop.marks for part in work.parts if part.hop is not None]


class DropsRestOnNothing(StatefulOutbox):
    """Who is dropped, or fails, changes no state: so nothing is required."""

    __slots__ = ()

    def lose(self, work, loss, source):
        before = list(self._requires)
        super().lose(work, loss, source)
        self._requires = before


class ResultsTellAll(Speculation):
    """A stateless join passes on the marks of its results alone."""

    def closed(self, owner, entry):
        results = [copy for copy in entry.case.heard if not copy.delivery.lost]
        super().closed(owner, entry)
        return merged(copy.marks for copy in results)


class SourceAlone(GateCore):
    """An outcome rests on the report that decided it, and on no other that was heard."""

    def _decide(self, share, source, parts, offsets, own, entry=None):
        if entry is not None and entry.case is not None:
            entry.case.heard[:] = [copy for copy in entry.case.heard if copy.delivery is source]
        super()._decide(share, source, (source,), offsets, own, entry)


# What comes again, and what was taken before it ------------------------------------------------------------------


class LaterCopiesRepeat(Speculation):
    """A later copy is a repetition, also while the one that was taken may still die."""

    def take(self, delivery):
        hop = delivery.hop
        key = (delivery.predecessor, said_by(delivery.request_id, delivery.predecessor, delivery.lost))
        if hop is not None and key in self._open and not self._awaited.dead(hop.marks):
            self._memory.opened(delivery.predecessor).rise(delivery.offset, hop)
            return Taken.REPEATED
        return super().take(delivery)


class UncoveredAbove(StatefulShare):
    """A base covers what is below its position, and nothing above."""

    __slots__ = ()

    def cover(self, offsets):
        super().cover(())


class RecordedIsTold(StatefulOutbox):
    """A hop tells what is recorded, not what is durable."""

    __slots__ = ()

    def _hop(self, work):
        hop = super()._hop(work)
        return replace(hop, committed=min(hop.sequence, work.share.offsets.position))


# Joins, choices, shards ------------------------------------------------------------------------------------------


class PartialIsDrop(JoinTable):
    """A join that takes what it gets ends with the first loss."""

    __slots__ = ()

    def __init__(self, rule, expected, limit):
        super().__init__(Rule() if rule.mode == "all" else rule, expected, limit)


class PathForgotten(JoinTable):
    """A join waits for all its predecessors, whatever was chosen."""

    __slots__ = ()

    def __init__(self, rule, expected, limit):
        super().__init__(rule, lambda _path: expected({}), limit)


class ChoiceUntold(Outbox):
    """A result goes where it was chosen to, and does not say so."""

    __slots__ = ()

    def result(self, work, result):
        super().result(work, replace(result, chosen=None))


class OneIsTold(Outbox):
    """A loss is told to the last of those who wait."""

    __slots__ = ()

    def lose(self, work, loss, source):
        graph, self._graph = self._graph, LastLoss(self._graph)
        super().lose(work, loss, source)
        self._graph = graph


class LastLoss:
    def __init__(self, graph):
        self._graph = graph

    def losses(self, stage, path):
        return self._graph.losses(stage, path)[-1:]


class FirstShard(StatefulOutbox):
    """All marks name a stage's first shard."""

    __slots__ = ()

    def _hop(self, work):
        hop = super()._hop(work)
        return Hop(
            hop.stage, hop.epoch, hop.partition, hop.sequence, hop.committed,
            tuple(Mark(mark.stage, 0, mark.version) for mark in hop.marks),
        )  # fmt: skip


class NextShard(Logs):
    """What is durable is looked up in another shard's log."""

    def fate(self, mark):
        one, other = mark.place, (mark.stage, mark.shard ^ 1)
        return super().fate(Mark(*(other if other in self._shards else one), mark.version))


MUTATIONS = {
    "lost parts not required": sending(LostPartsForgotten),
    "dropped requests require nothing": sending(DropsRestOnNothing),
    "a later live copy is a repetition": everywhere(speculation_type=LaterCopiesRepeat),
    "a stateless join tells of its results alone": Guards(
        stage=made(StageCore, share_type=made(Share, speculation_type=ResultsTellAll))
    ),
    "an outcome rests on one report alone": Guards(gate=SourceAlone),
    # A copy that turned out dead is still the one that was taken.
    "a dead copy is remembered": everywhere(memory_type=made(PartitionMemory, lane_type=made(HopLane, forget=nothing))),
    # A part that comes too late for a request is done, also while that request may still die.
    "late parts are not kept": joining(made(JoinTable, superfluous=nothing)),
    # A query whose held outcome dies stays decided.
    "a dead outcome stays decided": Guards(gate=made(GateCore, released_type=made(ReleasedMemory, undecide=nothing))),
    "coverage is a position": Guards(stateful=made(StatefulCore, share_type=UncoveredAbove)),
    "hops tell what is recorded": sending(RecordedIsTold),
    "a partial join drops": joining(PartialIsDrop),
    "a join knows of no choice": joining(PathForgotten),
    "a choice is not told": Guards(stage=made(StageCore, outbox_type=ChoiceUntold)),
    "one join alone is told of a loss": Guards(stage=made(StageCore, outbox_type=OneIsTold)),
    "marks name the first shard": sending(FirstShard),
    "another shard's log is asked": Guards(stage_logs=NextShard, gate_logs=NextShard),
}
