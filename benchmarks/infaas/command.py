"""`python -m benchmarks infaas`: INFaaS' sections 6.2 and 6.4 beside the paper's figures, emulated in virtual time.

Section 6.3.2, an offline job beside online queries, is served, on a Kafka of its own; only where it is asked for.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import numpy as np

from agents.broker import EmbeddedBroker
from agents.cli.options import cache_dir
from benchmarks.infaas.offline import offline
from benchmarks.infaas.serving import Serving
from benchmarks.output import Table, median_spread, times
from lineage.errors import UsageError
from producers.connection import ClientSettings
from topology.variants.controller import Controller
from topology.variants.family import ARCHITECTURES, family, of
from topology.variants.hosts import Fleet, HostKind
from topology.variants.needs import Needs
from topology.variants.program import solve
from topology.variants.scaling import Weights, candidates_of, scale_up
from topology.variants.selection import Selection, Status
from topology.variants.states import SLACK

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.infaas.serving import Outcome
    from topology.variants.variant import Variant

SLO: Final = 0.3  # seconds; the paper names none for 6.2, and uses this in Table 3
SECONDS, WARM = 210.0, 30.0
MODEL: Final = "ResNet50"
NEEDS: Final = Needs("classification", SLO, model=MODEL)
CPU, NEURON, TRT1, TRT8 = of(MODEL)[:4]
# 6.2: "one worker"; it has all three kinds.
HOST: Final = HostKind.model_validate(
    {
        "most": 1,
        "has": {
            "cpu": {"units": 8, "memory": "61GiB"},
            "inferentia": {"units": 4, "memory": "16GiB"},
            "v100": {"units": 1, "memory": "16GiB"},
        },
    }
)
LOADS: Final[dict[str, Callable[[float], float]]] = {
    "flat, 4/s": lambda _now: 4.0,
    "fluctuating, 4 to 80/s": lambda now: 80.0 if 60 <= now < 90 or 150 <= now < 180 else 4.0,
    "high, 650 to 700/s": lambda now: 650 + 50 * now / SECONDS,
}
# By load and system, what the paper says of it.
PAPER: Final = {
    ("flat, 4/s", "clipper+ gpu"): "21.6x",
    ("flat, 4/s", "sm+ gpu"): "21.3x",
    ("fluctuating, 4 to 80/s", "clipper+ gpu"): "3x",
    ("fluctuating, 4 to 80/s", "sm+ gpu"): "3x",
    ("fluctuating, 4 to 80/s", "clipper+ cpu"): "10/s served",
    ("fluctuating, 4 to 80/s", "sm+ cpu"): "10/s served",
    ("fluctuating, 4 to 80/s", "clipper+ inferentia"): "1.9x",
    ("high, 650 to 700/s", "clipper+ gpu"): "1x, all served",
    ("high, 650 to 700/s", "sm+ gpu"): "1.05x, 15 % fewer served",
    ("high, 650 to 700/s", "clipper+ cpu"): "10/s served",
    ("high, 650 to 700/s", "sm+ cpu"): "10/s served",
}


def _scaled(
    variants: tuple[Variant, ...], *, vertical: bool = True, slack: float = SLACK, settle: float = 0.0
) -> Serving:
    begin, fleet = variants[0], Fleet({"one": HOST}, {"one": 1})
    controller = Controller(variants, fleet, 2, vertical=vertical, weights=Weights(slack), settle=settle)
    return Serving(variants, {begin.name: 1}, NEEDS, controller)


def _static(variant: Variant, count: int) -> Serving:
    return Serving((variant,), {variant.name: count}, NEEDS, None)


SYSTEMS: Final[dict[str, Callable[[], Serving]]] = {
    "infaas": lambda: _scaled(of(MODEL)),
    "infaas, down after 30 s": lambda: _scaled(of(MODEL), settle=30.0),
    "infaas, down after 30 s, slack 1.5": lambda: _scaled(of(MODEL), settle=30.0, slack=1.5),
    "infaas without inferentia": lambda: _scaled(tuple(each for each in of(MODEL) if each.hardware != "inferentia")),
    "clipper+ cpu": lambda: _static(CPU, 2),
    "clipper+ inferentia": lambda: _static(NEURON, 1),
    "clipper+ gpu": lambda: _static(TRT8, 1),
    "sm+ cpu": lambda: _scaled((CPU,), vertical=False),
    "sm+ inferentia": lambda: _scaled((NEURON,), vertical=False),
    "sm+ gpu": lambda: _scaled((TRT1,), vertical=False),
}


def arrivals(rate: Callable[[float], float], seed: int) -> list[float]:
    """Poisson arrivals at a rate that changes every second."""
    random = np.random.default_rng(seed)
    found = []
    for second in range(int(SECONDS)):
        count = random.poisson(rate(float(second)))
        found += sorted((second + random.random(count)).tolist())
    return found


def scaling(repeats: int) -> list[Table]:
    """6.2: cost and misses under three loads."""
    tables = []
    for load, rate in LOADS.items():
        traces = [arrivals(rate, seed) for seed in range(repeats)]
        found = {name: [make().serve(each, SECONDS, WARM) for each in traces] for name, make in SYSTEMS.items()}
        rows = [_row(load, name, outcomes, found["infaas"]) for name, outcomes in found.items()]
        columns = ("system", "cost", "by infaas'", "paper", "misses, %", "answered/s", "most workers", "orders")
        note = (
            f"Emulated, virtual time, naive; ResNet50, SLO {SLO} s, {SECONDS - WARM:g} s after {WARM:g} s; "
            f"traces: {repeats}, median (least to most). Workers and orders of the last."
        )
        tables.append(Table(load, columns, rows, (note,)))
    return tables


def _row(load: str, name: str, outcomes: list[Outcome], ours: list[Outcome]) -> tuple[str, ...]:
    ratio = float(np.median([each.cost / base.cost for each, base in zip(outcomes, ours, strict=True)]))
    last = outcomes[-1]
    return (
        name,
        median_spread([each.cost for each in outcomes], "{:.0f}"),
        times(ratio),
        PAPER.get((load, name), ""),
        median_spread([100 * each.misses for each in outcomes], "{:.2f}"),
        median_spread([each.answered / each.seconds for each in outcomes], "{:.1f}"),
        ", ".join(f"{count} {each.removeprefix('resnet50-')}" for each, count in last.most.items() if count),
        str(last.orders),
    )


def selection(repeats: int) -> list[Table]:
    """6.4: how long getVariant takes, here, at 10,000 variants of one application."""
    random = np.random.default_rng(0)
    base = [each for each in family() if each.app == NEEDS.app]
    many = [base[n % len(base)].model_copy(update={"name": f"v{n}"}) for n in range(10_000)]
    rows = []
    for state, share in (("none active", 0.0), ("a tenth active", 0.1), ("all active", 1.0)):
        chosen = Selection(many)
        for each in many:
            chosen.update(each.name, Status(serves=bool(random.random() < share), load=float(random.random())))
        for text, needs in (("72 %, 20 ms", Needs(NEEDS.app, 0.02, 0.72)), ("ResNet50", Needs(NEEDS.app, model=MODEL))):
            took = []
            for _ in range(2_000 * repeats):
                began = time.thread_time()
                chosen.choose(needs, needs.latency)
                took.append(1e6 * (time.thread_time() - began))
            rows.append((text, state, f"{np.median(took):.0f}", f"{np.percentile(took, 99):.0f}"))
    note = "Processor time of this machine. The paper: 0.9 to 3.5 ms, 175 variants."
    return [Table("getVariant at 10,000 variants", ("query", "state", "median, us", "p99, us"), rows, (note,))]


def programs(repeats: int) -> list[Table]:
    """4.2.1: the integer program against the heuristic, of all architectures."""
    random = np.random.default_rng(0)
    weights, took, dearer = Weights(), {"heuristic": 0.0, "program": 0.0}, []
    count = repeats * len(ARCHITECTURES)
    for n in range(count):
        candidates = candidates_of(of(ARCHITECTURES[n % len(ARCHITECTURES)].name))
        load, slo = float(10 ** random.uniform(0, 3)), 1.5 * max(each.latency for each in candidates)
        began = time.process_time()
        greedy = scale_up(candidates, load, slo, weights, lambda _each: 1 << 20).action
        between = time.process_time()
        best = solve(candidates, load, slo, weights)
        took["heuristic"] += between - began
        took["program"] += time.process_time() - between
        dearer.append(greedy.cost / best.cost if greedy is not None else 1.0)
    rows = [(name, f"{100 * seconds / count:.3g}") for name, seconds in took.items()]
    cost = f"{np.mean(dearer):.2f} times the program's in the mean, {max(dearer):.2f} at most"
    notes = (
        f"Of {count} loads from nothing the heuristic costs {cost}. Processor time, one architecture after the other.",
        "The paper: Gurobi takes 23 s for 50 architectures and 50 s for 100, in one program.",
    )
    return [Table("Scaling 100 architectures", ("by", "seconds"), rows, notes)]


SECTIONS: Final = {"scaling": scaling, "selection": selection, "program": programs}
_OFFLINE: Final = "offline"  # section 6.3.2: served, for minutes


@click.command()
@click.option("--only", multiple=True, metavar="SECTION", help=f"May be repeated: {', '.join(SECTIONS)}, {_OFFLINE}.")
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True, help="Traces of each load, or runs.")
@click.option("--seconds", type=click.FloatRange(5), default=100.0, show_default=True, help="Of a run of 'offline'.")
def infaas(*, only: tuple[str, ...], repeats: int, seconds: float) -> None:
    """Show what choosing and scaling variants costs and misses, beside static variants and INFaaS' own figures.

    \b
    Example:
      python -m benchmarks infaas --only scaling --repeats 1
      python -m benchmarks infaas --only offline
    """  # noqa: D301 - click's own marks
    unknown = set(only) - SECTIONS.keys() - {_OFFLINE}
    if unknown:
        raise UsageError(f"there is no section {min(unknown)!r}; those there are: {', '.join(SECTIONS)}, {_OFFLINE}")
    for name, section in SECTIONS.items():
        if not only or name in only:
            text = "\n".join(table.markdown() for table in section(repeats))
            click.echo(f"## {name}\n\n{text}")
    if _OFFLINE in only:
        with (
            tempfile.TemporaryDirectory() as work,
            EmbeddedBroker(Path(work) / "kafka", cache_dir=cache_dir()) as kafka,
        ):
            found = offline(Path(work), ClientSettings(bootstrap=kafka.bootstrap), repeats, seconds)
            text = "\n".join(table.markdown() for table in found)
            click.echo(f"## {_OFFLINE}\n\n{text}")
