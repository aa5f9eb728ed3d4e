"""The report of a load: what became of its requests, how fast, and what each stage did for them.

The same for a replay on a live pipeline and for a simulation, so that the two can be compared field by field. Pure:
made from arrays with one element per request and totals per stage. Durations come in seconds and stand in the report
in milliseconds; what cannot be said (the latency of no prediction at all) is null.
"""

from __future__ import annotations

import importlib.metadata
import platform
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from pydantic import BaseModel, ConfigDict

from spillway.lineage import message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

# How a request ended, as an element of the kind array.
MISSING: Final = 0
PREDICTION: Final = 1
DROPPED: Final = 2
FAILED: Final = 3
KINDS: Final = {message.PREDICTION: PREDICTION, message.DROPPED: DROPPED, message.FAILED: FAILED}


@dataclass(slots=True, frozen=True)
class StageTotals:
    """What one stage did during the load, over all its replicas. Durations in seconds."""

    received: int
    batches: int
    queries: int  # that were in these batches
    dropped: int
    failed: int
    queued: float  # mean per query, from arrival to entering a batch
    waited: float  # mean per query, from entering the batch to its start
    executed: float  # mean per batch
    busy: float  # sum over batches
    instances: int  # model instances of all replicas


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Outcomes(_Frozen):
    """Requests by how they ended; `duplicate` counts outcomes beyond a request's first."""

    prediction: int
    dropped: int
    failed: int
    missing: int
    duplicate: int


class Spread(_Frozen):
    """Mean, quantiles and maximum of a sample in milliseconds; all null for an empty one."""

    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    p999: float | None
    max: float | None

    @classmethod
    def of(cls, seconds: NDArray[np.float64]) -> Spread:
        if not len(seconds):
            return cls(mean=None, p50=None, p90=None, p99=None, p999=None, max=None)
        p50, p90, p99, p999, largest = (_ms(q) for q in np.quantile(seconds, (0.5, 0.9, 0.99, 0.999, 1.0)))
        return cls(mean=_ms(seconds.mean()), p50=p50, p90=p90, p99=p99, p999=p999, max=largest)


class StageReport(_Frozen):
    """One stage's part. `busy` is the share of its instances' time, from the first arrival to the last outcome."""

    received: int
    batches: int
    mean_batch: float
    dropped: int
    failed: int
    queue_ms: float
    wait_ms: float
    exec_ms: float
    busy: float


class Report(_Frozen):
    """What `replay` and `whatif --once` write. Field order is the order in the JSON."""

    pipeline: str
    policy: str
    trace: str
    slo_ms: float
    duration_s: float
    requests: int
    outcomes: Outcomes
    good: int
    late: int
    drop_rate: float
    invalid_rate: float
    goodput_rps: float
    latency_ms: Spread
    schedule_slip_ms: Spread
    stages: dict[str, StageReport]
    emulated: bool
    versions: dict[str, str]

    @classmethod
    def build(
        cls,
        *,
        pipeline: str,
        policy: str,
        trace: str,
        slo: float,
        duration: float,
        due: ArrayLike,
        finished: ArrayLike,
        kind: ArrayLike,
        spent: ArrayLike,
        stages: Mapping[str, StageTotals],
        slip: ArrayLike | None = None,
        duplicates: int = 0,
        emulated: bool = False,
    ) -> Report:
        """Judge a load of `duration` seconds.

        One element per request: `due` and `finished` (seconds from the start of the load; finished is not read where
        the request is missing), `kind` (MISSING, PREDICTION, DROPPED, FAILED), `spent` (its share of the executions
        that it was in: the sum over stages of execution / batch size), `slip` (sent - due; None: nothing slips).

        Good is a prediction at most `slo` seconds after it was due. The total execution time is the stages' `busy`.
        """
        due, finished = np.asarray(due, np.float64), np.asarray(finished, np.float64)
        kind, spent = np.asarray(kind), np.asarray(spent, np.float64)
        requests = len(due)
        if not requests or not len(finished) == len(kind) == len(spent) == requests:
            raise ValueError(f"{requests} due, {len(finished)} finished, {len(kind)} kinds, {len(spent)} spent")
        predicted = kind == PREDICTION
        latency = (finished - due)[predicted]
        is_good = predicted & (finished - due <= slo)
        good = int(is_good.sum())
        busy = sum(totals.busy for totals in stages.values())
        done = float(spent[is_good].sum()) / busy if busy > 0 else 1.0
        missing, prediction, dropped, failed = np.bincount(kind, minlength=FAILED + 1).tolist()
        span = max(duration, float(finished[kind != MISSING].max(initial=0.0)))
        return cls(
            pipeline=pipeline,
            policy=policy,
            trace=trace,
            slo_ms=_ms(slo),
            duration_s=round(duration, 6),
            requests=requests,
            outcomes=Outcomes(
                prediction=prediction, dropped=dropped, failed=failed, missing=missing, duplicate=duplicates
            ),
            good=good,
            late=int(predicted.sum()) - good,
            drop_rate=1 - good / requests,
            invalid_rate=max(0.0, 1 - done),  # the parts are measured apart, so it is kept from below 0
            goodput_rps=good / duration if duration > 0 else 0.0,
            latency_ms=Spread.of(latency),
            schedule_slip_ms=Spread.of(np.zeros(1) if slip is None else np.asarray(slip, np.float64)),
            stages={name: _stage_report(totals, span) for name, totals in stages.items()},
            emulated=emulated,
            versions=runtime_versions(),
        )

    def to_json(self) -> str:
        return self.model_dump_json(indent=2) + "\n"


def runtime_versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in ("spillway", "numpy", "faust-streaming", "aiokafka", "confluent-kafka"):
        found[name] = importlib.metadata.version(name)
    return found


def _ms(seconds: Any) -> float:
    return round(float(seconds) * 1000, 6)


def _stage_report(totals: StageTotals, span: float) -> StageReport:
    return StageReport(
        received=totals.received,
        batches=totals.batches,
        mean_batch=totals.queries / totals.batches if totals.batches else 0.0,
        dropped=totals.dropped,
        failed=totals.failed,
        queue_ms=_ms(totals.queued),
        wait_ms=_ms(totals.waited),
        exec_ms=_ms(totals.executed),
        busy=totals.busy / (span * totals.instances) if span * totals.instances > 0 else 0.0,
    )
