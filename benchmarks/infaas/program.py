"""INFaaS' integer linear program (section 4.2.1), solved by HiGHS: what the greedy heuristic stands for.

Minimized: the sum of Cost(delta) = C (delta + lambda T_load max(delta, 0)); `up` >= delta, >= 0 is the maximum. Subject
to (1) sum of Q (N + delta) >= L x slack, (2) delta <= 0 where T_inf > SLO, (4) N + delta >= 0. The paper's third, that
there is room for all workers, does not bind here: hosts are there for any load. Needs scipy.
"""

from __future__ import annotations

from statistics import fmean
from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import optimize

from benchmarks.infaas.family import ARCHITECTURES, of
from benchmarks.output import Table
from spillway.lineage.errors import SpecError
from spillway.topology.variants.scaling import Action, Weights, candidates_of, in_time, keeps, needed, scale_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spillway.topology.variants.scaling import Candidate

DRAWS: Final = 150  # of a seed
_MOST: Final = 1e6  # workers of a variant


def growth(repeats: int) -> list[Table]:
    """4.2.1: what the heuristic orders as a load grows, beside the integer program."""
    found = [list(grown(seed, DRAWS)) for seed in range(repeats)]
    rows = [
        (str(seed), str(len(costs)), f"{fmean(costs):.3f}x", f"{max(costs):.3f}x") for seed, costs in enumerate(found)
    ]
    note = (
        "What all workers cost by the heuristic, in times of what they cost by the program; of random architectures, "
        "SLOs and loads up to 1,000/s, from nothing or from what the program has for less load."
    )
    return [Table("Growth beside the integer program", ("seed", "draws that grow", "mean", "worst"), rows, (note,))]


def grown(seed: int, count: int) -> Iterator[float]:
    """Draw loads that grow; what all workers cost by the heuristic then, in times of what they do by the program.

    Of any architecture, with an SLO that some variants keep, from nothing or from what the program has for less load.
    """
    random, weights = np.random.default_rng(seed), Weights()
    for _ in range(count):
        variants = of(ARCHITECTURES[random.integers(len(ARCHITECTURES))].name)
        slo = random.uniform(1, 3) * random.choice([each.latency for each in variants])
        load = 10 ** random.uniform(0, 3)
        less = load * random.choice([0.0, random.uniform(0.05, 0.9)])
        able = [each._replace(rate=in_time(each.variant, slo, weights)) for each in candidates_of(variants)]
        before = solve(able, less, slo, weights).deltas if less else {}
        able = [each._replace(ordered=before.get(each.name, 0)) for each in able]
        paid = sum(each.ordered * each.variant.price for each in able)
        greedy = scale_up(able, load, slo, weights, lambda _each: 1 << 20).action
        if greedy is not None:
            yield (greedy.cost + paid) / (solve(able, load, slo, weights).cost + paid)


def solve(candidates: Sequence[Candidate], load: float, slo: float, weights: Weights) -> Action:
    """Find the cheapest change that serves `load`, where there is room for any number of workers.

    Raises SpecError where nothing does.
    """
    zeros = np.zeros(len(candidates))
    price, loading, rates, running = np.array(
        [(each.variant.price, each.variant.load, each.rate, each.ordered) for each in candidates], float
    ).T
    most = np.where([each.usable and keeps(each, slo) for each in candidates], _MOST, 0.0)
    above = np.hstack([-np.eye(len(zeros)), np.eye(len(zeros))])  # up - delta >= 0
    result = optimize.milp(
        c=np.concatenate([price, price * weights.unpredictability * loading]),
        integrality=np.concatenate([zeros + 1, zeros]),
        bounds=optimize.Bounds(np.concatenate([-running, zeros]), np.concatenate([most, zeros + _MOST])),
        constraints=[
            optimize.LinearConstraint(np.concatenate([rates, zeros]), needed(load, weights) - rates @ running, np.inf),
            optimize.LinearConstraint(above, 0.0, np.inf),
        ],
        options={"mip_rel_gap": 0.0},
    )
    if not result.success:
        raise SpecError(f"no workers of {len(zeros)} variants serve {load:.4g}/s within {slo:g} s: {result.message}")
    found = [(each, round(delta)) for each, delta in zip(candidates, result.x[: len(zeros)], strict=True)]
    cost = sum(each.cost(delta, weights) for each, delta in found)
    return Action({each.name: delta for each, delta in found if delta}, cost, f"{load:.4g}/s by the integer program")
