"""6.1 at a tenth of the rate: served on Kafka, and in virtual time on the same trace.

Durations and SLOs are ten times as long, so as many workers are needed as at the full rate. Hosts and what batches take
are emulated: workers are processes of this machine that sleep. They do not slow one another on a GPU, as they do in
virtual time; a variant's overhead is what the pipeline takes.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click
import numpy as np
import yaml

from benchmarks.infaas.contest import SHARES, WARM, arrivals, many_models
from benchmarks.output import Table, median_spread
from benchmarks.scene import serve
from benchmarks.shapes import SHAPES
from benchmarks.steady import until
from spillway.agents.supervise.registry import entries
from spillway.agents.supervise.scrape import scrape
from spillway.lineage import metric_names as names
from spillway.producers.client import AsyncClient, OutcomeTimeoutError
from spillway.topology.load import load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from benchmarks.infaas.serving import Serving, Trace
    from spillway.producers.connection import ClientSettings
    from spillway.topology.load import Pipeline

SLOW: Final = 10.0
SHAPE: Final = "wiki-like"
SYSTEMS: Final = ("infaas", "clipper+", "sm+")
_NAME: Final = "contest"
_PATIENCE: Final = 30.0  # seconds after its deadline, until a query without an outcome counts as lost
_STARTS: Final = 600.0  # seconds, for dozens of worker processes


class Seen(NamedTuple):
    """What came of one run, after the warm-up; `p99` in seconds, of all queries."""

    cost: float
    misses: float
    p99: float
    orders: float


def live(folder: Path, settings: ClientSettings, repeats: int, seconds: float) -> list[Table]:
    """`seconds`: of one run, beside the warm-up."""
    length, found = int(seconds + WARM), dict[str, list[tuple[Seen, Seen]]]()
    for seed in range(repeats):
        trace = arrivals(SHAPES[SHAPE].between(1, 100, length, seed), SHARES, seed)
        for name, make in many_models(length, SLOW).items():
            if name in SYSTEMS:
                (run := folder / f"{name}-{seed}").mkdir()
                pair = _served(make(trace), trace, length, settings, run), _virtual(make(trace), trace, length)
                found.setdefault(name, []).append(pair)
    columns = ("system", "", "cost of hosts", "by infaas'", "misses, %", "p99, ms", "orders")
    rows = [
        _row(name, how, [each[at] for each in runs], [each[at] for each in found[SYSTEMS[0]]])
        for name, runs in found.items()
        for at, how in enumerate(("served", "virtual time"))
    ]
    note = (
        f"Emulated hosts and durations; 22 architectures, 1 to 100/s, {SHAPE}, durations and SLOs {SLOW:g} times those "
        f"of 6.1, {seconds:g} s after {WARM:g} s, {repeats} traces; median (least to most). sm+ scales by our rule. "
        f"inf: {_PATIENCE:g} s after its deadline a query counts as lost."
    )
    return [Table("6.1 at a tenth of the rate, served", columns, rows, (note,))]


def _row(name: str, how: str, runs: Sequence[Seen], ours: Sequence[Seen]) -> list[str]:
    shown = ((0, 1, "{:.3f}"), (1, 100, "{:.2f}"), (2, 1e3, "{:.0f}"), (3, 1, "{:.0f}"))
    cost, *others = (median_spread([scale * run[at] for run in runs], form) for at, scale, form in shown)
    ratios = [run.cost / base.cost for run, base in zip(runs, ours, strict=True)]
    return [name, how, cost, median_spread(ratios, "{:.2f}x"), *others]


def _virtual(serving: Serving, trace: Trace, seconds: int) -> Seen:
    outcome = serving.serve(trace, seconds, WARM)
    p99 = float(np.percentile([latency for _, latency, _ in outcome.done], 99))
    return Seen(outcome.bill["hosts"], outcome.misses, p99, outcome.orders)


def _pipeline(serving: Serving, file: Path) -> Pipeline:
    """A pipeline file of one stage, with the variants, workers and hosts of a system."""
    of = {
        name: lane.variant.model_dump(exclude={"name", "app", "source", "saturation"})
        | {
            "model": "examples.infaas.emulated:Emulated",
            "arguments": {"takes": lane.variant.takes, "load": lane.variant.load},
            "workers": {"count": serving.most.get(name, 0), "timeout": _STARTS},
        }
        for name, lane in serving.lanes.items()
    }
    section: dict[str, Any] = {"app": "classification", "of": of, "scale": serving.controller is not None}
    if serving.controller is not None:
        there = Counter(serving.fleet.hosts.values())
        kinds = serving.fleet.kinds.items()
        section["hosts"] = {
            name: kind.model_dump(mode="json", exclude_none=True) | {"count": there[name]} for name, kind in kinds
        }
    stage = {"name": "model", "queue": 10_000, "variants": section}
    file.write_text(yaml.safe_dump({"name": _NAME, "slo": 60, "stages": [stage]}, sort_keys=False))
    return load(file)


def _served(serving: Serving, trace: Trace, seconds: int, settings: ClientSettings, folder: Path) -> Seen:
    pipeline, run_dir = _pipeline(serving, folder / "pipeline.yaml"), folder / "run"
    with serve(pipeline, settings, run_dir, say=partial(click.echo, err=True), timeout=_STARTS) as serves:
        latencies, costs, orders = asyncio.run(_asked(serving, trace, seconds, pipeline, settings, run_dir))
        serves.hurry()  # what still waits has been given up
    if serving.controller is None:
        hosts = serving.fleet.hosts.values()
        costs = sum(serving.fleet.kinds[kind].price for kind in hosts) * (seconds - WARM) / 3600
    counted = [(took, model) for (due, model), took in zip(trace, latencies, strict=True) if due >= WARM]
    late = sum(took > (serving.needs[model].latency or 0.0) for took, model in counted)
    p99 = float(np.percentile([took for took, _ in counted if took < np.inf], 99))
    return Seen(costs, late / len(counted), p99, orders)


async def _asked(
    serving: Serving, trace: Trace, seconds: int, pipeline: Pipeline, settings: ClientSettings, run_dir: Path
) -> tuple[list[float], float, float]:
    """Latencies, from when each query was due; what hosts cost after the warm-up, and the orders of all of it."""
    loop = asyncio.get_running_loop()
    async with AsyncClient(pipeline, settings, linger=0.001, grace=_PATIENCE, in_flight=100_000) as client:
        began = loop.time() + 1.0

        async def one(due: float, model: str) -> float:
            await asyncio.sleep(began + due - loop.time())
            try:
                outcome = await client.online_query({"x": 0}, model=model, latency=serving.needs[model].latency)
            except OutcomeTimeoutError:
                return np.inf
            return loop.time() - began - due if outcome.kind == "prediction" else np.inf

        async def cost(at: float) -> tuple[float, float]:
            await asyncio.sleep(began + at - loop.time())
            return await asyncio.to_thread(_told, run_dir)

        looks = asyncio.gather(cost(WARM), cost(seconds))
        took = await asyncio.gather(*(one(*each) for each in trace))
        before, after = await looks
    return took, after[0] - before[0], after[1]


def _told(run_dir: Path) -> tuple[float, float]:
    """What hosts have cost so far, and the controller's orders."""
    front = next(entry for entry in entries(run_dir, _NAME) if entry.stage == "model")
    told = until(lambda: scrape(front, 0.0), f"the front's figures; see the logs under {run_dir}", _PATIENCE)
    return told.value(names.VARIANT_HOSTS_COST_TOTAL), told.value(names.VARIANT_ORDERS_TOTAL)
