"""6.1 at a tenth of the rate: served on Kafka, beside virtual time on the same trace.

Durations and SLOs are ten times as long, so as many workers are needed as at the full rate. Hosts and what batches take
are emulated: workers are processes of this machine that sleep. They do not slow one another on a GPU, as they do in
virtual time; a variant's overhead is what the pipeline takes.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from typing import TYPE_CHECKING, Final

import yaml

from benchmarks.infaas.contest import COLUMNS, WARM, Contest, arrivals, cells
from benchmarks.infaas.serving import Outcome
from benchmarks.output import Table
from benchmarks.scene import kafka, serve
from benchmarks.steady import until
from spillway.agents.supervise.registry import entries
from spillway.agents.supervise.scrape import scrape
from spillway.lineage import metric_names as names
from spillway.producers.client import AsyncClient, OutcomeTimeoutError
from spillway.topology.load import load

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.infaas.serving import Serving, Trace
    from spillway.producers.connection import ClientSettings
    from spillway.topology.load import Pipeline

SLOW: Final = 10.0
SHAPE: Final = "wiki-like"
SYSTEMS: Final = ("infaas", "sm+")
SECONDS: Final = int(60 + WARM)
_NAME: Final = "contest"
_PATIENCE: Final = 30.0  # seconds after its deadline, until a query without an outcome counts as lost
_STARTS: Final = 600.0  # seconds, for dozens of worker processes


def live(repeats: int) -> list[Table]:
    """`repeats` runs of each system, and as many in virtual time."""
    systems = Contest(SECONDS, SLOW).systems()
    found: dict[tuple[str, str], list[Outcome]] = {}
    with kafka() as (folder, settings):
        for seed in range(repeats):
            trace = arrivals(SHAPE, 1, 100, SECONDS, seed)
            for name in SYSTEMS:
                (run := folder / f"{name}-{seed}").mkdir()
                found.setdefault((name, "served"), []).append(_served(systems[name](trace), trace, settings, run))
                found.setdefault((name, "virtual time"), []).append(systems[name](trace).serve(trace, SECONDS, WARM))
    rows = [[*of, *cells(runs, found[SYSTEMS[0], of[1]])] for of, runs in found.items()]
    note = (
        f"Emulated hosts and durations; 22 architectures, 1 to 100/s, {SHAPE}, durations and SLOs {SLOW:g} times those "
        f"of 6.1, {SECONDS - WARM:g} s after {WARM:g} s, {repeats} traces; median (least to most). sm+ scales by our "
        f"rule. A query counts as lost {_PATIENCE:g} s after its deadline."
    )
    return [Table("6.1 at a tenth of the rate, served", ("system", "", *COLUMNS), rows, (note,))]


def _pipeline(serving: Serving, file: Path) -> Pipeline:
    """A pipeline file of one stage, with the variants, workers and hosts of a system."""
    of = {
        name: lane.variant.model_dump(exclude={"name", "app", "source", "saturation"})
        | {
            "model": "examples.infaas.emulated:Emulated",
            "arguments": {"takes": lane.variant.takes, "load": lane.variant.load},
            "workers": {"count": serving.begin.get(name, 0), "timeout": _STARTS},
        }
        for name, lane in serving.lanes.items()
    }
    there = Counter(serving.fleet.hosts.values())
    hosts = {
        name: kind.model_dump(mode="json", exclude_none=True) | {"count": there[name]}
        for name, kind in serving.fleet.kinds.items()
    }
    section = {"app": "classification", "of": of, "hosts": hosts}
    stage = {"name": "model", "queue": 10_000, "variants": section}
    file.write_text(yaml.safe_dump({"name": _NAME, "slo": 60, "stages": [stage]}, sort_keys=False))
    return load(file)


def _served(serving: Serving, trace: Trace, settings: ClientSettings, folder: Path) -> Outcome:
    pipeline, run_dir = _pipeline(serving, folder / "pipeline.yaml"), folder / "run"
    with serve(pipeline, settings, run_dir, timeout=_STARTS) as serves:
        latencies, cost = asyncio.run(_asked(serving, trace, pipeline, settings, run_dir))
        serves.hurry()  # what still waits has been given up
    queries, needs = zip(trace, latencies, strict=True), serving.needs
    late = [took > (needs[model].latency or 0.0) for (due, model), took in queries if due >= WARM]
    return Outcome(cost, sum(late) / len(late))


async def _asked(
    serving: Serving, trace: Trace, pipeline: Pipeline, settings: ClientSettings, run_dir: Path
) -> tuple[list[float], float]:
    """Latencies, from when each query was due, and what hosts cost after the warm-up."""
    loop = asyncio.get_running_loop()
    async with AsyncClient(pipeline, settings, linger=0.001, grace=_PATIENCE, in_flight=100_000) as client:
        began = loop.time() + 1.0

        async def one(due: float, model: str) -> float:
            await asyncio.sleep(began + due - loop.time())
            try:
                outcome = await client.online_query({"x": 0}, model=model, latency=serving.needs[model].latency)
            except OutcomeTimeoutError:
                return math.inf
            return loop.time() - began - due if outcome.kind == "prediction" else math.inf

        async def cost(at: float) -> float:
            await asyncio.sleep(began + at - loop.time())
            return await asyncio.to_thread(_cost, run_dir)

        looks = asyncio.gather(cost(WARM), cost(SECONDS))
        took = await asyncio.gather(*(one(*each) for each in trace))
        before, after = await looks
    return took, after - before


def _cost(run_dir: Path) -> float:
    """What hosts have cost so far."""
    front = next(entry for entry in entries(run_dir, _NAME) if entry.stage == "model")
    told = until(lambda: scrape(front, 0.0), f"the front's figures; see the logs under {run_dir}", _PATIENCE)
    return float(told.value(names.VARIANT_HOSTS_COST_TOTAL))
