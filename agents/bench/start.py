"""How long it takes to begin, and what it weighs: broker ready, first prediction, resident memory of the processes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import psutil

from spillway.agents.broker import EmbeddedBroker
from spillway.agents.cli.options import cache_dir, json_option
from spillway.agents.supervise.registry import ServeEntry, entries
from spillway.lineage.errors import SpillwayError
from spillway.producers.client import Client
from spillway.producers.connection import ClientSettings

_LONGEST = 120.0
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
    (work / "pipeline.yaml").write_text(PIPELINE)
    (work / "hello.py").write_text(MODEL)
    command = [
        sys.executable,
        "-P",
        "-m",
        "spillway.agents.cli.main",
        "serve",
        "pipeline.yaml",
        "--quiet",
    ]
    folders = ["--run-dir", "run", "--broker-dir", "kafka-serve"]
    began = time.monotonic()
    with (work / "serve.log").open("wb") as log:
        process = subprocess.Popen([*command, *folders], cwd=work, stdout=log, stderr=log)
    try:
        settings = ClientSettings(bootstrap=_bootstrap(work, process, began))
        with Client("bench-start", settings, slo=30) as client:
            client.predict({"name": "Ada"})
            seconds = time.monotonic() - began
            for _ in range(_LOW_LOAD):
                client.predict({"name": "Ada"})
            weights = {
                f"{entry.role}_rss_mib": psutil.Process(entry.pid).memory_info().rss / _MIB
                for entry in entries(work / "run", "bench-start")
            }
        return {"first_prediction_s": seconds, **weights}
    finally:
        process.terminate()
        process.wait(_LONGEST)


def _bootstrap(work: Path, process: subprocess.Popen[bytes], began: float) -> str:
    """Where the served pipeline's Kafka is, once the supervisor says that all is ready."""
    while time.monotonic() < began + _LONGEST and process.poll() is None:
        entry = ServeEntry.read(work / "run", "bench-start")
        if entry is not None and entry.ready:
            return entry.bootstrap
        time.sleep(0.02)
    raise SpillwayError(f"the pipeline did not become ready: {(work / 'serve.log').read_text()[-2000:]}")


@click.command()
@click.option("--repeats", type=click.IntRange(1), default=5, show_default=True, help="Runs; reports the median.")
@json_option
def start(repeats: int, *, as_json: bool) -> None:
    """Measure the start, on a warm cache, and the memory of a stage and the gate at low load.

    \b
    Example: spillway bench start --repeats 3
    """  # noqa: D301 - click's own marks
    runs: list[dict[str, Any]] = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(prefix="spillway-bench-") as folder:
            work = Path(folder)
            runs.append({"broker_ready_s": broker_seconds(work), **first_prediction(work)})
    if as_json:
        click.echo(json.dumps(runs, indent=2))
        return
    click.echo(f"{repeats} runs: median (least to most)")
    for key in runs[0]:
        values = [run[key] for run in runs]
        click.echo(f"{key:20} {statistics.median(values):8.2f}  ({min(values):.2f} to {max(values):.2f})")
