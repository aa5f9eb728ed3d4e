"""Behind stateful stages the outcome is that of the living, exactly once, whenever the dead are known to be dead.

The worlds find each rule of `agents.core.speculation` that is broken on purpose.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.core import joins
from agents.core.gate import GateCore
from agents.core.gate_share import GateShare
from agents.core.joins import JoinTable
from agents.core.outbox import Outbox
from agents.core.released import ReleasedMemory
from agents.core.share import Share
from agents.core.speculation import Speculation
from agents.core.stage import StageCore
from agents.core.taken import Taken
from checkpoint.durability import Stateless
from tests.unit.core.lineage_worlds import SHAPES, World


@pytest.mark.parametrize("shape", SHAPES)
@given(seed=st.integers(0, 1_000_000))
def test_the_outcome_is_that_of_the_living_exactly_once(shape, seed):
    assert World(Random(seed), shape).run() == []


@pytest.mark.parametrize("shape", SHAPES)
@given(seed=st.integers(0, 1_000_000))
def test_nothing_is_owed_to_the_memory_of_what_was_forgotten_lately(shape, seed):
    before, joins.RECENT_LIMIT = joins.RECENT_LIMIT, 0
    try:
        assert World(Random(seed), shape).run() == []
    finally:
        joins.RECENT_LIMIT = before


# Mutations -----------------------------------------------------------------------------------------------------------


class RemembersTheDead(Speculation):
    __slots__ = ()

    def look(self):
        memory = self._memory
        self._memory = type("Kept", (), {"opened": lambda _, name: type("Lane", (), {"forget": lambda *_: None})()})()
        try:
            return super().look()
        finally:
            self._memory = memory


class RemembersTheDeadAfterACrash(Speculation):
    __slots__ = ()

    def forgets(self, delivery):
        return False


class SuppressesForGood(Speculation):
    """A copy that comes while the first one is open is a repetition, and no more."""

    __slots__ = ()

    def take(self, delivery):
        taken = super().take(delivery)
        if taken is Taken.KEPT:
            delivery.copy.case.later.remove(delivery.copy)
            delivery.copy.case = None
            return Taken.REPEATED
        return taken


class KeepsNoLatePart(Speculation):
    """What a join has no use for is done at once."""

    __slots__ = ()

    def superfluous(self, entry, delivery):
        return False


class ForgetsTheRest(Speculation):
    """The living parts of a request with a dead one are done with it."""

    __slots__ = ()

    def look(self):
        changes = super().look()
        if changes is not None:
            for copy in [copy for copy in changes.again if copy.admitted and not copy.open]:
                changes.again.remove(copy)
                self._offsets.done(copy.delivery.offset)
        return changes


class KeepsTheDeadPartsPlace(JoinTable):
    """A request keeps the sequence that it had from its dead part."""

    __slots__ = ("firsts",)

    def reopen(self, entry):
        self.firsts = getattr(self, "firsts", {}) | {entry.request_id: entry.first}
        super().reopen(entry)

    def hear(self, now, delivery, loss=None):
        verdict, entry = super().hear(now, delivery, loss)
        if entry is not None:
            entry.first = min(entry.first, getattr(self, "firsts", {}).get(entry.request_id, entry.first))
        return verdict, entry


class LetsGoWhenAcknowledged(Outbox):
    __slots__ = ()

    def settled(self, work):
        case, work.case = work.case, None
        super().settled(work)
        work.case = case


class SendsWhatIsDead(StageCore):
    """Results of batches that ran while what they rest on died are sent, without their marks."""

    def complete(self, now, batch, results, executed):
        for request in batch.requests:
            if request.dead:
                request.case = None
                request.marks = ()
        super().complete(now, batch, results, executed)


class SaysNothingOfStates(Outbox):
    __slots__ = ()

    def _hop(self, work):
        work.marks = ()
        return super()._hop(work)


class AsksNobody(GateCore):
    """Releases what it holds."""

    def collect(self, now, limit=10_000):
        self._durability = Stateless()
        for share in self._shares.values():
            for release in list(share._queries.values()):
                share.let_go(release)
                self._decided.append(release)
        return super().collect(now, limit)


class KeepsNoOtherReport(GateShare):
    __slots__ = ()

    def parks(self, delivery):
        return False


class StaysDecided(ReleasedMemory):
    __slots__ = ()

    def undecide(self, request_id, sent):
        pass


def speculating(mutation):
    share = type("MutatedShare", (Share,), {"__slots__": (), "speculation_type": mutation})
    gate_share = type("MutatedGateShare", (GateShare,), {"__slots__": (), "speculation_type": mutation})
    return {
        "stage_type": type("MutatedStage", (StageCore,), {"share_type": share}),
        "gate_type": type("MutatedGate", (GateCore,), {"share_type": gate_share}),
    }


def sending(mutation):
    return {"stage_type": type("MutatedStage", (StageCore,), {"outbox_type": mutation})}


MUTATIONS = {
    "dead copies are remembered": speculating(RemembersTheDead),
    "dead copies are remembered after a crash": speculating(RemembersTheDeadAfterACrash),
    "live copies are suppressed for good": speculating(SuppressesForGood),
    "late parts are done": speculating(KeepsNoLatePart),
    "living parts go with the dead one": speculating(ForgetsTheRest),
    "a dead part gives the sequence": {"stage_type": type("S", (StageCore,), {"joins_type": KeepsTheDeadPartsPlace})},
    "offsets are let go when acknowledged": sending(LetsGoWhenAcknowledged),
    "messages say nothing of states": sending(SaysNothingOfStates),
    "dead results are sent": {"stage_type": SendsWhatIsDead},
    "the gate asks nobody": {"gate_type": AsksNobody},
    "the gate keeps no other report": {"gate_type": type("G", (GateCore,), {"share_type": KeepsNoOtherReport})},
    "the gate stays with what is dead": {"gate_type": type("G", (GateCore,), {"released_type": StaysDecided})},
}


def breaks(seed, shape, types):
    try:
        return bool(World(Random(seed), shape, **types).run())
    except (ValueError, AssertionError, KeyError):
        return True


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_what_is_broken_on_purpose_is_seen(mutation, monkeypatch):
    monkeypatch.setattr(joins, "RECENT_LIMIT", 0)
    assert any(breaks(seed, shape, MUTATIONS[mutation]) for seed in range(150) for shape in SHAPES)
