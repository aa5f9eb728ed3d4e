"""ParM's cluster in virtual time (sections 5.1 and 5.2): our batcher and our dispatch, emulated instances and shuffles.

An instance takes `SERVICE` seconds for one query, give or take a little, and stands still when the schedule of
`spillway chaos` says so: for shuffles between pairs of instances, or others' inference. How often and how long was set
once, so that `equal-resources` at 270 queries/s has a p99.9 of about twice its median (Figure 11).
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_right
from dataclasses import dataclass
from itertools import count, islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spillway.agents.chaos.schedule import Load, schedule
from spillway.agents.core.batching import Batcher
from spillway.agents.core.dispatch import Dispatch
from spillway.agents.core.policies import make
from spillway.agents.core.policy import StageView
from spillway.agents.core.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from spillway.agents.core.dispatch import Extra
    from spillway.agents.core.workers import Batch

SERVICE: Final = 0.024  # seconds of one query, ResNet-18 on a GPU instance
MARGINAL: Final = 0.33  # of a query's time, for each further one of a batch: as 300, 460 and 584/s at 1, 2 and 4 say
NOISE: Final = 0.04
ENCODE, DECODE = 93e-6, 8e-6  # seconds, k = 2, the paper's
SLOWED, PULSE = 0.6, 0.01  # the share of its speed that a slow instance has, as stops of so many seconds tell it
FAST: Final = 1.15  # of an approximate model: how much faster than the deployed one it is


@dataclass(frozen=True, slots=True)
class Setting:
    """One cell of the evaluation."""

    rate: float
    k: int = 2
    instances: int = 12
    batch: int = 1
    shuffles: int = 4
    tenants: bool = False
    rows: int = 1
    held: float | None = None
    """`release: budget`: made answers wait until so many seconds after their queries came."""
    queries: int = 100_000
    load: Load | None = None
    """What strikes instances in place of `shuffles` and `tenants`."""
    slowdowns: bool = False
    """Once in two seconds an instance works at `SLOWED` of its speed, for two on average."""


class Cluster:
    """How long an instance takes for a batch that starts now; the same for all strategies, by its seed."""

    def __init__(self, setting: Setting, size: int, seed: int) -> None:
        self._random = random.Random(seed + 1)
        self._stops: list[list[tuple[float, float]]] = [[] for _ in range(size)]  # from, to; one after the other
        shuffles = 0 if setting.tenants or setting.slowdowns else setting.shuffles
        load = setting.load or Load(shuffles=shuffles, multitenancy=setting.tenants)
        seconds = setting.queries / setting.rate + 10
        strikes = [(event.at, event.slot, event.seconds) for event in schedule(load, size, seconds, seed)]
        for at, slot, lasts in sorted(strikes + (_slowdowns(size, seconds, seed) if setting.slowdowns else [])):
            stops = self._stops[slot]
            begins = max(at, stops[-1][1]) if stops else at
            if at + lasts > begins:
                stops.append((begins, at + lasts))

    def seconds(self, instance: int, now: float, size: int, speed: float = 1.0) -> float:
        ends = now + SERVICE / speed * (1 + MARGINAL * (size - 1)) * self._random.lognormvariate(0.0, NOISE)
        stops = self._stops[instance]
        for began, ended in islice(stops, bisect_right(stops, now, key=itemgetter(1)), None):
            if began >= ends:
                break
            ends += ended - max(now, began)
        return ends - now


def _slowdowns(size: int, seconds: float, seed: int) -> list[tuple[float, int, float]]:
    draw, now, strikes = random.Random(f"{seed} slowdowns"), 0.0, []
    while (now := now + draw.expovariate(0.5)) < seconds:
        slot, lasts = draw.randrange(size), 2 * draw.uniform(0.5, 1.5)
        strikes += [(now + n * PULSE, slot, (1 - SLOWED) * PULSE) for n in range(round(lasts / PULSE))]
    return strikes


def latencies(strategy: str, setting: Setting, seed: int) -> NDArray[np.float64]:
    """Seconds from each query's arrival at the front to its first answer.

    `strategy`: `none` (m instances), `equal-resources` (m + m/k), `coded`, `coded-shared` (whose workers run batches,
    too), `replicate` or `approximate` (m, and m/k for the rest), or `hedged` (the same with copies of slow batches).
    """
    return _Run(strategy, setting, seed).play()


def released(setting: Setting, seed: int) -> tuple[NDArray[np.float64], float]:
    """The latencies of `coded`, and the share of queries whose answer was made."""
    run = _Run("coded", setting, seed)
    return run.play(), len(run.made) / setting.queries


def sent(strategy: str, setting: Setting, seed: int) -> float:
    """How many queries' inputs go from the front to workers, for each query that comes."""
    run = _Run(strategy, setting, seed)
    run.play()
    return run.sent / setting.queries


class _Run:
    def __init__(self, strategy: str, setting: Setting, seed: int) -> None:
        self._setting = setting
        self._more = -(-setting.instances // setting.k)
        more = self._more * setting.rows
        self._beside = {"none": 0, "equal-resources": 0}.get(strategy, more)
        self._own = setting.instances + (more if strategy == "equal-resources" else 0)
        self._cluster = Cluster(setting, setting.instances + more, seed)
        self._batcher = Batcher(make("naive", StageView(stage="s", instances=self._own)), setting.batch, 0.0, self._own)
        self._speed = FAST if strategy == "approximate" else 1.0
        self._coded = strategy.startswith("coded")
        self._dispatch = _dispatch(strategy, setting)
        self._dispatch.begin(_Lane(self._batcher), lambda _now, _work: None)  # type: ignore[arg-type]  # what it asks for
        self.sent = 0
        for worker in range(self._beside):
            row = worker // self._more
            if self._dispatch.shared:
                self._batcher.attach(0.0, self._dispatch.number_of(row, worker))
            self._dispatch.attach(row, worker)
        self._events: list[tuple[float, int, Callable[..., None], Any]] = []
        self._numbers = count()
        self._answered: dict[str, float] = {}
        self.made: set[str] = set()  # whose answer is a reconstruction
        arrivals = np.random.default_rng(seed).exponential(1 / setting.rate, setting.queries)
        self._arrivals = np.cumsum(arrivals)

    def play(self) -> NDArray[np.float64]:
        self._later(self._arrivals[0], self._arrive, 0)
        while self._events:
            now, _, what, about = heapq.heappop(self._events)
            what(now, about)
            self._dispatch.advance(now)
            self._pump(now)
        ends = np.array([self._answered[str(n)] for n in range(self._setting.queries)])
        return ends - self._arrivals

    def _later(self, at: float, what: Callable[..., None], about: Any) -> None:
        heapq.heappush(self._events, (at, next(self._numbers), what, about))

    def _arrive(self, now: float, n: int) -> None:
        if n + 1 < self._setting.queries:
            self._later(self._arrivals[n + 1], self._arrive, n + 1)
        self._batcher.push(now, Request(str(n), 0, now, now + 60.0, now, (), {}))

    def _pump(self, now: float) -> None:
        for batch in self._batcher.starts:
            self._dispatch.started(now, batch)
            self.sent += len(batch.requests)
            instance = batch.worker
            if instance < 0:
                instance = self._setting.instances + self._dispatch.worker_of(instance)[1]
            self._later(now + self._cluster.seconds(instance, now, len(batch.requests)), self._complete, batch)
        self._batcher.starts.clear()
        for extra in self._dispatch.take_extras(now):
            size = max(len(batch.requests) for batch in extra.group.batches)
            self.sent += size
            began = now + (ENCODE if self._coded else 0.0)
            instance = self._setting.instances + extra.worker
            self._later(began + self._cluster.seconds(instance, now, size, self._speed), self._done, extra)
        for recovery in self._dispatch.take_recoveries():
            made = now + (DECODE if self._coded else 0.0)
            for place in recovery.places:
                for request in recovery.group.batches[place].requests:
                    self._later(max(made, request.arrived + (self._setting.held or 0.0)), self._reconstruct, request)
        due = self._dispatch.next_wake(now)
        if due is not None and (not self._events or due < self._events[0][0]):
            self._later(max(now, due), lambda _now, _about: None, None)

    def _complete(self, now: float, batch: Batch) -> None:
        self._batcher.complete(now, batch.worker)
        self._settle(now, batch)
        self._dispatch.answered(now, batch)

    def _done(self, now: float, extra: Extra) -> None:
        self._dispatch.done(now, extra)

    def _reconstruct(self, now: float, request: Request) -> None:
        if self._answered.setdefault(request.request_id, now) == now:
            self.made.add(request.request_id)

    def _settle(self, now: float, batch: Batch) -> None:
        for request in batch.requests:
            self._answered.setdefault(request.request_id, now)


class _Lane:
    """What a dispatch asks of its stage: a batcher alone."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher
        self.lend = batcher.lend
        self.give_back = batcher.complete

    @property
    def workers(self) -> int:
        return self._batcher.workers


def _dispatch(strategy: str, setting: Setting) -> Dispatch:
    if strategy.startswith("coded"):
        return Dispatch(width=setting.k, rows=setting.rows, wait=0.05, room=1_000, shared=strategy != "coded")
    if strategy == "hedged":
        return Dispatch(quantile=0.95, budget=0.1, room=1_000)
    if strategy in {"replicate", "approximate"}:
        return Dispatch(room=1_000_000)
    return Dispatch(room=0)
