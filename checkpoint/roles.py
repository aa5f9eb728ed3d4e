"""What makes a member of a shard primary or backup: the logs, its peers' beats, reports and wishes, and the time.

    claims at start, silence, reports, yields -> `Member` -> claim, fence, base -> Load -> reign -> StandDown

Pure: a driver says what it reads and hears, each with `now`, calls `advance` at `next_wake`, and after each call does
what `take_actions` gives, in that order. The rules that are decided here:

* At the start of a shard nobody has claimed it: member 0 does at once, the others after a lease. A winner of earlier
  times that had this member's own place is dead, as the place is this process's now: then it claims at once, too.
* A winner is watched by its beats, and given a lease to be heard; a report of its death counts at once.
* A `Yield` for the newest epoch makes every backup claim; one of them wins. A primary whose reign rests on something
  dead yields (rule 14: the backup, which holds a version that is not dead, is the faster one), and where no backup is
  heard, or none has come after two leases, begins a new reign itself.
* A primary's right to emit is `spillway.checkpoint.leases`'. While it has none, messages wait.
* A member that was away while it claimed cannot say what its fence will find, as the logs may have been compacted
  meanwhile: it ends, and is started again.

`now` is in seconds of the monotonic clock that beats are told by.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf
from typing import TYPE_CHECKING

from spillway.checkpoint.damage import Damage, DamageError
from spillway.checkpoint.leases import Emission, Order
from spillway.checkpoint.promotion import Append, Load, Role, StandDown
from spillway.checkpoint.silence import Watch
from spillway.lineage.errors import CheckpointError
from spillway.lineage.replication import Base, Fence, Yield

if TYPE_CHECKING:
    from collections.abc import Iterable

    from spillway.checkpoint.leases import Lease
    from spillway.checkpoint.promotion import Action, Member
    from spillway.checkpoint.version_log import Record
    from spillway.lineage.marks import Place, Version
    from spillway.lineage.replication import Claim

_KEPT = 256  # beats on the way


@dataclass(slots=True, frozen=True)
class Ask:
    """Append this wish to the control log."""

    wish: Yield


@dataclass(slots=True, frozen=True)
class Prepare:
    """Do to the reign of epoch `over` what has to be done before this fence, then call `prepared` with both."""

    fence: Fence
    over: int


@dataclass(slots=True, frozen=True)
class ReadToEnd:
    """Read the shard's version log to the end that it has from now on, then call `checked` with both."""

    epoch: int
    check: int


@dataclass(slots=True, frozen=True)
class Emit:
    """The right to emit has lapsed, or has come back: then send what has waited."""

    again: bool


@dataclass(slots=True, frozen=True)
class End:
    """End the process: it can judge nothing any more."""

    error: CheckpointError


Step = Append | Load | StandDown | Ask | Prepare | ReadToEnd | Emit | End


class Roles:
    """One member's role, from its start to its end."""

    def __init__(self, member: Member, index: int, lease: Lease, *, prepares: bool = False) -> None:
        """`index`: which of the shard's members this is; its name ends in `@` and what tells its process from others.

        `prepares`: whether a fence has to wait for `Prepare`.
        """
        self.member = member
        self.place = member.place
        self.name = member.name
        self.claims = member.claims
        self.logs = member.logs
        self.lease = lease
        self._index = index
        self._prepares = prepares
        self._actions: list[Step] = []
        self._emission: Emission | None = None
        self._returned: float | None = None  # when the newest beat was sent that has come back
        self._beats: dict[int, float] = {}  # beats on the way: when each was sent
        self._watch: Watch | None = None
        self._current = True  # whether the logs were read to where they ended
        self._wish = ""  # why this member wanted the shard while they were not
        self._begun = False
        self._asked: Yield | None = None  # the newest wish for another primary, from before this member took part
        self._yielded = 0  # the newest epoch of its own that it has asked another member to end: once, as keys are
        self._reported: set[str] = set()
        self._heard: dict[str, float] = {}  # when other members of the shard were heard last
        self._unclaimed = inf  # when it claims what nobody has claimed by then
        self._patience: tuple[float, int, str] | None = None  # until when another member may follow an epoch, and why

    # What is asked ---------------------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        return self.member.role

    @property
    def epoch(self) -> int:
        return max(self.claims.epoch(self.place), self.logs.log(self.place).epoch)

    def others(self, now: float) -> list[str]:
        since = now - self.lease.seconds
        return sorted(name for name, at in self._heard.items() if at >= since and name not in self._reported)

    def may_emit(self, now: float) -> bool:
        """Whether messages may leave now. After a False an `Emit` says when they may, unless the reign ends.

        So the right lapses here, where the driver was too busy to see its end: the next thing that it hears may be
        beats that came back in time, and were told late. They would prolong a right that nobody else knows to have
        lapsed.
        """
        if self._emission is None:
            return False
        self._obey(self._emission.advance(now))
        return self._emission.may_emit(now)

    def take_actions(self) -> list[Step]:
        actions, self._actions = self._actions, []
        return actions

    # How it begins and ends ------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """Take part from now on: the logs were read to their ends, and a promotion would have all it needs."""
        self._begun = True
        winner = self.claims.winner(self.place)
        if not winner:
            if self._index == 0:
                self.want(now, "no process has claimed the shard")
            else:
                self._unclaimed = now + self.lease.seconds
        elif _slot(winner) == _slot(self.name):
            self.want(now, f"{winner} was this member's own predecessor")
        else:
            self._watch_winner(now)
            if self._asked is not None:
                self._heed(now, self._asked)

    def want(self, now: float, why: str) -> None:
        if not self._begun:
            return
        if not self._current:
            self._wish = why
            return
        epoch, was_primary = self.member.epoch, self.role is Role.PRIMARY
        action = self.member.wanted()
        if was_primary and action is not None:
            self._stand_down(StandDown(epoch))
        self._act(now, replace(action, why=why) if isinstance(action, Append) else action)

    def give_up(self, now: float, why: str) -> None:
        """As the primary, have another member take over; where none is heard, or none comes, begin anew oneself."""
        if self.role is not Role.PRIMARY:
            return
        if not self.others(now):
            self.want(now, why)
            return
        self._yield(why)
        self._patience = now + 2 * self.lease.seconds, self.member.epoch, why

    def hand_over(self, now: float, why: str) -> bool:
        """As a primary that stops, have a backup take over; False if there is none."""
        if self.role is not Role.PRIMARY or not self.others(now):
            return False
        self._yield(why)
        return True

    def _yield(self, why: str) -> None:
        epoch = self.member.epoch
        if epoch != self._yielded:
            self._yielded = epoch
            self._actions.append(Ask(Yield(*self.place, epoch, self.name, 0, why[:200])))

    def silence(self) -> None:
        """End the right to emit, and what looks after it: nothing is sent any more."""
        self._emission = None

    # Time ------------------------------------------------------------------------------------------------------

    def next_wake(self) -> float | None:
        """When `advance` next has something to do; None if nothing but news can bring something."""
        right = None if self._emission is None else self._emission.next_wake()
        patience = inf if self._patience is None else self._patience[0]
        wake = min(self._unclaimed, patience, inf if right is None else right)
        return None if wake == inf else wake

    def advance(self, now: float) -> None:
        if self._emission is not None:
            self._obey(self._emission.advance(now))
        if now >= self._unclaimed:
            self._unclaimed = inf
            if not self.claims.winner(self.place):
                self.want(now, "no process has claimed the shard for one lease")
        if self._patience is not None and now >= self._patience[0]:
            (_, epoch, why), self._patience = self._patience, None
            if self.role is Role.PRIMARY and self.member.epoch == epoch:
                self.want(now, why)

    # What is read ----------------------------------------------------------------------------------------------

    def was_away(self) -> None:
        """Note that the logs may have been compacted where they are read next; `caught_up` says when they are read."""
        if self.role in (Role.CLAIMING, Role.FENCING):
            self._actions.append(
                End(
                    CheckpointError(f"{self.name} lost touch with the logs while it claimed the shard: it must restart")
                )
            )
        self._current = False

    def caught_up(self, now: float) -> None:
        """Note that all logs were read to where they ended, and do what was wanted meanwhile."""
        self._current = True
        wish, self._wish = self._wish, ""
        if wish:
            self.want(now, wish)

    def heard_claim(self, now: float, claim: Claim) -> bool:
        """Take a claim of the control log; whether it is the first of its epoch."""
        won = self.claims.take(claim)
        if (claim.stage, claim.shard) == self.place:
            self._act(now, self.member.heard_claim(claim, won=won))
            if won and self._begun:
                self._watch_winner(now)
        return won

    def heard_yield(self, now: float, wish: Yield) -> None:
        if (wish.stage, wish.shard) != self.place or wish.epoch != self.claims.epoch(self.place):
            return
        if self._begun:
            self._heed(now, wish)
        else:
            self._asked = wish  # it stands: who takes part before somebody has followed it does

    def _heed(self, now: float, wish: Yield) -> None:
        if wish.epoch == self.claims.epoch(self.place) and self.role is Role.BACKUP and wish.by != self.name:
            self.want(now, f"{wish.by} asks for another primary: {wish.reason}")

    def heard(self, now: float, record: Record, *, counts: bool) -> None:
        """Take a record of the shard's own version log, right after `Logs.take` has said whether it counts."""
        self._act(now, self.member.heard(record, counts=counts))
        if counts and isinstance(record, Fence) and self._emission is not None:
            self._obey(self._emission.fenced(record.epoch))

    def checked(self, now: float, epoch: int, check: int) -> None:
        if self._emission is not None and self._emission.epoch == epoch:
            self._obey(self._emission.checked(now, check))

    def prepared(self, fence: Fence, over: int) -> None:
        if self.role is not Role.FENCING or self.member.epoch != fence.epoch:
            return
        if self.logs.log(self.place).epoch != over:
            self._fence(fence)
        else:
            self._actions.append(Append(fence))

    def _watch_winner(self, now: float) -> None:
        winner = self.claims.winner(self.place)
        if winner == self.name:
            self._watch = None
            return
        self._watch = Watch(self.lease, winner, now)
        if winner in self._reported:
            # The dead have one claim under way at most: who wins again lives, or is found silent.
            self._reported.discard(winner)
            self._watch.reported(winner)
            self.want(now, f"{winner} was reported dead")

    # What is heard ---------------------------------------------------------------------------------------------

    def beat_sent(self, at: float, sequence: int) -> None:
        self._beats[sequence] = at
        if len(self._beats) > _KEPT:
            del self._beats[next(iter(self._beats))]
        if self._watch is not None:
            self._watch.probe_sent(at, sequence)

    def beat_heard(self, at: float, member: str, sequence: int) -> None:
        """Note a beat of the shard that was read, an own one included."""
        if member == self.name:
            self._beat_returned(at, sequence)
            return
        self._heard[member] = at
        if self._watch is not None:
            self._watch.heard(at, member)

    def _beat_returned(self, now: float, sequence: int) -> None:
        if self._watch is not None and self._watch.probe_returned(now, sequence):
            self.want(now, f"{self._watch.peer} was silent for {self.lease.seconds:g} s")
        sent = self._beats.pop(sequence, None)
        if sent is None:
            return
        self._returned = sent if self._returned is None else max(self._returned, sent)
        if self._emission is not None:
            self._obey(self._emission.beat_returned(now, sent))

    def reported(self, now: float, names: Iterable[str]) -> None:
        for name in names:
            self._reported.add(name)
            if self._watch is not None and self._watch.reported(name):
                self.want(now, f"{name} was reported dead")

    # What follows ----------------------------------------------------------------------------------------------

    def _act(self, now: float, action: Action | None) -> None:
        if isinstance(action, Append) and isinstance(action.record, Fence):
            self._fence(action.record)
        elif isinstance(action, Append):
            if isinstance(action.record, Base) and (doubtful := self.logs.doubtful(self.place)) is not None:
                self._actions.append(End(_doubt(self.place, doubtful, action.record.version)))
            else:
                self._actions.append(action)
        elif isinstance(action, Load):
            self._emission = Emission(self.lease, action.epoch, self._returned)
            self._actions.append(action)
        elif isinstance(action, StandDown):
            self._stand_down(action)
            if self._begun:
                self._watch_winner(now)

    def _fence(self, fence: Fence) -> None:
        over = self.logs.log(self.place).epoch
        self._actions.append(Prepare(fence, over) if self._prepares else Append(fence))

    def _stand_down(self, action: StandDown) -> None:
        self._emission = None
        self._actions.append(action)

    def _obey(self, orders: list[Order]) -> None:
        for order in orders:
            if self._emission is None:
                return
            if order is Order.CHECK:
                self._actions.append(ReadToEnd(self._emission.epoch, self._emission.checks))
            elif order in (Order.STOP, Order.GO_ON):
                self._actions.append(Emit(again=order is Order.GO_ON))


def _slot(name: str) -> str:
    return name.rpartition("@")[0]


def _doubt(place: Place, doubtful: Version | Damage, base: Version) -> CheckpointError:
    """Say why no reign begins where a record that may stand for a version above its base cannot be judged (rule 16)."""
    if isinstance(doubtful, Damage):
        return DamageError(doubtful)
    return CheckpointError(
        f"{place[0]}/{place[1]} cannot get a primary that starts from {base}: its version log has a manifest of "
        f"{doubtful}, which requires a shard that the pipeline does not have. If the pipeline file was changed, serve "
        "the earlier file "
        f"or rename the pipeline. If another program wrote the record, export {base} and import it again ('spillway "
        "state')"
    )
