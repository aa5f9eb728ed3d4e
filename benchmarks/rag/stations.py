"""The three kinds of stages at work: each takes requests, plans its own events, and hands over what it is done with."""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Any, Protocol

from benchmarks.rag.batcher import ContinuousBatcher, Iteration
from benchmarks.rag.generation import Generation
from spillway.agents.core.batching import Batcher
from spillway.agents.core.policy import Load, Policy, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.rag.generation import TokenProfile
    from benchmarks.rag.plan import Batches, Threads
    from spillway.agents.core.batching import Batch
    from spillway.agents.core.request import Request

_ROUNDING = 1e-9  # of an iteration: what arrives this shortly after one's end has arrived at it


class Visit(Generation):
    """One query at one stage; what a stage does not ask for (lengths, seconds) is 1 and 0."""

    __slots__ = ("index", "seconds")

    def __init__(
        self, index: int, sent: float, deadline: float, arrived: float, prompt: int, output: int, seconds: float
    ) -> None:
        super().__init__(str(index), sent, deadline, prompt=prompt, output=output, arrived=arrived)
        self.index = index
        self.seconds = seconds


class World(Protocol):
    """What a station needs of the engine."""

    def plan(self, at: float, action: Callable[[float], None]) -> None: ...

    def first(self, now: float, stage: str, request: Visit) -> None: ...

    def ended(self, now: float, stage: str, request: Visit) -> None: ...

    def dropped(self, stage: str, request: Visit) -> None: ...


class _Station:
    """What all stations have."""

    def __init__(self, name: str, policy: Policy, world: World) -> None:
        self._name, self._world = name, world
        self.policy = policy


class GeneratorStation(_Station):
    """A stage with continuous batching. Takes iterations that are all alike at once, until an arrival interrupts."""

    def __init__(self, name: str, policy: Policy, profile: TokenProfile, world: World) -> None:
        super().__init__(name, policy, world)
        self.batcher = ContinuousBatcher(policy, profile)
        self._runs: Iteration | None = None
        self._repeats = 0
        self._planned = 0  # the latest plan counts; earlier ones were interrupted

    def push(self, now: float, request: Visit) -> None:
        self.batcher.push(now, request)
        runs = self._runs
        if runs is None:
            self._begin(now)
        elif self._repeats > 1:
            done = max(1, ceil((now - runs.started) / runs.seconds - _ROUNDING))
            if done < self._repeats:
                self._repeats = done
                self._plan_end(max(now, runs.started + done * runs.seconds))

    def load(self) -> Load:
        return self.batcher.load()

    def _begin(self, now: float) -> None:
        runs = self._runs = self.batcher.begin(now)
        _spread(self._name, self.batcher.drops, self._world)
        if runs is not None:
            self._repeats = runs.repeats
            self._plan_end(now + runs.seconds * runs.repeats)

    def _plan_end(self, at: float) -> None:
        self._planned += 1
        mine = self._planned
        self._world.plan(at, lambda now: self._end(now) if mine == self._planned else None)

    def _end(self, now: float) -> None:
        progress = self.batcher.end(now, self._repeats)
        self._runs = None
        for request in progress.first:
            assert isinstance(request, Visit)
            self._world.first(now, self._name, request)
        for request in progress.ended:
            assert isinstance(request, Visit)
            self._world.ended(now, self._name, request)
        if self._runs is None:
            self._begin(now)


class BatchStation(_Station):
    """A stage of batches: the live stages' batcher."""

    def __init__(self, name: str, policy: Policy, kind: Batches, world: World) -> None:
        super().__init__(name, policy, world)
        self._batcher = Batcher(policy, kind.batch, 0.0, kind.instances, kind.duration)

    def push(self, now: float, request: Visit) -> None:
        self._batcher.push(now, request)
        self._settle()

    def load(self) -> Load:
        return self._batcher.load()

    def _settle(self) -> None:
        _spread(self._name, self._batcher.drops, self._world)
        for batch in self._batcher.starts:
            self._world.plan(batch.expected_end, partial(self._end, batch))
        self._batcher.starts.clear()

    def _end(self, batch: Batch, now: float) -> None:
        self._batcher.complete(now, batch.worker)
        self._settle()
        share = (now - batch.started) / len(batch.requests)
        for request in batch.requests:
            assert isinstance(request, Visit)
            request.charged = share
            self._world.ended(now, self._name, request)


class ThreadStation(_Station):
    """A stage of threads: each serves one request, in the policy's order, for as long as it takes."""

    def __init__(self, name: str, policy: Policy, kind: Threads, world: World) -> None:
        super().__init__(name, policy, world)
        self._free = kind.threads
        self._threads = kind.threads
        self._ended: Callable[[float, Request], None] | None = getattr(policy, "ended", None)
        self._arrived = self._dropped = self._started = self._completed = 0
        self._busy = 0.0

    def push(self, now: float, request: Visit) -> None:
        """Take a request; it starts at once where a thread is free."""
        self._arrived += 1
        self.policy.push(now, request)
        self._serve(now)

    def load(self) -> Load:
        return Load(
            arrived=self._arrived,
            dropped=self._dropped,
            started=self._started,
            completed=self._completed,
            batches=self._completed,
            busy=self._busy,
            queued=len(self.policy),
            forming=0,
            running=self._threads - self._free,
        )

    def _serve(self, now: float) -> None:
        while self._free:
            request = self.policy.pop(now)
            if request is None:
                return
            assert isinstance(request, Visit)
            refusal = self.policy.judge(now, now, request)
            if refusal is not None:
                self._dropped += 1
                self._world.dropped(self._name, request)
                continue
            self._free -= 1
            self._started += 1
            request.entered = request.started = now
            self._world.plan(now + request.seconds, partial(self._end, request))

    def _end(self, request: Visit, now: float) -> None:
        self._free += 1
        self._completed += 1
        self._busy += request.seconds
        if self._ended is not None:
            self._ended(now, request)
        self._serve(now)
        self._world.ended(now, self._name, request)


Station = GeneratorStation | BatchStation | ThreadStation


def _spread(name: str, drops: list[tuple[Any, Refusal]], world: World) -> None:
    for request, _ in drops:
        assert isinstance(request, Visit)
        world.dropped(name, request)
    drops.clear()
