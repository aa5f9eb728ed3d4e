"""One queue, the workers that it feeds, and the batches that form for them: a plain lane.

While a worker runs a batch, its next one is forming: filled from the queue the moment the running batch starts, then by
arrivals, up to the worker's limit. A request enters at t_b and is judged then, once; the forming batch starts at t_e,
the end of the running one, however full it is; what is over `BATCH_BYTES` then waits for the next. An idle worker
starts a request at once, or, with a batching delay, when its batch is full or the delay since its first request entered
is over. Several workers share the queue: an arrival enters the forming batch that starts first among those with room.
Invariant: while a request waits in the queue, every forming batch is full.

Workers come and go. What was forming for one that drains or is lost returns to the queue and is judged anew; so does
what a lost one ran, once its owner has decided which of it may run again (`requeue`). Without workers all waits.

Offline queries wait beside the queue (`spillway.agents.core.offline`): a worker that is idle runs a batch of them while
no online query waits, in the queue or a forming batch; one whose worker died goes first once it has waited for too
long. All counters but `offline` are of online queries alone.

The live stage and the simulator drive the same object; it is written for the latter's speed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spillway.agents.core.offline import OfflineQueue
from spillway.agents.core.policy import Load, Policy, Refusal, StageState
from spillway.agents.core.workers import IDLE, Batch, Worker, fitting

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from spillway.agents.core.durations import Duration
    from spillway.agents.core.limits import Limit
    from spillway.agents.core.request import Request

__all__ = ["Batch", "Batcher"]

_WEIGHT: Final = 0.1  # of the newest batch


class Batcher:
    """The queue of one stage process (or of one simulated queue) and its workers.

    Every call may append to `starts` (batches to run now) and `drops` (requests that the policy refused); the caller
    drains both. `now` must not decrease. Requests come with `arrived` set; `entered` and `started` are set here.
    """

    def __init__(
        self,
        policy: Policy,
        max_batch: int,
        delay: float = 0.0,
        workers: int = 1,
        duration: Duration | None = None,
        limits: Callable[[], Limit] | None = None,
    ) -> None:
        """`workers` are there from the start, numbered from 0; more may `attach`.

        `limits` makes a worker's batch limit; without it each has `max_batch`. `duration` says what a batch of n is
        expected to take; it learns, if it has an `observe(n, seconds)`.
        """
        if max_batch < 1 or workers < 0 or delay < 0:
            raise ValueError(f"max_batch {max_batch}, workers {workers}, delay {delay}: at least 1, 0 and 0")
        self._policy = policy
        self._max_batch = max_batch
        self._limits: Callable[[], Limit | int] = limits or (lambda: max_batch)
        self._delay = delay
        self._duration: Duration = duration if duration is not None else _unknown
        self._observe: Callable[[int, float], None] | None = getattr(duration, "observe", None)
        self._profile: Callable[[int], float] | None = getattr(duration, "profiled", None)
        self._measured = False  # whether `duration` has learnt anything that is not in doubt
        self._overhead = 0.0  # by which an instance is taken up for longer than its model runs, a batch
        self._told = (0, 0)  # what had been started and dropped at the last report
        self._workers = {number: Worker(number, self._limits(), self._duration) for number in range(workers)}
        self._active = list(self._workers.values())  # those that are given batches
        self._alone = self._active[0] if workers == 1 else None
        self._target = self._workers.get(0)  # where an arrival enters; None when all is full, or no worker is there
        kind = type(policy)
        self._fill = policy.fill
        self._admit = policy.admit if kind.admit is not Policy.admit else None
        self._judge = policy.judge if kind.judge is not Policy.judge else None
        self._began = policy.started if kind.started is not Policy.started else None
        self._expires = kind.expire is not Policy.expire
        self._wakes = kind.next_expiry is not Policy.next_expiry
        self.timed = delay > 0 or self._wakes  # whether `next_wake` can ever be anything but None
        self.reports = kind.report is not Policy.report  # whether it takes part in the synchronisation
        self.offline = OfflineQueue()
        self.starts: list[Batch] = []
        self.drops: list[tuple[Request, Refusal]] = []
        self.arrived = self.started = self.completed = self.total_drops = self.removed = self.batches = 0
        self.lost = self.requeued = 0  # requests whose worker was lost, and those that entered the queue anew
        self.busy = self.profiled = 0.0

    # What happens ----------------------------------------------------------------------------------------------

    def push(self, now: float, request: Request) -> None:
        if request.offline:
            self._push_offline(now, request)
            return
        self.arrived += 1
        if self._admit is not None and (refused := self._admit(now, request)) is not None:
            self._drop(request, refused)
            return
        if self._delay:
            self._retarget(now)  # how soon an idle worker would start depends on now
        worker = self._target
        if worker is None:
            self._policy.push(now, request)
            return
        forming = worker.forming
        last = len(forming) + 1 >= worker.limit
        judge = self._judge
        if judge is not None:
            refusal = judge(now, self._start_time(now, worker, full=last), request)
            if refusal is not None:
                self._drop(request, refusal)
                return
        request.entered = now
        if not forming:
            worker.opened = now
        forming.append(request)
        if worker.running is None:
            if last or not self._delay:
                self._start(now, worker)
        elif last:
            self._retarget(now)

    def complete(self, now: float, worker: int, executed: float | None = None) -> Batch:
        """End the running batch of `worker`, which took `executed` seconds if that was measured; return it.

        A draining worker is gone with it.
        """
        slot = self._workers[worker]
        batch = slot.running
        if batch is None:
            raise ValueError(f"worker {worker} runs nothing")
        slot.running = None
        slot.ends = IDLE
        if batch.offline:
            self.offline.completed += len(batch.requests)
        else:
            self._learn(now, slot, batch, executed)
        if slot.draining:
            self._part(now, slot)
            return batch
        if self.offline.waiting:
            self._run_overdue(now)
            if slot.running is not None:
                self._retarget(now)
                return batch
        if not slot.forming and self._alone is None:
            self._take_over(slot)
        if slot.forming and (not self._delay or len(slot.forming) >= slot.limit or slot.opened + self._delay <= now):
            self._start(now, slot)
        else:
            self._retarget(now)
        if self.offline.waiting:
            self._use_spare_time(now)
        return batch

    def advance(self, now: float) -> None:
        """Do what time alone brings: start batches whose delay is over, drop what expired in the queue."""
        self._expire(now)
        if self._delay:
            for slot in self._workers.values():
                if slot.running is None and slot.forming and slot.opened + self._delay <= now:
                    self._start(now, slot)
        if self.offline.waiting:
            self.drops += self.offline.hand_back(now, served=self.workers > 0)
            self._run_overdue(now)
            self._use_spare_time(now)

    def next_wake(self, now: float) -> float | None:
        """When `advance` next has something to do; None if only arrivals and completions can change anything."""
        wakes = []
        if self._delay:
            slots = self._workers.values()
            wakes = [slot.opened + self._delay for slot in slots if slot.running is None and slot.forming]
        if self._wakes and (expiry := self._policy.next_expiry()) is not None:
            wakes.append(expiry)
        if self.offline.waiting:
            expiry = self.offline.next_expiry(served=self.workers > 0)
            wakes += [] if expiry is None else [expiry]
        return max(now, min(wakes)) if wakes else None

    def remove(self, now: float, unwanted: Callable[[Request], bool]) -> list[Request]:
        """Forget the waiting and forming requests that `unwanted` picks, and return them. Running ones stay.

        May bring starts and drops, as what waited takes the room.
        """
        removed = self._policy.remove(unwanted)
        for slot in self._workers.values():
            gone = [request for request in slot.forming if unwanted(request)]
            if gone:
                removed += gone
                slot.forming = [request for request in slot.forming if not unwanted(request)]
                if slot.forming:
                    slot.opened = slot.forming[0].entered
        self.removed += len(removed)
        removed += self.offline.remove(unwanted)
        self._refill(now)
        return removed

    # Workers come and go -----------------------------------------------------------------------------------------

    def attach(self, now: float, worker: int) -> None:
        """Give batches to one more worker, which is ready."""
        if worker in self._workers:
            raise ValueError(f"worker {worker} is there already")
        self._workers[worker] = slot = Worker(worker, self._limits(), self._duration)
        self._take_over(slot)
        self._counted(now)

    def lend(self, now: float, worker: int) -> bool:
        """Occupy a worker with what is none of the lane's, until `complete`; False if it is not there, or not idle."""
        slot = self._workers.get(worker)
        if slot is None or slot.draining or slot.running is not None or slot.forming:
            return False
        slot.ends = now + slot.duration(1) + self._overhead
        slot.running = Batch(worker, [], now, slot.ends, offline=True)
        self._retarget(now)
        return True

    def drain(self, now: float, worker: int) -> bool:
        """Give a worker no more batches; True if it is gone at once, False if it is when its batch completes."""
        slot = self._workers[worker]
        slot.draining = True
        if slot.running is None:
            self._part(now, slot)
            return True
        self._return(now, slot)
        self._counted(now)
        return False

    def lose(self, now: float, worker: int) -> Batch | None:
        """Remove a worker that is gone; give what it ran, whose requests the caller may `requeue`."""
        slot = self._workers[worker]
        batch, slot.running = slot.running, None
        if batch is not None and batch.offline:
            self.offline.completed += len(batch.requests)
        elif batch is not None:
            self.lost += len(batch.requests)
        self._part(now, slot)
        return batch

    def requeue(self, now: float, requests: Iterable[Request]) -> None:
        """Have requests wait again, to be judged anew; they are no arrivals."""
        for request in requests:
            if request.offline:
                self.offline.put_back(now, request)
                continue
            self.requeued += 1
            self._policy.push(now, request)
        self._refill(now)

    def _part(self, now: float, slot: Worker) -> None:
        del self._workers[slot.number]
        self._return(now, slot)
        self._counted(now)

    def _return(self, now: float, slot: Worker) -> None:
        forming, slot.forming = slot.forming, []
        for request in forming:
            self._policy.push(now, request)

    def _counted(self, now: float) -> None:
        self._active = active = [slot for slot in self._workers.values() if not slot.draining]
        self._alone = active[0] if len(active) == len(self._workers) == 1 else None
        if active:
            self._policy.resized(len(active))
        self._refill(now)

    @property
    def limit(self) -> int:
        """The most that a worker is given at once, of the worker that is given most; where none is, as planned."""
        return max((slot.limit for slot in self._workers.values()), default=self._max_batch)

    @property
    def unmet(self) -> bool:
        """Whether one query alone takes a worker longer than the objective of its limit, too often."""
        return any(slot.adaptive is not None and slot.adaptive.unmet for slot in self._workers.values())

    @property
    def workers(self) -> int:
        return len(self._active)

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
            forming=sum(len(slot.forming) for slot in self._workers.values()),
            running=self.started - self.completed - self.lost,
            duration=self._duration(self.limit) + self._overhead if self._measured else 0.0,
            profiled=self.profiled,
            workers=len(self._active),
        )

    def wait(self, now: float) -> float:
        """Seconds until the batch of a query that came now would start, as expected, if none overtakes it."""
        if not self._active:
            return float("inf")
        queued = len(self._policy)
        if not queued and self._target is not None:
            return self._start_time(now, self._target, full=False) - now
        each = self._duration(self.limit) + self._overhead
        starts = sorted(max(now, slot.ends) + (each if slot.forming else 0.0) for slot in self._active)
        rounds, place = divmod(queued // self.limit, len(starts))
        return starts[place] + rounds * each - now

    @property
    def depth(self) -> int:
        return self.arrived + self.requeued - self.started - self.total_drops - self.removed

    @property
    def aside(self) -> int:
        return len(self.offline.waiting)

    # Inside ----------------------------------------------------------------------------------------------------

    def _drop(self, request: Request, refusal: Refusal) -> None:
        self.drops.append((request, refusal))
        self.total_drops += 1

    def _expire(self, now: float) -> None:
        if self._expires:
            before = len(self.drops)
            self._policy.expire(now, self.drops)
            self.total_drops += len(self.drops) - before

    def _start(self, now: float, slot: Worker) -> None:
        count = fitting(slot.forming)
        requests = slot.forming[:count]
        for request in slot.forming[count:]:
            self._policy.push(now, request)
        for request in requests:
            request.started = now
        ends = now + slot.duration(count) + self._overhead
        batch = slot.running = Batch(slot.number, requests, now, ends)
        slot.ends = ends
        self.starts.append(batch)
        self.started += count
        if self._began is not None:
            self._began(now, requests)
        slot.forming = []
        if len(self._policy):
            self._take(now, max(ends, now + self._delay), slot.limit, slot)
            slot.opened = now
        self._retarget(now)

    def _learn(self, now: float, slot: Worker, batch: Batch, executed: float | None) -> None:
        count = len(batch.requests)
        self.completed += count
        self.batches += 1
        if executed is None:
            executed = now - batch.started
        else:
            if self._observe is not None:
                self._measured = True
                self._observe(count, executed)
            self._overhead += _WEIGHT * (max(0.0, now - batch.started - executed) - self._overhead)
        self.busy += executed
        if self._profile is not None:
            self.profiled += self._profile(count)
        if slot.adaptive is not None:
            slot.limit = slot.adaptive.learn(count, executed)
            room = slot.limit - len(slot.forming)  # where the limit grew, what waits takes the room
            if room > 0 and len(self._policy) and not slot.draining:
                self._take(now, now, room, slot)

    def _push_offline(self, now: float, request: Request) -> None:
        if (refused := self.offline.push(request)) is not None:
            self.drops.append((request, refused))
            return
        self.timed = True
        self._use_spare_time(now)

    def _use_spare_time(self, now: float) -> None:
        """Start batches of offline queries on workers that are idle, if no online query waits."""
        if len(self._policy) or any(slot.forming for slot in self._workers.values()):
            return
        for slot in self._active:
            if slot.running is None and self.offline.waiting:
                self._start_offline(now, slot)
        self._retarget(now)

    def _run_overdue(self, now: float) -> None:
        """Start offline queries that may wait no longer on workers that are idle, whoever waits."""
        for slot in self._active:
            if slot.running is None and self.offline.bring_overdue(now):
                self._start_offline(now, slot)

    def _start_offline(self, now: float, slot: Worker) -> None:
        requests = self.offline.take(now, slot.limit)
        slot.ends = now + slot.duration(len(requests)) + self._overhead
        slot.running = Batch(slot.number, requests, now, slot.ends, offline=True)
        self.starts.append(slot.running)

    def _take(self, now: float, starts: float, room: int, slot: Worker) -> None:
        before = len(self.drops)
        self._fill(now, starts, room, slot.forming, self.drops)
        self.total_drops += len(self.drops) - before

    def _refill(self, now: float) -> None:
        for slot in sorted(self._workers.values(), key=lambda slot: self._start_time(now, slot, full=False)):
            room = slot.limit - len(slot.forming)
            if room > 0 and len(self._policy) and not slot.draining:
                if not slot.forming:
                    slot.opened = now
                self._take(now, self._start_time(now, slot, full=False), room, slot)
            if slot.running is None and slot.forming and (not self._delay or len(slot.forming) >= slot.limit):
                self._start(now, slot)
        self._retarget(now)
        if self.offline.waiting:
            self._use_spare_time(now)

    def _start_time(self, now: float, slot: Worker, *, full: bool) -> float:
        ends = slot.ends
        if self._delay and not full:
            ends = max(ends, (slot.opened if slot.forming else now) + self._delay)
        return max(now, ends)

    def _retarget(self, now: float) -> None:
        alone = self._alone
        if alone is not None:
            self._target = alone if len(alone.forming) < alone.limit else None
            return
        target = None
        soonest = float("inf")
        for slot in self._active:
            if len(slot.forming) < slot.limit:
                starts = self._start_time(now, slot, full=False) if self._delay else slot.ends
                if starts < soonest:
                    soonest = starts
                    target = slot
        self._target = target

    def _take_over(self, idle: Worker) -> None:
        """Let a worker that ended sooner than expected run what is forming for one that still runs.

        With durations as expected this has nothing to do: an arrival always entered the batch that starts first.
        """
        busy: Iterable[Worker] = (slot for slot in self._workers.values() if slot.running is not None and slot.forming)
        source = min(busy, key=lambda slot: slot.ends, default=None)
        if source is not None:
            idle.forming, source.forming = source.forming, idle.forming
            idle.opened = source.opened


def _unknown(_count: int, /) -> float:
    return 0.0
