"""Ways to look for a plan: the thesis' greedy one, a beam that is never dearer, and all plans, for small pipelines."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final

from spillway.topology.capacity.planner import Choice

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.topology.capacity.planner import Config, Found, Planner

WIDTH: Final = 4


def greedy(planner: Planner) -> Found:
    return planner.cheapest()


def beam(planner: Planner) -> Found:
    """Follow the best `WIDTH` plans at once, by cost and then p99, over all actions; greedy's plan stands beside them.

    DowngradeHW tries all cheaper hardware here, and not only the next. Never dearer than greedy. Raises NoPlanError.
    """
    best = planner.cheapest()
    start, steps = planner.initial()
    held = [(start, steps)]
    seen: set[tuple[tuple[str, int, int], ...]] = set()
    while held:
        made = []
        for config, before in held:
            for text, new in (*planner.savings(config, every=True), *planner.larger(config)):
                key = planner.key(new)
                if key not in seen:
                    seen.add(key)
                    made.append((new, [*before, planner.step(text, new)]))
        held = sorted(made, key=lambda each: (planner.cost(each[0]), planner.kept(each[0])))[:WIDTH]
        if held and planner.cost(held[0][0]) < best.cost * (1 - 1e-9):
            best = planner.found(*held[0])
    return best


def exact(planner: Planner, below: Found) -> Found:
    """The cheapest plan of all: those cheaper than `below` are estimated, the cheapest first. For small pipelines."""
    ways = []
    for lane in planner.lanes:
        mine = []
        for option in lane.options:
            batches = sorted({min(1 << power, option.largest) for power in range(option.largest.bit_length() + 1)})
            for batch in batches:
                count = planner.least(lane, option, batch)
                while count <= planner.most_workers and lane.units(count) * option.price < below.cost:
                    mine.append(Choice(option, count, batch))
                    count += 1
        ways.append(mine)
    configs: list[Config] = [
        dict(zip((lane.name for lane in planner.lanes), each, strict=True)) for each in product(*ways)
    ]
    cheaper = [config for config in configs if planner.cost(config) < below.cost * (1 - 1e-9)]
    for config in sorted(cheaper, key=planner.cost):
        within = all(planner.left(config, choice.option.kind) >= 0 for choice in config.values())
        if within and planner.p99(config) is not None:
            return planner.found(config, [planner.step("the cheapest of all plans", config)])
    return below


SEARCHES: Final[dict[str, Callable[[Planner], Found]]] = {"greedy": greedy, "beam": beam}
