"""What is counted of a stage's batches and messages, as they come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.agents.core.calibration import KEPT
from spillway.agents.core.request import Request
from spillway.lineage.hops import growth
from spillway.lineage.message import DROPPED

if TYPE_CHECKING:
    from spillway.agents.core.actions import Emit, Executed
    from spillway.agents.core.batching import Batch
    from spillway.agents.core.estimates.observed import Observed
    from spillway.agents.metrics import StageMetrics


class Tally:
    """Adds to a stage's metrics, and to what is observed of its queue where its policy tells nothing of its own."""

    def __init__(self, metrics: StageMetrics, observed: Observed | None = None) -> None:
        self._metrics = metrics
        self._observed = observed
        self._growth: tuple[object, int] = ((), 0)  # of the marks that were met last: those of a batch are the same
        self._refused: object = None  # the request whose loss was counted last: it may be told to several joins

    def observes(self, observed: Observed | None) -> None:
        self._observed = observed

    def executed(self, now: float, batch: Batch, done: Executed) -> None:
        metrics, observed, seconds = self._metrics, self._observed, done.seconds
        if batch.offline:
            metrics.offline += len(batch.requests)
            return
        metrics.batched += len(batch.requests)
        metrics.executed.observe(seconds)
        metrics.overhead.observe(max(0.0, now - batch.started - seconds))
        for request in batch.requests:
            queued, waited = request.entered - request.arrived, request.started - request.entered
            metrics.queued.observe(queued)
            metrics.waited.observe(waited)
            metrics.calibration.happened(queued, waited, seconds)
            metrics.budgets.left[KEPT].observe(request.deadline - request.entered)
            metrics.budgets.consumption.observe(now - request.arrived)
            if observed is not None:
                observed.delays.append(queued)
                observed.waits.append(waited)

    def emitted(self, now: float, emit: Emit) -> None:
        metrics = self._metrics
        metrics.emitted += 1
        if metrics.marks is not None:
            marks = emit.hop.marks
            if marks != self._growth[0]:
                self._growth = marks, growth((emit.hop,))
            metrics.marks.observe(self._growth[1])
        kind, loss = emit.kind.value, emit.loss
        if kind == "dead-letter":
            metrics.dead_letters[loss.reason if loss is not None else "",] += 1
        elif loss is not None:
            metrics.outcomes[loss.kind, loss.reason] += 1
            source = emit.source
            judged = isinstance(source, Request) and not source.offline
            if loss.kind == DROPPED and judged and source is not self._refused:
                self._refused = source
                metrics.budgets.refused(source.deadline - now, loss.short)
        elif emit.destination is None and not emit.lost:
            metrics.outcomes["prediction", ""] += 1
