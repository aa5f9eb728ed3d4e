"""The chain does not grow for ever, and no mark that somebody can still meet is judged otherwise without the rest."""

import random

import pytest

from spillway.checkpoint.logs import Fate, Logs
from spillway.checkpoint.promotion import Append, Load, Member
from spillway.checkpoint.versions import INITIAL, LINK_SECONDS, MOST_LINKS, History, Version
from spillway.lineage import reasons
from spillway.lineage.errors import CheckpointError, WireError
from spillway.lineage.marks import Mark
from spillway.lineage.replication import Base, Fence, Manifest
from spillway.lineage.values.replication import ReplicationDecoder, encode

A, B = ("a", 0), ("b", 0)
DAY_US = 86_400_000_000
BEGUN_US = 1_700_000_000_000_000


class Claims:
    """In place of the control log: every claim wins."""

    def __init__(self):
        self.newest = 0

    def epoch(self, _place):
        return self.newest

    def take(self, claim):
        self.newest = claim.epoch


class Shards:
    """Two shards whose reigns are begun as members begin them; all that was appended can be read again."""

    def __init__(self):
        self.logs = Logs([A, B])
        self.appended = []
        self.claims = {A: Claims(), B: Claims()}
        for place in (A, B):
            self.logs.caught_up(place)

    def append(self, place, record):
        self.appended.append((place, record))
        return self.logs.take(place, record)

    def reign(self, place, at_us):
        member = Member(place, f"m{at_us}", self.claims[place], self.logs)
        action = member.wanted()
        while not isinstance(action, Load):
            assert isinstance(action, Append)
            record = action.record
            if isinstance(record, Fence):
                record = Fence(record.epoch, record.claimant, at_us)
            elif not isinstance(record, Base):
                self.claims[place].take(record)
                action = member.heard_claim(record, won=True)
                continue
            action = member.heard(record, counts=self.append(place, record))
        return action

    def complete(self, place, *requires, skip=1):
        log = self.logs.log(place)
        version = Version(log.epoch, log.newest.n + skip)
        assert self.append(place, Manifest(version, log.history.links, requires, log.claimant))
        return version

    def newcomer(self):
        """Who reads what compaction has left: of the manifests, those of the newest reign of each shard alone."""
        logs = Logs([A, B])
        for place, record in self.appended:
            old = isinstance(record, Manifest) and record.version.epoch < self.logs.newest_durable(place).epoch
            if not old:
                logs.take(place, record)
        for place in (A, B):
            logs.caught_up(place)
        return logs


def test_the_chain_is_cut_where_no_message_can_bear_its_marks_any_more():
    shards = Shards()
    for day in range(400):
        shards.reign(A, BEGUN_US + day * DAY_US)
        shards.complete(A)
    links = shards.logs.log(A).history.links
    assert len(links) == LINK_SECONDS / 86_400 + 2
    assert shards.newcomer().log(A).history == shards.logs.log(A).history
    assert shards.newcomer().candidate(A) == Version(400, 400)


def test_what_is_younger_is_judged_as_ever_and_what_is_older_waits():
    shards = Shards()
    alive, dead = {}, {}
    for day in range(40):
        epoch = shards.reign(A, BEGUN_US + day * DAY_US).epoch
        alive[epoch] = shards.complete(A)
        dead[epoch] = Version(epoch, alive[epoch].n + 5)
    for logs in (shards.logs, shards.newcomer()):
        for epoch in range(33, 40):
            assert logs.durable(Mark(*A, alive[epoch]))
            assert logs.dead(Mark(*A, dead[epoch]))
        for epoch in range(1, 31):
            assert logs.fate(Mark(*A, alive[epoch])) is Fate.UNREAD
            assert logs.fate(Mark(*A, dead[epoch])) is Fate.UNREAD
        assert logs.dead(Mark(*A, Version(39, 1_000)))


def test_what_a_manifest_requires_that_still_stands_is_kept_however_old():
    """An idle stage's newest version stays in the log for ever, and a newcomer has to find it durable."""
    shards = Shards()
    shards.reign(B, BEGUN_US)
    for day in range(60):
        shards.reign(A, BEGUN_US + day * DAY_US)
        version = shards.complete(A)
        if day == 3:
            needed = shards.complete(B, Mark(*A, version))
    assert len(shards.logs.log(A).history.links) < 16
    for logs in (shards.logs, shards.newcomer()):
        assert logs.newest_durable(B) == needed
        assert logs.dead(Mark(*A, Version(4, 1_000)))
    shards.logs.tombstoned(B, b"manifest/1/1")
    shards.reign(A, BEGUN_US + 61 * DAY_US)
    assert 4 not in [epoch for epoch, _ in shards.logs.log(A).history.links]


def test_nothing_is_cut_that_is_not_durable():
    shards = Shards()
    shards.reign(B, BEGUN_US)
    waits = Mark(*B, Version(1, 7))
    for day in range(60):
        shards.reign(A, BEGUN_US + day * DAY_US)
        shards.complete(A, waits)
    assert len(shards.logs.log(A).history.links) == 60


def test_nothing_is_cut_by_who_has_not_read_what_others_require():
    shards = Shards()
    for day in range(20):
        shards.logs.fell_behind(B)
        shards.reign(A, BEGUN_US + day * DAY_US)
        shards.complete(A)
    assert len(shards.logs.log(A).history.links) == 20


@pytest.mark.parametrize("at_us", [0, BEGUN_US], ids=["no times", "one moment"])
def test_many_reigns_within_a_short_time_are_bounded_too(at_us, monkeypatch):
    monkeypatch.setattr("spillway.checkpoint.versions.MOST_LINKS", 50)
    shards = Shards()
    for _ in range(300):
        shards.reign(A, at_us)
        shards.complete(A)
    assert len(shards.logs.log(A).history.links) == 50
    assert shards.newcomer().candidate(A) == Version(300, 300)


def test_a_shortened_history_says_of_no_version_the_contrary():
    dice = random.Random(5)
    for _ in range(300):
        history = History()
        for epoch in range(1, 15):
            if dice.random() < 0.2:
                continue  # a reign that came to nothing
            base = dice.choice(history.links)[1] if history.links and dice.random() < 0.2 else None
            newest = Version(history.epoch, history.base.n + dice.randrange(1, 4)) if history.epoch else INITIAL
            history = history.begun(epoch, base if base is not None and history.alive(base) else newest)
        if not history.links:
            continue
        shorter = history.shortened({dice.randrange(15) for _ in range(2)}, dice.randrange(1, history.epoch + 1))
        assert shorter.shortens(history)
        for epoch in range(1, 17):
            for n in range(1, 40):
                version = Version(epoch, n)
                assert shorter.forgotten(version) or shorter.alive(version) == history.alive(version)
                assert shorter.forgotten(version) or shorter.cut(version) == history.cut(version)
                assert not (shorter.forgotten(version) and (shorter.alive(version) or shorter.cut(version)))


def test_a_chain_with_other_links_is_refused():
    shards = Shards()
    for day in range(3):
        shards.reign(A, BEGUN_US + day * DAY_US)
        shards.complete(A, skip=3)
    shards.append(A, Fence(4, "m"))
    with pytest.raises(CheckpointError, match="another chain"):
        shards.append(A, Base(4, "m", Version(3, 9), ((2, Version(1, 2)), (3, Version(2, 6)), (4, Version(3, 9)))))


def test_no_chain_is_encoded_that_nobody_can_decode():
    """100,000 links could be written, and ended every reader."""
    links = tuple((epoch, Version(epoch - 1, epoch - 1)) for epoch in range(1, 100_001))
    for record in (Manifest(Version(100_000, 100_000), links), Base(100_000, "m", Version(99_999, 99_999), links)):
        with pytest.raises(WireError) as error:
            encode(record)
        assert error.value.reason == reasons.TOO_LARGE
    most = Manifest(Version(1 << 40, 1 << 40), links[: (1 << 16) - 1], (Mark("a", 0, Version(1, 1)),))
    assert ReplicationDecoder().record(encode(most)) == most
    assert MOST_LINKS < 1 << 15
