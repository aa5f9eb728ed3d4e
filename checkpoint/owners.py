"""Who may run which processes of a pipeline: its owners, by their claims in one log.

Whoever serves claims the names of the processes that it runs ("gate.0", "count.1"), all at once: a supervisor those of
the whole pipeline, a process that runs alone its own. `<p>.owners` has one partition, so its order decides. Invariants:

* A claim wins if and only if its epoch is higher than those of all claims before it. So of several that were made by
  reading the same log only the first wins, for every reader, and epochs never come back: claims are never deleted.
* A claim that wins ends every earlier one that shares a name with it, so a process has one owner at any time.
* Nobody claims what another owns, unless that one has left, is known to be gone, or was silent for its lease. To find
  out a candidate asks in the log; an owner reads it and answers at once. Silence is counted in the candidate's own
  questions that came back: while the cluster is away nobody can answer, and nobody's lease runs out.
* With `take_over` a question asks the owner to leave. It is given `TAKE_OVER_SECONDS` to stop its processes in order.

This keeps two from fencing each other for ever. What keeps an owner's late writes from counting are transactional ids,
group generations and fences, as ever. `now` is in seconds of a clock that never goes back.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from spillway.lineage.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

ASK_SECONDS: Final = 1.0  # between two questions of a candidate
LEASE_ASKS: Final = 15  # so many questions without an answer are a lease
TAKE_OVER_SECONDS: Final = 60.0  # for an owner that was asked to leave; longer than a drain by default


@dataclass(frozen=True, slots=True)
class Owner:
    """One process, and never another, `started` at a time in unix seconds. `machine` is where `pid` is unique."""

    host: str
    pid: int
    started: float
    machine: str = ""

    @property
    def name(self) -> str:
        return f"{self.host}:{self.pid}@{datetime.fromtimestamp(self.started, UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


@dataclass(frozen=True, slots=True)
class Claim:
    """Somebody's word that it runs the processes `names` from now on."""

    epoch: int
    owner: Owner
    names: tuple[str, ...]
    at: float = 0.0  # unix seconds

    @property
    def key(self) -> str:
        return f"claim/{self.epoch}/{self.owner.name}"


@dataclass(frozen=True, slots=True)
class Ask:
    """A candidate's question whether who owns one of `names` is there; with `take_over`, its order to leave."""

    asker: Owner
    names: tuple[str, ...]
    take_over: bool = False

    @property
    def key(self) -> str:
        """The newest question of each candidate is enough."""
        return f"ask/{self.asker.name}"


@dataclass(frozen=True, slots=True)
class Answer:
    """An owner's answer to `asker`; `leaving`: it is about to leave, and worth waiting for."""

    epoch: int
    asker: str
    leaving: bool = False

    @property
    def key(self) -> str:
        """The newest answer to each candidate is enough."""
        return f"answer/{self.epoch}/{self.asker}"


@dataclass(frozen=True, slots=True)
class Leave:
    """The owner that claimed in this epoch runs none of its processes any more."""

    epoch: int

    @property
    def key(self) -> str:
        return f"leave/{self.epoch}"


Word = Claim | Ask | Answer | Leave
_KINDS: Final[dict[str, type[Any]]] = {"claim": Claim, "ask": Ask, "answer": Answer, "leave": Leave}


def encode(word: Word) -> bytes:
    return json.dumps(asdict(word)).encode()


def decode(key: bytes | None, value: bytes) -> Word:
    try:
        name = (key or b"").decode()
        fields = json.loads(value)
        for owner in ("owner", "asker"):
            if isinstance(fields.get(owner), dict):
                fields[owner] = Owner(**fields[owner])
        if "names" in fields:
            fields["names"] = tuple(map(str, fields["names"]))
        word: Word = _KINDS[name.partition("/")[0]](**fields)
        if word.key != name:
            raise CheckpointError(f"it has the key {name!r:.80} instead of {word.key!r:.80}")
    except (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError) as error:
        raise CheckpointError(f"not an ownership record: {error}") from error
    return word


class Owners:
    """The log as far as it was read."""

    def __init__(self) -> None:
        self.epoch = 0  # the newest that was claimed
        self._current: dict[int, Claim] = {}

    def take(self, word: Word) -> bool:
        if isinstance(word, Leave):
            self._current.pop(word.epoch, None)
        if not isinstance(word, Claim) or word.epoch <= self.epoch:
            return False
        self.epoch = word.epoch
        for claim in self.of(word.names):
            del self._current[claim.epoch]
        self._current[word.epoch] = word
        return True

    def names(self, gone: Callable[[Owner], bool]) -> set[str]:
        """The processes that somebody has claimed and not left, and who is not `gone`."""
        return {name for claim in self._current.values() if not gone(claim.owner) for name in claim.names}

    def of(self, names: Collection[str]) -> list[Claim]:
        return [claim for claim in self._current.values() if not set(names).isdisjoint(claim.names)]


class Candidate:
    """Who wants to own `names`. After each call, and again every so often, `next` says what to append.

    Give it every word of the log in order, and ask `next` only once the log was read to its end. `won` is its claim
    once it stands; `refused` is that of an owner who is there.
    """

    def __init__(
        self, me: Owner, names: Collection[str], gone: Callable[[Owner], bool], *, take_over: bool = False
    ) -> None:
        self.owners = Owners()
        self.won: Claim | None = None
        self.refused: Claim | None = None
        self.above = 0  # claims in a higher epoch than this, too: what it will write may know of epochs of its own
        self._me, self._names, self._gone, self._take_over = me, tuple(sorted(names)), gone, take_over
        self._claimed = 0  # the epoch of a claim that is on its way
        self._asked = False  # a question is
        self._ask_due = float("-inf")
        self._unheard: Counter[int] = Counter()  # by epoch: questions that came back since its owner's last answer
        self._answers: dict[int, Answer] = {}
        self._since: dict[int, float] = {}  # by epoch: when its owner was in the way first

    def take(self, word: Word) -> None:
        won = self.owners.take(word)
        if isinstance(word, Claim) and word.owner == self._me and word.epoch == self._claimed:
            self._claimed = 0
            self.won = word if won else None
        elif isinstance(word, Ask) and word.asker == self._me:
            self._asked = False
            self._unheard.update(claim.epoch for claim in self.owners.of(self._names))
        elif isinstance(word, Answer) and word.asker == self._me.name:
            self._unheard[word.epoch] = 0
            self._answers[word.epoch] = word

    def in_the_way(self, now: float) -> list[Claim]:
        return [claim for claim in self.owners.of(self._names) if not self._is_over(now, claim)]

    def next(self, now: float, at: float) -> Claim | Ask | None:
        """What to append now; `at` is the time in unix seconds."""
        if self.won is not None or self.refused is not None or self._claimed:
            return None
        others = self.in_the_way(now)
        if not others:
            self._claimed = max(self.owners.epoch, self.above) + 1
            return Claim(self._claimed, self._me, self._names, at)
        for claim in others:
            answer = self._answers.get(claim.epoch)
            if answer is not None and not answer.leaving and not self._take_over:
                self.refused = claim
                return None
        if self._asked or now < self._ask_due:
            return None
        self._asked, self._ask_due = True, now + ASK_SECONDS
        return Ask(self._me, self._names, self._take_over)

    def _is_over(self, now: float, claim: Claim) -> bool:
        since = self._since.setdefault(claim.epoch, now)
        return (
            self._unheard[claim.epoch] >= LEASE_ASKS
            or (self._take_over and now - since >= TAKE_OVER_SECONDS)
            or self._gone(claim.owner)
        )


class Tenure:
    """An owner's own view of its claim, from when that was won."""

    def __init__(self, claim: Claim, owners: Owners) -> None:
        self.claim = claim
        self.leaving = False  # it answers so from now on
        self.asked_by: Owner | None = None  # who wants to take over
        self.lost_to: Owner | None = None  # who has
        self._owners = owners

    def take(self, word: Word) -> Answer | None:
        """Take the next word of the log; give the answer to append, if it is a question to this owner."""
        won = self._owners.take(word)
        if isinstance(word, Claim) and won and not set(word.names).isdisjoint(self.claim.names):
            self.lost_to = self.lost_to or word.owner
        if not isinstance(word, Ask) or set(word.names).isdisjoint(self.claim.names) or self.lost_to is not None:
            return None
        if word.take_over:
            self.asked_by = self.asked_by or word.asker
        return Answer(self.claim.epoch, word.asker.name, leaving=self.leaving or self.asked_by is not None)
