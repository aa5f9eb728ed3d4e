"""Random pipelines to plan: chains, trees and diamonds of 3 to 6 stages, on three kinds of hardware.

A batch of n takes alpha + beta n. A processor gains little from batches; an accelerator takes a share of its time, and
a faster one a share of that, at prices drawn about those of examples/inferline. The trace is drawn by halves of equal
length: one to plan for, one held out.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from benchmarks.inferline.scene import gamma
from spillway.agents.sim.estimator import Estimator
from spillway.topology.capacity.hardware import Option
from spillway.topology.capacity.planner import Lane, Planner
from spillway.topology.capacity.provisioning import first_sizes
from spillway.topology.load import parse

if TYPE_CHECKING:
    from benchmarks.inferline.scene import Times
    from spillway.topology.load import Pipeline

SHAPES: Final = ("chain", "tree", "diamond")
SHORTEST: Final = 1e-4  # seconds: no stage takes nothing


@dataclass(frozen=True, slots=True)
class Drawn:
    """A pipeline to plan for one trace, and another trace of its kind."""

    name: str
    pipeline: Pipeline
    options: dict[str, tuple[Option, ...]]
    choices: dict[str, dict[str, float]]
    planned: Times
    held_out: Times
    slo: float

    def planner(self, arrivals: Times) -> Planner:
        """A planner that knows nothing yet."""
        estimator = Estimator(self.pipeline, arrivals, choices=self.choices, sizes=first_sizes(self.options))
        lanes = [
            Lane(stage.name, estimator.shares[stage.name], self.options[stage.name], after=stage.after)
            for stage in self.pipeline.spec.stages
        ]
        return Planner(lanes, {}, estimator, estimator.due, self.slo)


def drawn(seed: int, queries: int = 4_000) -> Drawn:
    """The pipeline of a seed, with about so many queries in each half of its trace."""
    draw = Random(seed)
    shape, count = draw.choice(SHAPES), draw.randint(3, 6)
    before = _before(shape, count, draw)
    choices = _choices(shape, before, draw)
    lines = []
    for number, mine in enumerate(before):
        after, chooses = ", ".join(f"s{each}" for each in mine), ', choose: "m:f"' * (f"s{number}" in choices)
        lines.append(f"  - {{name: s{number}, after: [{after}], emulated: {{beta: 1ms}}{chooses}}}")
    pipeline = parse("\n".join([f"name: {shape}-{seed}", "slo: 1s", "sinks: all", "stages:", *lines, ""]))
    prices = draw.uniform(0.04, 0.1), draw.uniform(0.4, 0.9), draw.uniform(1.5, 3.5)
    options = {f"s{number}": _options(prices, draw) for number in range(count)}
    longest = [0.0] * count
    for number, mine in enumerate(before):
        shortest = min(option.durations[0] for option in options[f"s{number}"])
        longest[number] = shortest + max((longest[each] for each in mine), default=0.0)
    slo = max(longest) * draw.uniform(2.0, 8.0)
    rate, cv2 = draw.choice([30.0, 100.0, 250.0]), draw.choice([0.5, 1.0, 4.0])
    seconds = queries / rate
    trace = gamma(rate, cv2, 2 * seconds, seed)
    halves = trace[trace < seconds], trace[trace >= seconds] - seconds
    return Drawn(pipeline.spec.name, pipeline, options, choices, *halves, slo)


def _before(shape: str, count: int, draw: Random) -> list[list[int]]:
    """By stage, those that it comes after."""
    if shape == "chain":
        return [[number - 1] if number else [] for number in range(count)]
    if shape == "tree":
        return [[draw.randrange(number)] if number else [] for number in range(count)]
    middle = draw.randint(2, max(2, count - 2)) if count > 3 else 1  # three stages: one of the ways is the edge itself
    tail = [[number - 1] for number in range(middle + 2, count)]
    return [[], *([0] for _ in range(middle)), [*([0] if middle == 1 else []), *range(1, middle + 1)], *tail]


def _choices(shape: str, before: list[list[int]], draw: Random) -> dict[str, dict[str, float]]:
    """In half of the trees that part at the root, it sends each query to one of its successors."""
    after = [f"s{each}" for each, mine in enumerate(before) if 0 in mine]
    if shape != "tree" or len(after) < 2 or draw.random() < 0.5:
        return {}
    weights = [draw.uniform(0.2, 1.0) for _ in after]
    return {"s0": {name: weight / sum(weights) for name, weight in zip(after, weights, strict=True)}}


def _options(prices: tuple[float, float, float], draw: Random) -> tuple[Option, ...]:
    """What a stage takes on each kind, the dearest first."""
    alpha, beta = draw.uniform(0.0, 0.01), 10 ** draw.uniform(-2.7, -0.7)
    gain, faster = 10 ** draw.uniform(0.3, 1.5), draw.uniform(1.5, 5.0)
    amortised = draw.uniform(0.05, 0.5)  # beta's share of what a batch of one takes an accelerator
    one = max((alpha + beta) / gain, SHORTEST)
    bounds = draw.choice([4, 8, 16]), *([draw.choice([16, 32, 64])] * 2)
    times = (alpha, beta), (one * (1 - amortised), one * amortised), (one * (1 - amortised), one * amortised)
    made = []
    for kind, price, bound, (a, b), speed in zip(
        ("cpu", "k80", "v100"), prices, bounds, times, (1.0, 1.0, faster), strict=True
    ):
        durations = tuple((a + b * size) / speed for size in range(1, bound + 1))
        made.append(Option(kind, price, durations, 5.0, emulated=True))
    return tuple(reversed(made))
