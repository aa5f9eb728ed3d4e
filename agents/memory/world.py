"""A world in one process: virtual time, chance from a seed, a broker that may be away, and who reads what."""

from __future__ import annotations

from contextvars import Context
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from spillway.agents.memory.broker import Broker, R
from spillway.agents.memory.loop import VirtualLoop
from spillway.agents.memory.processes import Process
from spillway.agents.memory.records import Kept, kept

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from spillway.agents.memory.broker import Place
    from spillway.lineage.ports import Outgoing

_T = TypeVar("_T")

START: Final = 1_000_000.0  # unix seconds
_LATE: Final = 0.5  # share of an executor's functions that run at the end of their time


class Network(NamedTuple):
    """How long a message takes: mostly from `least` on, in seconds, and now and then long."""

    least: float = 0.0005
    spread: float = 0.004
    slow: float = 0.04  # share of messages with a long delay


@dataclass(slots=True)
class _Reader:
    process: Process
    place: Place
    poll: Callable[[], None]
    due: bool = False  # whether it will poll anyway


class World(Generic[R]):
    """Time, a broker, and processes that live in them. The same seed makes the same run."""

    partitions: dict[str, int]  # of each topic that groups read
    pace = 1.0  # how many times as long groups wait
    in_flight = 1_000  # messages of an output that are not acknowledged, from which on it has no room

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)  # noqa: S311 (a simulation)
        self.loop = VirtualLoop(START, self._executes)
        self.network = Network()
        self.broker: Broker[R] = Broker(lambda: self.now, self.wake, self.gap)
        self.processes: list[Process] = []
        self._context = Context()  # of what happens to processes, and is no process's own
        self._readers: dict[Place, list[_Reader]] = {}
        self._away: list[tuple[float, float]] = []  # when the broker does not answer

    def gap(self, _place: Place) -> int:
        """Return how many offsets stand before the next record of a place."""
        return 0

    @staticmethod
    def as_read(_place: Place, stored: Any, *, values: bool = True) -> Any:
        """Return a record as who reads a log gets it."""
        return stored.record(values=values)

    @staticmethod
    def as_stored(outgoing: Outgoing) -> Any:
        """Return what the broker keeps of a record that is written."""
        return kept(outgoing)

    def is_read(self, place: Place, position: int) -> bool:
        """Whether a reader at this position has nothing more to read."""
        return next(self.broker.read(place, position), None) is None

    # Processes -------------------------------------------------------------------------------------------------

    def process(self, name: str, *, ahead: float = 0.0) -> Process:
        """Make a process, whose clock is so many seconds ahead."""
        process = Process(self.loop, name, ahead=ahead)
        self.processes.append(process)
        return process

    def run_until(self, main: Coroutine[Any, Any, _T]) -> _T:
        """Run until `main`, which belongs to no process, has ended; then end the world."""
        try:
            return self.loop.run_until_complete(main)
        finally:
            self.end()

    def end(self) -> None:
        """Kill all processes, and close the loop."""
        for process in self.processes:
            process.kill()
        self.loop.close()

    def _executes(self) -> tuple[float, bool]:
        return 0.001 + 0.01 * self.random.random(), self.random.random() < _LATE

    # Time ------------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        return self.loop.now

    def at(self, when: float, what: Callable[[], None]) -> None:
        self.loop.call_at(when, what, context=self._context)

    def latency(self) -> float:
        """Draw how long until the broker has answered: short, now and then long, longer while it is away."""
        random = self.random.random
        least, spread, slow = self.network
        delay = 0.02 + 0.2 * random() if random() < slow else least + spread * random()
        return self.answering(self.now + delay) - self.now if self._away else delay

    def answering(self, when: float) -> float:
        for start, end in self._away:
            if start <= when < end:
                return end + 0.003 * self.random.random()
        return when

    def away(self, start: float, end: float) -> None:
        self._away.append((start, end))
        self._away.sort()

    # Readers ---------------------------------------------------------------------------------------------------

    def subscribe(self, process: Process, place: Place, poll: Callable[[], None]) -> None:
        """Call `poll` in a process a moment after something new is at a place."""
        readers = self._readers.setdefault(place, [])
        if any(not reader.process.alive for reader in readers):
            readers[:] = [reader for reader in readers if reader.process.alive]
        readers.append(_Reader(process, place, poll))

    def wake(self, place: Place) -> None:
        for reader in self._readers.get(place, ()):
            if reader.process.alive and not reader.due:
                reader.due = True
                self._poll_later(reader, self.now + 0.0005 + 0.0025 * self.random.random())

    def reads_at(self, _process: Process, _place: Place, when: float) -> float:
        """Return the first moment from `when` on at which a process gets to read a place."""
        return self.answering(when)

    def _poll_later(self, reader: _Reader, when: float) -> None:
        when = self.reads_at(reader.process, reader.place, when)

        def poll() -> None:
            reader.due = False
            reader.poll()

        reader.process.after(when - self.now, poll)


class DriverWorld(World[Kept]):
    """A world for drivers over ports.

    `partitions`: of each topic that there is; `gaps`: the most offsets that stand between two records.
    """

    def __init__(self, seed: int, partitions: dict[str, int] | None = None, *, gaps: int = 0) -> None:
        super().__init__(seed)
        self.partitions = dict(partitions or {})
        self._gaps = gaps

    def gap(self, _place: Place) -> int:
        return self.random.randint(0, self._gaps) if self._gaps else 0
