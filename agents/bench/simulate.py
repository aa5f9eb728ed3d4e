"""How fast the simulator is: stage visits per second of CPU, on one core, for pipelines like the PARD paper's.

Run as `python -m spillway.agents.bench.simulate`, or `spillway bench simulate`.
"""

from __future__ import annotations

import json
import math
import statistics
import time
from itertools import product
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from spillway.agents.cli.options import json_option
from spillway.agents.cli.policies import POLICY
from spillway.agents.core.policies import POLICIES
from spillway.agents.sim.estimator import Estimator
from spillway.agents.sim.simulation import simulate as run
from spillway.lineage.metric_names import GATE
from spillway.topology.capacity.planner import Sizing
from spillway.topology.load import parse

if TYPE_CHECKING:
    from collections.abc import Iterator

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
_HOURS_RATE = 500.0


def measure(shape: str, dispatch: Dispatch, policy: str, requests: int, repeats: int) -> dict[str, Any]:
    """Simulate `requests` bursty arrivals `repeats` times; give the median of the stage visits per CPU second."""
    pipeline = parse(_document(shape), f"{shape}.yaml")
    gaps = np.random.default_rng(0).gamma(_CV**-2, _CV**2 / _RATE, requests)
    arrivals = np.cumsum(gaps)
    workers = [workers for *_, workers, _, _ in _STAGES]
    visits, rates = 0, []
    for _ in range(repeats):
        before = time.process_time()
        result = run(pipeline, arrivals, workers=workers, dispatch=dispatch, policy=policy)
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


def measure_hour(shape: str, hop: float, repeats: int) -> tuple[int, list[float]]:
    """Estimate an hour at 500/s with the compiled loop: stage visits, and CPU seconds of each run."""
    pipeline = parse(_document(shape), f"{shape}.yaml")
    arrivals = np.cumsum(np.random.default_rng(0).exponential(1 / _HOURS_RATE, round(3600 * _HOURS_RATE)))
    sizes = {
        name: Sizing(math.ceil(workers * _HOURS_RATE / _RATE), batch, pipeline.durations[name])
        for name, _, _, batch, workers, _, _ in _STAGES
    }
    hops = dict.fromkeys((*sizes, GATE), hop)
    Estimator(pipeline, arrivals[:100], hops=hops, compiled=True)(sizes)  # compiles, or reads what was compiled
    estimate = Estimator(pipeline, arrivals, hops=hops, compiled=True)
    taken = []
    for _ in range(repeats):
        before = time.process_time()
        estimate(sizes)
        taken.append(time.process_time() - before)
    return len(arrivals) * len(sizes), taken


def _document(shape: str) -> str:
    lines = [f"name: {shape}", "slo: 0.5", "stages:"]
    for name, alpha, beta, batch, _, *after in _STAGES:
        predecessors = after[_SHAPES.index(shape)]
        emulated = f"{{alpha: {alpha}ms, beta: {beta}ms}}"
        lines.append(f"  - {{name: {name}, batching: {{size: {batch}}}, after: {predecessors}, emulated: {emulated}}}")
    return "\n".join(lines)


def _cells(policies: tuple[str, ...], requests: int, repeats: int) -> Iterator[dict[str, Any]]:
    for policy in policies:
        for shape in _SHAPES:
            for dispatch in _DISPATCHES:
                yield measure(shape, dispatch, policy, requests, repeats)


@click.command()
@click.option("--requests", type=click.IntRange(1), default=100_000, show_default=True, help="Per run.")
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True, help="Runs; reports the median.")
@click.option(
    "--compiled", is_flag=True, help="Measure the compiled loop of `spillway plan provision` instead: an hour at 500/s."
)
@click.option("--policy", "policies", type=POLICY, multiple=True, help="[default: all]")
@json_option
def simulate(requests: int, repeats: int, policies: tuple[str, ...], *, compiled: bool, as_json: bool) -> None:
    """Measure the simulator's speed in stage visits per CPU second.

    \b
    Example: spillway bench simulate --policy naive --requests 1000000
    """  # noqa: D301 - click's own marks
    if compiled:
        for shape, hop in product(_SHAPES, (0.0, 0.001)):
            visits, taken = measure_hour(shape, hop, repeats)
            click.echo(
                f"{shape:6} hop {1e3 * hop:g} ms: {statistics.median(taken):.2f} s of CPU for {visits:,} visits, "
                f"{1e9 * statistics.median(taken) / visits:.0f} ns each (slowest {max(taken):.2f} s)"
            )
        return
    cells = _cells(policies or tuple(POLICIES), requests, repeats)
    if as_json:
        click.echo(json.dumps(list(cells), indent=2))
        return
    click.echo(f"{'policy':10} {'shape':6} {'dispatch':10} {'visits/s':>10} {'slowest':>10} {'fastest':>10}")
    for cell in cells:
        rates = " ".join(f"{cell[key]:>10,}" for key in ("visits_per_second", "slowest", "fastest"))
        click.echo(f"{cell['policy']:10} {cell['shape']:6} {cell['dispatch']:10} {rates}")


if __name__ == "__main__":
    simulate()
