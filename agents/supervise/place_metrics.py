"""What the supervisor tells of its places in metrics: how often each was started again, and which flap."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from agents.live.metrics_server import Address, MetricsServer
from agents.supervise.lifecycle import State
from lineage import metric_names as names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from prometheus_client import Metric

    from agents.supervise.child import Child

_LABELS = (*names.LABELS, names.PLACE)


class PlaceMetrics(Collector):
    """The metrics of a pipeline's places, read on a loopback port of the supervisor's from another thread."""

    def __init__(self, pipeline: str, children: Sequence[Child], address: Address = Address()) -> None:  # noqa: B008
        """Serve them; `address` says where. Ready is a supervisor all of whose places are."""
        self._pipeline = pipeline
        self._children = children
        self._server = MetricsServer(self, address, ready=self._not_serving)
        self.address = self._server.address

    def _not_serving(self) -> str:
        missing = [child.plan.name for child in self._children if child.life.state is not State.RUNNING]
        return f"not serving: {', '.join(missing)}" if missing else ""

    def collect(self) -> Iterator[Metric]:
        now = time.monotonic()
        restarts = CounterMetricFamily(
            names.PLACE_RESTARTS_TOTAL.removesuffix("_total"), "Times that it was started again", labels=_LABELS
        )
        flapping = GaugeMetricFamily(
            names.PLACE_FLAPPING, "1 where it dies again and again, or is given up", labels=_LABELS
        )
        for child in self._children:
            plan, life = child.plan, child.life
            labels = (self._pipeline, plan.stage, str(plan.replica), plan.name)
            restarts.add_metric(labels, life.restarts)
            flapping.add_metric(labels, float(life.flaps(now)))
        yield restarts
        yield flapping

    def close(self) -> None:
        self._server.close()
