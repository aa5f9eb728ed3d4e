"""INFaaS' section 6.1 in virtual time, system by system on the same traces. Every figure is emulated.

The best static in hindsight has the workers that serve each model's peak in time and take the least of hosts. `sm+`
replicates a variant that is fixed: popular models have one on a GPU of its own, the others on CPUs.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.infaas.family import ARCHITECTURES, HOSTS, family
from benchmarks.infaas.serving import GPU, Serving, share
from benchmarks.output import Table, median_spread
from benchmarks.shapes import SHAPES
from spillway.producers.load import schedule
from spillway.topology.variants.controller import Controller
from spillway.topology.variants.hosts import Fleet
from spillway.topology.variants.needs import Needs
from spillway.topology.variants.scaling import PUBLISHED, Weights, in_time, needed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.infaas.serving import Outcome, Trace
    from spillway.topology.variants.variant import Variant

    Made = Callable[[Trace], Serving]

SETTLE: Final = 10.0  # as of a served stage, by default
WARM: Final = 30.0
POPULAR: Final = ("DenseNet121", "ResNet50", "VGG16", "InceptionV3")
NAMES: Final = (*POPULAR, *(each.name for each in ARCHITECTURES if each.name not in POPULAR))
ZIPF: Final = 1.62  # the exponent by which four of 22 have 80 % of the load
SHARES: Final = np.array([rank**-ZIPF for rank in range(1, len(NAMES) + 1)])
POPULAR_SLO: Final = 0.05
BEGIN: Final = {"m5": 5, "p3": 5, "inf1": 2}  # hosts
RIVALS: Final = {"m5": 5, "p3": 7}  # hosts that sm+ has, and no more
WORKER_OF_HOST: Final = {"cpu": HOSTS["m5"].price / 2, "inferentia": HOSTS["inf1"].price / 4}  # by cores
LONG: Final = {"tweet-like": 770, "wiki-like": 330}  # seconds, of about the paper's 113,420 queries
COLUMNS: Final = ("cost of hosts", "by infaas'", "misses, %")


def arrivals(shape: str, low: float, high: float, seconds: int, seed: int) -> list[tuple[float, str]]:
    """Poisson arrivals of a shape, between two rates, of models that are drawn."""
    random = np.random.default_rng(seed)
    counts = random.poisson(SHAPES[shape].between(low, high, seconds, seed))
    times = schedule.from_counts(np.arange(seconds), counts, random)
    models = random.choice(NAMES, len(times), p=SHARES / SHARES.sum())
    return list(zip(times.tolist(), models.tolist(), strict=True))


def alone(variants: Sequence[Variant]) -> list[Variant]:
    """The variants, but with a GPU of their own for each worker."""
    return [each.model_copy(update={"units": 1.0}) if each.hardware == GPU else each for each in variants]


class Contest:
    """INFaaS and its rivals for traces of so many seconds, with a family and SLOs that are `slow` times as slow."""

    def __init__(self, seconds: float, slow: float = 1.0) -> None:
        self._seconds, self._family = seconds, family(slow)
        self._of = {name: [each for each in self._family if each.architecture == name] for name in NAMES}
        cpus = {name: [each for each in mine if each.hardware == "cpu"] for name, mine in self._of.items()}
        self._cpus = {name: min(mine, key=lambda each: each.latency) for name, mine in cpus.items()}
        slos = {name: 1.5 * each.latency for name, each in self._cpus.items()}
        self._slos = slos | dict.fromkeys(POPULAR, slow * POPULAR_SLO)
        self._needs = {name: Needs(each.app, self._slos[name], model=name) for name, each in self._cpus.items()}

    def systems(self) -> dict[str, Made]:
        """What makes each system for a trace, by name."""
        cheapest = [min(self._in_slo(name), key=lambda each: (each.price, each.latency)) for name in NAMES]

        def infaas(variants: Sequence[Variant], settle: float = SETTLE, **how: Any) -> Made:
            return lambda _trace: self._scaled(variants, cheapest, Fleet(HOSTS, BEGIN), settle=settle, **how)

        return {
            "infaas, as published": infaas(self._family, weights=PUBLISHED, settle=0.0),
            "infaas": infaas(self._family),
            "infaas without vertical scaling": infaas(self._family, vertical=False),
            "infaas without sharing": infaas(alone(self._family)),
            "best static in hindsight": self._hindsight,
            "sm+": self._replicated,
        }

    def _scaled(self, variants: Sequence[Variant], begin: Sequence[Variant], fleet: Fleet, **how: Any) -> Serving:
        """INFaaS' controller, with a worker of each of `begin` at first."""
        controller = Controller(variants, fleet, 2, **how)
        return Serving(variants, {each.name: 1 for each in begin}, self._needs, fleet, controller)

    def _replicated(self, _trace: Trace) -> Serving:
        gpus = [next(each for each in self._of[name] if (each.hardware, each.batch) == (GPU, 1)) for name in POPULAR]
        fixed = [*alone(gpus), *(self._cpus[name] for name in NAMES if name not in POPULAR)]
        kinds = {kind: HOSTS[kind].model_copy(update={"most": most}) for kind, most in RIVALS.items()}
        return self._scaled(fixed, fixed, Fleet(kinds, RIVALS), vertical=False, settle=SETTLE)

    def _hindsight(self, trace: Trace) -> Serving:
        counts, hosts = dict(self._for_the_peak(model, trace) for model in NAMES), Counter[str]()
        while True:  # as many hosts as it takes
            fleet = Fleet(HOSTS, hosts)
            short = next((each for each, count in counts.items() if fleet.place(0.0, each, count) < count), None)
            if short is None:
                return Serving(list(counts), {each.name: count for each, count in counts.items()}, self._needs, fleet)
            hosts[{"cpu": "m5", "inferentia": "inf1", GPU: "p3"}[short.hardware]] += 1

    def _for_the_peak(self, model: str, trace: Trace) -> tuple[Variant, int]:
        """The variant and its workers that serve a model's busiest 4 s in time and take the least of hosts."""
        times = [at for at, of in trace if of == model]
        peak, ways = max(np.histogram(times, int(self._seconds / 4), (0, self._seconds))[0]) / 4.0, []
        for each in self._in_slo(model):
            count = math.ceil(needed(peak, Weights()) / in_time(each, self._slos[model], Weights()))
            part = min(1.0, peak / count / each.rate) * share(each, each.batch)  # of a GPU, for each worker
            price = count * WORKER_OF_HOST.get(each.hardware, HOSTS["p3"].price * part)
            ways.append((price, count, each.model_copy(update={"units": part}) if each.hardware == GPU else each))
        _, count, best = min(ways, key=lambda way: way[:2])
        return best, count

    def _in_slo(self, model: str) -> list[Variant]:
        return [each for each in self._of[model] if each.latency <= self._slos[model]]


def contest(repeats: int) -> Iterator[Table]:
    """6.1: all systems on the same traces."""
    for shape, seconds in LONG.items():
        traces = [arrivals(shape, 10, 1000, seconds, seed) for seed in range(repeats)]
        systems = Contest(seconds).systems()
        found = {name: [make(each).serve(each, seconds, WARM) for each in traces] for name, make in systems.items()}
        rows = [(name, *cells(each, found["infaas"])) for name, each in found.items()]
        note = (
            f"Emulated, virtual time; 22 architectures, SLO {POPULAR_SLO:g} s for four, of the rest 1.5 times the "
            f"fastest CPU's latency, {seconds - WARM:g} s after {WARM:g} s; {repeats} traces of "
            f"{np.mean([len(each) for each in traces]):,.0f} queries; median (least to most). sm+ scales by our rule; "
            "the paper's costs 1.23x, and misses 2.54 times as many."
        )
        yield Table(f"6.1: 10 to 1,000/s, {shape}", ("system", *COLUMNS), rows, (note,))


def cells(found: Sequence[Outcome], ours: Sequence[Outcome]) -> list[str]:
    """The cells of `COLUMNS` of a system's runs, beside those of `infaas` on the same traces."""
    costs, misses = zip(*found, strict=True)
    return [
        median_spread(costs, "{:.3f}"),
        median_spread([cost / base.cost for cost, base in zip(costs, ours, strict=True)], "{:.2f}x"),
        median_spread([100 * each for each in misses], "{:.2f}"),
    ]
