"""The cells of the comparison: what each policy drops on one application, trace and dispatch, beside the bound.

Workers follow from the trace by the rule of `benchmarks.pard.cases`: with full batches, every stage serves all but
1 % of the requests at the rate per second at which they come. So the load is above capacity in the worst seconds of
every trace, and the traces differ in how long and how far. `load` multiplies the requests on the same workers.

With `hops` every message takes its own time from stage to stage, `LEAST` and an exponential one of `MORE` in the mean,
and at most `MOST`, as on a broker that is busy.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from benchmarks.pard import bound
from benchmarks.pard.applications import application
from benchmarks.pard.cases import good_of, provisioned
from benchmarks.pard.rivals import setting_of
from benchmarks.policies_workloads import arrivals
from spillway.agents.sim.simulation import simulate
from spillway.lineage.metric_names import GATE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from spillway.agents.sim.plan import Dispatch
    from spillway.topology.load import Pipeline

OURS = "spillway"
LEAST, MORE, MOST = 0.003, 0.004, 0.02  # seconds of a hop


@dataclass(frozen=True, slots=True)
class Cell:
    """One application on one trace. `load` multiplies the requests, on the same workers."""

    app: str
    trace: str
    seconds: int = 120
    load: float = 1.0
    seed: int = 0
    hops: bool = False


class Outcome(NamedTuple):
    """What one policy did in a cell: shares of all requests, and of all execution time."""

    drop: float
    invalid: float


@dataclass(frozen=True, slots=True)
class Row:
    """A cell under one dispatch, with what each policy came to: (drop rate, invalid rate)."""

    app: str
    trace: str
    load: float
    dispatch: str
    bound: float
    outcomes: Mapping[str, tuple[float, float]]
    seed: int = 0

    def drop(self, policy: str) -> float:
        return self.outcomes[policy][0]

    def best_other(self) -> tuple[str, float]:
        """The best of the policies that are not ours, and its drop rate."""
        others = {name: drop for name, (drop, _) in self.outcomes.items() if name != OURS}
        name = min(others, key=others.__getitem__)
        return name, others[name]


@lru_cache(maxsize=8)
def prepared(cell: Cell) -> tuple[NDArray[np.float64], tuple[int, ...]]:
    """Give a cell's arrivals and workers."""
    return provisioned(cell.app, arrivals(cell.trace, cell.seconds, cell.seed), cell.load, cell.seed)


def bound_of(cell: Cell) -> float:
    due, workers = prepared(cell)
    return bound.of(application(cell.app), due, workers, hop=LEAST if cell.hops else 0.0).rate


def hops_of(cell: Cell, count: int) -> dict[str, NDArray[np.float64]] | None:
    """Give what each of `count` requests takes to each stage and through the gate; None for nothing."""
    if not cell.hops:
        return None
    rng = np.random.default_rng((cell.seed, 0x686F70))
    places = [*(stage.name for stage in application(cell.app).spec.stages), GATE]
    return {place: np.minimum(LEAST + rng.exponential(MORE, count), MOST) for place in places}


def outcome(cell: Cell, policy: str, dispatch: Dispatch) -> Outcome:
    """Run a policy in a cell."""
    due, workers = prepared(cell)
    return run(application(cell.app), due, workers, policy, dispatch, hops_of(cell, len(due)))


def run(
    pipeline: Pipeline,
    due: NDArray[np.float64],
    workers: Sequence[int],
    policy: str,
    dispatch: Dispatch,
    hops: Mapping[str, NDArray[np.float64]] | None = None,
) -> Outcome:
    """Run a policy on arrivals, with these workers by stage; `hops` by stage, in seconds."""
    setting, period = setting_of(policy), 0.1 if policy.startswith(OURS) else 1.0
    result = simulate(pipeline, due, workers=workers, dispatch=dispatch, policy=setting, period=period, hops=hops)
    good = good_of(result)
    spent = float(result.spent.sum())
    wasted = float(result.spent[~good].sum()) / spent if spent else 0.0
    return Outcome(float(1 - good.mean()), wasted)
