"""Live, `pard` beside `naive` where hops take longer than models: how many queries each answers in time.

A chain of four stages, and a diamond of five with a replicated state on either side. Each pair sends the same arrivals
to both policies, one after the other, the first one in turn, so that a machine that is busy for a while hits both.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from spillway.agents.broker import EmbeddedBroker
from spillway.agents.cli.commands.serve import ONE_THREAD_EACH
from spillway.agents.cli.options import cache_dir, json_option
from spillway.agents.supervise.service import ServiceSettings, served
from spillway.lineage.errors import SpillwayError
from spillway.lineage.message import FAILED, PREDICTION
from spillway.producers.client.exchange import Exchange
from spillway.producers.connection import ClientSettings
from spillway.producers.load import generated
from spillway.producers.load.generator import Pace, run_load
from spillway.producers.load.payloads import signature_payload
from spillway.producers.report import PREDICTION as ANSWERED
from spillway.topology.load import load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from spillway.lineage.message import Outcome

POLICIES = ("pard", "naive")
_GRACE = 10.0  # seconds
_MODELS = "benchmarks.live_models"
_CHAIN = f"""\
slo: 300ms
partitions: 4
stages:
  - {{name: one, model: "{_MODELS}:Brief"}}
  - {{name: two, model: "{_MODELS}:Brief", after: one}}
  - {{name: three, model: "{_MODELS}:Brief", after: two}}
  - {{name: four, model: "{_MODELS}:Brief", after: three}}
"""
_DIAMOND = f"""\
slo: 800ms
partitions: 4
stages:
  - {{name: first, model: "{_MODELS}:Brief"}}
  - {{name: left, model: "{_MODELS}:Counting", after: first, state: {{kind: keyed, replication: nspb}}}}
  - {{name: right, model: "{_MODELS}:Counting", after: first, state: {{kind: keyed, replication: nspb}}}}
  - {{name: meet, model: "{_MODELS}:Meeting", after: [left, right]}}
  - {{name: last, model: "{_MODELS}:Brief", after: meet}}
"""
CASES = {"chain-50": (_CHAIN, 50.0), "chain-80": (_CHAIN, 80.0), "diamond-100": (_DIAMOND, 100.0)}


@click.command("live-pairs")
@click.option("--case", "cases", multiple=True, type=click.Choice(list(CASES)), help="[default: all]")
@click.option("--pairs", type=click.IntRange(1), default=8, show_default=True, help="Of each case, other arrivals.")
@click.option("--seconds", type=click.FloatRange(5), default=60.0, show_default=True, help="Of each run.")
@json_option
def live_pairs(cases: tuple[str, ...], pairs: int, seconds: float, *, as_json: bool) -> None:
    """Answer queries in time where hops dominate: pard beside naive, live.

    \b
    Example: python -m benchmarks live-pairs --case chain-50 --pairs 2 --seconds 20
    """  # noqa: D301 - click's own marks
    rows: list[dict[str, Any]] = []
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spillway-pairs-")))
        broker = stack.enter_context(EmbeddedBroker(work / "kafka", cache_dir=cache_dir()))
        settings = ClientSettings(bootstrap=broker.bootstrap)
        for case in cases or CASES:  # a fresh broker is slow at first: one run of each case is not counted
            _run(work, settings, case, "warm-up-naive", _arrivals(case, seconds, seed=pairs))
        for pair in range(pairs):
            for case in cases or CASES:
                arrivals = _arrivals(case, seconds, seed=pair)
                for policy in POLICIES if pair % 2 == 0 else POLICIES[::-1]:
                    row = {"case": case, "pair": pair, "policy": policy}
                    rows.append(row | _run(work, settings, case, f"{pair}-{policy}", arrivals))
                    click.echo(line(rows[-1]), err=as_json)
    click.echo(json.dumps(rows, indent=2) if as_json else "\n".join(verdicts(rows)))


def _arrivals(case: str, seconds: float, *, seed: int) -> NDArray[np.float64]:
    _, rate = CASES[case]
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, round(rate * seconds)))


def _run(work: Path, settings: ClientSettings, case: str, suffix: str, arrivals: NDArray[np.float64]) -> dict[str, Any]:
    name = f"{case}-{suffix}"
    file = work / f"{name}.yaml"
    file.write_text(f"name: {name}\n{CASES[case][0]}")
    return one(file, settings, arrivals)


def one(file: Path, settings: ClientSettings, arrivals: NDArray[np.float64]) -> dict[str, Any]:
    """Serve a pipeline, send it the arrivals, and say what became of them, in percent."""
    pipeline = load(file)
    policy = file.stem.rpartition("-")[2]
    outcomes: dict[int, Outcome] = {}
    environment = {**dict.fromkeys(ONE_THREAD_EACH, "1"), **os.environ}
    service = ServiceSettings(pipeline, settings, file.with_suffix(""), policy=policy, environment=environment)
    with served(service, say=lambda _text: None):
        exchange = Exchange(settings, pipeline.spec.name, linger=0.001)
        try:
            queries = generated(arrivals, signature_payload(pipeline.spec), seed=0)
            pace = Pace(slo=pipeline.spec.slo, grace=_GRACE, observe=outcomes.__setitem__)
            result = run_load(exchange, queries, pace)
        finally:
            exchange.close()
    failed = next((outcome for outcome in outcomes.values() if outcome.kind == FAILED), None)
    if failed is not None:
        raise SpillwayError(
            f"{pipeline.spec.name}: a query failed at {failed.stage}, which no policy does: {failed.text}"
        )
    took = result.finished - result.due
    answered = result.kind == ANSWERED
    dropped = Counter(outcome.stage for outcome in outcomes.values() if outcome.kind != PREDICTION)
    return {
        "queries": len(arrivals),
        "good": percent(answered & (took <= pipeline.spec.slo)),
        "late": percent(answered & (took > pipeline.spec.slo)),
        "p50_ms": round(1000 * float(np.median(took[answered])), 1) if answered.any() else None,
        "dropped": dict(dropped),
        "text": next((outcome.text for outcome in outcomes.values() if outcome.kind != PREDICTION), ""),
    }


def percent(chosen: NDArray[np.bool_]) -> float:
    return round(100 * float(chosen.mean()), 2)


def line(row: dict[str, Any]) -> str:
    return (
        f"{row['case']:12} pair {row['pair']} {row['policy']:6} in time {row['good']:6.2f} %, "
        f"late {row['late']:5.2f} %, p50 {row['p50_ms']} ms, dropped {row['dropped']}"
    )


def verdicts(rows: Sequence[dict[str, Any]]) -> list[str]:
    """By case, the median share in time of each policy, and how pard stands to naive in each pair."""
    said = []
    for case in dict.fromkeys(row["case"] for row in rows):
        ours, theirs = (
            [row["good"] for row in rows if (row["case"], row["policy"]) == (case, one)] for one in POLICIES
        )
        apart = [round(a - b, 2) for a, b in zip(ours, theirs, strict=True)]
        said.append(
            f"{case}: in time {statistics.median(ours):.2f} % under pard, {statistics.median(theirs):.2f} % naive; "
            f"pair by pair {apart} points"
        )
    return said


if __name__ == "__main__":
    live_pairs()
