"""The oracle sees each guard broken: the same schedules pass with the real cores and fail with the mutated ones.

A mutation is a subclass of the guard; production code has no switch to turn one off.
"""

from __future__ import annotations

from agents.core.gate import GateCore
from agents.core.joins import JoinTable, Verdict
from agents.core.released import ReleasedMemory
from agents.core.share import Share
from agents.core.stage import StageCore
from agents.sim.faults import Fault, FaultKind, run
from checkpoint.dedup import PartitionMemory
from checkpoint.offsets import PartitionOffsets
from tests.unit.faults.pipelines import SHAPES, problems, scenario

SEEDS = 15


def stage_with(**parts):
    """A stage's core with parts replaced: `offsets_type` and `memory_type` of its shares, or its own `joins_type`."""
    share = type("MutatedShare", (Share,), {"__slots__": (), **{k: v for k, v in parts.items() if k != "joins_type"}})
    return type(
        "MutatedStage", (StageCore,), {"share_type": share, **{k: v for k, v in parts.items() if k == "joins_type"}}
    )


def found(shape_name, *, losses=frozenset(), seeds=SEEDS, **changes):
    """All problems over the seeds, without the ids."""
    shape = SHAPES[shape_name]
    kinds = set()
    struck = 0
    for seed in range(seeds):
        done = run(scenario(shape, **changes), seed)
        struck += done.faults
        kinds |= {problem.split(": ", 1)[-1] for problem in problems(shape, done, losses=losses)}
    assert struck or not changes.get("faults"), "the fault did not take place"
    return kinds


def crash(stage, at=None, **more):
    return Fault(FaultKind.CRASH, stage, at=at, **more)


# Deduplication ------------------------------------------------------------------------------------------------------


class TakesEverything(PartitionMemory):
    __slots__ = ()

    def fresh(self, *record):
        super().fresh(*record)
        return True


REPEATS_OF_A = {"faults": (crash("a", 0.15, seconds=0.02),), "commit_every": 0.1}


def test_deduplication():
    assert not found("diamond", **REPEATS_OF_A)
    broken = found("diamond", stage_type=stage_with(memory_type=TakesEverything), **REPEATS_OF_A)
    assert any("executed twice" in problem for problem in broken)


def test_deduplication_counts_although_the_gate_hides_it():
    broken = found("chain", stage_type=stage_with(memory_type=TakesEverything), **REPEATS_OF_A)
    assert broken
    assert not any("outcome" in problem for problem in broken)


# The tracker --------------------------------------------------------------------------------------------------------


class CommitsPastHoles(PartitionOffsets):
    __slots__ = ()

    def done(self, offset):
        before = self.position
        super().done(offset)
        self.position = max(self.position, before, offset + 1)


def in_a_hole(core):
    """Right after a commit: a record is finished above one that is not."""
    return any(0 < share.offsets.unfinished < share.offsets.held for share in core._shares.values())


IN_THE_HOLE = {"faults": (crash("b", when=in_a_hole),), "commit_every": 0.02, "rate": 600.0}


def test_the_tracker():
    assert not found("chain", **IN_THE_HOLE)
    broken = found("chain", stage_type=stage_with(offsets_type=CommitsPastHoles), **IN_THE_HOLE)
    assert "no outcome" in broken


# Joins --------------------------------------------------------------------------------------------------------------


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


def fails_in_b(stage, request_id):
    return "model" if stage == "b" and request_id in {"q7", "q9"} else None


LOST_BRANCH = {
    "poison": fails_in_b,
    "losses": {"q7": {"model-raised"}, "q9": {"model-raised"}},
    "seeds": 3,
    "slo": 10.0,
}


def test_the_joins_tombstones():
    assert not found("diamond", **LOST_BRANCH)
    broken = found("diamond", stage_type=stage_with(joins_type=DeafToTombstones), **LOST_BRANCH)
    assert "wrong outcome failed 'join-timeout'" in broken


def test_the_joins_memory_of_closed_requests():
    assert not found("any", seeds=3)
    broken = found("any", seeds=3, stage_type=stage_with(joins_type=ForgetsClosed))
    assert any("executed twice" in problem for problem in broken)


# The gate -----------------------------------------------------------------------------------------------------------


class RemembersNothing(ReleasedMemory):
    __slots__ = ()

    def knows(self, *query):
        return False


class ReadsNoEgress(ReleasedMemory):
    __slots__ = ()

    def recall(self, offset, *record):
        self.egress_next = max(self.egress_next, offset + 1)


class GateWithoutMemory(GateCore):
    released_type = RemembersNothing


class GateThatReadsNoEgress(GateCore):
    released_type = ReadsNoEgress


def sent_and_not_committed(core):
    return core.stats.emitted > 10 and any(s.offsets.held > 1 for s in core._shares.values())


# What `a` had sent on before it crashed is late when it takes it again, so it drops it: two reports by two ways.
DROPS_WHAT_IT_SENT = {
    "policy": "expired",
    "slo": 0.3,
    "rate": 500.0,
    "faults": (crash("a", when=sent_and_not_committed, seconds=0.6),),
    "losses": {"expired"},
}


def released_in_a_hole(core):
    """Outcomes behind a query that waits for its other sink are on the egress, and their input is not committed."""
    return any(
        share.released.egress_next > share.released.egress and share.offsets.held > share.offsets.unfinished
        for share in core._shares.values()
    )


GATE_IN_A_HOLE = {"faults": (crash("gate", when=released_in_a_hole),), "commit_every": 0.02, "rate": 600.0}


def test_the_gates_memory():
    assert not found("chain", **DROPS_WHAT_IT_SENT)
    broken = found("chain", gate_type=GateWithoutMemory, **DROPS_WHAT_IT_SENT)
    assert "2 outcomes" in broken


def test_the_gates_memory_after_its_own_crash():
    assert not found("sinks-all", **GATE_IN_A_HOLE)
    broken = found("sinks-all", gate_type=GateThatReadsNoEgress, **GATE_IN_A_HOLE)
    assert "2 outcomes" in broken


# What is read again on assignment -----------------------------------------------------------------------------------


class RemembersNoRecord(Share):
    __slots__ = ()

    def remember(self, delivery):
        pass


class StageThatReadsNothingAgain(StageCore):
    share_type = RemembersNoRecord


# `b` starts again with an empty memory just before `a` repeats what it had not committed.
BOTH_START_AGAIN = {
    "faults": (crash("a", 0.2, seconds=0.06), crash("b", 0.22, seconds=0.02)),
    "commit_every": 0.05,
    "rate": 400.0,
}


def test_the_rebuilding_on_assignment():
    assert not found("chain", **BOTH_START_AGAIN)
    broken = found("chain", stage_type=StageThatReadsNothingAgain, **BOTH_START_AGAIN)
    assert "executed by b, committed, and executed again" in broken
