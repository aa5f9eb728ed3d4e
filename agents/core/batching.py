"""One queue, the model instances that it feeds, and the batches that form for them.

While an instance runs a batch, its next one is forming: filled from the queue the moment the running batch starts,
then by arrivals, up to the largest size. A request enters at t_b and is judged then, once; the forming batch starts
at t_e, the end of the running one, however full it is. An idle instance starts a request at once, or, with a batching
delay, when its batch is full or the delay since its first request entered is over. Several instances share the queue:
an arrival enters the forming batch that starts first among those with room. Invariant: while a request waits in the
queue, every forming batch is full.

The live stage and the simulator drive the same object; it is written for the latter's speed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from agents.core.instances import IDLE, Batch, Instance
from agents.core.policy import Load, Policy, Refusal, StageState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from agents.core.durations import Duration
    from agents.core.request import Request

__all__ = ["Batch", "Batcher"]


_WEIGHT: Final = 0.1  # of the newest batch


class Batcher:
    """The queue of one stage process (or of one simulated worker) and its instances.

    Every call may append to `starts` (batches to run now) and `drops` (requests that the policy refused); the caller
    drains both. `now` must not decrease. Requests come with `arrived` set; `entered` and `started` are set here.
    """

    __slots__ = (
        "_admit",
        "_alone",
        "_began",
        "_delay",
        "_duration",
        "_expires",
        "_fill",
        "_instances",
        "_judge",
        "_max_batch",
        "_measured",
        "_observe",
        "_overhead",
        "_policy",
        "_target",
        "_told",
        "_wakes",
        "arrived",
        "batches",
        "busy",
        "completed",
        "drops",
        "removed",
        "reports",
        "started",
        "starts",
        "timed",
        "total_drops",
    )

    def __init__(
        self, policy: Policy, max_batch: int, delay: float = 0.0, instances: int = 1, duration: Duration | None = None
    ) -> None:
        """`duration` says what a batch of n is expected to take; it learns, if it has an `observe(n, seconds)`."""
        if max_batch < 1 or instances < 1 or delay < 0:
            raise ValueError(f"max_batch {max_batch}, instances {instances}, delay {delay}: at least 1, 1 and 0")
        self._policy = policy
        self._max_batch = max_batch
        self._delay = delay
        self._duration: Duration = duration if duration is not None else _unknown
        self._observe: Callable[[int, float], None] | None = getattr(duration, "observe", None)
        self._measured = False  # whether `duration` has learnt anything that is not in doubt
        self._overhead = 0.0  # by which an instance is taken up for longer than its model runs, a batch
        self._told = (0, 0)  # what had been started and dropped at the last report
        self._instances = [Instance(index) for index in range(instances)]
        self._alone = self._instances[0] if instances == 1 else None
        self._target: Instance | None = self._instances[0]  # where an arrival enters; None when all is full
        kind = type(policy)
        self._fill = policy.fill
        self._admit = policy.admit if kind.admit is not Policy.admit else None
        self._judge = policy.judge if kind.judge is not Policy.judge else None
        self._began = policy.started if kind.started is not Policy.started else None
        self._expires = kind.expire is not Policy.expire
        self._wakes = kind.next_expiry is not Policy.next_expiry
        self.timed = delay > 0 or self._wakes  # whether `next_wake` can ever be anything but None
        self.reports = kind.report is not Policy.report  # whether it takes part in the synchronisation
        self.starts: list[Batch] = []
        self.drops: list[tuple[Request, Refusal]] = []
        self.arrived = self.started = self.completed = self.total_drops = self.removed = self.batches = 0
        self.busy = 0.0

    # What happens ----------------------------------------------------------------------------------------------

    def push(self, now: float, request: Request) -> None:
        self.arrived += 1
        if self._admit is not None and (refused := self._admit(now, request)) is not None:
            self._drop(request, refused)
            return
        if self._delay:
            self._retarget(now)  # how soon an idle instance would start depends on now
        instance = self._target
        if instance is None:
            self._policy.push(now, request)
            return
        forming = instance.forming
        last = len(forming) + 1 == self._max_batch
        judge = self._judge
        if judge is not None:
            refusal = judge(now, self._start_time(now, instance, full=last), request)
            if refusal is not None:
                self._drop(request, refusal)
                return
        request.entered = now
        if not forming:
            instance.opened = now
        forming.append(request)
        if instance.running is None:
            if last or not self._delay:
                self._start(now, instance)
        elif last:
            self._retarget(now)

    def complete(self, now: float, instance: int, executed: float | None = None) -> Batch:
        """End the running batch of `instance`, which took `executed` seconds if that was measured; return it."""
        slot = self._instances[instance]
        batch = slot.running
        if batch is None:
            raise ValueError(f"instance {instance} runs nothing")
        slot.running = None
        slot.ends = IDLE
        count = len(batch.requests)
        self.completed += count
        self.batches += 1
        if executed is None:
            self.busy += now - batch.started
        else:
            self.busy += executed
            if self._observe is not None:
                self._measured = True
                self._observe(count, executed)
            self._overhead += _WEIGHT * (max(0.0, now - batch.started - executed) - self._overhead)
        forming = slot.forming
        if not forming and self._alone is None:
            self._take_over(slot)
            forming = slot.forming
        if forming and (not self._delay or len(forming) == self._max_batch or slot.opened + self._delay <= now):
            self._start(now, slot)
        else:
            self._retarget(now)
        return batch

    def advance(self, now: float) -> None:
        """Do what time alone brings: start batches whose delay is over, drop what expired in the queue."""
        self._expire(now)
        if self._delay:
            for instance in self._instances:
                if instance.running is None and instance.forming and instance.opened + self._delay <= now:
                    self._start(now, instance)

    def next_wake(self, now: float) -> float | None:
        """When `advance` next has something to do; None if only arrivals and completions can change anything."""
        wakes = []
        if self._delay:
            wakes = [slot.opened + self._delay for slot in self._instances if slot.running is None and slot.forming]
        if self._wakes and (expiry := self._policy.next_expiry()) is not None:
            wakes.append(expiry)
        return max(now, min(wakes)) if wakes else None

    def remove(self, now: float, unwanted: Callable[[Request], bool]) -> list[Request]:
        """Forget the waiting and forming requests that `unwanted` picks, and return them. Running ones stay.

        May bring starts and drops, as what waited takes the room.
        """
        removed = self._policy.remove(unwanted)
        for slot in self._instances:
            gone = [request for request in slot.forming if unwanted(request)]
            if gone:
                removed += gone
                slot.forming = [request for request in slot.forming if not unwanted(request)]
                if slot.forming:
                    slot.opened = slot.forming[0].entered
        self.removed += len(removed)
        self._refill(now)
        return removed

    @property
    def policy(self) -> Policy:
        return self._policy

    # What a policy hears ---------------------------------------------------------------------------------------

    def report(self, now: float) -> StageState | None:
        """Give the policy's state for the other stages, once a period; None where it has none to tell."""
        self._doubt()
        return self._policy.report(now, self.load())

    def _doubt(self) -> None:
        """Forget that durations were measured where nothing but a probe ran for a period, and the rest was dropped.

        No batch can soon show that they are out of date then, and the stage might refuse all there is for long. So the
        profile stands again; where there is none, requests are let in, and measured anew.
        """
        started, dropped = self._told
        if self.started == self.completed <= started + 1 and self.total_drops > dropped:
            self._measured = False
        self._told = (self.started, self.total_drops)

    def tick(self, now: float, states: Mapping[str, Sequence[StageState]]) -> None:
        """Give the policy the newest states of all stages, once a period. May bring drops."""
        self._policy.tick(now, self.load(), states)
        self._expire(now)

    def load(self) -> Load:
        return Load(
            arrived=self.arrived,
            dropped=self.total_drops,
            started=self.started,
            completed=self.completed,
            batches=self.batches,
            busy=self.busy,
            queued=len(self._policy),
            forming=sum(len(slot.forming) for slot in self._instances),
            running=self.started - self.completed,
            duration=self._duration(self._max_batch) + self._overhead if self._measured else 0.0,
        )

    @property
    def depth(self) -> int:
        return self.arrived - self.started - self.total_drops - self.removed

    # Inside ----------------------------------------------------------------------------------------------------

    def _drop(self, request: Request, refusal: Refusal) -> None:
        self.drops.append((request, refusal))
        self.total_drops += 1

    def _expire(self, now: float) -> None:
        if self._expires:
            before = len(self.drops)
            self._policy.expire(now, self.drops)
            self.total_drops += len(self.drops) - before

    def _start(self, now: float, instance: Instance) -> None:
        requests = instance.forming
        for request in requests:
            request.started = now
        count = len(requests)
        ends = now + self._duration(count) + self._overhead
        batch = instance.running = Batch(instance.index, requests, now, ends)
        instance.ends = ends
        self.starts.append(batch)
        self.started += count
        if self._began is not None:
            self._began(now, requests)
        forming: list[Request] = []
        instance.forming = forming
        if len(self._policy):
            drops = self.drops
            before = len(drops)
            self._fill(now, max(ends, now + self._delay), self._max_batch, forming, drops)
            self.total_drops += len(drops) - before
            instance.opened = now
        self._retarget(now)

    def _refill(self, now: float) -> None:
        for slot in sorted(self._instances, key=lambda slot: self._start_time(now, slot, full=False)):
            room = self._max_batch - len(slot.forming)
            if room and len(self._policy):
                if not slot.forming:
                    slot.opened = now
                before = len(self.drops)
                self._fill(now, self._start_time(now, slot, full=False), room, slot.forming, self.drops)
                self.total_drops += len(self.drops) - before
                if slot.running is None and len(slot.forming) == self._max_batch:
                    self._start(now, slot)
        self._retarget(now)

    def _start_time(self, now: float, instance: Instance, *, full: bool) -> float:
        ends = instance.ends
        if self._delay and not full:
            ends = max(ends, (instance.opened if instance.forming else now) + self._delay)
        return max(now, ends)

    def _retarget(self, now: float) -> None:
        if self._alone is not None:
            self._target = self._alone if len(self._alone.forming) < self._max_batch else None
            return
        target = None
        soonest = float("inf")
        for instance in self._instances:
            if len(instance.forming) < self._max_batch:
                starts = self._start_time(now, instance, full=False) if self._delay else instance.ends
                if starts < soonest:
                    soonest = starts
                    target = instance
        self._target = target

    def _take_over(self, idle: Instance) -> None:
        """Let an instance that ended sooner than expected run what is forming for one that still runs.

        With durations as expected this has nothing to do: an arrival always entered the batch that starts first.
        """
        busy: Iterable[Instance] = (slot for slot in self._instances if slot.running is not None and slot.forming)
        source = min(busy, key=lambda slot: slot.ends, default=None)
        if source is not None:
            idle.forming, source.forming = source.forming, idle.forming
            idle.opened = source.opened


def _unknown(_count: int, /) -> float:
    return 0.0
