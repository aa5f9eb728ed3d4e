"""What decides, for one queue of a stage, which request enters a batch next, and which is dropped instead.

The shape is that of PARD's Request Broker and State Planner (section 4): an order (`push`, `pop`), a decision at t_b,
the moment a request is about to enter a forming batch, given t_e, when that batch will start (`judge`; the waits Q =
t_b - t_r and W = t_e - t_b of eq. 2 are seen in the same call), and, once a period, a state of its own to tell
(`report`) and the states of all stages to merge (`tick`). The batcher (`agents.core.batching`) calls all of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from agents.core.request import Request


class Refusal:
    """Why a request is dropped: a code of `lineage.reasons`, and the rest in words."""

    __slots__ = ("reason", "text")

    def __init__(self, reason: str, text: str = "") -> None:
        self.reason = reason
        self.text = text

    def __repr__(self) -> str:
        return f"Refusal({self.reason!r}, {self.text!r})"


@dataclass(frozen=True, slots=True)
class StageFacts:
    """What is planned for a stage: known to every policy of the pipeline, whatever the stages report."""

    batch: int  # the planned size
    duration: Callable[[int], float]  # seconds that a batch of n takes, as profiled
    workers: int  # model instances over all replicas


@dataclass(frozen=True, slots=True)
class StageView:
    """Where a policy stands: its stage, its queue, and what lies behind it in the pipeline."""

    stage: str
    replica: int = 0
    instances: int = 1  # model instances that this queue feeds
    slo: float = float("inf")
    facts: Mapping[str, StageFacts] = field(default_factory=dict)
    successors: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """A queue's counters since its start, and its present content: rates are differences between two of these."""

    arrived: int
    dropped: int
    started: int
    completed: int
    batches: int  # completed ones
    busy: float  # seconds of execution, completed batches only
    queued: int  # neither in a forming batch nor in a running one
    forming: int
    running: int


@dataclass(frozen=True, slots=True)
class StageState:
    """What one replica of a stage tells the others, once a period (PARD's state synchronisation)."""

    stage: str
    replica: int
    at: float
    queueing: float = 0.0  # q: recent mean queueing delay
    waits: tuple[float, ...] = ()  # a sample of recent batch waits W
    batch: int = 0  # planned size
    duration: float = 0.0  # of a batch of that size, as lately measured
    arrival_rate: float = 0.0
    completion_rate: float = 0.0
    drop_rate: float = 0.0  # share of what arrived
    backlog: int = 0


class Policy:
    """Base of all policies: drops nothing, tells nothing. A subclass gives the order and overrides what it needs.

    One policy belongs to one queue. The batcher leaves out calls to hooks that a subclass does not override, so
    `judge`, `expire` and `next_expiry` cost nothing where they are not there.
    """

    __slots__ = ("view",)

    def __init__(self, view: StageView) -> None:
        self.view = view

    # The order -------------------------------------------------------------------------------------------------

    def push(self, now: float, request: Request) -> None:
        """Take a request that has to wait: no forming batch has room."""
        raise NotImplementedError

    def pop(self, now: float) -> Request | None:
        """Give the request that is to enter a batch next; None when none waits."""
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError

    def remove(self, unwanted: Callable[[Request], bool]) -> list[Request]:
        """Forget the waiting requests that `unwanted` picks (their partition was revoked) and return them."""
        raise NotImplementedError

    # The decision ----------------------------------------------------------------------------------------------

    def judge(self, now: float, starts: float, request: Request) -> Refusal | None:  # noqa: ARG002
        """Decide at `now` = t_b whether `request` enters the batch expected to start at `starts` = t_e.

        Called exactly once for every request that was not expired or removed. None lets it in.
        """
        return None

    def fill(
        self, now: float, starts: float, room: int, batch: list[Request], drops: list[tuple[Request, Refusal]]
    ) -> None:
        """Move up to `room` waiting requests into `batch`, judging each; the refused ones go to `drops`.

        Returns with room left only if nothing waits any more. Sets `entered` of what it moves.
        """
        pop, judge = self.pop, self.judge
        while room > 0:
            request = pop(now)
            if request is None:
                return
            refusal = judge(now, starts, request)
            if refusal is None:
                request.entered = now
                batch.append(request)
                room -= 1
            else:
                drops.append((request, refusal))

    def expire(self, now: float, drops: list[tuple[Request, Refusal]]) -> None:
        """Drop what waits and can no longer be popped in time. Called at `next_expiry` or later."""

    def next_expiry(self) -> float | None:
        """When `expire` next has something to do; None where nothing waits for it."""
        return None

    # What passes between stages --------------------------------------------------------------------------------

    def report(self, now: float, load: Load) -> StageState | None:  # noqa: ARG002
        """Tell this queue's state to all stages; None where the policy needs no state of others."""
        return None

    def tick(self, now: float, load: Load, states: Mapping[str, Sequence[StageState]]) -> None:
        """Merge the newest state of every replica, by stage. Called once a period, after all have reported."""
