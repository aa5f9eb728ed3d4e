"""What the processes of a stateful pipeline have in common: points at which they may die, and a wire of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agents.sim.faults.world.wire import Wire
from agents.sim.faults.world.world import Process
from lineage.errors import CheckpointError, WireError

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.sim.faults.world.world import StateWorld


class KilledError(Exception):
    """The process has just died; nothing that it was about to do is done."""


class Living(Process):
    """A process that dies where it is told to, and not only between two events."""

    def __init__(self, world: StateWorld, stage: str, replica: int) -> None:
        self.role = ""
        skew = world.scenario.skew
        self._ahead = world.random.uniform(-skew, skew) if skew else 0.0  # of its clock
        super().__init__(world, stage, replica)
        self.wire = Wire(world, self)
        self.since = 0.0  # when it was stopped

    @property
    def has(self) -> set[int]:
        """The partitions that its group gives it and that it reads; none where it is in none."""
        return set()

    @property
    def now(self) -> float:
        return self.world.now + self._ahead

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        super().after(seconds, lambda: self.attempt(what))

    def attempt(self, what: Callable[[], None]) -> None:
        try:
            what()
        except KilledError:
            pass
        except (CheckpointError, WireError) as error:
            self.world.result.problems.append(f"{self.stage}.{self.replica}: {error}")
            self.die()

    def point(self, name: str) -> None:
        """Come to a point by name; the process may not come beyond it."""
        self.world.points(self, name)
        if not self.alive:
            raise KilledError

    def stand_still(self) -> None:
        super().stand_still()
        self.since = self.world.now
        self.wire.stopped()

    def go_on(self) -> None:
        waiting, self.standing = self.standing or [], None
        self.wire.goes_on()
        for what in waiting:
            if self.alive:
                what()

    def die(self) -> None:
        """End now. Of what was under way to each partition, a beginning arrives."""
        super().die()
        self.wire.died()
