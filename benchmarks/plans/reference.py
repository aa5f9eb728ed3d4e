"""A search for plans that spares no estimates: annealing from random starts, beside which the planner's is held."""

from __future__ import annotations

import math
from random import Random
from typing import TYPE_CHECKING, Final

from spillway.topology.capacity.planner import Choice

if TYPE_CHECKING:
    from spillway.topology.capacity.hardware import Option
    from spillway.topology.capacity.planner import Config, Lane, Planner

STARTS: Final = 200
_BEST: Final = 8  # of the starts are cooled
_HOT, _COLD = 0.1, 0.005  # the part of its cost by which a plan may grow dearer, at first and in the end
_GROWTH: Final = 1.3
_IDLE: Final = 40  # steps in a row without a new estimate, or of growing, that end a start


def annealed(planner: Planner, estimates: int, seed: int = 0) -> Config | None:
    """The cheapest plan from the best of `STARTS` random ones, which share the estimates; None where there is none."""
    draw = Random(seed)
    starts = [start for _ in range(STARTS) if (start := _start(planner, draw)) is not None]
    best = sorted(starts, key=planner.cost)[:_BEST]
    begun = planner.estimates
    cooled = []
    for number, start in enumerate(best, start=1):
        last = begun + (estimates - begun) * number // len(best)
        cooled.append(_cooled(planner, start, last, draw))
    return min(cooled, key=planner.cost, default=None)


def _cooled(planner: Planner, config: Config, last: int, draw: Random) -> Config:
    """The cheapest plan that is passed until so many estimates were made in all."""
    best, first, idle = config, planner.estimates, 0
    while planner.estimates < last and idle < _IDLE:
        before = planner.estimates
        heat = _HOT * (_COLD / _HOT) ** ((before - first) / (last - first))
        new = _moved(planner, config, draw)
        most = planner.cost(config) * (1 - heat * math.log(1 - draw.random()))
        if planner.cost(new) <= most and planner.p99(new) is not None:
            config = new
            best = min(best, config, key=planner.cost)
        idle = idle + 1 if planner.estimates == before else 0
    return best


def _start(planner: Planner, draw: Random) -> Config | None:
    """Random hardware and batches, and as many workers as it takes."""
    config = {lane.name: _drawn(planner, lane, draw) for lane in planner.lanes}
    for _ in range(_IDLE):
        if planner.p99(config) is not None:
            return config
        for name, each in config.items():
            grown = min(math.ceil(each.workers * _GROWTH), planner.most_workers)
            batch = max(1, each.batch // 2) if draw.random() < 0.2 else each.batch
            config[name] = each._replace(workers=grown, batch=batch)
    return None


def _moved(planner: Planner, config: Config, draw: Random) -> Config:
    """A plan with one or two stages changed."""
    new = dict(config)
    for lane in draw.sample(list(planner.lanes), draw.choice((1, 2))):
        choice, what = new[lane.name], draw.random()
        if what < 0.5:
            workers = choice.workers + draw.choice((-1, -1, 1))
            new[lane.name] = choice._replace(workers=min(max(workers, 1), planner.most_workers))
        elif what < 0.7:
            new[lane.name] = choice._replace(batch=_batch(choice.option, draw))
        else:
            new[lane.name] = _drawn(planner, lane, draw)
    return new


def _drawn(planner: Planner, lane: Lane, draw: Random) -> Choice:
    """Any hardware and batch, and workers that full batches keep busy for any part of the trace from .3 up."""
    option = draw.choice(lane.options)
    batch = _batch(option, draw)
    workers = math.ceil(planner.least(lane, option, batch) / draw.uniform(0.3, 1.0))
    return Choice(option, min(workers, planner.most_workers), batch)


def _batch(option: Option, draw: Random) -> int:
    return min(1 << draw.randint(0, option.largest.bit_length()), option.largest)
