"""The driver of a member's role: it tells `spillway.checkpoint.roles` what is read and heard, and does what follows.

All methods are the loop's. Times are `loop.time()`'s, which is the monotonic clock that beats are told by.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from spillway.agents.run.log_reader import CONTROL
from spillway.checkpoint.damage import Damage
from spillway.checkpoint.promotion import Append, Load, Role, StandDown
from spillway.checkpoint.roles import Ask, Emit, End, Prepare, ReadToEnd
from spillway.lineage.replication import Base, Claim, Fence, Manifest, Yield

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.run.log_reader import Read
    from spillway.checkpoint.roles import Roles, Step
    from spillway.lineage.errors import SpillwayError
    from spillway.lineage.marks import Place, Version
    from spillway.lineage.ports import Clock
    from spillway.lineage.replication import Beat, Report

log = logging.getLogger(__name__)


class Acts(Protocol):
    """What a member does about its role."""

    def load(self, epoch: int, version: Version) -> None:
        """Begin the reign of an epoch, from a version."""

    def stand_down(self) -> None:
        """End the reign, or the beginning of one."""

    def emit_again(self) -> None:
        """Send what has waited for the right to emit."""


class Appender(Protocol):
    """Appends records to the control log and to the shard's version log."""

    def append(self, record: Claim | Yield | Fence | Base) -> None:
        """Append a record, once."""


class RoleDriver:
    """Drives one member's role, from its start to its end."""

    def __init__(
        self,
        roles: Roles,
        acts: Acts,
        *,
        clock: Clock,
        appender: Appender,
        read_to_end: Callable[[Place, Callable[[], object]], None],
        active: Callable[[bool], object],
        crashed: Callable[[BaseException], None],
        before_fence: Callable[[int, Callable[[], None]], None] | None = None,
    ) -> None:
        """`read_to_end` has its argument called when a version log was read to the end that it has from now on.

        `before_fence` does what has to be done to the reign of an epoch before this member fences a newer one, and then
        calls what it is given; needed where `roles` prepares.
        """
        self.core = roles
        self._acts = acts
        self._clock = clock
        self._appender = appender
        self._read_to_end = read_to_end
        self._active = active
        self._was_active = False
        self._crashed = crashed
        self._before_fence = before_fence
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._doing = False

    # What is asked ---------------------------------------------------------------------------------------------

    def may_emit(self) -> bool:
        """Whether messages may leave now. After a False `emit_again` is called once they may, unless the reign ends."""
        may = self.core.may_emit(self._loop.time())
        self._do()
        return may

    def begin(self) -> None:
        self.core.begin(self._loop.time())
        self._do()

    def want(self, why: str) -> None:
        self.core.want(self._loop.time(), why)
        self._do()

    def give_up(self, why: str) -> None:
        """As the primary, have another member take over; where none is heard, or none comes, begin anew oneself."""
        self.core.give_up(self._loop.time(), why)
        self._do()

    def hand_over(self, why: str) -> bool:
        """As a primary that stops, have a backup take over; False if there is none."""
        asked = self.core.hand_over(self._loop.time(), why)
        self._do()
        return asked

    def silence(self) -> None:
        self.core.silence()
        self._do()

    # What is read ----------------------------------------------------------------------------------------------

    def take(self, read: Read) -> bool:
        core, record, now = self.core, read.record, self._loop.time()
        if record is None:
            if read.place != CONTROL:
                core.logs.tombstoned(read.place, read.raw_key)
            return False
        counts = True
        if isinstance(record, Damage):
            return core.logs.take(read.place, record)
        if isinstance(record, Claim):
            counts = core.heard_claim(now, record)
        elif isinstance(record, Yield):
            core.heard_yield(now, record)
        elif isinstance(record, (Fence, Base, Manifest)):
            counts = core.logs.take(read.place, record)
            if read.place == core.place:
                core.heard(now, record, counts=counts)
        self._do()
        return counts

    def was_away(self) -> None:
        self.core.was_away()
        self._do()

    def caught_up(self) -> None:
        self.core.caught_up(self._loop.time())
        self._do()

    # What is heard (`spillway.agents.live.states.beats`) -------------------------------------------------------

    def sent(self, at: float, sequence: int) -> None:
        self.core.beat_sent(at, sequence)

    def heard(self, beat: Beat, at: float) -> None:
        """Note a beat of the shard that was read, an own one included."""
        self.core.beat_heard(at, beat.member, beat.sequence)
        self._do()

    def reported(self, report: Report) -> None:
        if (report.stage, report.shard) == self.core.place:
            self.core.reported(self._loop.time(), report.members)
            self._do()

    def failed(self, error: SpillwayError) -> None:
        self._crashed(error)

    # What follows ----------------------------------------------------------------------------------------------

    def _do(self) -> None:
        """Do what the core says, in its order: what is done may have it say more."""
        if self._doing:
            return
        self._doing = True
        try:
            while steps := self.core.take_actions():
                if self._was_active != (self.core.role is not Role.BACKUP):
                    self._was_active = not self._was_active
                    self._active(self._was_active)
                for step in steps:
                    self._do_one(step)
        finally:
            self._doing = False
        self._wake_in_time()

    def _do_one(self, step: Step) -> None:
        name = self.core.name
        if isinstance(step, Append):
            if isinstance(step.record, Claim):
                log.info("%s: claims the shard: %s", name, step.why)
            self._appender.append(
                replace(step.record, at_us=self._now_us()) if isinstance(step.record, Fence) else step.record
            )
        elif isinstance(step, Ask):
            log.info("%s: yields: %s", name, step.wish.reason)
            self._appender.append(replace(step.wish, at_us=self._now_us()))
        elif isinstance(step, Prepare):
            assert self._before_fence is not None  # the core prepares only where there is one
            self._before_fence(step.over, partial(self._prepared, step))
        elif isinstance(step, Load):
            self._acts.load(step.epoch, step.version)
        elif isinstance(step, StandDown):
            self._acts.stand_down()
        elif isinstance(step, ReadToEnd):
            self._read_to_end(self.core.place, partial(self._checked, step))
        elif isinstance(step, Emit):
            if step.again:
                log.warning("%s: its heartbeats come back and no member took over; it sends results again", name)
                self._acts.emit_again()
            else:
                log.warning(
                    "%s: its heartbeats do not come back from the broker; it sends no results until they do", name
                )
        elif isinstance(step, End):
            self._crashed(step.error)

    def _prepared(self, step: Prepare) -> None:
        self.core.prepared(step.fence, step.over)
        self._do()

    def _checked(self, step: ReadToEnd) -> None:
        self.core.checked(self._loop.time(), step.epoch, step.check)
        self._do()

    def _wake_in_time(self) -> None:
        wake, timer = self.core.next_wake(), self._timer
        if timer is not None and timer.when() == wake:
            return
        if timer is not None:
            timer.cancel()
        self._timer = None if wake is None else self._loop.call_at(wake, self._over)

    def _over(self) -> None:
        self._timer = None
        self.core.advance(self._loop.time())
        self._do()

    def _now_us(self) -> int:
        return round(self._clock.now() * 1e6)
