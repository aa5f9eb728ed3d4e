"""What stages and gates have in common as processes: they live in virtual time, stand still, and die."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from agents.sim.faults.world import World


class Process:
    """One incarnation of a replica."""

    topic: str
    core: Any  # a stage's or the gate's

    def __init__(self, world: World, stage: str, replica: int) -> None:
        self.world = world
        self.stage = stage
        self.replica = replica
        self.incarnation = world.next_incarnation()
        self.alive = True
        self.standing: list[Callable[[], None]] | None = None  # what comes while it stands still
        self.positions: dict[int, int] = {}  # the next offset to take, by partition
        self.tenures: dict[int, int] = {}  # by partition, which assignment it works under
        self.after(world.scenario.commit_every, self._tick)

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        """Do something later, if the process still lives then; if it stands still, when it goes on."""

        def come() -> None:
            if self.standing is not None:
                self.standing.append(what)
            elif self.alive:
                what()

        self.world.at(self.world.now + seconds, come)

    def fell_behind(self) -> None:
        """Hear that a version log may have been compacted where it is read next."""

    def assign(self, partition: int) -> None:
        raise NotImplementedError

    def revoke(self, partition: int) -> None:
        raise NotImplementedError

    def poll(self, partition: int) -> None:
        raise NotImplementedError

    def commit(self) -> None:
        raise NotImplementedError

    @property
    def idle(self) -> bool:
        raise NotImplementedError

    def poll_all(self) -> None:
        for partition in tuple(self.positions):
            self.poll(partition)

    def stand_still(self) -> None:
        self.standing = []

    def go_on(self) -> None:
        waiting, self.standing = self.standing or [], None
        for what in waiting:
            if self.alive:
                what()

    def fenced(self) -> None:
        """Learn that another one has this one's place: let everything go, then end."""
        for partition in tuple(self.positions):
            self.revoke(partition)
        self.die()

    def die(self) -> None:
        self.alive = False
        self.standing = None

    def _tick(self) -> None:
        self.commit()
        self.world.committed(self.stage, self.replica, self.core)
        self.after(self.world.scenario.commit_every, self._tick)
