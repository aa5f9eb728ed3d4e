"""The member's copy of its shard's state: followed as a backup, given to a reign, and followed anew after one.

A `StandbyReader` wants the version log's records from the first on, and ends when it has given its copy. So this keeps
the manifests that stand from the newest durable version on, for the next one: a member that stands down follows the log
again, without reading it.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from spillway.agents.live.stateful.threads import hand_over
from spillway.agents.models.placement import UnfitStateError
from spillway.lineage.marks import INITIAL
from spillway.lineage.replication import Base, Contents, Fence, Manifest

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from spillway.agents.live.states.standby import Applied, StandbyReader
    from spillway.agents.models.stateful import Machine
    from spillway.agents.run.log_reader import Read
    from spillway.checkpoint.logs import Logs
    from spillway.checkpoint.standby import Given
    from spillway.lineage.marks import Place, Version
    from spillway.lineage.replication import ChunkKey, Entry, InputPlace

log = logging.getLogger(__name__)


class Copies:
    """The copy of one shard's state. All methods are the loop's."""

    def __init__(
        self,
        place: Place,
        logs: Logs,
        *,
        reader: Callable[[Callable[[Applied], object], Callable[[Version], object]], StandbyReader],
        read_to_ends: Callable[[Callable[[], object]], None],
        machine: Callable[[Any, Version, Contents], Awaitable[Machine]],
        covers: Callable[[Iterable[InputPlace]], None],
        changed: Callable[[], object],
        keyed: bool,
    ) -> None:
        """`reader` makes one that posts what it has applied, and of which version chunks are missing.

        `read_to_ends` calls when all version logs were read to the ends that they have from then on.
        `machine` makes one with a state (None: the first).

        `covers` is told what a durable version covers of the input, when it is applied; `changed` is called when
        `applied` is another. A base that is applied for a reign need not be durable: it may turn out dead, and the next
        base be an older one, whose input must still be there.
        """
        self._place = place
        self._logs = logs
        self._make = reader
        self._read_to_ends = read_to_ends
        self._machine = machine
        self._covers = covers
        self._changed = changed
        self._keyed = keyed
        self._standing: dict[Version, Manifest] = {}  # what counts and is not older than the newest durable one
        self._reader: StandbyReader | None = None
        self._newest: StandbyReader  # made last, even if its copy was given away
        self._durable: Version = INITIAL
        self._begun = False
        self._has_applied = asyncio.Event()
        self.applied: Version = INITIAL  # of a backup
        self.entries: tuple[Entry, ...] = ()  # of what was applied last
        self._applied_keyed = False
        self.present: frozenset[ChunkKey] = frozenset()  # the chunks there when the newest reign began
        self.named: frozenset[ChunkKey] = frozenset()  # those of them that its base needs
        self.follow()

    # What is read ----------------------------------------------------------------------------------------------

    def heard(self, read: Read, *, counts: bool) -> None:
        record = read.record
        if not counts or not isinstance(record, (Fence, Base, Manifest)):
            return
        history = self._logs.log(self._place).history
        if isinstance(record, Manifest):
            self._standing[record.version] = record
        elif isinstance(record, Base):
            self._standing = {version: one for version, one in self._standing.items() if history.alive(version)}
        if self._reader is not None:
            self._reader.heard(record, history)

    def durable(self, version: Version) -> None:
        if version == self._durable:
            return
        self._durable = version
        newest = max((one.n for one in self._standing if one.n <= version.n), default=version.n)
        self._standing = {one: manifest for one, manifest in self._standing.items() if one.n >= newest}
        if self._reader is not None and self._begun:
            self._reader.durable(version)

    # A backup --------------------------------------------------------------------------------------------------

    async def begin(self, version: Version) -> None:
        """Read the chunks from now on; returns when the copy is at the newest durable version.

        Raises UnfitStateError where that is no state of the kind that the pipeline's file says.
        """
        self._begun = True
        self._durable = version
        reader = self._reader
        if reader is None:
            return
        reader.begin()
        if version != INITIAL:
            reader.durable(version)
            await self._has_applied.wait()
            self._refuse_other_kind()

    def _refuse_other_kind(self) -> None:
        kinds = {True: "keyed", False: "shared"}
        if (self.entries or self._applied_keyed) and self._applied_keyed != self._keyed:
            raise UnfitStateError(
                f"stage {self._place[0]!r}: the state in the log is {kinds[self._applied_keyed]}, but the file says "
                f"'kind: {kinds[self._keyed]}'. Serve that kind, or start with an empty state under another "
                "pipeline name"
            )

    def follow(self) -> None:
        if self._reader is not None:
            return
        reader = self._reader = self._newest = self._make(self._applied, self._missing)
        known = self._logs.log(self._place)
        if known.epoch:
            reader.heard(Fence(known.epoch, known.claimant), known.history)
        for manifest in self._standing.values():
            reader.heard(manifest, known.history)
        self.applied = INITIAL
        if self._begun:
            reader.begin()
            reader.durable(self._durable)

    def _applied(self, applied: Applied) -> None:
        self.applied = applied.version
        self.entries, self._applied_keyed = applied.entries, applied.keyed
        if applied.version.n <= self._durable.n:
            self._covers(applied.inputs)
        self._has_applied.set()
        self._changed()

    def _missing(self, version: Version) -> None:
        epoch = self._logs.log(self._place).epoch
        self._read_to_ends(partial(self._looked, self._newest, version, epoch))

    def _looked(self, reader: StandbyReader, version: Version, epoch: int) -> None:
        overtaken = self._reader is None and self._logs.log(self._place).epoch != epoch
        if reader is self._newest and not overtaken:
            reader.answer(version, self._logs.newest_durable(self._place))

    # A reign ---------------------------------------------------------------------------------------------------

    async def take(self, version: Version) -> tuple[Contents, Machine]:
        """Give a version's contents, and a machine with its state; the copy is gone then."""
        reader, self._reader = self._reader, None
        if reader is None:
            self.follow()
            reader, self._reader = self._reader, None
        assert reader is not None  # follow has made it
        promoted: asyncio.Future[Given] = asyncio.get_running_loop().create_future()
        reader.promote(version, partial(hand_over, promoted))
        try:
            given = await promoted
        except asyncio.CancelledError:
            asyncio.get_running_loop().run_in_executor(None, reader.close)  # overtaken: nobody takes what it has
            raise
        self.present, self.named = given.present, given.named
        contents = given.contents or Contents()
        state: Any = given.keyed if self._keyed else given.state
        if not contents.entries and not contents.pages:
            state = None  # the initial one, or no copy of it was made yet
        return contents, await self._machine(state, version, contents)

    @property
    def read_bytes(self) -> int:
        """Bytes of chunks that the newest reader has read, the one that gives its copy to a reign included."""
        return self._newest.read_bytes

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
