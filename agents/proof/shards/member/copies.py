"""What a member's reigns begin with: the copy of a run's member, which it reads on during a reign, too."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from spillway.agents.proof.shards.member.work import RunMachine, replayed
from spillway.agents.proof.shards.world.records import state_of
from spillway.checkpoint.promotion import Role
from spillway.lineage.errors import CheckpointError
from spillway.lineage.replication import Contents

if TYPE_CHECKING:
    from spillway.agents.proof.shards.member.host import Host
    from spillway.lineage.marks import Version


class RunStates:
    """A member's copy, for its reigns (`spillway.agents.run.shard_member.States`)."""

    def __init__(self, process: Host) -> None:
        self._process, self._world = process, process.world
        self._topic = state_of(process.place)
        self._at = 0
        self._first = self._world.broker.end(self._topic)  # how far what is there at the beginning goes
        self._changed = asyncio.Event()
        self._world.subscribe(process, self._topic, self.poll)
        process.after(self._world.latency(), self.poll)

    def poll(self) -> None:
        """Read all chunks that are there."""
        for record in self._world.broker.read(self._topic, self._at):
            self._process.standby.read_state(record)
        self._at = self._world.broker.end(self._topic)  # the last records may have been compacted away
        self._changed.set()
        self.durable(self._process.logs.newest_durable(self._process.place))

    async def begin(self) -> None:
        """Wait until all chunks were read that the process has found, and the durable version is applied."""
        while self._at < self._first or not self._is_applied:
            self._changed.clear()
            await self._changed.wait()

    @property
    def _is_applied(self) -> bool:
        durable = self._process.logs.newest_durable(self._process.place)
        self.durable(durable)
        return self._process.standby.applied[0] == durable

    # What a member asks for (`States`) --------------------------------------------------------------------------

    def heard(self, read: Any, *, counts: bool) -> None:
        self._process.standby.read_version(read.body, counts=counts)
        self._changed.set()

    def durable(self, version: Version) -> None:
        process = self._process
        if process.member.primary is None and self._process.standby.apply(version):
            self._world.result.counts["applied"] += 1
            process.point("apply")
            entry = self._process.standby.entries.get(version)
            if entry is not None:
                process.input.durable(entry.contents.inputs)
        self._changed.set()

    async def take(self, version: Version) -> tuple[Contents, RunMachine]:
        """Return a version's contents, and a machine with its state."""
        process, world = self._process, self._world
        await asyncio.sleep(world.latency())
        process.point("load")
        self.poll()  # the chunks stood in the log before the manifest did
        try:
            state = self._process.standby.state_of(version)
        except CheckpointError:
            # What is missing to who has been overtaken meanwhile was tombstoned by the next primary.
            await process.read_to_end()
            if process.member.roles.role is Role.PRIMARY:
                raise
            await asyncio.Event().wait()
            raise
        entry = self._process.standby.entries.get(version)
        state = replayed(world, process.place, state, version, entry)
        return (Contents() if entry is None else entry.contents), RunMachine(process, state)

    def follow(self) -> None:
        """Nothing: it has never stopped."""
