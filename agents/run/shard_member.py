"""One member of a stateful shard: what its logs, its peers, its input and its states say, brought together.

It listens to the version logs and to the control log (`spillway.agents.run.log_reader.Listener`), gives what
they say to `RoleDriver`, and does what follows: it begins a reign from a base, and ends it. Everything here is on the
loop.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Protocol

from spillway.agents.run.log_reader import CONTROL
from spillway.checkpoint.damage import DamageError
from spillway.checkpoint.promotion import Role
from spillway.checkpoint.retention import Retention
from spillway.lineage.errors import CheckpointError
from spillway.lineage.marks import INITIAL
from spillway.lineage.replication import Base, Contents, Fence, Manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from spillway.agents.run.log_reader import Read
    from spillway.agents.run.primary import Primary
    from spillway.agents.run.shard_context import Sent
    from spillway.agents.run.shard_input import ShardInput
    from spillway.agents.run.shard_roles import RoleDriver
    from spillway.checkpoint.roles import Roles
    from spillway.lineage.errors import SpillwayError
    from spillway.lineage.marks import Place, Version
    from spillway.lineage.ports import Record

log = logging.getLogger(__name__)


class States(Protocol):
    """Where a base's state comes from, and what is applied meanwhile."""

    def heard(self, read: Read, *, counts: bool) -> None:
        """Note a record of the shard's version log."""

    def durable(self, version: Version) -> None:
        """Note the newest durable version."""

    async def take(self, version: Version) -> tuple[Contents, Any]:
        """Give a version's contents and state away; nothing is followed from then on."""

    def follow(self) -> None:
        """Follow the log (again)."""


class ShardMember:
    """A member, from when its logs are read to its end."""

    def __init__(
        self,
        place: Place,
        places: Sequence[Place],
        *,
        crashed: Callable[[BaseException], None],
        reign: Callable[[int, Version, Contents, Any], Primary],
        ended: Callable[[], object],
        changed: Callable[[], object],
    ) -> None:
        """`reign` builds the driver of a reign from epoch, base, the base's contents, and a machine with its state.

        `ended` is called when one has ended, `changed` when the role or what is durable may have changed.
        """
        self.place = place
        self.retention = Retention()
        self.primary: Primary | None = None
        self.turns: RoleDriver  # given by `join`
        self.roles: Roles
        self._states: States
        self._input: ShardInput
        self._crashed = crashed
        self._reign = reign
        self._ended = ended
        self._on_change = changed
        self._unread = {*places, CONTROL}
        self._read = asyncio.Event()
        self._loading: asyncio.Task[None] | None = None
        self._broken = False
        self._began = False
        self._gave_way = 0  # the newest epoch that was given up because it rested on something dead
        self.changed = asyncio.Event()  # the role, or what is durable

    def join(self, turns: RoleDriver, states: States, shard_input: ShardInput) -> None:
        self.turns, self.roles, self._states, self._input = turns, turns.core, states, shard_input
        shard_input.fed = lambda: 0 if self.primary is None else self.primary.feed.waiting

    # The logs (`Listener`) -------------------------------------------------------------------------------------

    def records(self, batch: Sequence[Read]) -> None:
        if self._broken:
            return
        for read in batch:
            try:
                counts = self.turns.take(read)
                if read.place == self.place:
                    self._note(read)
                    self._states.heard(read, counts=counts)
            except CheckpointError as error:
                self.failed(CheckpointError(f"{read.where}: {error}"))
                return
        self._look()

    def _note(self, read: Read) -> None:
        if isinstance(read.record, (Fence, Base, Manifest)):
            self.retention.appended(read.record)
        elif read.record is None:
            self.retention.tombstoned(read.key)

    def caught_up(self, place: Place) -> None:
        if place != CONTROL:
            self.roles.logs.caught_up(place)
        self._unread.discard(place)
        if not self._unread:
            self._read.set()
            self.turns.caught_up()
        self._look()

    def fell_behind(self, place: Place) -> None:
        self._unread.add(place)
        self.turns.was_away()
        if place != CONTROL:
            self.roles.logs.fell_behind(place)

    def failed(self, error: SpillwayError) -> None:
        if not self._broken:
            self._broken = True
            self._crashed(error)

    async def read(self) -> None:
        await self._read.wait()

    def _look(self) -> None:
        """Look at what is durable and what is dead now; end where the shard's own log is damaged (rule 16)."""
        damage = self.roles.logs.damage(self.place)
        if damage is not None:
            self.failed(DamageError(damage))
        if self._unread or self._broken:
            return
        durable = self.roles.logs.newest_durable(self.place)
        primary = self.primary
        if primary is not None:
            self._input.durable(primary.durability_changed().values())
            self._look_for_dead(primary)
        self._states.durable(durable)
        self._has_changed()

    def _has_changed(self) -> None:
        self.changed.set()
        self._on_change()

    def _look_for_dead(self, primary: Primary) -> None:
        """Have the reign end that rests on something dead (rule 14), once."""
        mark, back = primary.core.contaminated, self.roles.logs.rollback(self.place)
        if (mark is None and back is None) or self._gave_way == primary.core.epoch:
            return
        self._gave_way = primary.core.epoch
        self.turns.give_up(
            f"its versions after {back} are dead" if mark is None else f"its reign depends on {mark}, which is dead"
        )

    # Roles (`Acts`) --------------------------------------------------------------------------------------------

    def load(self, epoch: int, version: Version) -> None:
        self._loading = asyncio.get_running_loop().create_task(self._load(epoch, version))

    async def _load(self, epoch: int, version: Version) -> None:
        try:
            contents, machine = await self._states.take(version)
            await self._input.complete(contents.inputs)
            if self.roles.role is not Role.PRIMARY or self.roles.member.epoch != epoch:
                log.info("%s: another member took over before epoch %d began", self.roles.name, epoch)
                return
            self._loading = None
            self.primary = self._reign(epoch, version, contents, machine)
            log.info("%s: primary of epoch %d from %s", self.roles.name, epoch, version)
            self._look()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - a member that cannot take its base is no use to anybody
            self._crashed(error)

    def stand_down(self) -> None:
        if self.end():
            self._states.follow()
        self._has_changed()

    def end(self) -> bool:
        """End the reign, or the beginning of one; say whether there was any."""
        primary, self.primary = self.primary, None
        if primary is not None:
            log.info("%s: stops being primary (epoch %d)", self.roles.name, primary.core.epoch)
            primary.close()
            self._ended()
        loading, self._loading = self._loading, None
        if loading is not None:
            loading.cancel()
        return primary is not None or loading is not None

    def emit_again(self) -> None:
        if self.primary is not None:
            self.primary.may_emit_again()

    # What else comes -------------------------------------------------------------------------------------------

    def feed(self, records: list[Record]) -> None:
        if self.primary is not None:
            self.primary.feed.add(records)

    def stop_taking(self) -> None:
        """Take nothing more: neither what is read, nor what waits to be taken; it lies in the input all the same."""
        self._input.stop_taking()
        if self.primary is not None:
            self.primary.feed.stop()

    def stored(self, tokens: Sequence[Sent]) -> None:
        """Take acknowledgements; those of an older reign are nobody's business, but for the room that they leave."""
        if self.primary is not None:
            self.primary.stored([token for token in tokens if token.reign is self.primary])

    async def wait_until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition holds that changes with roles and logs; False if it does not within so many s."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while not condition():
            self.changed.clear()
            left = until - loop.time()
            if left <= 0:
                return False
            try:
                await asyncio.wait_for(self.changed.wait(), min(left, 0.05))
            except TimeoutError:
                continue
        return True


__all__ = ["INITIAL", "ShardMember", "States"]
