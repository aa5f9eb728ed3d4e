"""What plans cost: against coarse-grained sizes, over SLOs and traffic, by search; and the profiles they rest on."""

from __future__ import annotations

from itertools import product
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.inferline.contest import Setup, units_for
from benchmarks.inferline.scene import SLO, gamma, price, scene
from benchmarks.inferline.serving import served
from benchmarks.output import Table, median_spread, times
from topology.capacity.planner import Lane, NoPlanError, Planner
from topology.capacity.search import SEARCHES, exact

if TYPE_CHECKING:
    from benchmarks.inferline.scene import Scene

THESIS: Final = ("cpu", "k80")  # its hardware
EMULATED: Final = "Emulated hardware, virtual time, policy naive; no hops."
SAMPLE: Final = 300.0  # seconds planned for, and as many of another trace served


def against_coarse(repeats: int) -> list[Table]:
    """Figure 4.5."""
    tables = []
    for kinds, told in ((THESIS, "the thesis' hardware"), ((), "with V100s beside")):
        rows = []
        for name in ("image", "video", "social"):
            for cv2 in (1, 4):
                rows += [_coarse_row(scene(name, *kinds), cv2, rate, repeats) for rate in (50, 150, 300)]
        columns = (
            *("pipeline", "cv2", "queries/s", "plan, $/h", "misses, %", "cg-mean, $/h", "misses, %", "cg-peak, $/h"),
            *("misses, %", "cg-mean by plan", "cg-peak by plan"),
        )
        notes = (
            "Thesis: up to 7.6 times cheaper, near-zero misses; CG-Peak exceeded its cluster above 300/s.",
            "A dash: the catalogue has too few. Misses are of another trace of the same kind than the one planned for.",
            EMULATED,
        )
        tables.append(
            Table(f"Plans against coarse-grained ones, SLO 150 ms (Figure 4.5), {told}", columns, rows, notes)
        )
    return tables


def _coarse_row(of: Scene, cv2: float, rate: float, repeats: int) -> list[str]:
    costs: list[list[float]] = [[], [], []]
    misses: list[list[float]] = [[], [], []]
    unit = of.unit()
    for seed in range(repeats):
        setup = Setup(of, gamma(rate, cv2, SAMPLE, 2 * seed), gamma(rate, cv2, SAMPLE, 2 * seed + 1), seed=seed)
        configs = setup.config, units_for(setup, unit, peak=False), units_for(setup, unit, peak=True)
        for place, config in enumerate(configs):
            if of.within(config):
                costs[place].append(price(config))
                misses[place].append(100 * served(of, config, setup.live, seed=seed).misses)
    cells = []
    for cost, missed in zip(costs, misses, strict=True):
        cells += [median_spread(cost, "{:.2f}", "-"), median_spread(missed, "{:.2f}", "-")]
    ratios = [times(median(cost) / median(costs[0])) if cost else "-" for cost in costs[1:]]
    return [of.pipeline.spec.name, str(cv2), str(rate), *cells, *ratios]


def profiles(_repeats: int) -> list[Table]:
    """Figure 4.3, and the price rule of 4.6."""
    of = scene("social")
    rows = []
    for stage in ("language", "translate", "classify", "topic"):
        for option in of.options[stage]:
            cells = [
                f"{option.throughput(batch):.1f}/s, {1e3 * option.duration(batch):.0f} ms"
                if batch <= option.largest
                else "-"
                for batch in (1, 4, 16, 32)
            ]
            rows.append([stage, option.kind, *cells])
    notes = (
        "Thesis: ResNet152 (classify) .6/s on a core, 50.6/s on a K80 in batches of 32. The others are assumed.",
        EMULATED,
    )
    kinds = [[name, f"{kind.price:.3f}", str(kind.count), kind.source] for name, kind in of.catalogue.kinds.items()]
    columns = ("model", "on", "batch of 1", "4", "16", "32")
    return [
        Table("Profiles (Figure 4.3): throughput, and what a batch takes", columns, rows, notes),
        Table("Prices (section 4.6)", ("kind", "$ an hour", "units", "from"), kinds),
    ]


def sensitivity(repeats: int) -> list[Table]:
    """Figure 4.9."""
    rows = []
    slos = (0.1, 0.15, 0.2, 0.3, 0.5)
    for kinds, told in ((THESIS, "cpu, k80"), ((), "all")):
        of = scene("social", *kinds)
        for cv2 in (1, 4):
            for rate in (50, 150, 250):
                found: dict[float, list[float]] = {slo: [] for slo in slos}
                for seed in range(repeats):
                    made = of.provisioning(gamma(rate, cv2, SAMPLE / 2, seed), seed)
                    for slo in slos:
                        try:
                            found[slo].append(made.plan(slo).cost)
                        except NoPlanError:
                            continue
                rows.append(
                    [told, str(cv2), str(rate), *(median_spread(each, "{:.2f}", "none") for each in found.values())]
                )
    notes = (
        "Thesis: cost falls with the SLO, rises with lambda and cv2, and both cv2 come together as the SLO grows.",
        EMULATED,
    )
    columns = ("hardware", "cv2", "queries/s", *(f"{1e3 * slo:g} ms" for slo in slos))
    return [Table("Cost of social's plan, $ an hour, over the SLO (Figure 4.9)", columns, rows, notes)]


def cascade(repeats: int) -> list[Table]:
    """Figure 4.13, in so far as it is simulated."""
    of, rows = scene("cascade", *THESIS), []
    for rate in (50, 100, 150, 200, 300):
        plans, missed = [], []
        for seed in range(repeats):
            plan = of.plan(gamma(rate, 1, SAMPLE, 2 * seed), seed=seed)
            plans.append(plan.cost)
            live = gamma(rate, 1, SAMPLE, 2 * seed + 1)
            missed.append(100 * served(of, of.config(plan), live, seed=seed).misses)
        rows.append([str(rate), median_spread(plans, "{:.2f}"), median_spread(missed, "{:.2f}")])
    notes = (
        "Thesis: the same near-zero misses on Clipper and on TensorFlow Serving. Serving frameworks are not simulated.",
        EMULATED,
    )
    return [Table("TF Cascade, SLO 150 ms, cv2 1 (Figure 4.13)", ("queries/s", "plan, $/h", "misses, %"), rows, notes)]


def searches(repeats: int) -> list[Table]:
    """Greedy and beam search beside the cheapest plan of all."""
    rows = []
    for name, kinds in product(("image", "cascade", "video", "social"), (THESIS, ())):
        of = scene(name, *kinds)
        found: dict[str, list[float]] = {"greedy": [], "beam": [], "exact": []}
        for seed in range(repeats):
            made = of.provisioning(gamma(150, 1, SAMPLE / 5, seed), seed)
            for search in SEARCHES:
                found[search].append(made.plan(SLO, search).cost)
            if len(of.options) == 2:  # more take too long
                planner = Planner(
                    lanes=[Lane(each, made.shares[each], of.options[each]) for each in of.options],
                    counts={kind: each.count for kind, each in of.catalogue.kinds.items()},
                    estimate=made.estimate,
                    arrivals=made.arrivals,
                    slo=SLO,
                )
                found["exact"].append(exact(planner, planner.cheapest()).cost)
        rows.append(
            [name, ", ".join(of.catalogue.kinds), *(median_spread(each, "{:.2f}", "-") for each in found.values())]
        )
    notes = ("Not in the thesis. Exact only where a pipeline has two stages.", EMULATED)
    return [
        Table(
            "Greedy against exact, $ an hour at 150/s", ("pipeline", "hardware", "greedy", "beam", "exact"), rows, notes
        )
    ]
