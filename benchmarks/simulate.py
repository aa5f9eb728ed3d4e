"""How fast the simulator is: stage visits per second of CPU, on one core, for pipelines like the PARD paper's."""

from __future__ import annotations

import itertools
import statistics
import time
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from benchmarks.output import Table, tell
from benchmarks.pard.rivals import NAMES, setting_of
from spillway.agents.cli.options import json_option
from spillway.agents.sim.simulation import simulate as run
from spillway.topology.load import parse

if TYPE_CHECKING:
    from spillway.agents.sim.plan import Dispatch

# Five stages of the sizes of the paper's live video application: alpha and beta in ms, batch, workers, and what each
# comes after in a chain and in a graph with a fork and a join.
_STAGES = (
    ("person", 20, 7, 5, 5, "[]", "[]"),
    ("pose", 15, 6, 6, 4, "[person]", "[person]"),
    ("face", 12, 5, 6, 3, "[pose]", "[person]"),
    ("expression", 8, 4, 8, 2, "[face]", "[face, pose]"),
    ("eye", 10, 5, 8, 3, "[expression]", "[expression]"),
)
_SHAPES = ("chain", "fork")
_DISPATCHES: tuple[Dispatch, ...] = ("worker", "shared", "partition")
_RATE = 190.0  # a second; the stages are busy to 75 % or so then
_CV = 2.0
_ABOUT = ("policy", "shape", "dispatch")
_RATES = ("visits_per_second", "slowest", "fastest")


def measure(shape: str, dispatch: Dispatch, policy: str, requests: int, repeats: int) -> dict[str, Any]:
    """Simulate `requests` bursty arrivals `repeats` times; return the stage visits per CPU second."""
    pipeline = parse(_document(shape), f"{shape}.yaml")
    gaps = np.random.default_rng(0).gamma(_CV**-2, _CV**2 / _RATE, requests)
    arrivals = np.cumsum(gaps)
    workers = [workers for *_, workers, _, _ in _STAGES]
    visits, rates = 0, []
    for _ in range(repeats):
        before = time.process_time()
        result = run(pipeline, arrivals, workers=workers, dispatch=dispatch, policy=setting_of(policy))
        rates.append(result.visits / (time.process_time() - before))
        visits = result.visits
    return {
        "shape": shape,
        "dispatch": dispatch,
        "policy": policy,
        "requests": requests,
        "visits": visits,
        "visits_per_second": round(statistics.median(rates)),
        "slowest": round(min(rates)),
        "fastest": round(max(rates)),
    }


def _document(shape: str) -> str:
    lines = [f"name: {shape}", "slo: 0.5", "stages:"]
    for name, alpha, beta, batch, _, *after in _STAGES:
        predecessors = after[_SHAPES.index(shape)]
        emulated = f"{{alpha: {alpha}ms, beta: {beta}ms}}"
        lines.append(f"  - {{name: {name}, batching: {{size: {batch}}}, after: {predecessors}, emulated: {emulated}}}")
    return "\n".join(lines)


@click.command()
@click.option("--requests", type=click.IntRange(1), default=100_000, show_default=True, help="Per run.")
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True, help="Runs; reports the median.")
@click.option("--policy", "policies", multiple=True, metavar="NAME", help="[default: all]")
@json_option
def simulate(requests: int, repeats: int, policies: tuple[str, ...], *, as_json: bool) -> None:
    """Measure the simulator's speed in stage visits per CPU second.

    \b
    Example: python -m benchmarks simulate --policy naive --requests 1000000
    """  # noqa: D301 - click's own marks
    each = itertools.product(policies or NAMES, _SHAPES, _DISPATCHES)
    cells = [measure(shape, dispatch, policy, requests, repeats) for policy, shape, dispatch in each]
    rows = [[f"{cell[key]:,}" if key in _RATES else cell[key] for key in (*_ABOUT, *_RATES)] for cell in cells]
    tell(cells, Table("Stage visits a CPU second", (*_ABOUT, "median", *_RATES[1:]), rows), as_json=as_json)
