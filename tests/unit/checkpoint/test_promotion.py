"""The way from a claim to the primary's role, and the ways off it (rule 3)."""

from itertools import combinations

from spillway.checkpoint.claims import Claim, Claims
from spillway.checkpoint.logs import Logs
from spillway.checkpoint.promotion import TABLE, Append, Event, Load, Member, Role, StandDown
from spillway.checkpoint.version_log import Base, Fence, Manifest
from spillway.checkpoint.versions import INITIAL, Mark, Version

A = ("a", 0)


def claim(epoch, claimant, place=A):
    return Claim(*place, epoch, claimant)


class Shard:
    """The two logs of a shard, and members that read them."""

    def __init__(self, *names):
        self.control, self.versions = [], []
        self.members = {}
        for name in names:
            claims, logs = Claims(), Logs([A, ("up", 0)])
            for place in (A, ("up", 0)):
                logs.caught_up(place)
            self.members[name] = [Member(A, name, claims, logs), claims, logs, 0, 0]

    def __getitem__(self, name):
        return self.members[name][0]

    def logs(self, name):
        return self.members[name][2]

    def append(self, action):
        (self.control if isinstance(action.record, Claim) else self.versions).append(action.record)

    def read_control(self, name):
        row = self.members[name]
        new, row[3] = self.control[row[3] :], len(self.control)
        return [a for one in new if (a := row[0].heard_claim(one, won=row[1].take(one)))]

    def read_versions(self, name):
        row = self.members[name]
        new, row[4] = self.versions[row[4] :], len(self.versions)
        return [a for one in new if (a := row[0].heard(one, counts=row[2].take(A, one)))]

    def promote(self, name):
        self.append(self[name].wanted())
        (fence,) = self.read_control(name)
        self.append(fence)
        (base,) = self.read_versions(name)
        self.append(base)
        (load,) = self.read_versions(name)
        return load

    def complete(self, name, n, *requires):
        member = self[name]
        links = self.logs(name).log(A).history.links
        self.versions.append(Manifest(Version(member.epoch, n), links, requires, name))


def test_the_loser_of_a_claim_stays_a_backup():
    shard = Shard("x", "y")
    shard.append(shard["x"].wanted())
    shard.append(shard["y"].wanted())
    assert shard.read_control("x") == [Append(Fence(1, "x"))]
    assert shard.read_control("y") == [StandDown(1)]
    assert shard["y"].role is Role.BACKUP
    assert shard["y"].wanted() == Append(claim(2, "y"))


def test_a_primary_that_reads_a_newer_fence_stands_down():
    shard = Shard("x", "y")
    shard.promote("x")
    shard.read_control("y")
    shard.read_versions("y")
    shard.promote("y")
    assert shard.read_versions("x") == [StandDown(1)]
    assert shard["x"].role is Role.BACKUP


def test_the_base_takes_in_what_came_before_the_own_fence_and_nothing_after():
    """Between deciding and reading the own fence the old primary goes on writing; what is before the fence counts."""
    shard = Shard("x", "y")
    shard.promote("x")
    shard.read_control("y")
    shard.complete("x", 1)
    shard.read_versions("y")
    shard.append(shard["y"].wanted())
    (fence,) = shard.read_control("y")
    shard.complete("x", 2)
    shard.append(fence)
    shard.complete("x", 3)
    (base,) = shard.read_versions("y")
    assert base.record.version == Version(1, 2)
    shard.append(base)
    assert shard.read_versions("y") == [Load(2, Version(1, 2))]


def test_the_base_may_be_a_version_that_is_not_durable_yet_and_is_none_that_is_dead():
    shard = Shard("x", "y")
    shard.promote("x")
    shard.complete("x", 1, Mark("up", 0, Version(1, 1)))
    shard.read_versions("y")
    shard.read_control("y")
    up = shard.logs("y")
    up.take(("up", 0), Fence(1, "u"))
    up.take(("up", 0), Base(1, "u", INITIAL, ((1, INITIAL),)))
    assert up.candidate(A) == Version(1, 1)
    up.take(("up", 0), Fence(2, "u"))
    up.take(("up", 0), Base(2, "u", INITIAL, ((2, INITIAL),)))
    shard.append(shard["y"].wanted())
    shard.append(shard.read_control("y")[0])
    assert shard.read_versions("y")[0].record.version == INITIAL


def test_a_primary_may_begin_a_new_reign_to_go_back():
    """Rule 14, where the backup is gone too."""
    shard = Shard("x")
    shard.promote("x")
    shard.complete("x", 1)
    shard.read_versions("x")
    assert shard.promote("x") == Load(2, Version(1, 1))


def test_what_is_read_of_an_earlier_attempt_changes_nothing():
    shard = Shard("x", "y")
    shard.append(shard["x"].wanted())
    (late,) = shard.read_control("x")  # the fence of epoch 1
    shard.read_control("y")
    shard.promote("y")
    shard.read_versions("x")
    assert shard["x"].role is Role.BACKUP
    shard.read_control("x")
    shard.append(shard["x"].wanted())
    assert shard["x"].epoch == 3
    shard.append(late)
    assert shard.read_versions("x") == []
    assert shard.read_control("x") == [Append(Fence(3, "x"))]


def test_others_claims_bases_and_manifests_change_nothing():
    shard = Shard("x", "y")
    shard.promote("x")
    shard.append(shard["y"].wanted())
    assert shard.read_control("x") == []
    shard.complete("x", 1)
    shard.versions.append(Fence(1, "z"))
    assert shard.read_versions("x") == []
    assert shard["x"].heard_claim(claim(1, "x", ("a", 1)), won=False) is None
    assert shard["x"].role is Role.PRIMARY


STEPS = ("want", "send", "read_control", "send", "read_versions", "send", "read_versions")


def interleaved(order):
    """Two members take the same steps, in this order of who is next; then both read to the end. Gives the loads."""
    shard = Shard("x", "y")
    outbox = {"x": [], "y": []}
    steps = {"x": iter(STEPS), "y": iter(STEPS)}
    loads = []

    def do(name, step):
        if step == "want":
            actions = [*shard.read_control(name), *shard.read_versions(name), shard[name].wanted()]
        elif step == "send":
            if outbox[name]:
                shard.append(outbox[name].pop(0))
            actions = []
        else:
            actions = getattr(shard, step)(name)
        outbox[name] += [action for action in actions if isinstance(action, Append)]
        loads.extend((action.epoch, name) for action in actions if isinstance(action, Load))

    for name in order:
        do(name, next(steps[name]))
    for name in "xy":
        do(name, "read_versions")
    return loads, [name for name in "xy" if shard[name].role is Role.PRIMARY]


def test_in_whatever_order_two_claimants_step_one_epoch_has_one_primary():
    """All 3,432 orders in which two members can take the steps of a promotion."""
    most = 0
    for places in combinations(range(2 * len(STEPS)), len(STEPS)):
        loads, primaries = interleaved(["x" if i in places else "y" for i in range(2 * len(STEPS))])
        assert len({epoch for epoch, _ in loads}) == len(loads)
        assert len(primaries) <= 1
        assert not primaries or max(loads)[1] == primaries[0]
        most = max(most, len(loads))
    assert most == 2  # one after the other


def test_the_table_names_every_way_out_of_a_role():
    """Everything that is not in the table changes nothing; this is the list of what is not."""
    silent = {(role, event) for role in Role for event in Event} - TABLE.keys()
    backup = {(Role.BACKUP, event) for event in Event if event is not Event.WANTED}
    primary = {(Role.PRIMARY, event) for event in Event if event not in (Event.WANTED, Event.OVERTAKEN)}
    under_way = {(role, Event.WANTED) for role in (Role.CLAIMING, Role.FENCING, Role.BASING)}
    foreign = {
        *((Role.CLAIMING, event) for event in (Event.FENCED, Event.BASED, Event.VOID)),
        *((Role.FENCING, event) for event in (Event.WON, Event.LOST, Event.BASED)),
        *((Role.BASING, event) for event in (Event.WON, Event.LOST, Event.FENCED)),
    }
    assert silent == backup | primary | under_way | foreign
