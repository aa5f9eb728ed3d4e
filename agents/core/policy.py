"""What decides, for one queue of a stage, which request enters a batch next, and which is dropped instead.

The shape is that of PARD's Request Broker and State Planner (section 4): an order (`push`, `pop`), a decision at t_b,
the moment a request is about to enter a forming batch, given t_e, when that batch will start (`judge`; the waits Q =
t_b - t_r and W = t_e - t_b of eq. 2 are seen in the same call), and, once a period, a state of its own to tell
(`report`) and the states of all stages to merge (`tick`). The batcher (`spillway.agents.core.batching`) calls all of
it.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict

from spillway.lineage import reasons

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spillway.agents.core.request import Path, Request


class Parameters(BaseModel):
    """The parameters of a policy, checked once when it is selected."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Refusal:
    """Why a request is dropped: a code of `spillway.lineage.reasons`, and the rest in words."""

    __slots__ = ("_text", "reason")

    def __init__(self, reason: str, text: str = "") -> None:
        self.reason = reason
        self._text = text

    @property
    def text(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.reason!r}, {self.text!r})"


@dataclass(slots=True, eq=False, repr=False)
class Shortfall(Refusal):
    """A request that is estimated to miss its deadline, with the terms of PARD's eq. 3; all in seconds.

    The estimated end is starts + duration + queueing + execution + waits; a duration of 0 is not known. The words are
    made only when asked for: a simulation drops many requests and reads none of them.
    """

    stage: str
    _: KW_ONLY
    now: float  # t_b
    starts: float  # t_e
    sent: float  # t_s
    deadline: float
    duration: float  # d_k
    queueing: float = 0.0  # the sum of q_i over the later stages
    execution: float = 0.0  # the sum of d_i over them
    waits: float = 0.0  # w_k, with the hops to the later stages and out

    def __post_init__(self) -> None:
        Refusal.__init__(self, reasons.TOO_LATE)

    @property
    def remaining(self) -> float:
        """Seconds that the request was estimated to need from t_b to its end."""
        later = self.queueing + self.execution + self.waits
        return self.starts - self.now + self.duration + later

    @property
    def text(self) -> str:
        """Every term in milliseconds."""
        left = 1000 * (self.deadline - self.now)
        due = f"{left:.1f} ms are left to its deadline" if left >= 0 else f"is {-left:.1f} ms past its deadline"
        execution = f"{1000 * self.duration:.1f}" if self.duration > 0 else "not known yet"
        return (
            f"{self.stage}: needs {1000 * self.remaining:.1f} ms more, {due}; "
            f"spent {1000 * (self.now - self.sent):.1f}, batch wait {1000 * (self.starts - self.now):.1f}, "
            f"execution {execution}, later queueing {1000 * self.queueing:.1f}, "
            f"later execution {1000 * self.execution:.1f}, later waits and hops {1000 * self.waits:.1f} ms"
        )


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
    period: float = 1.0  # seconds between two synchronisations, as planned
    # The choices expected of a request that has not reached their stages yet (chooser -> the successors that it is
    # going to choose); choosers that it says nothing of stay open. By how it is known: "predicted" from the choices of
    # earlier requests, "oracle" as it will be. The number is the share of such requests that the answer is to cover.
    # Empty where no stage chooses, or nobody can tell.
    foresight: Mapping[str, Callable[[Request, float], Path]] = field(default_factory=dict)
    # What the policies of one process (or of one simulation) have in common, by a key of their own, so that what is
    # the same for all queues is worked out once. Give all queues of a process the same one.
    shared: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)


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
    duration: float = 0.0  # seconds of a batch of the planned size as lately measured; 0: not measured
    profiled: float = 0.0  # seconds that the completed batches would have taken by the profile; 0: there is none
    workers: int = 0  # that are given batches now


@dataclass(frozen=True, slots=True)
class StageState:
    """What one replica of a stage tells the others, once a period (PARD's state synchronisation)."""

    stage: str
    replica: int
    at: float
    queueing: float = 0.0  # q: seconds t_b - t_r, the mean over the window, linearly weighted by recency
    entered: float = 0.0  # the weight of that mean: requests that entered a batch, each times its weight
    waits: Sequence[float] = ()  # recent batch waits t_e - t_b: samples, or quantiles of them at even steps
    waits_seen: int = 0  # how many recent waits these stand for
    batch: int = 0  # planned size
    recent_batch: float = 0.0  # mean size of the batches that lately ended
    duration: float = 0.0  # seconds of a batch of the planned size, as lately measured; 0: unknown
    recent_duration: float = 0.0  # mean seconds of the batches that lately ended
    arrival_rate: float = 0.0  # a second, over the span, as all rates
    completion_rate: float = 0.0
    drop_rate: float = 0.0  # share of what arrived
    backlog: int = 0  # queued, forming or running now
    hbf: bool = False  # whether this replica takes the high budgets first
    span: float = 0.0  # seconds of the period that it speaks of
    hops: Sequence[float] = ()  # recent seconds from a sender into this queue: samples, or quantiles at even steps
    utilisation: float = 0.0  # share of its workers' time that batches took which ended in the span
    slower: float = 0.0  # what these took, by what the profile says; 0: nothing to tell


class Policy:
    """Base of all policies: drops nothing, tells nothing. A subclass gives the order and overrides what it needs.

    One policy belongs to one queue. The batcher leaves out calls to hooks that a subclass does not override, so
    `admit`, `judge`, `started`, `expire` and `next_expiry` cost nothing where they are not there.
    """

    __slots__ = ("setting", "view")

    # What can be set of it, a frozen pydantic model; where there is one, the constructor takes (view, parameters).
    parameters_type: ClassVar[type[BaseModel] | None] = None
    # Seconds between two synchronisations where the user does not say; PARD's.
    period: ClassVar[float] = 1.0

    def __init__(self, view: StageView) -> None:
        self.view = view
        self.setting = ""  # as it was selected, for people

    def resized(self, instances: int) -> None:
        """Hear how many model instances the queue feeds from now on, at least one."""
        self.view = replace(self.view, instances=instances)

    # The order -------------------------------------------------------------------------------------------------

    def push(self, now: float, request: Request) -> None:
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

    def admit(self, now: float, request: Request) -> Refusal | None:  # noqa: ARG002
        """Decide at `now` = t_r whether `request`, just arrived, may come in at all. None lets it in."""
        return None

    def judge(self, now: float, starts: float, request: Request) -> Refusal | None:  # noqa: ARG002
        """Decide at `now` = t_b whether `request` enters the batch expected to start at `starts` = t_e.

        Called exactly once for every request that was not expired or removed. None lets it in.
        """
        return None

    def started(self, now: float, requests: Sequence[Request]) -> None:
        """Hear that a batch of these starts at `now`, the real t_e; `judge` was told the expected one."""

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
        """Drop what waits and can no longer be popped in time. Called at `next_expiry` or later, and after `tick`."""

    def next_expiry(self) -> float | None:
        """When `expire` next has something to do; None where nothing waits for it."""
        return None

    # What passes between stages --------------------------------------------------------------------------------

    def report(self, now: float, load: Load) -> StageState | None:  # noqa: ARG002
        """Tell this queue's state to all stages; None where the policy needs no state of others."""
        return None

    def tick(self, now: float, load: Load, states: Mapping[str, Sequence[StageState]]) -> None:
        """Merge the newest state of every replica, by stage. Called once a period, after all have reported."""
