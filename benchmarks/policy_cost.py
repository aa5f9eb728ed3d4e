"""What a policy costs: for each request with a long queue, and for each synchronisation.

The paper's bounds (section 5.4, and this project's own): reordering in the DEPQ below .16 % of a request's latency, a
decision below 20 us, with a queue of 1,000 at 1,000 requests a second. The latency that it is held to is the shortest
possible: batches of one through five stages of the paper's sizes, without any waiting, the DEPQ passed in each.

Microseconds are medians of rounds on one core, of wall time; other work on the machine makes them worse, never better.
"""

from __future__ import annotations

import statistics
import time
from array import array
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from benchmarks.output import Table, tell
from benchmarks.pard.rivals import NAMES, setting_of
from spillway.agents.cli.options import json_option
from spillway.agents.core.policies import make, selected
from spillway.agents.core.policies.adaptive import Depq
from spillway.agents.core.policy import Load, StageFacts, StageState, StageView
from spillway.agents.core.request import Request
from spillway.agents.models.loading import load_policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.core.policies.selection import Selection
    from spillway.agents.core.policy import Policy

RATE = 1_000.0  # requests a second
STAGES = {
    "person": (20, 7),
    "face": (12, 5),
    "expression": (8, 4),
    "eye": (10, 5),
    "pose": (15, 6),
}  # alpha, beta in ms
LATENCY = sum(alpha + beta for alpha, beta in STAGES.values()) / 1000
DEPQ_SHARE = 0.0016
DECISION_US = 20.0
_BATCH = 8
_SLO = 2.0  # of which a queue of 1,000 takes a second
_SAMPLES = 10_000
_ROUNDS = 15
_LOAD = Load(0, 0, 0, 0, 0, 0.0, 0, 0, 0)


def _requests(count: int, start: int = 0) -> list[Request]:
    """Requests a millisecond apart, with delays of 0 to 200 ms on the way: their deadlines are out of order."""
    delays = np.random.default_rng(start).uniform(0.0, 0.2, count).tolist()
    times = [(start + number) / RATE for number in range(count)]
    return [Request("", 0, at - delay, at - delay + _SLO, at, (), {}) for at, delay in zip(times, delays, strict=True)]


def _profile(alpha: float, beta: float) -> Callable[[int], float]:
    return lambda count: (alpha + beta * count) / 1000


def _views(shared: dict[Any, Any]) -> list[StageView]:
    facts = {name: StageFacts(_BATCH, _profile(alpha, beta), 8) for name, (alpha, beta) in STAGES.items()}
    names = list(STAGES)
    successors = {name: tuple(names[place + 1 : place + 2]) for place, name in enumerate(names)}
    return [StageView(name, slo=_SLO, facts=facts, successors=successors, shared=shared) for name in names]


def _states() -> dict[str, list[StageState]]:
    random = np.random.default_rng(0)
    return {
        name: [
            StageState(
                *(name, 0, 0.0, 0.01, 100.0),
                waits=array("d", random.uniform(0.0, 0.05, _SAMPLES)),
                waits_seen=_SAMPLES,
                batch=_BATCH,
                arrival_rate=RATE,
            )
        ]
        for name in STAGES
    }


def _median_us(once: Callable[[], int]) -> float:
    """Microseconds for each of what `once` says it has done."""
    taken = []
    for _ in range(_ROUNDS):
        before = time.perf_counter()
        count = once()
        taken.append((time.perf_counter() - before) / count)
    return 1e6 * statistics.median(taken)


def depq_us(queue: int) -> float:
    waiting = Depq()
    for request in _requests(queue):
        waiting.push(request)
    made = _requests(2_000, start=queue)

    def once() -> int:
        for request in made:
            waiting.push(request)
            waiting.pop_low()
        return len(made)

    return _median_us(once)


def request_us(policy: Policy, queue: int) -> float:
    """Everything that a policy does for a request: taken in, ordered, judged; with `queue` requests waiting."""
    for request in _requests(queue):
        policy.push(request.arrived, request)
    made = _requests(2_000, start=queue)

    def once() -> int:
        for request in made:
            now = request.arrived
            policy.push(now, request)
            policy.fill(now, now, 1, [], [])
        policy.report(now, _LOAD)
        return len(made)

    return _median_us(once)


def decision_us(policy: Policy) -> float:
    made = _requests(2_000)

    def once() -> int:
        for request in made:
            policy.judge(request.arrived, request.arrived, request)
        policy.report(request.arrived, _LOAD)
        return len(made)

    return _median_us(once)


def tick_us(selection: Selection) -> float:
    """One synchronisation of all five stages, in one process: all estimates are made anew."""
    shared: dict[Any, Any] = {}
    policies = [make(selection, view) for view in _views(shared)]
    states, clock = _states(), iter(range(1, 1 + _ROUNDS))

    def once() -> int:
        now = float(next(clock))
        for policy in policies:
            policy.tick(now, _LOAD, states)
        return 1

    return _median_us(once)


def measure(name: str, queue: int) -> dict[str, Any]:
    view, *_ = _views({})
    selection = selected(setting_of(name), load_policy)
    policy = make(selection, view)
    policy.tick(0.0, _LOAD, _states())
    decision = decision_us(policy)
    whole = request_us(make(selection, view), queue)
    return {
        "policy": name,
        "decision_us": round(decision, 2),
        "request_us": round(whole, 2),
        "tick_us": round(tick_us(selection), 1),
    }


@click.command()
@click.option("--queue", type=click.IntRange(1, 1_000_000), default=1_000, show_default=True, help="Requests waiting.")
@click.option("--policy", "policies", multiple=True, metavar="NAME", help="[default: all]")
@json_option
def policy_cost(queue: int, policies: tuple[str, ...], *, as_json: bool) -> int:
    """Measure what a policy costs; exit 1 where pard's decision or its queue is over the bound.

    \b
    Example: python -m benchmarks policy-cost --policy pard --queue 1000
    """  # noqa: D301 - click's own marks
    reorder = depq_us(queue)
    share = len(STAGES) * reorder / 1e6 / LATENCY
    cells = [measure(name, queue) for name in policies or NAMES]
    held = share < DEPQ_SHARE and all(cell["decision_us"] < DECISION_US for cell in cells)
    depq = {"put_and_get_us": round(reorder, 2), "share_of_latency": share, "latency_ms": 1000 * LATENCY}
    title = (
        f"DEPQ with {queue:,} waiting: {reorder:.2f} us for a put and a get; in {len(STAGES)} stages "
        f"{100 * share:.4f} % of the shortest latency, {1000 * LATENCY:.0f} ms (bound {100 * DEPQ_SHARE:.2f} %)"
    )
    columns = ("policy", "decision us", "request us", "tick of 5 stages us")
    table = Table(title, columns, [[str(value) for value in cell.values()] for cell in cells])
    tell({"queue": queue, "depq": depq, "policies": cells, "held": held}, table, as_json=as_json)
    return 0 if held else 1
