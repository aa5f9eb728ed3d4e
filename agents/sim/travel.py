"""What moves and what stands in the simulated pipeline: requests, queues with their instances, stages."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

from agents.core.batching import Batcher
from agents.core.policies import make
from agents.core.request import Path, Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from agents.core.policy import Policy, StageFacts
    from agents.sim.plan import Plan, StagePlan

NEVER = float("inf")
NO_PATH: Path = {}  # never changed in place: a choice makes a new one


class Traveller(Request):
    """A request on its way: one object per branch, reused from stage to stage."""

    __slots__ = ("index",)

    def __init__(self, index: int, partition: int, sent: float, deadline: float, path: Path = NO_PATH) -> None:
        self.request_id = ""
        self.index = index
        self.partition = partition
        self.sent = self.arrived = sent
        self.deadline = deadline
        self.parts = ()
        self.path = path

    def twin(self) -> Traveller:
        return Traveller(self.index, self.partition, self.sent, self.deadline, self.path)


class Station(Batcher):
    """One queue of a stage, with the instances that it feeds."""

    __slots__ = ("run", "wakes")

    def __init__(self, run: StageRun, policy: Policy) -> None:
        plan = run.plan
        super().__init__(policy, plan.batch, plan.delay, plan.instances, run.durations.__getitem__, plan.limits)
        self.run = run
        self.wakes = NEVER  # the earliest wake-up that is on its way


class StageRun:
    """One stage: its stations, where its results go, and what it did so far."""

    __slots__ = (
        "batches",
        "dropped",
        "durations",
        "executed",
        "facts",
        "finished",
        "foresight",
        "name",
        "next",
        "owners",
        "plan",
        "queued",
        "shared",
        "shares",
        "single",
        "stations",
        "successors",
        "waited",
        "whole",
    )

    def __init__(
        self,
        plan: StagePlan,
        whole: Plan,
        facts: Mapping[str, StageFacts],
        shared: dict[Any, Any],
        foresight: Mapping[str, Callable[[Request, float], Path]],
    ) -> None:
        """`facts` are what the stage's policies see of all stages; they may change while it runs.

        `shared` is common to the policies of all stages, and so is `foresight`.
        """
        self.plan = plan
        self.whole = whole
        self.facts = facts
        self.shared = shared
        self.foresight = foresight
        self.name = plan.name
        self.durations = [0.0, *(plan.duration(n) for n in range(1, plan.batch + 1))]
        self.shares = [0.0, *(seconds / n for n, seconds in enumerate(self.durations[1:], start=1))]
        self.stations = [self._open(number) for number in range(plan.queues)]
        self.next: Callable[[], Station] = cycle(self.stations).__next__  # round-robin
        # By partition, the station that owns it; None where requests are dispatched in another way.
        self.owners = [self.stations[queue] for queue in plan.owners] if plan.owners else None
        self.successors: dict[str, StageRun] = {}
        # The only successor, where a result is handed over to it at once and nothing else is to be decided.
        self.single: StageRun | None = None
        self.batches = self.finished = self.dropped = 0
        self.queued = self.waited = self.executed = 0.0

    def station(self, partition: int) -> Station:
        """Say which queue the next request joins: its partition's owner, or the next in turn."""
        return self.next() if self.owners is None else self.owners[partition]

    def _open(self, number: int) -> Station:
        view = self.whole.view(self.plan, number, self.facts, self.shared, self.foresight)
        return Station(self, make(self.plan.policy, view))
