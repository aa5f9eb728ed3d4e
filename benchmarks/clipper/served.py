"""The served stage, on Kafka: a process worker beside a thread, a large tensor, and the cache on a Zipf stream."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import psutil

from benchmarks.clipper.models import images, predictor
from benchmarks.output import Table, median_spread
from benchmarks.scene import cpu_of, exchange, serve
from spillway.lineage.errors import SpillwayError
from spillway.producers.load import generated
from spillway.producers.load.generator import Pace, run_load
from spillway.producers.report import PREDICTION
from spillway.topology.load import load

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from spillway.producers.connection import ClientSettings
    from spillway.producers.report import StageTotals

RATE: Final = 150.0
LARGE: Final = np.zeros(1 << 18, np.float32)  # 1 MiB
KINDS: Final = 2_000
ZIPF: Final = 1.1
_STAGE: Final = """
name: {name}
slo: 5s
partitions: 4
limits: {{max_message_bytes: 4MiB}}
stages:
  - {{name: read, model: "benchmarks.clipper.served:{model}", workers: {{where: {where}}}{more}}}
"""


class Echo:
    """Costs nothing: what is left is what serving costs."""

    deterministic = True

    def predict(self, batch: list[Any]) -> list[dict[str, Any]]:
        return [{"y": float(np.asarray(query["x"]).flat[0])} for query in batch]


class Kernel:
    """The kernel SVM, which computes."""

    deterministic = True
    name = "kernel SVM"

    def __init__(self) -> None:
        self._predict = predictor(self.name)

    def predict(self, batch: list[Any]) -> list[dict[str, Any]]:
        labels: Any = self._predict([query["x"] for query in batch])
        return [{"y": int(label)} for label in labels]


class Linear(Kernel):
    """The linear SVM, which hardly does."""

    name = "linear SVM"


@dataclass(frozen=True, slots=True)
class Seen:
    """One run: latencies in ms from when a query was due, and microseconds of CPU a query, workers included."""

    p50: float
    p99: float
    rate: float
    cpu_us: float
    evaluated: float
    mean: float
    memory: float  # MB
    stage: StageTotals


def one(
    folder: Path, settings: ClientSettings, name: str, payload: Callable[[int, Any], dict[str, Any]], **what: Any
) -> Seen:
    """Serve the stage, and ask at `rate` for `seconds`. Raises SpillwayError where not all is a prediction."""
    rate, seconds = what.pop("rate", RATE), what.pop("seconds")
    file = folder / f"{name}.yaml"
    file.write_text(_STAGE.format(name=name, **({"more": ""} | what)))
    pipeline = load(file)
    with serve(pipeline, settings, folder / name, policy="naive"), exchange(settings, name) as sending:
        warm, due = np.arange(0.0, 2.0, 1 / min(rate, 600.0)), np.arange(0.0, seconds, 1 / rate)
        others = generated(warm, lambda index, chance: payload(len(due) + index, chance))
        run_load(sending, others, Pace(slo=60.0, grace=60.0))
        before = sum(cpu_of(process) for process in _processes())
        result = run_load(sending, generated(due, payload), Pace(slo=60.0, grace=60.0))
        cpu = sum(cpu_of(process) for process in _processes()) - before
        memory = sum(process.memory_info().rss for process in _processes()) / 1e6
    if (result.kind != PREDICTION).any():
        raise SpillwayError(f"{name}: {int((result.kind != PREDICTION).sum())} queries were not answered")
    latency = 1e3 * (result.finished - result.due)
    took = float(np.nanmax(result.finished) - result.due[0])
    stage = result.stage_totals(["read"], {"read": 1})["read"]
    p50, p99 = map(float, np.percentile(latency, (50, 99)))
    count = len(result.due)
    return Seen(p50, p99, count / took, 1e6 * cpu / count, stage.busy, float(latency.mean()), memory, stage)


def _processes() -> Iterator[psutil.Process]:
    """The stage's front and its workers."""
    for process in psutil.Process().children(recursive=True):
        try:
            line = process.cmdline()
            if "--stage" in line or "spillway.agents.workers.local" in line:
                yield process
        except psutil.Error:
            continue


def cost(folder: Path, settings: ClientSettings, repeats: int, seconds: float) -> Table:
    """What a process worker adds to a query against a thread."""
    rows = []
    asks: dict[str, Callable[[int, Any], dict[str, Any]]] = {
        "64 numbers": lambda index, _: {"x": np.full(64, index, np.float32)},
        "1 MiB tensor": lambda _index, _: {"x": LARGE},
    }
    for what, payload in asks.items():
        rate = RATE if what == "64 numbers" else RATE / 10
        seen: dict[str, list[Seen]] = {"thread": [], "process": []}
        for repeat in range(repeats):
            for where in (*seen,) if repeat % 2 == 0 else (*reversed(seen),):
                name = f"cost-{where}-{repeat}-{what[0]}"
                run = one(folder, settings, name, payload, model="Echo", where=where, seconds=seconds, rate=rate)
                seen[where].append(run)
        for where, runs in seen.items():
            rows.append([f"{what}, {rate:g}/s", where, *_columns(runs)])
        pairs = list(zip(seen["process"], seen["thread"], strict=True))
        added = [median_spread([getattr(a, key) - getattr(b, key) for a, b in pairs], form)
                 for key, form in (("p50", "{:+.2f}"), ("p99", "{:+.1f}"), ("cpu_us", "{:+.0f}"))]  # fmt: skip
        rows.append(["", "process adds", *added])
    return Table(
        "A process worker beside a thread, served on Kafka",
        ("query", "worker", "p50 ms", "p99 ms", "CPU us a query (front and worker)"),
        rows,
        ("Asked: at most 1 ms at p50 and 500 us of CPU for a small query, 2 ms at p50 for 1 MiB.",),
    )


def _columns(runs: list[Seen]) -> list[str]:
    pairs = (("p50", "{:.1f}"), ("p99", "{:.1f}"), ("cpu_us", "{:.0f}"))
    return [median_spread([getattr(run, key) for run in runs], form) for key, form in pairs]


def _row(asked: Sequence[int], index: int, _chance: Any) -> dict[str, Any]:
    return {"x": images()[0][asked[index]]}


def zipf(folder: Path, settings: ClientSettings, repeats: int, seconds: float) -> Table:
    """A stream in which few queries are asked for often, without a cache and with one."""
    rows = []
    predictor("kernel SVM")
    for rate in (200.0, 600.0):
        seen: dict[str, list[Seen]] = {"off": [], "on": []}
        for repeat in range(repeats):
            chance = np.random.default_rng(repeat)
            asked = (chance.zipf(ZIPF, int(rate * (seconds + 2)) + 1) - 1) % KINDS
            payload = partial(_row, asked.tolist())
            for name, runs in seen.items():
                more = ", cache: {bytes: 1MB}" if name == "on" else ""
                what = {"model": "Kernel", "where": "thread", "more": more, "seconds": seconds, "rate": rate}
                runs.append(one(folder, settings, f"zipf-{rate:g}-{name}-{repeat}", payload, **what))
        for name, runs in seen.items():
            columns = [*_columns(runs)[:2], *(median_spread([getattr(run, key) for run in runs], form)
                       for key, form in (("rate", "{:.0f}"), ("evaluated", "{:.2f}")))]  # fmt: skip
            rows.append([f"{rate:g}/s", name, *columns])
    return Table(
        f"The cache on a Zipf stream ({ZIPF}, {KINDS} different queries), kernel SVM",
        ("rate", "cache", "p50 ms", "p99 ms", "answered/s", "s of evaluation"),
        rows,
    )
