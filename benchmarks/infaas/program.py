"""INFaaS' integer linear program (section 4.2.1), solved by HiGHS: what the greedy heuristic stands for.

Minimized: the sum of Cost(delta) = C (delta + lambda T_load max(delta, 0)); `up` >= delta, >= 0 is the maximum. Subject
to (1) sum of Q (N + delta) >= L x slack, (2) delta <= 0 where T_inf > SLO, (4) N + delta >= 0. The paper's third, that
there is room for all workers, does not bind here: hosts are there for any load. Needs scipy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
from scipy import optimize

from benchmarks.infaas.family import ARCHITECTURES, of
from spillway.lineage.errors import SpecError
from spillway.topology.variants.scaling import Action, Weights, candidates_of, in_time, needed, scale_up

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from spillway.topology.variants.scaling import Candidate


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


_MOST: Final = 1e6  # workers of a variant
_INFEASIBLE: Final = 2  # scipy's status


def solve(
    candidates: Sequence[Candidate],
    load: float,
    slo: float | None,
    weights: Weights,
    seconds: float = 60.0,
) -> Action:
    """Find the cheapest change that serves `load`, where there is room for any number of workers.

    Raises SpecError where nothing does, or `seconds` did not suffice.
    """
    count = len(candidates)
    price = np.array([each.variant.price for each in candidates])
    loading = np.array([each.variant.load for each in candidates])
    running = np.array([float(each.ordered) for each in candidates])
    fast = np.array([slo is None or each.latency <= slo + 1e-9 for each in candidates])
    usable = np.array([each.usable for each in candidates])
    zeros = np.zeros(count)
    rates = np.array([each.rate for each in candidates])
    serves = np.concatenate([rates, zeros])
    above = np.hstack([-np.eye(count), np.eye(count)])  # up - delta >= 0
    result = optimize.milp(
        c=np.concatenate([price, price * weights.unpredictability * loading]),
        integrality=np.concatenate([np.ones(count), zeros]),
        bounds=optimize.Bounds(
            np.concatenate([-running, zeros]), np.concatenate([np.where(fast & usable, _MOST, 0.0), zeros + _MOST])
        ),
        constraints=[
            optimize.LinearConstraint(serves, needed(load, weights) - rates @ running, np.inf),
            optimize.LinearConstraint(above, 0.0, np.inf),
        ],
        options={"time_limit": seconds, "mip_rel_gap": 0.0},
    )
    if not result.success:
        why = "nothing fits" if result.status == _INFEASIBLE else str(result.message)
        within = "" if slo is None else f" within {slo:g} s"
        raise SpecError(f"no workers of {count} variants serve {load:.4g}/s{within}: {why}")
    deltas = {each.name: round(delta) for each, delta in zip(candidates, result.x[:count], strict=True) if round(delta)}
    by_name = {each.name: each for each in candidates}
    cost = sum(by_name[name].cost(delta, weights) for name, delta in deltas.items())
    return Action(deltas, cost, f"{load:.4g}/s by the integer program")
