"""Ways to look for a plan: by shares of the SLO, and the thesis' greedy one."""

from __future__ import annotations

from itertools import combinations, product
from typing import TYPE_CHECKING, Final

from spillway.topology.capacity.forecast import Forecast
from spillway.topology.capacity.planner import Planner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from spillway.topology.capacity.planner import Config, Found, Step

_TOGETHER: Final = 2  # stages whose hardware changes at once
_BELOW: Final = 1 - 1e-9  # of a cost: what is lower is cheaper
_CLOSE: Final = 1.02  # two budgets between which no other is tried


def shares(planner: Planner) -> Found:
    """Begin with the cheapest sizes of the model that keep the SLO, and change the hardware of one or two stages.

    With each such change `Forecast` makes all sizes anew, below the cost of the plan, and with them the stages' shares
    of the SLO. Changes are tried in the order of the model's seconds; the first that keeps the SLO is taken, and what
    it has too much goes. In the end no action of `Planner.savings` lowers the cost, either. Raises NoPlanError.
    """
    forecast = Forecast(planner)
    config, steps = _begin(planner, forecast)
    while True:
        config = planner.smallest(_cheaper(planner, forecast, config, steps), steps)
        savings = (*_fewer(planner, config), *planner.savings(config, every=True))
        saving = min(savings, key=lambda new: planner.cost(new[1]), default=None)
        if saving is None:
            return planner.found(config, steps)
        text, config = saving
        steps.append(planner.step(text, config))


def _begin(planner: Planner, forecast: Forecast) -> tuple[Config, list[Step]]:
    """The model's sizes at the least budget for which they keep the SLO; else Alg. 1's. Raises NoPlanError."""
    low, high = forecast.costs
    found, high = None, high / _BELOW
    while high > low * _CLOSE:
        budget = (low * high) ** 0.5
        sizes = forecast.soonest(budget)
        kept = None if sizes is None else _kept(planner, sizes[1])
        if kept is None:
            low = budget
        else:
            found, high = kept, planner.cost(kept)
    if found is None:
        return planner.initial()
    told = "; ".join(f"{name}: {choice.text}" for name, choice in found.items())
    return found, [planner.step(f"the model's sizes: {told}", found)]


def _kept(planner: Planner, config: Config) -> Config | None:
    """A plan with batches twice as large, or as it is; None where neither keeps the SLO.

    When queries come faster, the larger ones help more often than they hurt.
    """
    wide = {name: choice.doubled for name, choice in config.items()}
    return next((each for each in (wide, config) if planner.p99(each) is not None), None)


def _cheaper(planner: Planner, forecast: Forecast, config: Config, steps: list[Step]) -> Config:
    """Change hardware for as long as that lowers the cost."""
    while True:
        config = _trimmed(planner, config, steps)
        near = sorted(_near(planner, forecast, config), key=lambda each: each[0])
        found = next((kept for _, each in near if (kept := _kept(planner, each)) is not None), None)
        if found is None:
            return config
        changes = (f"{name}: {each.text} to {found[name].text}" for name, each in config.items() if each != found[name])
        steps.append(planner.step(f"other shares of the SLO: {'; '.join(changes)}", found))
        config = found


def _near(planner: Planner, forecast: Forecast, config: Config) -> Iterator[tuple[float, Config]]:
    """The model's seconds and cheaper sizes, with the same hardware and with that of `_TOGETHER` stages changed."""
    now, budget = {name: choice.option.kind for name, choice in config.items()}, planner.cost(config) * _BELOW
    for count in range(_TOGETHER + 1):
        for lanes in combinations(planner.lanes, count):
            others = ([each.kind for each in lane.options if each.kind != now[lane.name]] for lane in lanes)
            for kinds in product(*others):
                new = {**now, **{lane.name: kind for lane, kind in zip(lanes, kinds, strict=True)}}
                sizes = forecast.soonest(budget, new)
                if sizes is not None:
                    yield sizes


def _trimmed(planner: Planner, config: Config, steps: list[Step]) -> Config:
    """Take workers away, the dearest first, where the SLO is kept with larger batches of the stage or without."""
    while True:
        new = min(_fewer(planner, config), key=lambda new: planner.cost(new[1]), default=None)
        if new is None:
            return config
        text, config = new
        steps.append(planner.step(text, config))


def _fewer(planner: Planner, config: Config) -> Iterator[tuple[str, Config]]:
    """The plans with a worker less of one stage, and batches twice as large of all, or as large as it takes of this."""
    for name, choice in config.items():
        if choice.workers == 1:
            continue
        fewer = choice._replace(workers=choice.workers - 1)
        new = _kept(planner, {**config, name: fewer})
        while new is None and fewer.batch < fewer.option.largest:
            fewer = fewer.doubled
            new = {**config, name: fewer} if planner.p99({**config, name: fewer}) is not None else None
        if new is not None:
            yield f"RemoveReplica {name}: {choice.text} to {new[name].text}", new


SEARCHES: Final[dict[str, Callable[[Planner], Found]]] = {"shares": shares, "greedy": Planner.cheapest}
DEFAULT: Final = "shares"
