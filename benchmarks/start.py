"""How long it takes to begin, and what it weighs: broker ready, first prediction, resident memory of the processes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import click
import psutil

from benchmarks.output import Table, by_key, tell
from benchmarks.scene import commanded
from spillway.agents.broker import EmbeddedBroker
from spillway.agents.cli.options import cache_dir, json_option
from spillway.agents.supervise.registry import entries
from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings

_LOW_LOAD = 200  # queries, one after the other
_MIB = 1 << 20

PIPELINE = """\
name: bench-start
slo: 500ms
stages:
  - name: greet
    model: hello:Greet
"""
MODEL = """\
class Greet:
    def predict(self, batch):
        return [{"greeting": f"Hello, {query['name']}!"} for query in batch]
"""


def broker_seconds(work: Path) -> float:
    """Seconds from nothing (no data folder) to a broker that answers, with its jars in the cache."""
    with EmbeddedBroker(work / "kafka", cache_dir=cache_dir()) as broker:
        return float(broker.start_seconds)


def first_prediction(work: Path) -> dict[str, float]:
    """Serve one stage, broker included, as a command; time its first prediction and weigh it at low load."""
    (work / "hello.py").write_text(MODEL)
    began = time.monotonic()
    with (
        commanded(work, PIPELINE, "--broker-dir", "kafka-serve") as (pipeline, entry),
        Client(pipeline, ClientSettings(bootstrap=entry.bootstrap), slo=30) as client,
    ):
        client.predict({"name": "Ada"})
        seconds = time.monotonic() - began
        for _ in range(_LOW_LOAD):
            client.predict({"name": "Ada"})
        weights = {
            f"{each.role}_rss_mib": psutil.Process(each.pid).memory_info().rss / _MIB
            for each in entries(work / "run", pipeline.spec.name)
        }
    return {"first_prediction_s": seconds, **weights}


@click.command()
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True, help="Runs; reports the median.")
@json_option
def start(repeats: int, *, as_json: bool) -> None:
    """Measure the start, on a warm cache, and the memory of a stage and the gate at low load.

    \b
    Example: python -m benchmarks start --repeats 3
    """  # noqa: D301 - click's own marks
    runs: list[dict[str, Any]] = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="spillway-bench-") as folder:
            work = Path(folder)
            runs.append({"broker_ready_s": broker_seconds(work), **first_prediction(work)})
    tell(runs, Table(f"{repeats} runs: median (least to most)", ("", ""), by_key(runs)), as_json=as_json)
