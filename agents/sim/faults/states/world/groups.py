"""Who of a stage's replicas has which partition, as the coordinator of its group says it.

Members are static: one that is started again has what its place had. A partition moves in order (the one lets it go,
then the other takes it), or, where the one does not answer, without it: then its commits are refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Groups:
    """The groups of the gate and of all stateless stages."""

    def __init__(self, stages: Iterable[str], partitions: int, replicas: int) -> None:
        self.replicas = replicas
        self._owners = {(stage, partition): partition % replicas for stage in stages for partition in range(partitions)}

    def of(self, stage: str, replica: int) -> list[int]:
        return [partition for (name, partition), owner in self._owners.items() if (name, owner) == (stage, replica)]

    def owner(self, stage: str, partition: int) -> int:
        return self._owners[stage, partition]

    def move(self, stage: str, partition: int, to: int) -> None:
        self._owners[stage, partition] = to

    def all(self) -> Iterable[tuple[str, int, int]]:
        return [(stage, partition, replica) for (stage, partition), replica in self._owners.items()]
