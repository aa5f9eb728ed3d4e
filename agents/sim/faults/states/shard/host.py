"""A member of a shard as its reign sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.sim.faults.states.processes.living import Living

if TYPE_CHECKING:
    from agents.sim.faults.broker import Place
    from agents.sim.faults.states.shard.reading import ShardInput
    from agents.sim.faults.states.shard.standby import Standby
    from agents.sim.faults.states.world.follower import Follower


class Host(Living):
    """A process in which a reign may be."""

    place: Place
    name: str
    standby: Standby
    follower: Follower
    input: ShardInput

    def gives_way(self, epoch: int) -> None:
        """Have another member take over from the reign of an epoch, which rests on something dead."""
        raise NotImplementedError

    def may_emit(self) -> bool:
        raise NotImplementedError
