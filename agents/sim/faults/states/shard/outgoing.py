"""What a primary sends: at once while the lease allows it, else when it does again; nothing once the reign is over."""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.sim.faults.broker import Place, Record
    from agents.sim.faults.states.processes.living import Living
    from checkpoint.leases import Emission


class Outgoing:
    """The messages of one reign that were not handed over yet, in order."""

    def __init__(self, process: Living, emission: Emission) -> None:
        self.closed = False
        self._process = process
        self._emission = emission
        self._waiting: deque[Callable[[], None]] = deque()

    def send(self, records: tuple[tuple[Place, Record], ...], acked: Callable[[], None], takes: float = 0.0) -> None:
        """Send records, several of them all at once. `takes`: seconds beside the network's."""

        def heard() -> None:
            if not self.closed:
                acked()

        self._waiting.append(partial(self._process.wire.send_together, records, heard, takes))
        self.flush()

    def flush(self) -> None:
        """Send what waits."""
        while self._waiting and not self.closed and self._emission.may_emit(self._process.world.now):
            self._waiting.popleft()()

    @property
    def waits(self) -> bool:
        """Whether something waits for the right to be sent."""
        return bool(self._waiting)
