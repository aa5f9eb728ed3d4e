"""Who may run which processes: one owner of each at any time, who is there is not displaced, who is not is."""

import random

import pytest

from spillway.checkpoint import owners
from spillway.checkpoint.owners import (
    LEASE_ASKS,
    TAKE_OVER_SECONDS,
    Answer,
    Ask,
    Candidate,
    Claim,
    Leave,
    Owner,
    Owners,
    Tenure,
)
from spillway.lineage.errors import CheckpointError

FIRST, SECOND, THIRD = (Owner("here", pid, 1_000.0 + pid, "m") for pid in (1, 2, 3))
ALL = ("gate.0", "a.0", "a.1")


class World:
    def __init__(self):
        self.log, self.now, self.gone = [], 0.0, set()
        self.tenures, self.read = {}, {}  # by owner; one that is not here does not read
        self.candidates, self.sent = {}, {}

    def candidate(self, owner, names=ALL, *, take_over=False):
        made = self.candidates[owner] = Candidate(owner, names, self.gone.__contains__, take_over=take_over)
        self.read[owner] = 0
        return made

    def land(self, owner):
        """What a candidate has sent is appended."""
        word = self.sent.pop(owner, None)
        if word is not None:
            self.log.append(word)

    def turn(self, owner, *, late=False):
        """A candidate reads to the end, and sends what it wants to; `late`: it is appended later."""
        candidate = self.candidates[owner]
        self._feed(owner, candidate.take)
        word = candidate.next(self.now, self.now)
        if word is not None:
            self.sent[owner] = word
        if not late:
            self.land(owner)
        if candidate.won is not None:
            del self.candidates[owner]
            at = self.log.index(candidate.won) + 1
            known = Owners()
            for past in self.log[:at]:
                known.take(past)
            self.tenures[owner], self.read[owner] = Tenure(candidate.won, known), at
        return word

    def answers(self, owner):
        def take(word):
            answer = self.tenures[owner].take(word)
            if answer is not None:
                self.log.append(answer)

        self._feed(owner, take)

    def _feed(self, owner, take):
        while self.read[owner] < len(self.log):
            self.read[owner] += 1
            take(self.log[self.read[owner] - 1])

    def win(self, owner, names=ALL, **how):
        candidate = self.candidate(owner, names, **how)
        while candidate.won is None:
            assert candidate.refused is None
            self.turn(owner)
            self.now += 0.1
        return candidate.won

    def seconds(self, owner, count, others=()):
        """The candidate looks every tenth of a second, and so do these owners."""
        for _ in range(int(count * 10)):
            for other in others:
                self.answers(other)
            if owner in self.candidates:
                self.turn(owner)
            self.now += 0.1


@pytest.fixture
def world():
    return World()


def test_who_comes_first_owns_and_a_second_one_is_refused_with_its_name(world):
    claim = world.win(FIRST)
    second = world.candidate(SECOND)
    world.seconds(SECOND, 1, [FIRST])
    assert second.refused == claim
    assert second.won is None
    assert world.tenures[FIRST].lost_to is None
    assert world.tenures[FIRST].asked_by is None
    assert claim.owner.name == "here:1@1970-01-01T00:16:41.000000Z"


def test_processes_that_share_no_name_are_owned_apart(world):
    world.win(FIRST, ["a.0"])
    world.win(SECOND, ["a.1"])
    third = world.candidate(THIRD)
    world.seconds(THIRD, 1, [FIRST, SECOND])
    assert third.refused.owner in (FIRST, SECOND)
    assert {claim.owner for claim in third.owners.of(ALL)} == {FIRST, SECOND}


def test_who_has_left_is_followed_at_once(world):
    claim = world.win(FIRST)
    world.log.append(Leave(claim.epoch))
    assert world.win(SECOND).epoch == claim.epoch + 1
    assert not [word for word in world.log if isinstance(word, Ask)]


def test_what_is_served_is_what_is_claimed_by_whoever_has_neither_left_nor_gone():
    log = Owners()
    for epoch, (owner, name) in enumerate([(FIRST, "a.0"), (SECOND, "b.0"), (THIRD, "gate.0")], 1):
        log.take(Claim(epoch, owner, (name,)))
    log.take(Leave(2))
    assert log.names(lambda _owner: False) == {"a.0", "gate.0"}
    assert log.names(lambda owner: owner == THIRD) == {"a.0"}
    assert Owners().names(bool) == set()


def test_who_is_known_to_be_gone_is_followed_at_once(world):
    world.win(FIRST)
    world.gone.add(FIRST)
    world.win(SECOND)
    assert not [word for word in world.log if isinstance(word, Ask)]


def test_who_does_not_answer_is_followed_after_its_lease(world):
    world.win(FIRST)
    second = world.candidate(SECOND)
    world.seconds(SECOND, LEASE_ASKS - 1)
    assert second.won is None
    world.seconds(SECOND, 2)
    assert second.won is not None
    world.answers(FIRST)
    assert world.tenures[FIRST].lost_to == SECOND


def test_one_answer_in_a_lease_is_enough(world):
    world.win(FIRST)
    second = world.candidate(SECOND)
    world.seconds(SECOND, LEASE_ASKS - 1)
    world.seconds(SECOND, 2, [FIRST])
    assert second.won is None
    assert second.refused.owner == FIRST


def test_no_lease_runs_out_while_the_log_cannot_be_written(world):
    world.win(FIRST)
    second = world.candidate(SECOND)
    world.seconds(SECOND, 2)
    asked = [n for n, word in enumerate(world.log) if isinstance(word, Ask)]
    world.read[SECOND] = asked[-1]
    second._asked = True  # its next question is on the way
    for _ in range(10_000):
        assert second.next(world.now, 0.0) is None
        world.now += 1.0
    assert second.won is None


def test_who_is_asked_to_leave_is_waited_for_and_then_followed(world):
    claim = world.win(FIRST)
    second = world.candidate(SECOND, take_over=True)
    world.seconds(SECOND, 30, [FIRST])
    assert world.tenures[FIRST].asked_by == SECOND
    assert (second.won, second.refused) == (None, None)
    world.log.append(Leave(claim.epoch))
    world.seconds(SECOND, 0.3)
    assert second.won.epoch == claim.epoch + 1


def test_who_does_not_leave_when_asked_to_is_followed_all_the_same(world):
    world.win(FIRST)
    second = world.candidate(SECOND, take_over=True)
    world.seconds(SECOND, TAKE_OVER_SECONDS - 1, [FIRST])
    assert second.won is None
    world.seconds(SECOND, 2, [FIRST])
    assert second.won is not None
    assert world.tenures[FIRST].lost_to == SECOND


def test_who_is_about_to_leave_is_waited_for_without_being_asked_to(world):
    claim = world.win(FIRST)
    world.tenures[FIRST].leaving = True
    second = world.candidate(SECOND)
    world.seconds(SECOND, 50, [FIRST])
    assert (second.won, second.refused) == (None, None)
    world.log.append(Leave(claim.epoch))
    world.seconds(SECOND, 0.3)
    assert second.won is not None


def test_who_was_displaced_answers_nobody(world):
    world.win(FIRST)
    world.win(SECOND)
    world.log.append(Ask(THIRD, ALL))
    world.answers(FIRST)
    assert world.tenures[FIRST].lost_to == SECOND
    assert not [word for word in world.log if isinstance(word, Answer) and word.asker == THIRD.name]


@pytest.mark.parametrize("seed", [*range(50), *(pytest.param(n, marks=pytest.mark.nightly) for n in range(50, 200))])
def test_no_process_ever_has_two_owners_that_both_know_no_better(seed, world):
    """Candidates come and read as late as they like, owners fall silent, leave, are told to: claims are one order."""
    rng = random.Random(seed)
    people = [Owner("h", pid, float(pid), "m") for pid in range(12)]
    for _ in range(600):
        world.now += rng.random()
        person = rng.choice(people)
        if person in world.sent:
            world.land(person)
        elif person in world.candidates:
            world.turn(person, late=rng.random() < 0.5)
        elif person in world.tenures:
            if rng.random() < 0.05:
                world.log.append(Leave(world.tenures.pop(person).claim.epoch))
            else:
                world.answers(person)
        elif rng.random() < 0.1 and person not in world.read:
            world.candidate(person, rng.sample(ALL, rng.randint(1, 3)), take_over=rng.random() < 0.2)
    for person in people:
        world.land(person)
    for person, candidate in list(world.candidates.items()):  # whose claim may stand without its knowing
        world._feed(person, candidate.take)
        if candidate.won is not None:
            world.turn(person)
    for person in list(world.tenures):
        world.answers(person)
    standing = [tenure.claim for tenure in world.tenures.values() if tenure.lost_to is None]
    names = [name for claim in standing for name in claim.names]
    assert len(names) == len(set(names)), standing
    known = Owners()
    for word in world.log:
        known.take(word)
    assert {claim.epoch for claim in known.of(ALL)} == {claim.epoch for claim in standing}


def test_what_compaction_leaves_says_the_same(world):
    """The newest record under each key, in the log's order."""
    world.win(FIRST, ["a.0"])
    world.win(SECOND)
    world.answers(FIRST)
    world.win(THIRD, ["a.1"])
    newest = {word.key: n for n, word in enumerate(world.log)}
    whole, compacted = Owners(), Owners()
    for n, word in enumerate(world.log):
        whole.take(word)
        if newest[word.key] == n:
            compacted.take(word)
    assert compacted.of(ALL) == whole.of(ALL) != []


@pytest.mark.parametrize(
    "word",
    [Claim(3, FIRST, ALL, 5.5), Ask(SECOND, ALL, take_over=True), Answer(3, SECOND.name, leaving=True), Leave(3)],
)
def test_words_come_back_from_the_log_as_they_were(word):
    assert owners.decode(word.key.encode(), owners.encode(word)) == word


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"{}"),
        (b"claim/1/x", b"{}"),
        (b"\xff", b"{}"),
        (b"leave/3", b'{"epoch": 4}'),
        (b"leave/3", b"[3]"),
        (b"leave/3", b"\xff"),
        (b"claim/3/x", b'{"epoch": 3, "owner": 7, "names": 5}'),
        (b"other/3", b'{"epoch": 3}'),
        (b"ask/x", b'{"asker": {"host": 1, "pid": "x", "started": 1e300}, "names": []}'),
    ],
)
def test_what_is_no_word_is_told_from_one(key, value):
    with pytest.raises(CheckpointError):
        owners.decode(key, value)
