"""INFaaS' sections 6.1, 6.2 and 6.3.1 in virtual time, system by system on the same traces. Every figure is emulated.

`clipper+` has workers that are fixed beforehand, the best for the trace that its resources allow; `sm+` replicates a
variant that is fixed; in 6.1 and 6.3 they have one worker on a GPU. The best static in hindsight knows the trace.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from benchmarks.infaas.family import ARCHITECTURES, HOSTS, family, of
from benchmarks.infaas.serving import GPU, Serving, share
from benchmarks.output import Table, median_spread
from benchmarks.shapes import SHAPES
from spillway.agents.core.policies import DEFAULT
from spillway.producers.load import schedule
from spillway.topology.variant_sections import HostKind
from spillway.topology.variants.controller import Controller
from spillway.topology.variants.hosts import Fleet
from spillway.topology.variants.needs import Needs
from spillway.topology.variants.scaling import PUBLISHED, Weights, in_time, needed
from spillway.topology.variants.variant import Variant

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from benchmarks.infaas.serving import Outcome, Trace

    Group = Sequence[Variant]
    Made = Callable[[Trace], Serving]
    Systems = Mapping[str, Made]

SETTLE: Final = 10.0  # as of a served stage, by default
WARM: Final = 30.0
ALLOWED: Final = 0.01  # misses of the best static
# 6.2
SLOS: Final = (0.3, 1.0)  # seconds; the paper names none for 6.2, and has these in Table 3 and of its baselines
SECONDS: Final = 210
MODEL: Final = "ResNet50"
CPU, NEURON, TRT1, TRT8 = of(MODEL)[:4]
KINDS: Final = ("cpu", "inferentia", "gpu")
ONE: Final = HostKind(most=1, has={**HOSTS["p3"].has, **HOSTS["inf1"].has})  # "one worker"; it has all three kinds
LOADS: Final[dict[str, Callable[[float], float]]] = {
    "flat, 4/s": lambda _now: 4.0,
    "fluctuating, 4 to 80/s": lambda now: 80.0 if 60 <= now < 90 or 150 <= now < 180 else 4.0,
    "high, 650 to 700/s": lambda now: 650 + 50 * now / SECONDS,
}
# 6.1
POPULAR: Final = ("DenseNet121", "ResNet50", "VGG16", "InceptionV3")
COLD: Final = tuple(each.name for each in ARCHITECTURES if each.name not in POPULAR)
ZIPF: Final = 1.62  # the exponent by which four of 22 have 80 % of the load
_RANKED: Final = {name: rank**-ZIPF for rank, name in enumerate(POPULAR + COLD, 1)}
SHARES: Final = {name: weight / sum(_RANKED.values()) for name, weight in _RANKED.items()}
POPULAR_SLO: Final = 0.05
CPUS: Final = {name: min((v for v in of(name) if v.hardware == "cpu"), key=lambda v: v.latency) for name in SHARES}
MANY: Final = {
    name: Needs(each.app, POPULAR_SLO if name in POPULAR else 1.5 * each.latency, model=name)
    for name, each in CPUS.items()
}
WORKER_OF_HOST: Final = {"cpu": HOSTS["m5"].price / 2, "inferentia": HOSTS["inf1"].price / 4}  # by cores
LONG: Final = {"tweet-like": 770, "wiki-like": 330}  # seconds, of about the paper's 113,420 queries
# 6.3.1
PAIR: Final = {"Inception-ResNetV2": 0.8, "MobileNetV1": 0.2}
PAIR_SLO: Final = 0.1  # ours: the paper names none here
PAIR_LONG: Final = 650  # seconds, of about the paper's 75,000 queries
POLICIES: Final = (DEFAULT, "naive")
COLUMNS: Final = ("misses, %", "answered/s", "p99, ms", "GPU memory, %", "GPU busy, %", "orders")
# By load and system, what the paper says of it beside INFaaS.
_CPU: Final = {"clipper+ cpu": "10/s served", "sm+ cpu": "10/s served"}
_GPU: Final = "3x; 1.7x of infaas without inferentia"
SAID: Final[dict[str, dict[str, str]]] = {
    "6.1": {"clipper+": "1.23x; 1/1.1 served, 1.63x missed", "sm+": "1.23x; 1/1.3 served, 2.54x missed"},
    "flat, 4/s": {"clipper+ gpu": "21.6x", "sm+ gpu": "21.3x"},
    "fluctuating, 4 to 80/s": _CPU
    | {"clipper+ gpu": _GPU, "sm+ gpu": _GPU, "clipper+ inferentia": "1.9x", "sm+ inferentia": "1.9x"},
    "high, 650 to 700/s": _CPU | {"clipper+ gpu": "1x", "sm+ gpu": "1.05x, 15 % fewer served"},
    "6.3.1": {"clipper+": "1.1x; p99 and throughput worse"},
}


def arrivals(rates: Sequence[float], shares: Mapping[str, float], seed: int) -> list[tuple[float, str]]:
    """Poisson arrivals at a rate for each second, of models that are drawn."""
    random = np.random.default_rng(seed)
    times = schedule.from_counts(np.arange(len(rates)), random.poisson(rates), random)
    return list(
        zip(times.tolist(), random.choice(list(shares), len(times), p=list(shares.values())).tolist(), strict=True)
    )


class Setting(NamedTuple):
    """What is asked, on which hosts."""

    needs: Mapping[str, Needs]
    kinds: Mapping[str, HostKind]
    hosts: Mapping[str, int]
    slow: float = 1.0
    """Times that all takes as long."""

    def scaled(self, variants: Group, begin: Group = (), *, vertical: bool = True, published: bool = False) -> Made:
        """INFaaS' controller, which begins with a worker of each of `begin`, or of the first."""
        weights, settle = (PUBLISHED, 0.0) if published else (Weights(), SETTLE)

        def make(_trace: Trace) -> Serving:
            fleet, mine = Fleet(self.kinds, self.hosts), slowed(variants, self.slow)
            controller = Controller(mine, fleet, 2, vertical=vertical, weights=weights, settle=settle)
            return Serving(mine, {each.name: 1 for each in begin or mine[:1]}, self.needs, fleet, controller)

        return make

    def replicated(self, variants: Group) -> Made:
        """`sm+`."""
        return self.scaled(variants, variants, vertical=False, published=self.slow == 1)

    def fixed(self, counts: Mapping[Variant, int]) -> Serving:
        begin = {each.name: count for each, count in counts.items()}
        return Serving(slowed(counts, self.slow), begin, self.needs, Fleet(self.kinds, self.hosts))


def slowed(variants: Iterable[Variant], times: float) -> list[Variant]:
    """The variants, slower; not their loading."""
    return [
        Variant(
            **each.model_dump(exclude={"takes", "overhead"}),
            takes={size: times * seconds for size, seconds in each.takes.items()},
            overhead=times * each.overhead,
        )
        for each in variants
    ]


def alone(variants: Group) -> list[Variant]:
    """The variants, but with a GPU of their own for each worker."""
    return [each.model_copy(update={"units": 1.0}) if each.hardware == GPU else each for each in variants]


def one_model(slo: float) -> Systems:
    """6.2."""
    one, variants = Setting({MODEL: Needs("classification", slo, model=MODEL)}, {"one": ONE}, {"one": 1}), of(MODEL)

    def hindsight(trace: Trace) -> Serving:
        rate, room = sum(at >= WARM for at, _ in trace) / (SECONDS - WARM), Fleet(one.kinds, one.hosts)
        ways = [(count * each.price, count, each) for each in variants for count in range(1, room.fits(0.0, each) + 1)]
        for _, count, each in sorted((way for way in ways if way[1] * way[2].rate > rate), key=lambda way: way[:2]):
            if each.latency <= slo and one.fixed({each: count}).serve(trace, SECONDS, WARM).misses <= ALLOWED:
                return one.fixed({each: count})
        raise ValueError("nothing static serves this load")

    return {
        "infaas, as published": one.scaled(variants, published=True),
        "infaas": one.scaled(variants),
        "infaas without inferentia": one.scaled([each for each in variants if each.hardware != "inferentia"]),
        "infaas without vertical scaling": one.scaled(variants, vertical=False),
        "best static in hindsight": hindsight,
        "clipper+ cpu": lambda _trace: one.fixed({CPU: 2}),
        "clipper+ inferentia": lambda _trace: one.fixed({NEURON: 1}),
        "clipper+ gpu": lambda _trace: one.fixed({TRT8: 1}),
    } | {f"sm+ {kind}": one.replicated([each]) for kind, each in zip(KINDS, (CPU, NEURON, TRT1), strict=True)}


def many_models(seconds: float, slow: float = 1.0) -> Systems:
    """6.1."""
    asked_for = {name: each._replace(latency=slow * (each.latency or 0.0)) for name, each in MANY.items()}
    ours = Setting(asked_for, HOSTS, {"m5": 5, "p3": 5, "inf1": 2}, slow)
    hosts = {"m5": 5, "p3": 7}
    limited = {kind: HOSTS[kind].model_copy(update={"most": most}) for kind, most in hosts.items()}
    theirs = Setting(asked_for, limited, hosts, slow)
    cheapest = [
        min((each for each in of(name) if each.latency <= needs.latency), key=lambda each: (each.price, each.latency))
        for name, needs in MANY.items()
        if needs.latency is not None
    ]

    def usual(batch: int) -> list[Variant]:
        gpus = [each for name in POPULAR for each in alone(of(name)) if (each.hardware, each.batch) == (GPU, batch)]
        by_model = {each.architecture: each for each in reversed(gpus)}  # the first, which is the fastest
        return [by_model.get(name, CPUS[name]) for name in MANY]

    def clipper(trace: Trace) -> Serving:
        """One worker for each model, then what serves most of the trace while there is room; cold ones on GPUs, too."""
        counts, came = Counter(usual(8)), {model: _rates(model, trace, seconds) for model in MANY}
        room = {GPU: 7 - len(POPULAR), "cpu": 24 - len(COLD)}  # two workers on the cores of a host
        gpus = [each for each in alone(family()) if (each.hardware, each.batch) == (GPU, 8) and "tensorrt" in each.name]

        def served(each: Variant) -> float:
            can = sum(count * one.rate for one, count in counts.items() if one.architecture == each.architecture)
            return float(np.clip(came[each.architecture] - can, 0.0, each.rate).sum())

        while open_to := [each for each in {*counts, *gpus} if room[each.hardware]]:
            best = max(open_to, key=lambda each: (served(each), each.name))
            counts[best] += 1
            room[best.hardware] -= 1
        return theirs.fixed(counts)

    def hindsight(trace: Trace) -> Serving:
        counts, hosts = dict(_for_the_peak(model, trace, seconds) for model in MANY), Counter[str]()
        while True:  # as many hosts as it takes
            fleet = Fleet(HOSTS, hosts)
            short = next((each for each, count in counts.items() if fleet.place(0.0, each, count) < count), None)
            if short is None:
                return Setting(MANY, HOSTS, hosts).fixed(counts)
            hosts[{"cpu": "m5", "inferentia": "inf1", GPU: "p3"}[short.hardware]] += 1

    return {
        "infaas, as published": ours.scaled(family(), cheapest, published=True),
        "infaas": ours.scaled(family(), cheapest),
        "infaas without vertical scaling": ours.scaled(family(), cheapest, vertical=False),
        "infaas without sharing": ours.scaled(alone(family()), cheapest),
        "best static in hindsight": hindsight,
        "clipper+": clipper,
        "sm+": theirs.replicated(usual(1)),
    }


def _rates(model: str, trace: Trace, seconds: float) -> NDArray[np.float64]:
    """A model's queries a second in each 4 s."""
    counts, _ = np.histogram([at for at, of_ in trace if of_ == model], int(seconds / 4), (0, seconds))
    return np.asarray(counts / 4)


def _for_the_peak(model: str, trace: Trace, seconds: float) -> tuple[Variant, int]:
    """The variant and its workers that serve a model's busiest 4 s in time and take the least of hosts."""
    peak = max(_rates(model, trace, seconds))
    ways = []
    for each in of(model):
        if each.latency > (MANY[model].latency or 0.0):
            continue
        count = math.ceil(needed(float(peak), Weights()) / in_time(each, MANY[model].latency, Weights()))
        part = min(1.0, float(peak) / count / each.rate) * share(each, each.batch)  # of a GPU, for each worker
        price = count * WORKER_OF_HOST.get(each.hardware, HOSTS["p3"].price * part)
        ways.append((price, count, each.model_copy(update={"units": part}) if each.hardware == GPU else each))
    _, count, best = min(ways, key=lambda way: way[:2])
    return best, count


def two_models() -> Systems:
    """6.3.1: TensorRT, batches of 1."""
    needs = {model: Needs("classification", PAIR_SLO, model=model) for model in PAIR}
    one = Setting(needs, {"p3": HOSTS["p3"].model_copy(update={"most": 2})}, {"p3": 1})
    variants = [next(each for each in of(model) if each.hardware == GPU) for model in PAIR]
    return {
        "infaas, as published": one.scaled(variants, variants, published=True),
        "infaas": one.scaled(variants, variants),
        "clipper+": lambda _trace: one._replace(hosts={"p3": 2}).fixed(dict.fromkeys(alone(variants), 1)),
    }


def contest(repeats: int) -> Iterator[Table]:
    """6.1, then 6.2 with two SLOs."""
    seeds = range(repeats)
    for shape, seconds in LONG.items():
        traces = [arrivals(SHAPES[shape].between(10, 1000, seconds, seed), SHARES, seed) for seed in seeds]
        about = f"22 architectures, SLO {POPULAR_SLO:g} s for four, of the rest 1.5 times the fastest CPU's latency"
        yield compare("6.1", f"10 to 1,000/s, {shape}", about, many_models(seconds), traces, seconds)
    for load, slo in ((load, slo) for slo in SLOS for load in LOADS if slo == SLOS[0] or "high" not in load):
        rates = [LOADS[load](float(second)) for second in range(SECONDS)]
        traces = [arrivals(rates, {MODEL: 1.0}, seed) for seed in seeds]
        yield compare(load, load, f"ResNet50, SLO {slo:g} s, one host", one_model(slo), traces, SECONDS)


def sharing(repeats: int) -> list[Table]:
    """6.3.1: two models on one or two GPUs."""
    rates = [SHAPES["tweet-like"].between(50, 500, PAIR_LONG, seed) for seed in range(repeats)]
    traces = [arrivals(each, PAIR, seed) for seed, each in enumerate(rates)]
    about = f"TensorRT, batches of 1, SLO {PAIR_SLO:g} s, up to two GPUs"
    return [compare("6.3.1", "Two models, 50 to 500/s", about, two_models(), traces, PAIR_LONG)]


def compare(key: str, title: str, about: str, systems: Systems, traces: Sequence[Trace], seconds: int) -> Table:
    """All systems on the same traces, dropping and not; of hosts that have a price it is that which counts."""
    found = {
        (name, policy): [make(each).serve(each, seconds, WARM, policy) for each in traces]
        for name, make in systems.items()
        for policy in POLICIES
    }
    ours = found["infaas", DEFAULT]
    asked = {model for _, model in traces[0]}
    shown = POPULAR if asked > set(POPULAR) else sorted(asked)
    bill = "hosts" if ours[0].bill["hosts"] else "variants"
    columns = ("system", "policy", f"cost of {bill}", "by infaas'", "paper", *COLUMNS)
    rows = [(*of, *_row(each, ours, bill, shown, SAID[key].get(of[0], ""))) for of, each in found.items()]
    note = (
        f"Emulated, virtual time; {about}, {seconds - WARM:g} s after {WARM:g} s; "
        f"{len(traces)} traces of {np.mean([len(each) for each in traces]):,.0f} queries; median (least to most); "
        f"p99: {', '.join(shown)}"
    )
    return Table(title, columns, rows, (note,))


def _row(found: Sequence[Outcome], ours: Sequence[Outcome], bill: str, models: Collection[str], said: str) -> list[str]:
    def over(form: str, value: Callable[[Outcome], float]) -> str:
        return median_spread([value(each) for each in found], form)

    ratios = [each.bill[bill] / base.bill[bill] for each, base in zip(found, ours, strict=True)]
    return [
        over("{:.4g}", lambda each: each.bill[bill]),
        median_spread(ratios, "{:.2f}x"),
        said,
        over("{:.2f}", lambda each: 100 * each.misses),
        over("{:.1f}", lambda each: each.answered / each.seconds),
        ", ".join(median_spread([1e3 * each.p99(model) for each in found], "{:.0f}") for model in models),
        over("{:.1f}", lambda each: 100 * each.bill["gpu memory"] / max(1, each.bill["gpu memory there"])),
        over("{:.1f}", lambda each: 100 * each.bill["gpu busy"] / max(1, each.bill["gpus"])),
        str(found[-1].orders),
    ]
