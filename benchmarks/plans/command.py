"""`python -m benchmarks plans`: the planner's searches beside annealing that takes ten times as many estimates."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Final

import click

from benchmarks.inferline.scene import CHOICES, gamma, scene, sizings
from benchmarks.output import Table, fill_in, markdown_option, show
from benchmarks.plans.drawn import drawn
from benchmarks.plans.reference import STARTS, annealed
from spillway.topology.capacity.search import SEARCHES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.plans.drawn import Drawn
    from spillway.topology.capacity.planner import Config

TIMES: Final = 10  # a search's estimates, the larger number of them, are the reference's
LATE: Final = 0.01  # of the queries may be


@dataclass(frozen=True, slots=True)
class Planned:
    """What a search made of a pipeline."""

    cost: float
    seconds: float
    estimates: int
    kept: bool  # the SLO, on the held-out half


@click.command()
@click.option("--seeds", type=click.IntRange(1), default=5, show_default=True, help="Of the generator of pipelines.")
@click.option("--pipelines", type=click.IntRange(1), default=60, show_default=True, help="Of each seed.")
@markdown_option
def plans(*, seeds: int, pipelines: int, markdown: Path | None) -> None:
    """Show by how much plans are dearer than the cheapest known, and how often they keep the SLO on other traffic.

    \b
    Example:
      python -m benchmarks plans --seeds 1 --pipelines 10
    """  # noqa: D301 - click's own marks
    fill_in(markdown, {"plans": show(_tables(seeds, pipelines))})


def _tables(seeds: int, pipelines: int) -> Iterator[Table]:
    """Costs on random pipelines, by seed of the generator, and on those of the thesis."""
    rows = [row for seed in range(1, seeds + 1) for row in _rows(seed, pipelines)]
    columns = (
        *("seed", "search", "cost by the reference's, mean", "worst", "by the cheapest known, mean", "worst"),
        *("estimates, mean", "seconds, all", "SLO kept, held-out half"),
    )
    drawn_so = (
        f"{pipelines} pipelines of each seed: chains, trees and diamonds of 3 to 6 stages, on three kinds of hardware. "
        "The other half of each trace was held out."
    )
    reference = (
        f"Reference: annealing from {STARTS} random starts, with {TIMES} times the estimates of the search that takes "
        "more. Cheapest known: of all three."
    )
    yield Table("Plans beside the cheapest, random pipelines", columns, rows, (drawn_so, reference))
    yield _thesis()


def _rows(seed: int, pipelines: int) -> list[list[str]]:
    found: dict[str, list[Planned]] = {name: [] for name in (*SEARCHES, "reference")}
    for number in range(pipelines):
        of = drawn(1_000 * seed + number)
        for name, each in compared(of).items():
            found[name].append(each)
    best = [min(each.cost for each in of) for of in zip(*found.values(), strict=True)]
    rows = []
    for name, mine in found.items():
        by_reference = [each.cost / other.cost for each, other in zip(mine, found["reference"], strict=True)]
        by_best = [each.cost / least for each, least in zip(mine, best, strict=True)]
        rows.append([
            str(seed),
            name,
            *(f"{figure:.3f}" for each in (by_reference, by_best) for figure in (fmean(each), max(each))),
            f"{fmean(each.estimates for each in mine):.0f}",
            f"{sum(each.seconds for each in mine):.1f}",
            f"{sum(each.kept for each in mine)} of {len(mine)}",
        ])  # fmt: skip
    return rows


def compared(of: Drawn) -> dict[str, Planned]:
    """By search, and `reference` for the annealing."""
    found = {}
    for name, search in SEARCHES.items():
        planner, begun = of.planner(of.planned), time.process_time()
        config = search(planner).config
        found[name] = Planned(planner.cost(config), time.process_time() - begun, planner.estimates, _kept(of, config))
    planner, begun = of.planner(of.planned), time.process_time()
    cooled = annealed(planner, TIMES * max(each.estimates for each in found.values()))
    if cooled is None:
        raise RuntimeError(f"{of.name}: no random start keeps the SLO, though a plan does")
    seconds = time.process_time() - begun
    return {**found, "reference": Planned(planner.cost(cooled), seconds, planner.estimates, _kept(of, cooled))}


def _kept(of: Drawn, config: Config) -> bool:
    planner = of.planner(of.held_out)
    return planner.estimate(sizings(config), of.slo, int(LATE * len(of.held_out))) is not None


def _thesis() -> Table:
    rows = []
    for name in CHOICES:
        for kinds in (("cpu", "k80"), ("cpu", "k80", "v100")):
            for cv2 in (1, 4):
                plans = scene(name, *kinds).provisioning(gamma(150, cv2, 300, 0))
                cells = []
                for search in ("greedy", "shares"):
                    begun = time.process_time()
                    cost = plans.plan(0.15, search).cost
                    cells += [f"{cost:.2f}", f"{time.process_time() - begun:.2f}"]
                rows.append([name, ", ".join(kinds), str(cv2), *cells])
    columns = ("pipeline", "hardware", "cv2", "greedy, $/h", "s", "shares, $/h", "s")
    note = "150/s for 300 s, SLO 150 ms; seconds of a processor."
    return Table("Plans by both searches, the thesis' pipelines", columns, rows, (note,))
