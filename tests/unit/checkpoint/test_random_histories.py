"""What holds along random histories of failovers, zombies and compaction; and that the properties see guards broken.

A mutation is a subclass of the guard, or another table; production code has no switch to turn one off.
"""

from collections import deque
from functools import cache
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.checkpoint.claims import Claims
from spillway.checkpoint.logs import Backlog, Fate, Logs, _Shard
from spillway.checkpoint.promotion import Event, Member, Role
from spillway.checkpoint.version_log import Base, Fence, Manifest, VersionLog
from spillway.checkpoint.versions import INITIAL, History
from spillway.lineage.errors import CheckpointError
from tests.unit.checkpoint import members
from tests.unit.checkpoint.members import Log, Reader
from tests.unit.checkpoint.reckoning import fates, valid
from tests.unit.checkpoint.worlds import ALONE, CHAIN, DIAMOND, World, problems

SHAPES = {"alone": ALONE, "chain": CHAIN, "diamond": DIAMOND}


def logs_with(**parts):
    """Logs whose version logs have parts replaced."""
    log_type = type("MutatedLog", (VersionLog,), {"__slots__": (), **parts})
    return type("MutatedLogs", (Logs,), {"log_type": log_type})


@cache
def ran(seed, shape):
    """A history as it is, which several tests read."""
    return World(seed, SHAPES[shape]).run()


def full(world, records_of):
    """The fates for somebody who has read these whole logs."""
    logs = Logs(world.shape)
    for place, log in world.logs.items():
        for record in records_of(log):
            logs.take(place, record)
        logs.caught_up(place)
    return {mark: logs.fate(mark) for mark in world.marks()}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 6))])
def test_along_random_histories(shape, seed):
    """No reader contradicts itself or another one, whatever each has read; no epoch has two primaries (rules 1-4, 7).

    At the end: compaction has changed no answer; nor has any void record, a zombie's or a loser's; and all answers are
    those of the definition.
    """
    world = ran(seed, shape)
    assert not world.problems
    expected = fates({place: log.whole() for place, log in world.logs.items()}, world.marks())
    assert full(world, Log.whole) == expected
    assert full(world, Log.left) == expected
    assert full(world, lambda log: valid(log.whole())) == expected


def test_the_histories_are_worth_the_name():
    """They have versions of each fate, void records and compacted logs."""
    runs = [ran(seed, "chain") for seed in range(8)]
    seen = [fate for world in runs for fate in world.final.values()]
    assert min(seen.count(Fate.DURABLE), seen.count(Fate.DEAD)) > 15
    logs = [log for world in runs for log in world.logs.values()]
    assert sum(len(log.gone) for log in logs) > 15
    assert sum(len(log.whole()) - len(valid(log.whole())) for log in logs) > 15


def test_a_member_that_has_read_nothing_yet_judges_as_one_that_was_there():
    world = ran(3, "diamond")
    late, early = Reader(world).read_all(), world.gates[0].read_all()
    assert [late.logs.fate(mark) for mark in world.marks()] == [early.logs.fate(mark) for mark in world.marks()]


@given(st.integers(0, 4), st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), max_size=12))
def test_a_reader_of_any_prefixes_says_nothing_that_the_whole_logs_do_not(seed, reads):
    """So no two readers disagree, and what is durable, or dead, remains so (rules 2, 6 and 7)."""
    world, final = played(seed)
    logs, rest = Logs(world.shape), {place: deque(log.whole()) for place, log in world.logs.items()}
    places = list(world.shape)
    for place in places:
        logs.caught_up(place)  # of a log that was not compacted every prefix was once the whole
    for which, records in reads:
        for _ in range(min(records, len(rest[places[which]]))):
            logs.take(places[which], rest[places[which]].popleft())
        for mark, fate in final.items():
            known = logs.fate(mark)
            assert known in (fate, Fate.OPEN, Fate.UNREAD)


@cache
def played(seed):
    world = ran(seed, "diamond")
    return world, full(world, Log.whole)


# Mutations ----------------------------------------------------------------------------------------------------------

SEEDS = range(12)
CONTRADICTION = "a version is durable and dead"
BROKEN = "the base is older than a durable version"


class OldEpochIsDead(History):
    __slots__ = ()

    def alive(self, version):
        return version == INITIAL or (version.epoch == self.epoch and super().alive(version))


class OldEpochIsDeadToReaders(Logs):
    """The chain itself is kept right, so that claimants still find their bases."""

    def fate(self, mark):
        old = mark.version.epoch < self.log(mark.place).history.epoch and mark.version != INITIAL
        return Fate.DEAD if old else super().fate(mark)


def test_dead_is_not_old_epoch():
    assert CONTRADICTION in problems(SEEDS, logs_type=OldEpochIsDeadToReaders, until=CONTRADICTION)
    assert problems(SEEDS, logs_type=logs_with(history_type=OldEpochIsDead), until="")


class UnreadIsDead(Logs):
    def fate(self, mark):
        fate = super().fate(mark)
        return Fate.DEAD if fate is Fate.UNREAD else fate


def test_an_epoch_that_was_not_read_is_not_dead():
    assert problems(SEEDS, logs_type=UnreadIsDead, until="")


class CompleteIsDurable(Logs):
    """What is written counts, whatever it rests on."""

    def fate(self, mark):
        fate = super().fate(mark)
        complete = fate is Fate.OPEN and mark.version.n <= self.log(mark.place).newest.n
        return Fate.DURABLE if complete else fate


def test_complete_is_not_durable():
    """The strawman of Fig. 6: the state of b is delivered, that of a is lost."""
    assert CONTRADICTION in problems(range(2, 40), logs_type=CompleteIsDurable, until=CONTRADICTION)


def without_epoch(record):
    """Keys as one might think of first."""
    return f"manifest/{record.version.n}" if isinstance(record, Manifest) else type(record).__name__


def test_keys_carry_the_epoch():
    assert ends_otherwise(SEEDS, key=without_epoch)


def ends_otherwise(seeds, **changes):
    """Whether some run's compacted log tells another story than its whole log, or a contradiction was seen."""
    for seed in seeds:
        world = World(seed, CHAIN, **changes).run()
        try:
            if world.problems or full(world, Log.left) != full(world, Log.whole):
                return True
        except CheckpointError:
            return True
    return False


class NoFence(VersionLog):
    """A base begins its reign by itself."""

    __slots__ = ()

    def take(self, record):
        if isinstance(record, Base):
            super().take(Fence(record.epoch, record.claimant))
        return super().take(record)


class SkipsTheFence(Member):
    table: ClassVar = {**Member.table, (Role.CLAIMING, Event.WON): (Role.BASING, "base")}


def test_the_fence_is_needed():
    logs_type = type("MutatedLogs", (Logs,), {"log_type": NoFence})
    seeds = range(4, 16)  # the first shows it
    assert not problems(seeds[:3], logs_type=logs_type), "it is the member's mutation that breaks it"
    assert problems(seeds, logs_type=logs_type, member_type=SkipsTheFence, until="") & {CONTRADICTION, BROKEN}


class TakesWhatItApplied(Member):
    def choose(self):
        return self.logs.newest_durable(self.place)


class AppliedSomeTimeAgo(Member):
    """The base is the last version that the backup had applied when it began to claim."""

    def wanted(self):
        self.applied = self.logs.newest_durable(self.place)
        return super().wanted()

    def choose(self):
        return self.applied


@pytest.mark.parametrize("member_type", [TakesWhatItApplied, AppliedSomeTimeAgo])
def test_the_base_is_not_the_last_version_that_was_applied(member_type):
    assert problems(range(40), member_type=member_type, until="") & {CONTRADICTION, BROKEN}


class EverybodyWins(Claims):
    __slots__ = ()

    def take(self, claim):
        super().take(claim)
        return True


class TakesAsDoneWhatItSent(Member):
    """What it appends counts, whatever stands in the log before it."""

    def heard(self, record, *, counts):
        if record.claimant == self.name:
            return super().heard(record, counts=True)
        newer = isinstance(record, Fence) and record.epoch > self.epoch
        return super().heard(record, counts=counts) if newer else None


def test_the_claim_and_the_first_fence_each_keep_two_primaries_apart(monkeypatch):
    seeds = range(11, 80)  # the first shows it
    assert "two primaries of one epoch" not in problems(seeds[:3], member_type=TakesAsDoneWhatItSent)
    monkeypatch.setattr(members, "Claims", EverybodyWins)
    assert not problems(seeds[:3])
    both = problems(seeds, member_type=TakesAsDoneWhatItSent, until="two primaries")
    assert "two primaries of one epoch" in both


def test_no_key_is_appended_twice():
    assert ends_otherwise(range(40), retries=0.3)


class OnlyItsOwn(Backlog):
    """A manifest rests on what it requires itself, whatever those before it do."""

    __slots__ = ()

    def append(self, version, requires):
        while self:
            self.pop()
        super().append(version, requires)


def test_a_version_rests_on_what_the_versions_before_it_rest_on():
    class Shard(_Shard):
        __slots__ = ()

        def __init__(self, log):
            super().__init__(log)
            self.backlog = OnlyItsOwn()

    class Mutated(Logs):
        def __init__(self, places):
            super().__init__(places)
            self._shards = {place: Shard(VersionLog()) for place in self._shards}

    assert CONTRADICTION in problems(range(6, 40), logs_type=Mutated, until=CONTRADICTION)
