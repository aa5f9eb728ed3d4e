"""Ensembles whose members now and then take long, in virtual time, over the lanes and the route of a served stage.

Figure 3.9 of Crankshaw's thesis. The durations are emulated; the answers and their errors are those of real forests.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.clipper.limits import OBJECTIVE
from benchmarks.output import Table, median_spread, spread
from examples.clipper.training import digits
from examples.selection.training import queries, trained
from spillway.agents.core.batching import Batcher
from spillway.agents.core.lanes import Lanes, number_of
from spillway.agents.core.policies import make
from spillway.agents.core.policy import StageView
from spillway.agents.core.request import Request
from spillway.agents.core.routes.ensemble import Ensemble, Joint, Rules, Weights
from spillway.agents.learning.selection import Exp4

if TYPE_CHECKING:
    from examples.selection.training import Predict

SIZES: Final = (2, 4, 8, 12, 16)
QUERIES, RATE = 3_000, 150.0
ALPHA, BETA, TAIL, LONGER = 0.004, 0.0002, 0.005, 0.05  # seconds; a share of batches takes LONGER more, on average
_TREES, _FEW = 5, 300


@dataclass(slots=True)
class Run:
    """What came of a stream; times in seconds."""

    latencies: list[float] = field(default_factory=list)
    wrong: list[bool] = field(default_factory=list)
    asked: int = 0
    answered: int = 0


@cache
def _forest(seed: int) -> Predict:
    return trained("forest", *digits(_FEW), seed, _TREES)


def straggle(size: int, wait: float, seed: int) -> Run:
    """Ask `size` forests for each of the queries; what is there after `wait` seconds is combined."""
    rows, truths = queries(QUERIES, seed)
    members = [f"forest{number}" for number in range(size)]
    scores = {name: np.asarray(_forest(number)(rows)) for number, name in enumerate(members)}
    policy = Exp4()
    known = Weights(policy.initial(members))
    route = Ensemble(Rules(policy, wait), lambda _request, _context: known, Random(seed))
    lanes = Lanes({name: Batcher(make("naive", StageView(name)), 64, workers=0) for name in members}, route, QUERIES)
    for number in range(size):
        lanes.attach(0.0, number_of(number, 0))
    chance, run = Random(seed), Run()
    arrivals = np.cumsum(np.random.default_rng(seed).exponential(1 / RATE, QUERIES)).tolist()
    running: list[tuple[float, int]] = []  # when which worker is done
    number = 0
    while number < QUERIES or len(run.latencies) < QUERIES or running:
        wake = lanes.next_wake(0.0)
        ends = [*(end for end, _ in running[:1]), *([] if wake is None else [wake])]
        now = min([*ends, *arrivals[number : number + 1]])
        if running and running[0][0] <= now:
            worker = heapq.heappop(running)[1]
            for ticket in lanes.complete(now, worker).requests:
                answer = scores[ticket.lane][int(ticket.request_id)]  # type: ignore[attr-defined]
                counts = lanes.answered(now, ticket, answer)  # type: ignore[arg-type]
                route.heard(ticket.lane, answer, late=not counts)  # type: ignore[attr-defined]
        elif number < QUERIES and arrivals[number] <= now:
            lanes.push(now, Request(str(number), 0, now, 1e9, now, (), {}))
            number += 1
        lanes.advance(now)
        for batch in lanes.starts:
            longer = chance.expovariate(1 / LONGER) if chance.random() < TAIL else 0.0
            heapq.heappush(running, (now + ALPHA + BETA * len(batch.requests) + longer, batch.worker))
        lanes.starts.clear()
        for query in lanes.over:
            joint: Any = route.combine(query)
            assert isinstance(joint, Joint)  # scores of one shape can be combined
            run.latencies.append(now - query.request.arrived)
            run.wrong.append(int(np.argmax(joint.outputs["label"])) != truths[int(query.request.request_id)])
            run.asked += len(query.asked)
            run.answered += len(query.answers)
        lanes.over.clear()
    return run


def stragglers(repeats: int) -> Table:
    """Ensembles of several sizes that wait for all members, and that answer in time with those that have come."""
    lines = []
    for size in SIZES:
        for name, wait in (("blocking", float("inf")), ("best effort", OBJECTIVE)):
            runs = [straggle(size, wait, seed) for seed in range(repeats)]
            millis = zip(*(1e3 * np.percentile(run.latencies, (50, 99)) for run in runs), strict=True)
            columns = [median_spread(each, "{:.1f}") for each in millis]
            missing = spread([1 - run.answered / run.asked for run in runs])
            error = spread([float(np.mean(run.wrong)) for run in runs], 1)
            lines.append([str(size), name, *columns, missing, error])
    return Table(
        "Ensembles whose members have tails (Figure 3.9)",
        ("members", "combined", "p50 ms", "p99 ms", "missing answers %", "error %"),
        lines,
        (
            "The thesis shows curves: blocking, p99 is far beyond 20 ms; best effort is within, and about as accurate.",
            f"Emulated: {1e3 * ALPHA:g} ms + {1e3 * BETA:g} each; {TAIL:.1%} of batches {1e3 * LONGER:g} ms longer.",
            f"{repeats} times {QUERIES:,} queries at {RATE:g}/s (Poisson). Digits with noise stand for MNIST.",
            f"Each member is a forest of {_TREES} trees, trained on {_FEW} digits; scores, with equal weights.",
        ),
    )
