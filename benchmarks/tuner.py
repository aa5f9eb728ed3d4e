"""`python -m benchmarks tuner`: the two forms of the tuner beside a plan that stays, in virtual time.

A pipeline of three stages in a row serves one query at a time per worker; a plan is made for ten minutes of gamma
traffic, and another trace follows. A worker that is ordered serves five seconds later (as the thesis has it), and costs
from its order until it goes. A query that takes longer than the SLO is a miss.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, get_args

import click
import numpy as np

from topology.capacity.envelope import envelope, windows
from topology.capacity.tuner import Basis, Form, Planned, Tuner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Times = NDArray[np.float64]

SLO: Final = 0.15
LOADS: Final = 5.0
TICK: Final = 0.05
SAMPLE: Final = 600.0
STAGES: Final = {"a": (40.0, 1.0), "b": (25.0, 1.0), "c": (60.0, 0.5)}  # queries a second of a worker, share


@dataclass(frozen=True)
class Phase:
    """From here, for so many seconds, the rate and cv2 (variance by squared mean) move to these on a line."""

    seconds: float
    rate: float
    cv2: float


CASES: Final = {
    "stationary, 150/s, cv2 1": [Phase(0, 150, 1), Phase(3600, 150, 1)],
    "stationary, 150/s, cv2 4": [Phase(0, 150, 4), Phase(3600, 150, 4)],
    "stationary, 15/s, cv2 1": [Phase(0, 15, 1), Phase(3600, 15, 1)],
    "150 to 250/s in 10 s": [Phase(0, 150, 1), Phase(120, 150, 1), Phase(10, 250, 1), Phase(300, 250, 1)],
    "150 to 250/s in 100 s": [Phase(0, 150, 1), Phase(120, 150, 1), Phase(100, 250, 1), Phase(300, 250, 1)],
    "150 to 250/s in 100 s and back": [
        Phase(0, 150, 1),
        *(Phase(120, 150, 1), Phase(100, 250, 1), Phase(200, 250, 1), Phase(100, 150, 1), Phase(300, 150, 1)),
    ],
    "150 to 200/s in 60 s, an hour": [Phase(0, 150, 1), Phase(60, 150, 1), Phase(60, 200, 1), Phase(3480, 200, 1)],
    "cv2 1 to 4 in 60 s": [Phase(0, 150, 1), Phase(120, 150, 1), Phase(60, 150, 4), Phase(600, 150, 4)],
}


def gamma(phases: Sequence[Phase], rng: np.random.Generator) -> Times:
    """Arrivals whose gaps are gamma distributed."""
    times, begin, now = [], 0.0, 0.0
    for before, phase in itertools.pairwise(phases):
        while now < begin + phase.seconds:
            part = (now - begin) / phase.seconds
            rate = before.rate + part * (phase.rate - before.rate)
            cv2 = before.cv2 + part * (phase.cv2 - before.cv2)
            now += rng.gamma(1.0 / cv2, cv2 / rate)
            times.append(now)
        begin += phase.seconds
    return np.array(times)


class Station:
    """A stage: workers that each take one query at a time, first come first served."""

    def __init__(self, workers: int, seconds: float) -> None:
        self._free = [0.0] * workers
        self._seconds = seconds
        self._cost = self._since = 0.0  # worker-seconds, until `_since`

    def resize(self, now: float, count: int) -> None:
        self._cost, self._since = self.cost_until(now), now
        for _ in range(count - len(self._free)):
            heapq.heappush(self._free, now + LOADS)
        if len(self._free) > count:  # those that load go first
            loading = [each for each in self._free if each > now + self._seconds]
            gone = (sorted(loading, reverse=True) + sorted(set(self._free) - set(loading)))[: len(self._free) - count]
            for each in gone:
                self._free.remove(each)
            heapq.heapify(self._free)

    def cost_until(self, now: float) -> float:
        return self._cost + len(self._free) * (now - self._since)

    def serve(self, now: float) -> float:
        """When a query that comes now is done."""
        done = max(now, heapq.heappop(self._free)) + self._seconds
        heapq.heappush(self._free, done)
        return done


Orders = list[tuple[float, str, int]]


def misses(
    arrivals: Times, visits: dict[str, NDArray[np.bool_]], counts: dict[str, int], orders: Orders
) -> tuple[float, float]:
    """The share of queries that miss the SLO, and the cost in worker-seconds."""
    at = arrivals.copy()
    cost = 0.0
    for name, (rate, _) in STAGES.items():
        station = Station(counts[name], 1.0 / rate)
        changes = [(when, count) for when, stage, count in orders if stage == name][::-1]
        for n in np.flatnonzero(visits[name]):
            while changes and changes[-1][0] <= at[n]:
                station.resize(*changes.pop())
            at[n] = station.serve(at[n])
        for when, count in reversed(changes):
            station.resize(when, count)
        cost += station.cost_until(arrivals[-1])
    return float(np.mean(at - arrivals > SLO)), cost


def visits_of(count: int, rng: np.random.Generator) -> dict[str, NDArray[np.bool_]]:
    return {name: rng.random(count) < share for name, (_, share) in STAGES.items()}


def plan_for(sample: Times, rng: np.random.Generator) -> Basis:
    """The fewest workers, given one by one to the stage that is loaded most, that keep the p99 of the sample."""
    rate = len(sample) / sample[-1]
    visits = visits_of(len(sample), rng)
    counts = {name: int(rate * share / mu) + 1 for name, (mu, share) in STAGES.items()}
    while misses(sample, visits, counts, [])[0] > 0.01:
        load = {name: rate * share / (counts[name] * mu) for name, (mu, share) in STAGES.items()}
        counts[max(load, key=load.__getitem__)] += 1
    service = sum(1.0 / mu for mu, _ in STAGES.values())
    stages = {name: Planned(counts[name], mu, share) for name, (mu, share) in STAGES.items()}
    lengths = windows(service)
    return Basis(rate, dict(zip(lengths, envelope(sample, lengths), strict=True)), stages)


def tuned(plan: Basis, form: Form, arrivals: Times) -> Orders:
    made, orders = Tuner(plan, form), []
    for name, stage in plan.stages.items():
        made.stands(0.0, name, stage.workers)
    ticks = np.arange(0.0, arrivals[-1], TICK)
    for now, total in zip(ticks.tolist(), np.searchsorted(arrivals, ticks).tolist(), strict=True):
        made.count(now, total)
        for name, order in made.orders(now).items():
            orders.append((now, name, order.count))
            made.stands(now, name, order.count)
    return orders


@click.command()
@click.option("--seeds", default=3, show_default=True)
def tuner(seeds: int) -> None:
    """Orders, misses and cost of both forms of the tuner, in virtual time."""
    click.echo(f"{'traffic':32} {'form':6} {'orders/h':>8} {'most x plan':>11} {'misses':>8} {'cost x plan':>11}")
    for case, phases in CASES.items():
        rows: dict[str, list[tuple[float, float, float, float]]] = {}
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            plan = plan_for(gamma([phases[0], Phase(SAMPLE, phases[0].rate, phases[0].cv2)], rng), rng)
            live = gamma(phases, rng)
            visits = visits_of(len(live), rng)
            counts = {name: stage.workers for name, stage in plan.stages.items()}
            for form in ("plan", *get_args(Form)):
                orders = tuned(plan, form, live) if form != "plan" else []
                missed, cost = misses(live, visits, counts, orders)
                most = max([1.0, *(count / counts[name] for _, name, count in orders)])
                rows.setdefault(form, []).append(
                    (len(orders) * 3600 / live[-1], most, missed, cost / (sum(counts.values()) * live[-1]))
                )
        for form, found in rows.items():
            orders_, most, missed, cost = np.mean(found, axis=0)
            click.echo(f"{case:32} {form:6} {orders_:8.1f} {most:11.2f} {missed:8.2%} {cost:11.2f}")
