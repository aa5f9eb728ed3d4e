"""`python -m benchmarks infaas`: INFaaS' sections 6.1 to 6.4 beside the paper's figures, emulated in virtual time.

Two sections are served: 6.3.2, an offline job beside online queries, and 6.1 at a tenth of the rate.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import click
import numpy as np

from benchmarks.infaas.contest import contest, sharing
from benchmarks.infaas.family import ARCHITECTURES, family, of
from benchmarks.infaas.live import live
from benchmarks.infaas.offline import offline
from benchmarks.infaas.program import grown, solve
from benchmarks.output import Table, show
from benchmarks.scene import kafka
from spillway.topology.variants.needs import Needs
from spillway.topology.variants.scaling import Weights, candidates_of, scale_up
from spillway.topology.variants.selection import Selection, Status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

MODEL: Final = "ResNet50"
NEEDS: Final = Needs("classification", 0.3, model=MODEL)


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
    random, weights, took = np.random.default_rng(0), Weights(), {"heuristic": 0.0, "program": 0.0}
    count = repeats * len(ARCHITECTURES)
    for n in range(count):
        candidates = candidates_of(of(ARCHITECTURES[n % len(ARCHITECTURES)].name))
        load, slo = float(10 ** random.uniform(0, 3)), 1.5 * max(each.latency for each in candidates)
        began = time.process_time()
        scale_up(candidates, load, slo, weights, lambda _each: 1 << 20)
        between = time.process_time()
        solve(candidates, load, slo, weights)
        took["heuristic"] += between - began
        took["program"] += time.process_time() - between
    found = [list(grown(seed, 50 * repeats)) for seed in range(5)]
    most = ", ".join(f"{max(each):.3f}" for each in found)
    rows = [(name, f"{100 * seconds / count:.3g}") for name, seconds in took.items()]
    cost = f"{np.mean(np.concatenate(found)):.3f} times the program's in the mean; at most, by seed: {most}"
    notes = (
        f"Of {sum(map(len, found))} random draws, from nothing or from less load, the heuristic costs {cost}.",
        "Processor time, one architecture after the other; the paper's Gurobi takes 50 s for 100 in one program.",
    )
    return [Table("Scaling 100 architectures", ("by", "seconds"), rows, notes)]


SECTIONS: Final[dict[str, Callable[[int], Iterable[Table]]]] = {
    "contest": contest,
    "sharing": sharing,
    "selection": selection,
    "program": programs,
}
SERVED: Final = {"offline": offline, "live": live}
"""Sections that are served on a Kafka of their own, for minutes; only where they are asked for."""


_ALL: Final = (*SECTIONS, *SERVED)


@click.command()
@click.option("--only", multiple=True, type=click.Choice(_ALL), help="This section; may be repeated.")
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True, help="Traces of each load, or runs.")
@click.option("--seconds", type=click.FloatRange(5), default=100.0, show_default=True, help="Of a run that is served.")
def infaas(*, only: tuple[str, ...], repeats: int, seconds: float) -> None:
    """Show what choosing and scaling variants costs and misses, beside static variants and INFaaS' own figures.

    \b
    Example:
      python -m benchmarks infaas --only sharing --repeats 1
      python -m benchmarks infaas --only offline
    """  # noqa: D301 - click's own marks
    for name, section in SECTIONS.items():
        if not only or name in only:
            click.echo(f"## {name}\n")
            show(section(repeats))
    for name in SERVED.keys() & set(only):
        with kafka() as where:
            click.echo(f"## {name}\n")
            show(SERVED[name](*where, repeats, seconds))
