"""Section 6.3.2, served: an offline job beside online queries, which are to be as fast as without it.

A forest on scikit-learn's digits stands where the paper has ResNet50, as slow in this process as that on a few cores.
The load takes turns, as the paper's does: a share of the worker's time under the 40 % that pause the job, and one over.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.output import Table, median_spread
from benchmarks.scene import serve
from benchmarks.steady import PATIENCE, Sent, Steady
from spillway.lineage.errors import SpillwayError
from spillway.lineage.message import PREDICTION
from spillway.producers.client import Client
from spillway.topology.load import load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from spillway.producers.connection import ClientSettings
    from spillway.producers.offline.job import Progress
    from spillway.topology.load import Pipeline

SHARES: Final = (0.2, 0.6, 0.2, 0.6, 0.2)
TREES: Final = 1_500
ROWS: Final = 20_000
_FILE: Final = """
name: offline-beside-online
slo: 5s
partitions: 4
stages:
  - name: digit
    variants:
      app: digits
      scale: false
      of:
        forest:
          model: "benchmarks.infaas.offline:Forest"
          architecture: forest
          accuracy: .95
          takes: {{1: {took:.6f}}}
"""


class Forest:
    """Trees that know the first thousand digits."""

    def __init__(self) -> None:
        from sklearn.ensemble import RandomForestClassifier  # noqa: PLC0415 - only where it is loaded

        pixels, labels = _digits()
        self._trees: Any = RandomForestClassifier(TREES, random_state=0).fit(pixels[:1000], labels[:1000])

    def predict(self, batch: Sequence[Any]) -> list[dict[str, int]]:
        return [{"digit": int(digit)} for digit in self._trees.predict([query["pixels"] for query in batch])]


def _digits() -> Any:
    from sklearn.datasets import load_digits  # noqa: PLC0415 - as above

    return load_digits(return_X_y=True)


class _EnoughError(Exception):
    """The time of the run is over."""


class _Beside(threading.Thread):
    """The offline job, until it has been `end`ed; `at` is how far it is."""

    def __init__(self, pipeline: Pipeline, settings: ClientSettings, folder: Path) -> None:
        super().__init__(daemon=True)
        self._pipeline, self._settings, self._folder = pipeline, settings, folder
        self._over = threading.Event()
        self.at: Progress | None = None
        self.pauses = 0

    def run(self) -> None:
        with Client(self._pipeline, self._settings, timeout=PATIENCE) as client, suppress(_EnoughError):
            client.offline_query(
                self._folder.parent / "inputs.jsonl", self._folder / "outputs.jsonl", progress=self._hear
            )

    def _hear(self, at: Progress) -> None:
        self.pauses += bool(at.paused) and not self._paused
        self._paused = bool(at.paused)
        self.at = at
        if self._over.is_set():
            raise _EnoughError

    _paused = False

    def end(self) -> Progress:
        self._over.set()
        self.join(PATIENCE)
        if self.at is None or self.is_alive():
            raise SpillwayError("the offline job has not begun, or not ended")
        return self.at


def offline(folder: Path, settings: ClientSettings, repeats: int, seconds: float) -> list[Table]:
    """`seconds`: of one run; each repeat is one alone and one with the job beside, in turns."""
    took = _measured()
    file = folder / "offline.yaml"
    file.write_text(_FILE.format(took=took))
    pixels, _ = _digits()
    lines = [json.dumps({"pixels": pixels[n % len(pixels)].tolist()}) + "\n" for n in range(ROWS)]
    (folder / "inputs.jsonl").write_text("".join(lines))
    pipeline = load(file)
    alone: list[list[Sent]] = []
    beside: list[list[Sent]] = []
    jobs: list[Progress] = []
    pauses = []
    with serve(pipeline, settings, folder / "run"), Client(pipeline, settings, grace=PATIENCE) as client:
        _online(client, pixels, took, 5.0)  # not counted
        for number in range(repeats):
            for turn in (0, 1) if number % 2 == 0 else (1, 0):
                if not turn:
                    alone.append(_online(client, pixels, took, seconds))
                    continue
                (run := folder / f"{number}").mkdir()
                job = _Beside(pipeline, settings, run)
                job.start()
                beside.append(_online(client, pixels, took, seconds))
                jobs.append(job.end())
                pauses.append(job.pauses)
    rows = [_row("alone", alone), _row("with the job beside", beside)]
    done = median_spread([job.written / seconds for job in jobs], "{:.2f}")
    idle = median_spread([job.paused_seconds for job in jobs], "{:.0f}")
    shares = ", ".join(f"{share:.0%}" for share in SHARES)
    how = (
        f"A forest of {TREES} trees, {1e3 * took:.0f} ms a query in this process; one worker; online load of {shares} "
        f"of its time, {seconds / len(SHARES):g} s each, in turns with and without the job; {repeats} repeats, median "
        "(least to most)."
    )
    came = (
        f"Offline rows a second: {done}; paused for {idle} s of {seconds:g} s, {median_spread(pauses, '{:.0f}')} "
        f"times; handed back {sum(job.handed_back for job in jobs)}, errors {sum(job.errors for job in jobs)}. The "
        "paper: 52 images in 100 s, two instances of ResNet50, 3 to 8 queries a second, paused for 40 s."
    )
    columns = ("online", "p50, ms", "p99, ms", "queries")
    return [Table("Online queries with and without an offline job", columns, rows, (how, came))]


def _measured() -> float:
    """Seconds that one query takes."""
    model, found = Forest(), []
    pixels, _ = _digits()
    for n in range(12):
        began = time.perf_counter()
        model.predict([{"pixels": pixels[n]}])
        found.append(time.perf_counter() - began)
    return statistics.median(found[2:])


def _online(client: Client, pixels: Any, took: float, seconds: float) -> list[Sent]:
    """Queries one after the other at a steady rate, which changes with each share."""
    found: list[Sent] = []
    for share in SHARES:
        send = Steady(share / took, lambda n: client.submit({"pixels": pixels[n % len(pixels)].tolist()}), seconds / 5)
        found += send.whole()
    for each in found:
        if each.outcome.kind != PREDICTION:
            raise SpillwayError(f"an online query {each.outcome.kind}: {each.outcome.text}")
    return found


def _row(name: str, runs: list[list[Sent]]) -> tuple[str, ...]:
    middle, late = ([1e3 * float(np.percentile([each.took for each in sent], at)) for sent in runs] for at in (50, 99))
    return (
        name,
        median_spread(middle, "{:.1f}"),
        median_spread(late, "{:.1f}"),
        str(sum(len(sent) for sent in runs)),
    )
