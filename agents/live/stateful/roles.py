"""What makes a member primary or backup: control log, version logs and heartbeats, told to `checkpoint`'s tables.

    claims at start, silence, reports, yields -> `Member` -> claim, fence, base -> Load -> reign -> StandDown

It reads in order, appends what `Member` says, and calls what its owner has to do. The rules that are decided here:

* At the start of a shard nobody has claimed it: member 0 does at once, the others after a lease. A winner of earlier
  times that had this member's own place is dead, as the place is this process's now: then it claims at once, too.
* A winner is watched by its beats, and given a lease to be heard; a report of its death counts at once.
* A `Yield` for the newest epoch makes every backup claim; one of them wins. A primary whose reign rests on something
  dead yields (rule 14: the backup, which holds a version that is not dead, is the faster one), and where no backup is
  heard, or none has come after two leases, begins a new reign itself.
* A primary's right to emit is `checkpoint.leases`'. While it has none, messages wait.

All methods are the loop's. Times are `loop.time()`'s.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from agents.live.stateful.doubt import doubt
from agents.live.stateful.right import EmitRight
from agents.live.states.log_reader import CONTROL
from checkpoint.claims import Claims
from checkpoint.damage import Damage
from checkpoint.promotion import Append, Load, Member, Role, StandDown
from checkpoint.silence import Watch
from lineage.replication import Base, Claim, Fence, Manifest, Yield

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.live.stateful.acts import Acts
    from agents.live.states.appender import Appender
    from agents.live.states.log_reader import Read
    from checkpoint.leases import Lease
    from checkpoint.logs import Logs
    from checkpoint.promotion import Action
    from lineage.errors import SpillwayError
    from lineage.marks import Place
    from lineage.replication import Beat, Report

log = logging.getLogger(__name__)


class Roles:
    """One member's role, from its start to its end."""

    def __init__(
        self,
        place: Place,
        name: str,
        index: int,
        lease: Lease,
        logs: Logs,
        acts: Acts,
        *,
        appender: Appender,
        read_to_end: Callable[[Place, Callable[[], object]], None],
        crashed: Callable[[BaseException], None],
        before_fence: Callable[[int, Callable[[], None]], None] | None = None,
    ) -> None:
        """`index`: which of the shard's members this is. `name`: of this process; it ends in `@` and its start.

        `before_fence` does what has to be done to the reign of an epoch before this member fences a newer one, and then
        calls what it is given.
        """
        self.place = place
        self.name = name
        self.lease = lease
        self.logs = logs
        self.claims = Claims()
        self.member = Member(place, name, self.claims, logs)
        self._index = index
        self._acts = acts
        self._appender = appender
        self._crashed = crashed
        self._before_fence = before_fence
        self._loop = asyncio.get_running_loop()
        self.right = EmitRight(
            name, lease, read_to_end=lambda then: read_to_end(place, then), emit_again=acts.emit_again
        )
        self._watch: Watch | None = None
        self.current = True  # whether the logs were read to where they ended; set by the owner
        self._wish = ""  # why this member wanted the shard while they were not
        self._begun = False
        self._asked: Yield | None = None  # the newest wish for another primary, from before this member took part
        self._yielded = 0  # the newest epoch of its own that it has asked another member to end: once, as keys are
        self._reported: set[str] = set()
        self._heard: dict[str, float] = {}  # when other members of the shard were heard last

    # What is asked ---------------------------------------------------------------------------------------------

    @property
    def role(self) -> Role:
        """Where the member stands."""
        return self.member.role

    @property
    def epoch(self) -> int:
        """The newest epoch of the shard that is known."""
        return max(self.claims.epoch(self.place), self.logs.log(self.place).epoch)

    def others(self) -> list[str]:
        """The other members of the shard that were heard within a lease."""
        since = self._loop.time() - self.lease.seconds
        return sorted(name for name, at in self._heard.items() if at >= since and name not in self._reported)

    # How it begins ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Take part from now on: the logs were read to their ends, and a promotion would have all it needs."""
        self._begun = True
        winner = self.claims.winner(self.place)
        if not winner:
            if self._index == 0:
                self.want("nobody has claimed the shard")
            else:
                self._loop.call_later(self.lease.seconds, self._unless_claimed)
        elif _slot(winner) == _slot(self.name):
            self.want(f"{winner} was this member's own predecessor")
        else:
            self._watch_winner()
            if self._asked is not None:
                self._take_yield(self._asked)

    def _unless_claimed(self) -> None:
        if not self.claims.winner(self.place):
            self.want("nobody has claimed the shard for a lease")

    def want(self, why: str) -> None:
        """Try to become primary, or as one to begin a new reign."""
        if not self._begun:
            return
        if not self.current:
            self._wish = why
            return
        if self.role in (Role.BACKUP, Role.PRIMARY):
            log.info("%s: claims the shard: %s", self.name, why)
        was_primary = self.role is Role.PRIMARY
        action = self.member.wanted()
        if was_primary and action is not None:
            self._stand_down()
        self._act(action)

    def want_again(self) -> None:
        """Do what was wanted while the logs were not read to their ends."""
        wish, self._wish = self._wish, ""
        if wish:
            self.want(wish)

    def give_up(self, why: str) -> None:
        """As the primary, have another member take over; where none is heard, or none comes, begin anew oneself."""
        if self.role is not Role.PRIMARY:
            return
        if not self.others():
            self.want(why)
            return
        log.info("%s: yields: %s", self.name, why)
        epoch = self.member.epoch
        self._yield(why)
        self._loop.call_later(2 * self.lease.seconds, self._still_primary, epoch, why)

    def _still_primary(self, epoch: int, why: str) -> None:
        if self.role is Role.PRIMARY and self.member.epoch == epoch:
            self.want(why)

    def hand_over(self, why: str) -> bool:
        """As a primary that stops, have a backup take over; False if there is none."""
        if self.role is not Role.PRIMARY or not self.others():
            return False
        self._yield(why)
        return True

    def _yield(self, why: str) -> None:
        epoch = self.member.epoch
        if epoch != self._yielded:
            self._yielded = epoch
            self._appender.append(Yield(*self.place, epoch, self.name, _now_us(), why[:200]))

    # What is read ----------------------------------------------------------------------------------------------

    def take(self, read: Read) -> bool:
        """Take a record of a log; say whether it counts."""
        record = read.record
        if record is None:
            if read.place != CONTROL:
                self.logs.tombstoned(read.place, read.raw_key)
            return False
        if isinstance(record, Damage):
            return self.logs.take(read.place, record)
        if read.place == CONTROL:
            if isinstance(record, Claim):
                return self._take_claim(record)
            if isinstance(record, Yield):
                self._take_yield(record)
            return True
        if not isinstance(record, (Fence, Base, Manifest)):
            return False
        counts = self.logs.take(read.place, record)
        if read.place == self.place:
            self._act(self.member.heard(record, counts=counts))
            if counts and isinstance(record, Fence):
                self.right.fenced(record.epoch)
        return counts

    def _take_claim(self, claim: Claim) -> bool:
        won = self.claims.take(claim)
        if (claim.stage, claim.shard) == self.place:
            self._act(self.member.heard_claim(claim, won=won))
            if won and self._begun:
                self._watch_winner()
        return won

    def _take_yield(self, wish: Yield) -> None:
        if (wish.stage, wish.shard) != self.place or wish.epoch != self.claims.epoch(self.place):
            return
        if not self._begun:
            self._asked = wish  # it stands: who takes part before somebody has followed it does
        elif self.role is Role.BACKUP and wish.by != self.name:
            self.want(f"{wish.by} asks for another primary: {wish.reason}")

    def _watch_winner(self) -> None:
        winner = self.claims.winner(self.place)
        if winner == self.name:
            self._watch = None
            return
        self._watch = Watch(self.lease, winner, self._loop.time())
        if winner in self._reported:
            self._watch.reported(winner)
            self.want(f"{winner} was reported dead")

    # What is heard ---------------------------------------------------------------------------------------------

    def sent(self, at: float, sequence: int) -> None:
        """Note that an own beat is about to be handed over (`agents.live.states.beats.Hearer`)."""
        if self._watch is not None:
            self._watch.probe_sent(at, sequence)
        self.right.sent(at, sequence)

    def heard(self, beat: Beat, at: float) -> None:
        """Note a beat of the shard that was read, an own one included."""
        if beat.member == self.name:
            self._returned_beat(at, beat.sequence)
            return
        self._heard[beat.member] = at
        if self._watch is not None:
            self._watch.heard(at, beat.member)

    def failed(self, error: SpillwayError) -> None:
        """End: a member without beats loses its lease, and hears nobody."""
        self._crashed(error)

    def _returned_beat(self, now: float, sequence: int) -> None:
        if self._watch is not None and self._watch.probe_returned(now, sequence):
            self.want(f"{self._watch.peer} was silent for {self.lease.seconds:g} s")
        self.right.returned(now, sequence)

    def reported(self, report: Report) -> None:
        """Note that processes were found dead."""
        if (report.stage, report.shard) != self.place:
            return
        self._reported.update(report.members)
        for name in report.members:
            if self._watch is not None and self._watch.reported(name):
                self.want(f"{name} was reported dead")

    # What follows ----------------------------------------------------------------------------------------------

    def _act(self, action: Action | None) -> None:
        if isinstance(action, Append) and isinstance(action.record, Fence):
            fence = replace(action.record, at_us=_now_us())
            self._prepare(fence)
        elif isinstance(action, Append):
            if isinstance(action.record, Base) and (doubtful := self.logs.doubtful(self.place)) is not None:
                self._crashed(doubt(self.place, doubtful, action.record.version))
                return
            self._appender.append(action.record)
        elif isinstance(action, Load):
            self.right.begin(action.epoch)
            self._acts.load(action.epoch, action.version)
        elif isinstance(action, StandDown):
            self._stand_down()
            if self._begun:
                self._watch_winner()

    def _prepare(self, fence: Fence) -> None:
        if self._before_fence is None:
            self._appender.append(fence)
            return
        epoch = self.logs.log(self.place).epoch
        self._before_fence(epoch, partial(self._fence, fence, epoch))

    def _fence(self, fence: Fence, over: int) -> None:
        """Append a fence that had to wait, if nobody was faster meanwhile; `over`: which reign was prepared for it."""
        if self.role is not Role.FENCING or self.member.epoch != fence.epoch:
            return
        if self.logs.log(self.place).epoch != over:
            self._prepare(fence)
        else:
            self._appender.append(fence)

    def _stand_down(self) -> None:
        self.right.end()
        self._acts.stand_down()


def _slot(name: str) -> str:
    """A member's place, whichever process has it: what stands before the `@` in its name."""
    return name.rpartition("@")[0]


def _now_us() -> int:
    return time.time_ns() // 1000
