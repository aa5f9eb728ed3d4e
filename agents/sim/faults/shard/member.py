"""A member of a shard as a process: it follows the logs, keeps a standby copy, watches the primary, and becomes it.

What it decides is decided by `spillway.checkpoint.roles`, as live; it does what that says. Backups read the
shard's input, too, and keep its tail, which a promotion takes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from spillway.agents.sim.faults.shard.host import Host, Logged, Standby
from spillway.agents.sim.faults.shard.primary import Primary
from spillway.agents.sim.faults.shard.reading import ShardInput
from spillway.agents.sim.faults.world.follower import Follower
from spillway.agents.sim.faults.world.records import CONTROL, beats_of, keyed, state_of, versions_of
from spillway.checkpoint import claims as claim_log
from spillway.checkpoint.claims import Claims
from spillway.checkpoint.promotion import Append, Load, Role, StandDown
from spillway.checkpoint.roles import Ask, Emit, End, ReadToEnd, Roles
from spillway.lineage.errors import CheckpointError
from spillway.lineage.replication import Claim, Fence, Yield

if TYPE_CHECKING:
    from spillway.agents.memory.broker import Place
    from spillway.agents.sim.faults.shard.reading import Read
    from spillway.agents.sim.faults.world.records import Record
    from spillway.agents.sim.faults.world.world import StateWorld
    from spillway.checkpoint.roles import Step
    from spillway.lineage.marks import Version
    from spillway.lineage.replication import Base


class MemberProcess(Host):
    """One incarnation of one member."""

    def __init__(self, world: StateWorld, place: Place, replica: int) -> None:
        super().__init__(world, place[0], replica)
        guards, broker = world.scenario.guards, world.broker
        self.place = place
        self.lease = world.scenario.lease
        self.role = "backup"
        self.name = f"{place[0]}.{place[1]}.{replica}@{self.incarnation}"
        self.standby = Standby()
        self.primary: Primary | None = None
        self.input = ShardInput(self, place, self._feed)
        self._at = {CONTROL: 0, state_of(place): 0, beats_of(place): broker.end(beats_of(place))}
        self._ends = {where: broker.end(where) for where in (CONTROL, state_of(place))}
        self._sequence = 0
        self._checks: list[tuple[int, ReadToEnd]] = []  # where the version log ended when each was asked for
        self._began = self._away = self._doing = False
        self._wake_at: float | None = None
        self._stood_down: float | None = None  # when it was last a primary and stood down
        logs = guards.member_logs(world.places_for(place))
        self.follower = Follower(world, self, logs, world.places_for(place), self._changed, self._seen)
        self.roles = Roles(guards.member(place, self.name, Claims(), logs), replica, self.lease)
        for where, poll in (
            (CONTROL, self._poll_control),
            (state_of(place), self._poll_state),
            (beats_of(place), self._poll_beats),
        ):
            world.subscribe(self, where, poll)
            self.after(world.latency(), poll)
        self.after(world.random.random() * self.lease.beat, self._beat)

    @property
    def core(self) -> Any:
        return None if self.primary is None else self.primary.core

    # What is read ----------------------------------------------------------------------------------------------

    def _read(self, where: Place) -> list[Record]:
        records = list(self.world.broker.read(where, self._at[where]))
        self._at[where] = self.world.broker.end(where)  # the last records may have been compacted away
        return records

    def _poll_control(self) -> None:
        for record in self._read(CONTROL):
            if isinstance(record.body, Yield):
                self.roles.heard_yield(self.world.now, record.body)
            else:
                self.roles.heard_claim(self.world.now, record.body)
            self._do()
        self._look()

    def _poll_state(self) -> None:
        for record in self._read(state_of(self.place)):
            self.standby.read_state(record)
        self._changed()

    def _poll_beats(self) -> None:
        for record in self._read(beats_of(self.place)):
            self.roles.beat_heard(self.world.now, *record.body)
            self._do()

    def _feed(self, reads: list[Read]) -> None:
        if self.primary is not None:
            self.primary.take(reads)

    def _seen(self, place: Place, record: Record, counts: bool) -> None:  # noqa: FBT001 (a callback)
        if place != self.place:
            return
        self.standby.read_version(record, counts=counts)
        if record.body is None:
            return
        self.roles.heard(self.world.now, record.body.record, counts=counts)
        self._do()

    def _changed(self) -> None:
        if self.primary is None and self.standby.apply(self.place, self.follower.logs):
            self.world.result.count("applied")
            self.point("apply")
            entry = self.standby.entries.get(self.standby.applied[0])
            if self.input.started and entry is not None:
                self.input.durable(entry.contents.inputs)
        position = self.follower.positions[self.place]
        due = [step for end, step in self._checks if position >= end]
        self._checks = [(end, step) for end, step in self._checks if position < end]
        for step in due:
            self.roles.checked(self.world.now, step.epoch, step.check)
            self._do()
        if self.primary is not None:
            self.primary.logs_changed()
        self._look()

    # Roles -----------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether all logs were read as far as they went when this process began."""
        return self.follower.current and all(self._at[where] >= end for where, end in self._ends.items())

    def _look(self) -> None:
        """Take part, once everything was read."""
        if not self.ready:
            return
        if not self.input.started:
            entry = self.standby.entries.get(self.follower.logs.newest_durable(self.place))
            self.input.start(() if entry is None else entry.contents.inputs)
        if not self._began:
            self._began = True
            self.roles.begin(self.world.now)
        if self._away:
            self._away = False
            self.roles.caught_up(self.world.now)
        self._do()

    def fell_behind(self) -> None:
        """Judge by nothing more, until the logs were read to their ends anew."""
        self._away = True
        self.roles.was_away()
        self._do()

    def reported(self, names: tuple[str, ...]) -> None:
        self.roles.reported(self.world.now, names)
        self._do()

    def gives_way(self, epoch: int) -> None:
        """Have another member take over from a reign that rests on something dead, or go back oneself."""
        self.roles.give_up(self.world.now, f"epoch {epoch} rests on something dead")
        self._do()

    def may_emit(self) -> bool:
        may = self.roles.may_emit(self.world.now)
        self._do()
        return may

    def _do(self) -> None:
        """Do what the roles say, in their order, and wake them in time."""
        if self._doing:
            return
        self._doing = True
        try:
            while steps := self.roles.take_actions():
                for step in steps:
                    self._do_one(step)
        finally:
            self._doing = False
        wake = self.roles.next_wake()
        if wake is not None and (self._wake_at is None or wake < self._wake_at):
            self._wake_at = wake
            self.after(wake - self.world.now, self._advance)

    def _advance(self) -> None:
        self._wake_at = None
        self.roles.advance(self.world.now)
        self._do()

    def _do_one(self, step: Step) -> None:
        if isinstance(step, Append):
            self._append(step.record)
        elif isinstance(step, Ask):
            self.world.result.count("yields")
            self.wire.send(CONTROL, keyed(claim_log.key(step.wish), step.wish), _nothing)
        elif isinstance(step, Load):
            self.role = "primary"
            self.after(self.world.latency(), partial(self._load, step.epoch, step.version))
        elif isinstance(step, StandDown):
            self._stand_down()
        elif isinstance(step, ReadToEnd):
            self._checks.append((self.world.broker.end(versions_of(self.place)), step))
            self.after(self.world.latency(), self._changed)
        elif isinstance(step, Emit) and step.again and self.primary is not None:
            self.world.result.count("lease regained")
            self.primary.outgoing.flush()
        elif isinstance(step, End):
            self.kill()
            self.world.ended(self)

    def _append(self, record: Claim | Fence | Base) -> None:
        if isinstance(record, Claim):
            if self._stood_down == self.world.now:
                self.world.result.count("goes back itself")
            kind, where, key, body = "claim", CONTROL, claim_log.key(record), record
        else:
            kind = "fence" if isinstance(record, Fence) else "base"
            where, key = versions_of(self.place), self.world.scenario.guards.version_key(record)
            body = Logged(record)  # type: ignore[assignment]
        self.point(f"{kind}.before")
        self.world.result.count(kind)
        self.wire.send(where, keyed(key, body), lambda: self.point(f"{kind}.after"))

    def _load(self, epoch: int, version: Version) -> None:
        member = self.roles.member
        if member.role is not Role.PRIMARY or member.epoch != epoch:
            return
        self.point("load")
        self._poll_state()  # the chunks stood in the log before the manifest did
        try:
            state = self.standby.state_of(version)
        except CheckpointError:
            # What is missing to who has been overtaken meanwhile was tombstoned by the next primary.
            self.follower.poll(self.place)
            if member.role is Role.PRIMARY and member.epoch == epoch:
                raise
            return
        self.primary = Primary(self, epoch, version, state, self.standby.entries.get(version))
        self.primary.begin()

    def _stand_down(self) -> None:
        self.role = "backup"
        if self.primary is not None:
            self._stood_down = self.world.now
            self.world.result.count("stood down")
            self.primary.drop()
            self.primary = None

    # Time ------------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        self.point("lease")
        self._sequence += 1
        self.roles.beat_sent(self.world.now, self._sequence)
        self.wire.send(beats_of(self.place), keyed(None, (self.name, self._sequence)), _nothing)
        self.after(self.lease.beat, self._beat)

    def commit(self) -> None:
        """Commit what the newest durable version covers; it only tells others."""
        if self.primary is not None:
            self.primary.commit()

    @property
    def idle(self) -> bool:
        quiet = self.wire.is_quiet(beats_of(self.place)) and self.follower.read_up() and self.ready
        if not (quiet and self.input.read_up):
            return False
        if self.primary is not None:
            return self.primary.idle
        return self.role == "backup" and self.roles.role is Role.BACKUP


def _nothing() -> None:
    """Nothing follows from it."""
