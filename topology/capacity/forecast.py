"""Sizes to try: by a model of the slowest hundredth of the queries, those that answer soonest at a price.

The model takes the trace for a fluid. Served at C queries a second, all but a hundredth of its queries wait for at
most V(C). A stage with w workers that take d for a batch of n, and that a share s of the queries visits, has C = w n /
(d s), and a query takes d + max(0, V(C) - d / (w n)) there: what is served does not wait for itself. With n > 1 it also
waits for a batch to end, d / w. n is the power of two by which that is least, up to the largest batch. A query takes as
long as its longest path. That is too long where stages are slow at different times, and by how much differs from
pipeline to pipeline; so plans are held beside each other by the model, and only the Estimator holds one to the SLO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from spillway.topology import dag
from spillway.topology.capacity.planner import Choice

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from spillway.topology.capacity.hardware import Option
    from spillway.topology.capacity.planner import Config, Lane, Planner

    Floats = NDArray[np.float64]

_CAPACITIES: Final = 40  # for which V is reckoned; between them it is on a line over the capacity's logarithm
_FINE: Final = 0.01  # a size that makes a stage faster by less is left out


class Point(NamedTuple):
    """A size of a stage: what it costs an hour, and the seconds that the model has for it."""

    cost: float
    seconds: float
    choice: Choice


class Forecast:
    """The model of one planner's pipeline and trace."""

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._bounded = [kind for kind, count in planner.counts.items() if count is not None]
        lanes = {lane.name: lane for lane in planner.lanes}
        before = {name: lane.after for name, lane in lanes.items()}
        self._order = dag.order(before)
        self._before, self._after = before, dag.reverse(before)
        self._capacities, self._waits = _waits(planner)
        self._by_kind = {
            (name, option.kind): _frontier(self._sizes(lane, option))
            for name, lane in lanes.items()
            for option in lane.options
        }
        self._any = {
            name: _frontier([point for option in lane.options for point in self._by_kind[name, option.kind]])
            for name, lane in lanes.items()
        }

    @property
    def costs(self) -> tuple[float, float]:
        """The least that sizes can cost, and what the largest cost that make anything faster."""
        ends = [(points[0].cost, points[-1].cost) for points in self._any.values() if points]
        return sum(low for low, _ in ends), sum(high for _, high in ends)

    def soonest(self, budget: float, kinds: Mapping[str, str] | None = None) -> tuple[float, Config] | None:
        """The sizes for less than `budget` whose queries take least, and the seconds; None where there are none.

        They grow from the cheapest, each time the stage of a longest path that gains the most seconds for its price.
        `kinds`: the hardware of each stage; any, where it is not given.
        """
        points = {name: self._any[name] if kinds is None else self._by_kind[name, kinds[name]] for name in self._order}
        if not all(points.values()):
            return None
        at = {name: each[0] for name, each in points.items()}
        left = budget - sum(point.cost for point in at.values())
        if left <= 0 or not self._within(at):
            return None
        while True:
            seconds, slowest = self._longest({name: point.seconds for name, point in at.items()})
            found = max(
                (
                    ((at[name].seconds - point.seconds) / (point.cost - at[name].cost), name, point)
                    for name in slowest
                    for point in points[name]
                    if at[name].cost < point.cost < at[name].cost + left and self._within({**at, name: point})
                ),
                key=lambda each: each[0],
                default=None,
            )
            if found is None:
                return seconds, {name: at[name].choice for name in points}
            _, name, point = found
            left -= point.cost - at[name].cost
            at[name] = point

    def _within(self, at: Mapping[str, Point]) -> bool:
        """Whether there are units enough."""
        return all(
            self._planner.left({name: point.choice for name, point in at.items()}, kind) >= 0 for kind in self._bounded
        )

    def _longest(self, seconds: Mapping[str, float]) -> tuple[float, list[str]]:
        """The seconds of a longest path, and the stages on one."""
        until: dict[str, float] = {}
        beyond: dict[str, float] = {}
        for name in self._order:
            until[name] = seconds[name] + max((until[each] for each in self._before[name]), default=0.0)
        for name in reversed(self._order):
            beyond[name] = max((seconds[each] + beyond[each] for each in self._after[name]), default=0.0)
        longest = max(until.values())
        return longest, [name for name in self._order if until[name] + beyond[name] >= longest * (1 - 1e-9)]

    def _sizes(self, lane: Lane, option: Option) -> list[Point]:
        """One for each number of workers, with the best batch limit for it."""
        workers = np.arange(self._planner.least(lane, option, option.largest), self._planner.most_workers + 1)
        sizes = option.batches
        seconds = np.array([self._seconds(lane, option, workers, size) for size in sizes])
        best = seconds.argmin(axis=0)
        return [
            Point(lane.units(count) * option.price, float(seconds[which, place]), Choice(option, count, sizes[which]))
            for place, (count, which) in enumerate(zip(workers.tolist(), best.tolist(), strict=True))
        ]

    def _seconds(self, lane: Lane, option: Option, workers: NDArray[np.int64], size: int) -> Floats:
        takes = option.duration(size)
        capacity = workers * size / (takes * max(lane.share, 1e-9))
        waits = np.interp(np.log(capacity), self._capacities, self._waits, right=0.0)
        waits = np.maximum(0.0, waits - takes / (workers * size))
        return np.asarray(takes + waits + (takes / workers if size > 1 else 0.0))


def _waits(planner: Planner) -> tuple[Floats, Floats]:
    """Logarithms of capacities, from the trace's rate to ten times that of its fullest window of one SLO; and V."""
    times = planner.arrivals - planner.arrivals[0]
    count = len(times)
    rate = count / (float(times[-1]) + planner.slo)
    capacities = np.geomspace(rate, max(10 * planner.most_workers / planner.slo, 2 * rate), _CAPACITIES)
    place, waits = count - 1 - count // 100, []
    for capacity in capacities:
        ahead = np.arange(count) / capacity - times
        behind = ahead - np.minimum.accumulate(ahead) + 1 / capacity
        waits.append(np.partition(behind, place)[place])
    return np.log(capacities), np.array(waits)


def _frontier(points: Sequence[Point]) -> list[Point]:
    """The points that none is both cheaper and faster than, by cost."""
    found: list[Point] = []
    for point in sorted(points, key=lambda each: each[:2]):
        if not found or point.seconds < found[-1].seconds * (1 - _FINE):
            found.append(point)
    return found
