"""One service served with one mode of replication at one batch size, and what is measured while it is.

Queries come in bursts of exactly one batch, all due at the same instant; a stage waits for its batch to be full.
Latency counts from when a query was due. Throughput is that of a backlog of several batches, without the first one.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from benchmarks.hams.services import replication
from benchmarks.scene import serve
from benchmarks.stolen import StolenMeter
from spillway.lineage.errors import SpillwayError
from spillway.producers.client.exchange import Exchange
from spillway.producers.load.generator import Pace, generated, run_load
from spillway.producers.load.payloads import find_payload
from spillway.topology.load import load

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from benchmarks.hams.services import Service as Served
    from benchmarks.hams.setting import Setting
    from spillway.agents.supervise.service import Service
    from spillway.producers.connection import ClientSettings
    from spillway.topology.load import Pipeline
    from spillway.topology.spec import StageSpec

SLO = 120.0  # nothing is dropped: latency is what is measured
_GATHER = 0.5  # the longest that a stage waits for its batch to be full
_WARM_UP = 2  # bursts before anything is measured
_APART = 0.25  # seconds between two bursts, at least
_PACED = "benchmarks.hams.paced"


@dataclass(frozen=True, slots=True)
class Cell:
    """What is served: `mode` as a stage's `replication`."""

    service: Served
    mode: str
    batch: int
    emulated: bool = False

    @property
    def name(self) -> str:
        return f"{self.service.name}-{self.mode}-{self.batch}{'-emulated' if self.emulated else ''}"


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run came to; latencies in milliseconds, throughput in queries a second."""

    p50: float
    p99: float
    throughput: float
    interval: float  # seconds between two bursts
    stolen: float  # of the processors' time, by the machine's host


def variant(cell: Cell, folder: Path, run: int, gather: float = _GATHER) -> Pipeline:
    """Write the service's pipeline anew with the cell's mode and batch, and load it.

    `gather`: for how many seconds a stage waits for its batch to be full.
    """
    given = load(cell.service.path)
    stages = [_stage(stage, cell, gather) for stage in given.spec.stages]
    name = f"{cell.name}-{run}"
    file = folder / f"{name}.yaml"
    written = {"name": name, "slo": SLO, "partitions": given.spec.partitions, "stages": stages}
    if given.spec.sinks is not None:
        written["sinks"] = given.spec.sinks
    file.write_text(yaml.safe_dump(written, sort_keys=False), encoding="utf-8")
    return load(file)


def _stage(stage: StageSpec, cell: Cell, gather: float) -> dict[str, Any]:
    kept = stage.model_dump(mode="json", exclude_defaults=True, exclude={"policy", "batching", "state"})
    kept |= {"batching": {"size": cell.batch, "max": cell.batch, "delay": gather}, "policy": "naive"}
    if stage.state is not None:
        given = stage.state.model_dump(mode="json", exclude_defaults=True, exclude={"replication", "backups"})
        kept["state"] = given | replication(cell.mode)
    pace = cell.service.paces.get(stage.name) if cell.emulated else None
    if pace is not None:
        function = "paced" if stage.state is None else "paced_stateful"
        inner = {"model": stage.model, "seconds": pace, "arguments": dict(stage.arguments)}
        kept |= {"model": f"{_PACED}:{function}", "arguments": inner}
    return kept


class Sender:
    """Sends a service's queries to a pipeline that is served."""

    def __init__(self, cell: Cell, settings: ClientSettings, pipeline: str) -> None:
        self._service = cell.service
        self._exchange = Exchange(settings, pipeline, linger=0.001)
        self._payload = find_payload(cell.service.payload)
        self._sent = 0
        self.name = pipeline

    def send(self, due: NDArray[np.float64], grace: float = 60.0) -> Any:
        """Send the service's next queries when they are due; raises where one got no prediction."""
        start = self._sent
        self._sent += len(due)
        queries = generated(due, lambda index, rng: self._payload(start + index, rng), key=self._service.key)
        result = run_load(self._exchange, queries, Pace(slo=SLO, grace=grace))
        if np.isnan(result.finished).any():
            lost = int(np.isnan(result.finished).sum())
            raise SpillwayError(f"{self.name}: {lost} of {len(due)} queries got no outcome")
        return result

    def close(self) -> None:
        self._exchange.close()


def bursts(count: int, size: int, interval: float) -> NDArray[np.float64]:
    return np.repeat(np.arange(count) * interval, size).astype(np.float64)


def _interval(sender: Sender, batch: int) -> float:
    result = sender.send(bursts(2, batch, 2.0))
    return max(_APART, 2 * float(np.median(result.finished - result.due)))


def throughput_of(finished: NDArray[np.float64], batch: int) -> float:
    """Queries a second from the end of the first batch on; 0 where all came at once, which tells nothing."""
    ends = np.sort(finished)
    span = float(ends[-1] - ends[batch - 1])
    return (len(ends) - batch) / span if span > 0 else 0.0


@contextmanager
def sending(setting: Setting, cell: Cell, pipeline: Pipeline) -> Iterator[tuple[Service, Sender]]:
    """Serve a cell's pipeline; what serves it, and who sends it queries."""
    with (
        serve(pipeline, setting.cluster, setting.folder / "run", say=setting.say) as service,
        closing(Sender(cell, setting.cluster, pipeline.spec.name)) as sender,
    ):
        yield service, sender


def measure(setting: Setting, cell: Cell, interval: float | None) -> Measured:
    """Serve, warm up, take the throughput of some batches, then the latency of as many, `interval` apart.

    None for `interval`: so long that this cell's bursts do not meet; give what it says to the cells beside it.
    """
    pipeline, count = variant(cell, setting.folder, setting.run()), setting.bursts
    with sending(setting, cell, pipeline) as (_, sender):
        meter = StolenMeter()
        sender.send(bursts(_WARM_UP, cell.batch, 1.0))
        throughput = throughput_of(sender.send(bursts(count, cell.batch, 0.0)).finished, cell.batch)
        every = interval if interval is not None else _interval(sender, cell.batch)
        result = sender.send(bursts(count, cell.batch, every))
        stolen = meter.share()
    latency = (result.finished - result.due) * 1e3
    p50, p99 = (round(float(np.quantile(latency, share)), 3) for share in (0.5, 0.99))
    return Measured(p50, p99, round(throughput, 2), every, stolen)
