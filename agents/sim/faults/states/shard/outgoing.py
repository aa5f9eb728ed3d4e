"""What a primary sends: at once while the lease allows it, else when it does again; nothing once the reign is over."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.sim.faults.broker import Place, Record
    from agents.sim.faults.states.shard.host import Host


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
