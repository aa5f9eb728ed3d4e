"""One simulation of the comparison: what is run (`Case`), what is kept of it (`Figures`), and running many.

A case's workers follow from its trace, by one rule for all policies: each stage serves, with full batches, all but 1 %
of the requests at the rate per second at which they come (`applications.needed_capacity`). As workers come whole, the
requests are then multiplied until this is exactly so for the slowest stage; otherwise a cell would be hard or easy by
chance of rounding. A `load` of 2 has twice the requests on the workers of load 1.
"""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.pard.applications import application, capacity_of, needed_capacity, provision
from benchmarks.pard.rivals import setting_of
from benchmarks.shapes import RATE, SHAPES
from spillway.agents.sim.simulation import simulate
from spillway.lineage.errors import UsageError
from spillway.producers.load import schedule, traces
from spillway.producers.report import PREDICTION

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from spillway.agents.sim.observe import SimulationResult
    from spillway.agents.sim.plan import Dispatch

ALL = ("naive", "nexus", "clipper++", "pard", "spillway")
SHARED_TRACES = Path(__file__).parents[3] / "shared" / "traces"
REAL = {
    "real-bursty": "autothrottle_bursty.csv",
    "real-diurnal": "autothrottle_diurnal-2.csv",
    "real-conversation": "azure_llm_2023_conv_arrivals.csv",
}


@dataclass(frozen=True, slots=True)
class Case:
    """What one simulation is of. `seconds` is the trace's length."""

    app: str
    trace: str
    policy: str
    seed: int = 0
    seconds: int = 240
    dispatch: Dispatch = "worker"
    load: float = 1.0


@dataclass(frozen=True, slots=True)
class Figures:
    """What a case came to. Rates are shares: of the requests, and of the execution time."""

    requests: int
    good: int
    late: int
    drop: float
    invalid: float
    drops: dict[str, int]  # by stage


@dataclass(frozen=True, slots=True)
class Setting:
    """How much is measured."""

    seconds: int  # of each trace
    seeds: tuple[int, ...]
    workers: int = 1  # processes
    quick: bool = False

    def some(self, values: Iterable[Any], few: int = 2) -> list[Any]:
        return list(values)[: few if self.quick else None]


def real_traces() -> tuple[str, ...]:
    return tuple(name for name, file in REAL.items() if (SHARED_TRACES / file).is_file())


@lru_cache(maxsize=64)
def arrivals_of(trace: str, seed: int, seconds: int) -> NDArray[np.float64]:
    """Times of a trace's requests, by its name; a real one is compressed to `seconds`, at our mean rate."""
    if trace in SHAPES:
        return SHAPES[trace].arrivals(seconds, seed)
    if trace in REAL:
        file = SHARED_TRACES / REAL[trace]
        whole = traces.arrivals(file, seed=seed)
        speed = float(whole[-1]) / seconds
        return traces.arrivals(file, seed=seed, speed=speed, scale=RATE * seconds / len(whole), duration=seconds)
    raise UsageError(f"there is no trace {trace!r}; there are: {', '.join((*SHAPES, *real_traces()))}")


def provisioned(
    app: str, due: NDArray[np.float64], load: float, seed: int
) -> tuple[NDArray[np.float64], tuple[int, ...]]:
    """The arrivals `due`, multiplied to `load` times what the workers are planned for, and these workers by stage."""
    spec = application(app).spec
    needed = max(needed_capacity(due), 1.0)
    workers = provision(spec, needed)
    load *= capacity_of(spec, workers) / needed
    return schedule.scaled(due, load, np.random.default_rng(seed)), workers


def run_case(case: Case) -> Figures:
    due, workers = provisioned(case.app, arrivals_of(case.trace, case.seed, case.seconds), case.load, case.seed)
    result = simulate(
        application(case.app),
        due,
        workers=workers,
        dispatch=case.dispatch,
        policy=setting_of(case.policy),
        seed=case.seed,
        period=1.0,
    )
    good = good_of(result)
    busy = sum(totals.busy for totals in result.stages.values())
    return Figures(
        requests=len(due),
        good=int(good.sum()),
        late=int((result.kind == PREDICTION).sum() - good.sum()),
        drop=float(1 - good.mean()),
        invalid=max(0.0, 1 - float(result.spent[good].sum()) / busy) if busy else 0.0,
        drops={name: totals.dropped for name, totals in result.stages.items()},
    )


def good_of(result: SimulationResult) -> NDArray[np.bool_]:
    return np.asarray((result.kind == PREDICTION) & (result.finished - result.due <= result.slo))


def over_seeds(setting: Setting, cases: dict[Any, Case]) -> dict[Any, list[Figures]]:
    """Run each case once for each seed."""
    repeated = [replace(case, seed=seed) for case in cases.values() for seed in setting.seeds]
    if setting.workers == 1:
        found = list(map(run_case, repeated))
    else:
        with ProcessPoolExecutor(setting.workers) as pool:
            found = list(pool.map(run_case, repeated))
    count = len(setting.seeds)
    return {key: found[place * count : (place + 1) * count] for place, key in enumerate(cases)}
