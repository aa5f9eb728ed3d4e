"""What a member does with its reign: how one begins, fails, is overtaken, is given up and ends."""

import asyncio
from types import SimpleNamespace

import pytest

from spillway.agents.run.log_reader import CONTROL, Read
from spillway.agents.run.shard_member import ShardMember
from spillway.checkpoint.promotion import Role
from spillway.lineage.errors import CheckpointError, ModelError
from spillway.lineage.marks import INITIAL, Mark, Version
from spillway.lineage.replication import Contents, InputPlace

PLACE = ("learn", 0)
BASE = Version(1, 3)


class States:
    """In place of the copies: gives a state, or raises, when the test lets it."""

    def __init__(self):
        self.followed = 0
        self.error = None
        self.go = asyncio.Event()
        self.go.set()

    def heard(self, read, *, counts):
        pass

    def durable(self, version):
        pass

    async def take(self, version):
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return Contents(), "machine"

    def follow(self):
        self.followed += 1


class Roles:
    """In place of the table: the role is what the test says."""

    name = "p.learn.0.0"

    def __init__(self):
        self.role = Role.PRIMARY
        self.member = SimpleNamespace(epoch=2)
        self.given_up = []
        self.error = None
        self.back = self.damage = None
        self.core = self
        self.logs = SimpleNamespace(
            newest_durable=lambda _place: INITIAL,
            rollback=lambda _place: self.back,
            caught_up=lambda _place: None,
            damage=lambda _place: self.damage,
        )

    def take(self, read):
        if self.error is not None:
            raise self.error
        return True

    def caught_up(self):
        self.current = True

    def was_away(self):
        self.current = False

    def give_up(self, why):
        self.given_up.append(why)


class Reign:
    """In place of a `Primary`."""

    def __init__(self, epoch):
        self.core = SimpleNamespace(epoch=epoch, contaminated=None)
        self.closed = False
        self.acked = []
        self.woken = 0
        self.covered = {}
        self.feed = SimpleNamespace(stop=lambda: setattr(self.feed, "stopped", True), stopped=False, waiting=77)

    def durability_changed(self):
        return self.covered

    def stored(self, tokens):
        self.acked += tokens
        self.woken += 1

    def close(self):
        self.closed = True


class Input:
    """In place of what is read: what it was told, and when."""

    def __init__(self):
        self.covered, self.completed, self.stopped = [], [], False
        self.durable = self.covered.extend

    async def complete(self, places):
        self.completed.append(places)

    def stop_taking(self):
        self.stopped = True


class Bench:
    def __init__(self):
        self.crashes, self.ended, self.input = [], [], Input()
        self.states, self.roles = States(), Roles()
        self.member = ShardMember(
            PLACE,
            [PLACE],
            crashed=self.crashes.append,
            reign=lambda epoch, _base, _contents, machine: Reign(epoch) if machine else None,
            ended=lambda: self.ended.append(True),
            changed=lambda: None,
        )
        self.member.join(self.roles, self.states, self.input)
        self.member.caught_up(PLACE)
        self.member.caught_up(CONTROL)

    async def begun(self, epoch=2):
        self.member.load(epoch, BASE)
        await self.turn()
        return self.member.primary

    async def turn(self):
        """Run the loop for as long as a load takes."""
        for _ in range(2):
            await asyncio.sleep(0)


@pytest.fixture
def bench():
    return Bench()


async def test_a_base_that_cannot_be_taken_ends_the_member_with_its_error(bench):
    bench.states.error = ModelError("stage 'learn': the model cannot be loaded")
    assert await bench.begun() is None
    (error,) = bench.crashes
    assert isinstance(error, ModelError)
    assert "stage 'learn'" in str(error)


@pytest.mark.parametrize(("role", "epoch"), [(Role.BACKUP, 2), (Role.PRIMARY, 4)])
async def test_who_was_overtaken_while_it_loaded_begins_no_reign(bench, role, epoch):
    bench.states.go.clear()
    assert await bench.begun() is None
    bench.roles.role, bench.roles.member.epoch = role, epoch
    bench.states.go.set()
    await bench.turn()
    assert (bench.member.primary, bench.crashes) == (None, [])


async def test_who_stands_down_while_it_loads_loads_no_more_and_follows(bench):
    bench.states.go.clear()
    await bench.begun()
    bench.member.stand_down()
    bench.states.go.set()
    await bench.turn()
    assert (bench.member.primary, bench.states.followed, bench.crashes) == (None, 1, [])


async def test_a_reign_ends_once_and_the_log_is_followed_again(bench):
    reign = await bench.begun()
    bench.member.stand_down()
    bench.member.stand_down()
    assert (reign.closed, len(bench.ended), bench.states.followed) == (True, 1, 1)


async def test_acknowledgements_of_an_older_reign_are_nobodys_business(bench):
    older = await bench.begun()
    bench.member.stand_down()
    newer = await bench.begun()
    mine, other = SimpleNamespace(reign=newer), SimpleNamespace(reign=older)
    bench.member.stored([other, mine])
    assert (newer.acked, older.acked) == ([mine], [])


async def test_a_new_reign_goes_on_where_an_older_ones_messages_have_left_room(bench):
    older = await bench.begun()
    bench.member.stand_down()
    newer = await bench.begun()
    bench.member.stored([SimpleNamespace(reign=older)])
    assert (newer.acked, newer.woken) == ([], 1)


async def test_who_stops_takes_nothing_more_of_what_it_has_read(bench):
    reign = await bench.begun()
    bench.member.stop_taking()
    assert (bench.input.stopped, reign.feed.stopped) == (True, True)


@pytest.mark.parametrize(
    ("mark", "back", "words"),
    [
        (Mark("up", 0, Version(1, 7)), None, "depends on up/0 e1.v7, which is dead"),
        (None, Version(1, 2), "its versions after e1.v2 are dead"),
    ],
)
async def test_a_reign_that_rests_on_something_dead_is_given_up_once(bench, mark, back, words):
    reign = await bench.begun()
    reign.core.contaminated, bench.roles.back = mark, back
    bench.member.records([])
    bench.member.records([])
    (why,) = bench.roles.given_up
    assert words in why


async def test_a_reign_begins_when_what_its_base_remembers_was_read(bench):
    assert await bench.begun() is not None
    assert bench.input.completed == [()]


async def test_what_a_durable_version_covers_is_told_to_the_input(bench):
    reign = await bench.begun()
    reign.covered = {0: InputPlace(0, 9)}
    bench.member.records([])
    assert bench.input.covered == [InputPlace(0, 9)]


async def test_a_log_that_contradicts_itself_ends_the_member_and_is_named(bench):
    bench.roles.error = CheckpointError("two claimants in one epoch")
    record = Read(PLACE, "manifest/1/1", None, 17, "p.learn.versions")
    bench.member.records([record])
    bench.member.records([record])
    (error,) = bench.crashes
    assert str(error) == "the record in p.learn.versions[0] at offset 17: two claimants in one epoch"


async def test_the_input_is_told_what_waits_for_a_reign_while_there_is_one(bench):
    told = [bench.input.fed()]
    await bench.begun()
    told.append(bench.input.fed())
    bench.member.stand_down()
    assert [*told, bench.input.fed()] == [0, 77, 0]
