"""What a section of the pipeline file adds to a plain stage: a step, which the stage's core calls as queries pass.

    admit -> the next step's admit -> ... -> queue -> started -> executed, answered -> settled

A stage has its steps in the order in which queries come to them, and a plain one has none. Where several may act at
the same time, in `advance` and `spare`, the last comes first, as it is nearest to what the queue has done already.
"""

# ruff: noqa: ARG002 - a step does nothing but what it overrides
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from spillway.agents.core.actions import Failed, Ok, Result, Work
    from spillway.agents.core.policy import StageState, StageView
    from spillway.agents.core.workers import Batch

    Enter = Callable[[float, Work], object]


class Stage(Protocol):
    """What a step may ask of its stage's core."""

    stage: str

    @property
    def view(self) -> StageView: ...
    @property
    def workers(self) -> int: ...
    def lend(self, now: float, worker: int) -> bool: ...
    def give_back(self, now: float, worker: int) -> None: ...
    def hit(self, work: Work, value: Any) -> None: ...
    def answer(self, work: Work, result: Ok) -> None: ...
    def spare(self, now: float, works: Collection[Work]) -> None: ...
    def take_out(self, now: float, unwanted: Callable[[Work], bool]) -> int: ...
    def follow_up(self, now: float) -> None: ...


class Step:
    """One that does nothing: each overrides what it needs."""

    def begin(self, stage: Stage, onward: Enter) -> None:
        """Belong to a stage from now on; `onward` lets a query go on to the next step or the queue."""
        self._stage = stage
        self._onward = onward

    def admit(self, now: float, work: Work) -> None:
        """Take a query that comes, and let it go on, now or later, or have it answered."""
        self._onward(now, work)

    def started(self, now: float, batch: Batch) -> None:
        """Hear that a worker was given a batch."""

    def executed(self, now: float, work: Work, result: Result) -> None:
        """Hear what came of a query that a worker ran, even if it is settled or gone."""

    def answered(self, now: float, batch: Batch) -> None:
        """Hear that a batch's worker has answered all of it."""

    def lost(self, batch: Batch) -> None:
        """Hear that a batch's worker will not answer it."""

    def left(self, now: float, work: Work) -> None:
        """Hear that a query has left the queue or its worker without an answer."""

    def settled(self, work: Work, result: Result) -> None:
        """Hear what a query ends with that a worker ran, or that was hit; its partition may be gone."""

    def spare(self, work: Work, failed: Failed | None) -> bool:
        """Answer a query that was refused, has failed, or may wait no longer; False for one that is not answered."""
        return False

    def remove(self, unwanted: Callable[[Work], bool]) -> int:
        """Forget the queries that wait here and that `unwanted` picks; how many they are."""
        return 0

    def advance(self, now: float) -> None:
        """Do what is due by now."""

    def next_wake(self, now: float) -> float | None:
        """When `advance` next has something to do."""
        return None

    def tick(self, now: float, states: Mapping[str, Sequence[StageState]]) -> None:
        """Hear the newest states of all stages."""
