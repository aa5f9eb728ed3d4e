"""One simulation of the comparison: what is run (`Case`), what is kept of it (`Figures`), and running many.

A case is a value: equal cases are run once, however many sections ask for them. Its workers follow from its trace, by
one rule for all policies: each stage serves, with full batches, all but 1 % of the requests at the rate per second at
which they come (`applications.needed_capacity`). As workers come whole, the requests are then multiplied until this is
exactly so for the slowest stage; otherwise a cell would be hard or easy by chance of rounding. A `load` of 2 has twice
the requests on the workers of load 1. The steady trace is given as a share of the capacity.
"""

from __future__ import annotations

import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from agents.bench.pard.applications import application, capacity_of, needed_capacity, provision
from agents.bench.pard.windows import hard_seconds, worst_window
from agents.sim.scaling import Scaling
from agents.sim.simulation import simulate
from lineage.errors import UsageError
from producers.load import schedule, traces
from producers.load.shapes import RATE, SHAPES
from producers.report import PREDICTION
from topology.planning import plan_batches

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from agents.sim.observe import Observer
    from agents.sim.plan import Dispatch
    from agents.sim.result import SimulationResult

SHARED_TRACES = Path(__file__).parents[4] / "shared" / "traces"
REAL = {
    "real-bursty": "autothrottle_bursty.csv",
    "real-diurnal": "autothrottle_diurnal-2.csv",
    "real-conversation": "azure_llm_2023_conv_arrivals.csv",
}
STEADY = "steady"  # a Poisson process, for the stress test
WINDOWS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
BEGINNING = 20.0  # seconds of the trace that the first workers are for, where they are scaled at run time
SCALING = Scaling(cold_start=8.0)


@dataclass(frozen=True, slots=True)
class Case:
    """What one simulation is of. `seconds` and `cv` are the trace's; `batches` are planned anew where asked."""

    app: str
    trace: str
    policy: str
    seed: int = 0
    seconds: int = 300
    dispatch: Dispatch = "worker"
    load: float = 1.0
    slo: float | None = None
    replan: bool = False
    period: float = 1.0
    cv: float | None = None
    scaling: bool = False


@dataclass(frozen=True, slots=True)
class Figures:
    """What a case came to. Rates are shares; `goodput` is per second; `hard` counts the seconds that force drops."""

    requests: int
    good: int
    late: int
    drop: float
    invalid: float
    goodput: float
    hard_requests: int
    hard_good: int
    worst: dict[str, float]  # by width of the window in seconds, the highest drop rate
    drops: dict[str, int]  # by stage
    queued: float  # mean seconds in queues, over the requests that were served
    capacity: float
    workers: list[int]
    visits: int
    seconds: float = field(compare=False)  # of processor time


def real_traces() -> tuple[str, ...]:
    return tuple(name for name, file in REAL.items() if (SHARED_TRACES / file).is_file())


@lru_cache(maxsize=64)
def arrivals_of(trace: str, seed: int, seconds: int, cv: float | None) -> NDArray[np.float64]:
    """Times of a trace's requests, by its name; a real one is compressed to `seconds`, at our mean rate."""
    if trace in SHAPES:
        return SHAPES[trace].arrivals(seconds, seed, cv)
    if trace == STEADY:
        return schedule.poisson(RATE, seconds, np.random.default_rng(seed))
    if trace in REAL:
        file = SHARED_TRACES / REAL[trace]
        whole = traces.read_arrivals(file, seed=seed)
        speed = float(whole[-1]) / seconds
        return traces.read_arrivals(file, seed=seed, speed=speed, scale=RATE * seconds / len(whole), duration=seconds)
    raise UsageError(f"there is no trace {trace!r}; there are: {', '.join((*SHAPES, STEADY, *real_traces()))}")


@dataclass(frozen=True, slots=True)
class Setup:
    """What a case's policy finds: arrivals, batches and workers."""

    arrivals: NDArray[np.float64]
    batches: dict[str, int]
    workers: tuple[int, ...]
    capacity: float


def set_up(case: Case) -> Setup:
    spec = application(case.app).spec
    batches = {}
    if case.replan:
        durations = {stage.name: stage.emulated.duration for stage in spec.stages if stage.emulated is not None}
        batches = plan_batches(spec, durations, case.slo, anew=True)
    due = arrivals_of(case.trace, case.seed, case.seconds, case.cv)
    first = due[due < BEGINNING] if case.scaling else due  # with scaling, the workers are those of the beginning
    needed = max(needed_capacity(first) if len(first) else 0.0, 1.0)
    workers = provision(spec, needed, batches)
    capacity = capacity_of(spec, workers, batches)
    load = case.load * capacity / (needed if case.trace != STEADY else len(due) / case.seconds)
    if case.scaling:
        load = case.load
    return Setup(schedule.scaled(due, load, np.random.default_rng(case.seed)), batches, workers, capacity)


def simulated(case: Case, setup: Setup, observer: Observer | None = None) -> SimulationResult:
    return simulate(
        application(case.app),
        setup.arrivals,
        workers=setup.workers,
        dispatch=case.dispatch,
        policy=case.policy,
        slo=case.slo,
        seed=case.seed,
        period=case.period,
        batches=setup.batches,
        scaling=SCALING if case.scaling else None,
        observer=observer,
    )


def run_case(case: Case) -> Figures:
    setup = set_up(case)
    before = time.process_time()
    result = simulated(case, setup)
    spent = time.process_time() - before
    good = good_of(result)
    due = result.due
    busy = sum(totals.busy for totals in result.stages.values())
    hard = hard_seconds(due, setup.capacity)[due.astype(np.int64)]
    served = sum(totals.queries for totals in result.stages.values())
    return Figures(
        requests=len(due),
        good=int(good.sum()),
        late=int((result.kind == PREDICTION).sum() - good.sum()),
        drop=float(1 - good.mean()),
        invalid=max(0.0, 1 - float(result.spent[good].sum()) / busy) if busy else 0.0,
        goodput=float(good.sum()) / case.seconds,
        hard_requests=int(hard.sum()),
        hard_good=int((good & hard).sum()),
        worst={f"{width:g}": worst_window(due, good, width) for width in WINDOWS},
        drops={name: totals.dropped for name, totals in result.stages.items()},
        queued=sum(t.queued * t.queries for t in result.stages.values()) / max(1, served),
        capacity=setup.capacity,
        workers=list(setup.workers),
        visits=result.visits,
        seconds=spent,
    )


def good_of(result: SimulationResult) -> NDArray[np.bool_]:
    return np.asarray((result.kind == PREDICTION) & (result.finished - result.due <= result.slo))


class Runner:
    """Runs cases, each once, in this process or in several; remembers their figures."""

    def __init__(self, workers: int = 1, progress: Callable[[int, int], None] = lambda _done, _all: None) -> None:
        """`progress` hears how many of the cases asked for are done, and how many they are."""
        self._workers = workers
        self._progress = progress
        self._known: dict[Case, Figures] = {}

    def run(self, cases: Iterable[Case]) -> dict[Case, Figures]:
        asked = list(dict.fromkeys(cases))
        new = [case for case in asked if case not in self._known]
        for done, (case, figures) in enumerate(zip(new, self._figures(new), strict=True)):
            self._known[case] = figures
            self._progress(done + 1, len(new))
        return {case: self._known[case] for case in asked}

    def _figures(self, cases: list[Case]) -> Iterable[Figures]:
        if self._workers == 1 or len(cases) < 2:  # noqa: PLR2004
            return map(run_case, cases)
        with ProcessPoolExecutor(self._workers) as pool:
            return list(pool.map(run_case, cases))

    @property
    def cost(self) -> dict[str, Any]:
        figures = self._known.values()
        return {
            "cases": len(self._known),
            "stage_visits": sum(each.visits for each in figures),
            "processor_seconds": round(sum(each.seconds for each in figures), 1),
        }
