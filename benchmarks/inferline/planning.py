"""What plans cost: against coarse-grained sizes, and over SLOs and traffic."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.inferline.contest import EMULATED, THESIS, Setup, units_for
from benchmarks.inferline.scene import gamma, price, scene
from benchmarks.inferline.serving import served
from benchmarks.output import Table, median_spread, times
from spillway.topology.capacity.planner import NoPlanError

if TYPE_CHECKING:
    from benchmarks.inferline.scene import Scene

SAMPLE: Final = 300.0  # seconds planned for, and as many of another trace served


def against_coarse(repeats: int) -> list[Table]:
    """Figure 4.5; and the cascade's plans of Figure 4.13."""
    made = [
        _coarse_row(scene(name, *THESIS), cv2, rate, repeats)
        for name in ("image", "video", "social", "cascade")
        for cv2 in (1, 4)
        for rate in (50, 150, 300)
    ]
    sizes = ("plan", "cg-mean", "cg-peak")
    columns = ("pipeline", "cv2", "queries/s", *(word for each in sizes for word in (f"{each}, $/h", "misses, %")))
    notes = (
        "Thesis: up to 7.6 times cheaper, near-zero misses; CG-Peak exceeded its cluster above 300/s.",
        "A dash: the catalogue has too few units. Misses are measured on another trace of the plan's kind.",
        EMULATED,
    )
    title = "Plans against coarse-grained ones, SLO 150 ms (Figure 4.5)"
    return [Table(title, (*columns, "cg-mean by plan", "cg-peak by plan"), made, notes)]


def _coarse_row(of: Scene, cv2: float, rate: float, repeats: int) -> list[str]:
    found: list[tuple[list[float], list[float]]] = [([], []), ([], []), ([], [])]
    unit = of.unit()
    for seed in range(repeats):
        setup = Setup(of, gamma(rate, cv2, SAMPLE, 2 * seed), gamma(rate, cv2, SAMPLE, 2 * seed + 1), seed=seed)
        configs = setup.config, units_for(setup, unit, peak=False), units_for(setup, unit, peak=True)
        for (costs, misses), config in zip(found, configs, strict=True):
            if of.within(config):
                costs.append(price(config))
                misses.append(100 * served(of, config, setup.live, seed=seed).misses)
    cells = [median_spread(each, "{:.2f}", "-") for pair in found for each in pair]
    ratios = [times(median(costs) / median(found[0][0])) if costs else "-" for costs, _ in found[1:]]
    return [of.pipeline.spec.name, str(cv2), str(rate), *cells, *ratios]


def sensitivity(repeats: int) -> list[Table]:
    """Figure 4.9."""
    made, slos, of = [], (0.1, 0.15, 0.2, 0.3, 0.5), scene("social", *THESIS)
    for cv2, rate in ((cv2, rate) for cv2 in (1, 4) for rate in (50, 150, 250)):
        costs: dict[float, list[float]] = {slo: [] for slo in slos}
        for seed in range(repeats):
            plans = of.provisioning(gamma(rate, cv2, SAMPLE / 2, seed), seed)
            for slo in slos:
                try:
                    costs[slo].append(plans.plan(slo).cost)
                except NoPlanError:
                    continue
        made.append([str(cv2), str(rate), *(median_spread(each, "{:.2f}", "none") for each in costs.values())])
    note = "Thesis: cost falls with the SLO, rises with lambda and cv2, and both cv2 come together as the SLO grows."
    columns = ("cv2", "queries/s", *(f"{1e3 * slo:g} ms" for slo in slos))
    return [Table("Cost of social's plan, $ an hour, over the SLO (Figure 4.9)", columns, made, (note, EMULATED))]
