"""How a member becomes a shard's primary: claim -> won? -> fence -> read up to it -> base -> read up to it -> load.

A table, as the order of these steps is what keeps two primaries apart (rule 3). Invariants:

* Nothing is taken as done because it was sent: each step waits until its own record is *read*, and the log says whether
  it counts (rule 2). Each record is appended once; where an append may or may not stand, reading on tells.
* The base is decided when the own fence is read, from what is in the log before it: the newest version that is complete
  and not dead. Nothing that comes later can add to it, as records of older epochs are void from there on. "The last
  durable version that I applied" is another thing: someone may have seen a newer one become durable.
* Of one epoch at most one member becomes primary; a member that finds a newer fence, at whatever step, is none.
* What is read of an earlier attempt of one's own, with another epoch, changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from spillway.lineage.replication import Base, Claim, Fence

if TYPE_CHECKING:
    from spillway.checkpoint.claims import Claims
    from spillway.checkpoint.logs import Logs
    from spillway.checkpoint.version_log import Record
    from spillway.checkpoint.versions import Place, Version


class Role(Enum):
    """Where a member stands."""

    BACKUP = "backup"
    CLAIMING = "claiming"  # its claim is on the way
    FENCING = "fencing"  # it has won; its fence is on the way
    BASING = "basing"  # it knows its base; the record is on the way
    PRIMARY = "primary"


class Event(Enum):
    """What a member learns."""

    WANTED = "wanted"  # a failover is due: a peer is silent, an operator asks, a rollback is needed
    WON = "won"  # the own claim is the first of its epoch
    LOST = "lost"
    FENCED = "fenced"  # the own fence counts
    BASED = "based"  # the own base counts
    VOID = "void"  # the own fence or base does not count
    OVERTAKEN = "overtaken"  # somebody else has fenced a newer epoch


@dataclass(slots=True, frozen=True)
class Append:
    """Append this record, once: a claim to the control log, the others to the shard's version log."""

    record: Claim | Fence | Base
    why: str = ""  # a claim is made


@dataclass(slots=True, frozen=True)
class Load:
    """Take this version as the state, and go on with the input from its coverage on, as the primary of `epoch`."""

    epoch: int
    version: Version


@dataclass(slots=True, frozen=True)
class StandDown:
    """Be a backup (again): stop emitting if primary, drop the attempt otherwise."""

    epoch: int


Action = Append | Load | StandDown
_B, _C, _F, _D, _P = Role.BACKUP, Role.CLAIMING, Role.FENCING, Role.BASING, Role.PRIMARY
# What follows, and the method that makes the action. What is missing changes nothing.
TABLE: dict[tuple[Role, Event], tuple[Role, str]] = {
    (_B, Event.WANTED): (_C, "claim"),
    (_C, Event.WON): (_F, "fence"),
    (_C, Event.LOST): (_B, "stand_down"),
    (_C, Event.OVERTAKEN): (_B, "stand_down"),
    (_F, Event.FENCED): (_D, "base"),
    (_F, Event.VOID): (_B, "stand_down"),
    (_F, Event.OVERTAKEN): (_B, "stand_down"),
    (_D, Event.BASED): (_P, "load"),
    (_D, Event.VOID): (_B, "stand_down"),
    (_D, Event.OVERTAKEN): (_B, "stand_down"),
    (_P, Event.OVERTAKEN): (_B, "stand_down"),
    (_P, Event.WANTED): (_C, "claim"),  # to go back itself, where no backup is left to be promoted (rule 14)
}


class Member:
    """One member of one shard, from its start to its end. The driver does what is returned, and says what it reads."""

    table = TABLE

    def __init__(self, place: Place, name: str, claims: Claims, logs: Logs) -> None:
        """`name`: unique to this process. `claims` and `logs` hold what this member has read, and were caught up."""
        self.place = place
        self.name = name
        self.role = Role.BACKUP
        self.epoch = 0  # of the newest attempt
        self.claims = claims
        self.logs = logs
        self._version: Version | None = None  # its base

    def wanted(self) -> Action | None:
        """Try to become primary; as one, to begin a new reign from a version that is not dead: it stops emitting.

        Without effect while an attempt is under way.
        """
        return self._step(Event.WANTED)

    def heard_claim(self, claim: Claim, *, won: bool) -> Action | None:
        """Note a claim of the control log, after `Claims.take` has said whether it won."""
        if claim.claimant != self.name or claim.epoch != self.epoch or (claim.stage, claim.shard) != self.place:
            return None
        return self._step(Event.WON if won else Event.LOST)

    def heard(self, record: Record, *, counts: bool) -> Action | None:
        """Note a record of the shard's version log, right after `Logs.take` has said whether it counts."""
        if not isinstance(record, (Fence, Base)):
            return None
        if record.claimant == self.name and record.epoch == self.epoch:
            good = Event.FENCED if isinstance(record, Fence) else Event.BASED
            return self._step(good if counts else Event.VOID)
        if isinstance(record, Fence) and counts and record.epoch >= self.epoch:
            return self._step(Event.OVERTAKEN)
        return None

    # Inside ----------------------------------------------------------------------------------------------------

    def _step(self, event: Event) -> Action | None:
        found = self.table.get((self.role, event))
        if found is None:
            return None
        self.role, act = found
        action: Action = getattr(self, f"_{act}")()
        return action

    def _claim(self) -> Action:
        self.epoch = max(self.claims.epoch(self.place), self.logs.log(self.place).epoch, self.epoch) + 1
        return Append(Claim(*self.place, self.epoch, self.name))

    def _fence(self) -> Action:
        return Append(Fence(self.epoch, self.name))

    def _base(self) -> Action:
        base = self._version = self.choose()
        return Append(Base(self.epoch, self.name, base, self.logs.chain(self.place, self.epoch, base)))

    def choose(self) -> Version:
        return self.logs.candidate(self.place)

    def _load(self) -> Action:
        assert self._version is not None  # the table has it so
        return Load(self.epoch, self._version)

    def _stand_down(self) -> Action:
        return StandDown(self.epoch)
