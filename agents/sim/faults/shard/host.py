"""A member of a shard as its reign sees it, and what its primary sends."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from agents.sim.faults.processes.living import Living

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.sim.faults.shard.reading import ShardInput
    from agents.sim.faults.shard.standby import Standby
    from agents.sim.faults.world.broker import Place, Record
    from agents.sim.faults.world.follower import Follower


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


class Outgoing:
    """The messages of one reign that were not handed over yet, in order."""

    def __init__(self, process: Host) -> None:
        self.closed = False
        self._process = process
        self._waiting: deque[Callable[[], None]] = deque()

    def send(self, records: tuple[tuple[Place, Record], ...], acked: Callable[[], None], takes: float = 0.0) -> None:
        """Send records, several of them all at once. `takes`: seconds beside the network's."""

        def heard() -> None:
            if not self.closed:
                acked()

        self._waiting.append(partial(self._process.wire.send_together, records, heard, takes))
        self.flush()

    def flush(self) -> None:
        while self._waiting and not self.closed and self._process.may_emit():
            self._waiting.popleft()()

    @property
    def waits(self) -> bool:
        return bool(self._waiting)
