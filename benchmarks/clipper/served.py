"""One model in a stage that is served on Kafka: how fast at a steady rate, and with all queries at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from benchmarks.clipper.models import images, predictor
from benchmarks.scene import exchange, serve
from spillway.lineage.errors import SpillwayError
from spillway.producers.load.generator import Pace, generated, run_load
from spillway.producers.report import PREDICTION
from spillway.topology.load import load

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from spillway.producers.client.exchange import Exchange
    from spillway.producers.connection import ClientSettings

RATE: Final = 150.0
AT_ONCE: Final = {"linear SVM": 6_000, "kernel SVM": 2_000}  # queries
_STAGE: Final = """
name: {name}
slo: 5s
partitions: 4
stages:
  - name: read
    model: benchmarks.clipper.served:Digits
    arguments: {{of: {model}}}
    workers: {{where: {where}}}
"""


class Digits:
    """A model of digits, by its name."""

    def __init__(self, of: str) -> None:
        self._predict = predictor(of)

    def predict(self, batch: list[Any]) -> list[dict[str, Any]]:
        labels: Any = self._predict([query["x"] for query in batch])
        return [{"y": int(label)} for label in labels]


class Run(NamedTuple):
    """What one system did: queries a second, and latencies in ms, where it has any."""

    rate: float
    p50: float | None = None
    p99: float | None = None


def stage(folder: Path, settings: ClientSettings, model: str, where: str, repeat: int, seconds: float) -> Run:
    """Serve a model from a thread or a process. Raises SpillwayError where not all is a prediction."""
    name = f"beside-{where}-{model[0]}-{repeat}"
    file = folder / f"{name}.yaml"
    file.write_text(_STAGE.format(name=name, model=model, where=where))
    with serve(load(file), settings, folder / name, policy="naive"), exchange(settings, name) as sending:
        _asked(sending, np.arange(0.0, 2.0, 1 / RATE))  # to warm up
        latencies, _ = _asked(sending, np.arange(0.0, seconds, 1 / RATE))
        _, rate = _asked(sending, np.arange(AT_ONCE[model]) / 1e6)
    return Run(rate, *map(float, 1e3 * np.percentile(latencies, (50, 99))))


def _asked(sending: Exchange, due: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Seconds from when each query was due, and queries a second."""
    rows = images()[0]
    result = run_load(sending, generated(due, lambda at, _: {"x": rows[at % len(rows)]}), Pace(slo=60.0, grace=60.0))
    if (result.kind != PREDICTION).any():
        raise SpillwayError(f"{int((result.kind != PREDICTION).sum())} queries were not answered")
    return result.finished - result.due, len(due) / float(result.finished.max() - result.due[0])
