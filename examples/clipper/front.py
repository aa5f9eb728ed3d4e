"""A stage's front without Kafka: its queue, batches and limits, with a model that is run in place, always busy.

What it measures is the part that Clipper measures (section 3.4 of Crankshaw's thesis): how many queries a second one
worker answers under a batch limit, and how its batches keep to an objective. A served stage has Kafka beside it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.agents.core.batching import Batcher
from spillway.agents.core.limits import limits
from spillway.agents.core.policies import make
from spillway.agents.core.policy import StageView
from spillway.agents.core.request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


FOREVER = 1e9  # seconds


@dataclass(slots=True)
class FrontRun:
    """What a worker did. Times in seconds from the beginning."""

    seconds: float
    ended: list[float] = field(default_factory=list)  # of each batch
    sizes: list[int] = field(default_factory=list)
    executed: list[float] = field(default_factory=list)
    limits: list[int] = field(default_factory=list)  # in force as the batch was formed

    @property
    def throughput(self) -> float:
        """Queries a second."""
        return sum(self.sizes) / self.seconds

    @property
    def typical_size(self) -> float:
        return float(np.median(self.sizes))

    def beyond(self, objective: float, since: float = 0.0) -> float:
        """The share of full batches that ran for longer than the objective, of those that ended after `since`."""
        full = [
            took > objective
            for ended, size, limit, took in zip(self.ended, self.sizes, self.limits, self.executed, strict=True)
            if size >= limit and ended >= since
        ]
        return sum(full) / len(full) if full else 0.0


def saturate(
    predict: Callable[[Sequence[Any]], object],
    queries: Sequence[Any],
    seconds: float,
    *,
    limit: str = "fixed",
    most: int = 4_096,
    objective: float | None = None,
) -> FrontRun:
    """Run a model on `queries`, one after another and again, with more waiting than any batch takes.

    `limit`: aimd or quantile, which need an `objective` in seconds; fixed: batches of `most`.
    """
    batcher = Batcher(make("naive", StageView("front")), most, limits=limits(limit, objective, most))
    run, number, began = FrontRun(seconds), 0, time.perf_counter()
    while (now := time.perf_counter() - began) < seconds:
        while batcher.depth < 2 * batcher.limit:
            batcher.push(now, Request("", number, now, FOREVER, now, (), {}))
            number += 1
        batches = list(batcher.starts)
        batcher.starts.clear()
        for batch in batches:
            inputs = [queries[request.partition % len(queries)] for request in batch.requests]
            run.limits.append(batcher.limit)
            before = time.perf_counter()
            predict(inputs)
            took = time.perf_counter() - before
            run.sizes.append(len(inputs))
            run.executed.append(took)
            run.ended.append(before + took - began)
            batcher.complete(run.ended[-1], batch.worker, took)
    run.seconds = time.perf_counter() - began
    return run
