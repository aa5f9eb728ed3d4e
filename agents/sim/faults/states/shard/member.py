"""A member of a shard as a process: it follows the logs, keeps a standby copy, watches the primary, and becomes it.

What it decides is decided by `Member`, `Claims`, `Watch` and `Emission`; it does what they say. Backups read the
shard's input, too, and keep its tail, which a promotion takes.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from agents.sim.faults.states.shard.host import Host
from agents.sim.faults.states.shard.primary import Primary
from agents.sim.faults.states.shard.reading import ShardInput
from agents.sim.faults.states.shard.standby import Logged, Standby
from agents.sim.faults.states.world.follower import Follower
from agents.sim.faults.states.world.topics import CONTROL, beats_of, keyed, state_of, versions_of
from checkpoint import claims as claim_log
from checkpoint.claims import Claims
from checkpoint.leases import Emission
from checkpoint.leases import Order as LeaseOrder
from checkpoint.promotion import Append, Load, Role, StandDown
from checkpoint.silence import Watch
from lineage.errors import CheckpointError
from lineage.replication import Claim, Fence, Yield

if TYPE_CHECKING:
    from agents.sim.faults.broker import Place, Record
    from agents.sim.faults.states.shard.reading import Read
    from agents.sim.faults.states.world.state_world import StateWorld
    from checkpoint.promotion import Action
    from lineage.marks import Version

_PATIENCE = 0.25  # seconds that a primary which has to go back waits for its backup


class MemberProcess(Host):
    """One incarnation of one member."""

    def __init__(self, world: StateWorld, place: Place, replica: int) -> None:
        super().__init__(world, place[0], replica)
        guards, broker = world.scenario.guards, world.broker
        self.place = place
        self.lease = world.scenario.lease
        self.role = "backup"
        self.name = f"{place[0]}.{place[1]}.{replica}.{self.incarnation}"
        self.claims = Claims()
        self.standby = Standby()
        self.primary: Primary | None = None
        self.input = ShardInput(self, place, self._feed)
        self.emission: Emission | None = None
        self.watch: Watch | None = None
        self._at = {CONTROL: 0, state_of(place): 0, beats_of(place): broker.end(beats_of(place))}
        self._ends = {where: broker.end(where) for where in (CONTROL, state_of(place))}
        self._beats: dict[int, float] = {}
        self._sequence = 0
        self._returned: float | None = None  # when the newest beat that has come back was sent
        self._check: tuple[int, int] | None = None
        self._wish = False  # a failover is due, and this member does not know enough yet
        self._was_ready = False
        logs = guards.member_logs(world.places_for(place))
        self.follower = Follower(world, self, logs, world.places_for(place), self._changed, self._seen)
        self.member = guards.member(place, self.name, self.claims, logs)
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
        """The primary's, if this is one."""
        return None if self.primary is None else self.primary.core

    # What is read ----------------------------------------------------------------------------------------------

    def _read(self, where: Place) -> list[Record]:
        records = list(self.world.broker.read(where, self._at[where]))
        self._at[where] = self.world.broker.end(where)  # the last records may have been compacted away
        return records

    def _poll_control(self) -> None:
        for record in self._read(CONTROL):
            said = record.body
            if (said.stage, said.shard) != self.place:
                continue
            if isinstance(said, Yield):
                if said.epoch == self.claims.epoch(self.place) and said.by != self.name and self.ready:
                    self.want()
                continue
            won = self.claims.take(said)
            if won:
                self._watch()
            self._act(self.member.heard_claim(said, won=won))
        self._look()

    def _poll_state(self) -> None:
        for record in self._read(state_of(self.place)):
            self.standby.read_state(record)
        self._changed()

    def _poll_beats(self) -> None:
        now = self.world.now
        for record in self._read(beats_of(self.place)):
            name, sequence = record.body
            if name != self.name:
                if self.watch is not None:
                    self.watch.heard(now, name)
                continue
            self._returned = self._beats.pop(sequence, self._returned)
            if self.emission is not None:
                self._obey(self.emission.beat_returned(now, sequence))
            if self.watch is not None and self.watch.probe_returned(now, sequence):
                self.want()

    def _feed(self, reads: list[Read]) -> None:
        if self.primary is not None:
            self.primary.take(reads)

    def _seen(self, place: Place, record: Record, counts: bool) -> None:  # noqa: FBT001 (a callback)
        if place != self.place:
            return
        self.standby.read_version(record, counts=counts)
        if record.body is None:
            return
        said = record.body.record
        if counts and isinstance(said, Fence) and self.emission is not None:
            self.emission.fenced(said.epoch)
        self._act(self.member.heard(said, counts=counts))

    def _changed(self) -> None:
        """Look at what the logs, or the state topic, have brought."""
        if self.primary is None and self.standby.apply(self.place, self.follower.logs):
            self.world.result.count("applied")
            self.point("apply")
            entry = self.standby.entries.get(self.standby.applied[0])
            if self.input.started and entry is not None:
                self.input.durable(entry.contents.inputs)
        if self._check is not None and self.emission is not None:
            check, end = self._check
            if self.follower.positions[self.place] >= end:
                self._check = None
                self._obey(self.emission.checked(self.world.now, check))
        if self.primary is not None:
            self.primary.logs_changed()
        self._look()

    # Roles -----------------------------------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """Whether all logs were read as far as they went when this process began."""
        return self.follower.current and all(self._at[where] >= end for where, end in self._ends.items())

    def _look(self) -> None:
        """Begin to take part, once everything was read."""
        if not self.ready or (self._was_ready and not self._wish):
            return
        began, self._was_ready = not self._was_ready, True
        if not self.input.started:
            entry = self.standby.entries.get(self.follower.logs.newest_durable(self.place))
            self.input.start(() if entry is None else entry.contents.inputs)
        if self._wish or (began and not self.claims.winner(self.place)):
            self._wish = False
            self.want()
        elif began:
            self._watch()

    def _watch(self) -> None:
        winner = self.claims.winner(self.place)
        if not self._was_ready or winner == self.name or not winner:
            self.watch = None
        elif self.watch is None or self.watch.peer != winner:
            self.watch = Watch(self.lease, winner, self.world.now)

    def want(self) -> None:
        """Try to become primary."""
        if not self.ready:
            self._wish = True
            return
        self._act(self.member.wanted())

    def reported(self, names: tuple[str, ...]) -> None:
        """Hear from a supervisor that processes are dead."""
        if self.watch is not None and self.watch.peer in names and self.watch.reported(self.watch.peer):
            self.want()

    def gives_way(self, epoch: int) -> None:
        """Ask for another primary, as this one rests on something dead; go back oneself if nobody comes (rule 14)."""
        self.world.result.count("yields")
        self.wire.send(CONTROL, keyed(f"yield/{self.name}/{epoch}", Yield(*self.place, epoch, self.name)), _nothing)
        patience = _PATIENCE * self.world.scenario.stretch * (1 + self.world.random.random())
        self.after(patience, lambda: self._goes_back(epoch))

    def _goes_back(self, epoch: int) -> None:
        if self.primary is not None and self.primary.epoch == epoch:
            self.world.result.count("goes back itself")
            self.want()

    def _act(self, action: Action | None) -> None:
        if isinstance(action, Append):
            self._append(action)
        elif isinstance(action, Load):
            self.role = "primary"
            self.emission = Emission(self.lease, action.epoch, self._returned)
            self.after(self.world.latency(), partial(self._load, action.epoch, action.version))
        elif isinstance(action, StandDown):
            self._stand_down()

    def _append(self, action: Append) -> None:
        record = action.record
        if isinstance(record, Claim):
            self._stand_down()  # who begins anew reigns no more
            kind, where, key, body = "claim", CONTROL, claim_log.key(record), record
        else:
            kind = "fence" if isinstance(record, Fence) else "base"
            where, key = versions_of(self.place), self.world.scenario.guards.version_key(record)
            body = Logged(record)  # type: ignore[assignment]
        self.point(f"{kind}.before")
        self.world.result.count(kind)
        self.wire.send(where, keyed(key, body), lambda: self.point(f"{kind}.after"))

    def _load(self, epoch: int, version: Version) -> None:
        member = self.member
        if member.role is not Role.PRIMARY or member.epoch != epoch or self.emission is None:
            return
        self.point("load")
        self._poll_state()  # the chunks stood in the log before the manifest did
        try:
            state = self.standby.state_of(version)
        except CheckpointError:
            # What is missing to who has been overtaken meanwhile was tombstoned by the next primary.
            self.follower.poll(self.place)
            if self.member.role is Role.PRIMARY and self.member.epoch == epoch:
                raise
            return
        self.primary = Primary(self, epoch, version, state, self.standby.entries.get(version), self.emission)
        self.primary.begin()

    def _stand_down(self) -> None:
        self.role = "backup"
        self.emission = self._check = None
        if self.primary is not None:
            self.world.result.count("stood down")
            self.primary.drop()
            self.primary = None

    # Time ------------------------------------------------------------------------------------------------------

    def _beat(self) -> None:
        now = self.world.now
        self.point("lease")
        self._sequence += 1
        self._beats[self._sequence] = now
        if self.emission is not None:
            self._obey(self.emission.advance(now))
            self.emission.beat_sent(now, self._sequence)
        if self.watch is not None:
            self.watch.probe_sent(now, self._sequence)
        self.wire.send(beats_of(self.place), keyed(None, (self.name, self._sequence)), _nothing)
        self.after(self.lease.beat, self._beat)

    def _obey(self, orders: list[LeaseOrder]) -> None:
        assert self.emission is not None  # its orders
        for order in orders:
            if order is LeaseOrder.CHECK:
                self._check = self.emission.checks, self.world.broker.end(versions_of(self.place))
                self.after(self.world.latency(), self._changed)
            elif order is LeaseOrder.GO_ON and self.primary is not None:
                self.world.result.count("lease regained")
        if self.primary is not None:
            self.primary.outgoing.flush()

    def fell_behind(self) -> None:
        """End, if this one claims: it cannot say any more what its fence finds."""
        if self.member.role in (Role.CLAIMING, Role.FENCING):
            self.die()
            self.world.ended(self)

    def commit(self) -> None:
        """Commit what the newest durable version covers; it only tells others."""
        if self.primary is not None:
            self.primary.commit()

    @property
    def idle(self) -> bool:
        """Whether nothing is under way here."""
        quiet = self.wire.is_quiet(beats_of(self.place)) and self.follower.read_up() and self.ready
        if not (quiet and self.input.read_up):
            return False
        if self.primary is not None:
            return self.primary.idle
        return self.role == "backup" and self.member.role is Role.BACKUP


def _nothing() -> None:
    """Nothing follows from it."""
