"""INFaaS' integer linear program (section 4.2.1), solved by HiGHS: what the greedy heuristic stands for.

Minimized: the sum of Cost(delta) = C (delta + lambda T_load max(delta, 0)); `up` >= delta, >= 0 is the maximum. Subject
to (1) sum of Q (N + delta) >= L x slack, (2) delta <= 0 where T_inf > SLO, (3) by kind of hardware, units and memory of
all workers at most what there is, (4) N + delta >= 0. Needs scipy, which comes with the extra `sklearn`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spillway.lineage.errors import MissingExtraError, SpecError
from spillway.topology.variants.scaling import Action, needed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.topology.variant_sections import Room
    from spillway.topology.variants.scaling import Candidate, Weights

NO_SCIPY: Final = (
    "scipy is not installed, but the integer program needs it; install the extra: pip install 'spillway[sklearn]', or "
    "scale by 'greedy'"
)
_MOST: Final = 1e6  # workers of a variant
_INFEASIBLE: Final = 2  # scipy's status


class NoConfigurationError(SpecError):
    """No number of workers serves the load within the SLO and the room."""


def solve(
    candidates: Sequence[Candidate],
    load: float,
    slo: float | None,
    weights: Weights,
    room: Mapping[str, Room] | None = None,
    seconds: float = 60.0,
) -> Action:
    """The cheapest change that serves `load`; `room` is all there is by kind of hardware, None any amount.

    Raises MissingExtraError without scipy, and NoConfigurationError where nothing does or `seconds` did not suffice.
    """
    scipy = require_scipy()
    count = len(candidates)
    price = np.array([each.variant.price for each in candidates])
    loading = np.array([each.variant.load for each in candidates])
    running = np.array([float(each.ordered) for each in candidates])
    fast = np.array([slo is None or each.latency <= slo + 1e-9 for each in candidates])
    usable = np.array([each.usable for each in candidates])
    zeros = np.zeros(count)
    rates = np.array([each.rate for each in candidates])
    rows = [(np.concatenate([rates, zeros]), needed(load, weights) - rates @ running, np.inf)]
    for kind, has in (room or {}).items():
        on = np.array([each.variant.hardware == kind for each in candidates])
        for most, uses in (
            (has.units, np.array([each.variant.units for each in candidates]) * on),
            (has.memory, np.array([float(each.variant.memory) for each in candidates]) * on),
        ):
            if most is not None:
                scale = max(1.0, float(most))
                rows.append((np.concatenate([uses, zeros]) / scale, -np.inf, (most - uses @ running) / scale))
    matrix = np.array([row for row, _, _ in rows])
    above = np.hstack([-np.eye(count), np.eye(count)])  # up - delta >= 0
    result = scipy.milp(
        c=np.concatenate([price, price * weights.unpredictability * loading]),
        integrality=np.concatenate([np.ones(count), zeros]),
        bounds=scipy.Bounds(
            np.concatenate([-running, zeros]), np.concatenate([np.where(fast & usable, _MOST, 0.0), zeros + _MOST])
        ),
        constraints=[
            scipy.LinearConstraint(matrix, [low for _, low, _ in rows], [high for _, _, high in rows]),
            scipy.LinearConstraint(above, 0.0, np.inf),
        ],
        options={"time_limit": seconds, "mip_rel_gap": 0.0},
    )
    if not result.success:
        why = "nothing fits" if result.status == _INFEASIBLE else str(result.message)
        within = "" if slo is None else f" within {slo:g} s"
        raise NoConfigurationError(f"no workers of {count} variants serve {load:.4g}/s{within}: {why}")
    deltas = {each.name: round(delta) for each, delta in zip(candidates, result.x[:count], strict=True) if round(delta)}
    by_name = {each.name: each for each in candidates}
    cost = sum(by_name[name].cost(delta, weights) for name, delta in deltas.items())
    return Action(deltas, cost, f"{load:.4g}/s by the integer program")


def require_scipy() -> Any:
    """Scipy's optimizers. Raises MissingExtraError where they are not installed."""
    try:
        from scipy import optimize  # noqa: PLC0415 - of an extra
    except ImportError as error:
        raise MissingExtraError(NO_SCIPY) from error
    return optimize
