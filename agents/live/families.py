"""What metric families are made of: numbers that the hot path adds to, and families with a process's three labels."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from lineage import metric_names as names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from prometheus_client import Metric

    from agents.core.calibration import Histogram

_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Distribution:
    """A histogram of seconds."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(_BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float) -> None:
        self.counts[bisect.bisect_left(_BOUNDS, seconds)] += 1
        self.total += seconds

    def buckets(self) -> list[tuple[str, float]]:
        cumulative, rows = 0, []
        for bound, count in zip((*map(str, _BOUNDS), "+Inf"), self.counts, strict=True):
            cumulative += count
            rows.append((bound, float(cumulative)))
        return rows


class Families:
    """Builds metric families that share the three labels."""

    def __init__(self, pipeline: str, stage: str, replica: int) -> None:
        self.labels = (pipeline, stage, str(replica))

    def counter(self, name: str, text: str, value: float) -> Metric:
        return self.counters(name, text, (), {(): value})

    def counters(self, name: str, text: str, extra: tuple[str, ...], values: Mapping[tuple[str, ...], float]) -> Metric:
        family = CounterMetricFamily(name.removesuffix("_total"), text, labels=(*names.LABELS, *extra))
        for labels, value in sorted(values.items()):
            family.add_metric((*self.labels, *labels), value)
        return family

    def gauge(self, name: str, text: str, value: float) -> Metric:
        return self.gauges(name, text, (), {(): value})

    def gauges(self, name: str, text: str, extra: tuple[str, ...], values: Mapping[tuple[str, ...], float]) -> Metric:
        family = GaugeMetricFamily(name, text, labels=(*names.LABELS, *extra))
        for labels, value in values.items():
            family.add_metric((*self.labels, *labels), value)
        return family

    def partitions(self, name: str, text: str, values: Mapping[int, int]) -> Metric:
        told = sorted(dict(values).items())
        return self.gauges(name, text, (names.PARTITION,), {(str(partition),): value for partition, value in told})

    def distribution(self, name: str, text: str, values: Distribution | Histogram) -> Metric:
        return self.distributions(name, text, (), {(): values})

    def distributions(
        self, name: str, text: str, extra: tuple[str, ...], values: Mapping[tuple[str, ...], Distribution | Histogram]
    ) -> Metric:
        family = HistogramMetricFamily(name, text, labels=(*names.LABELS, *extra))
        for labels, histogram in values.items():
            family.add_metric((*self.labels, *labels), histogram.buckets(), histogram.total)
        return family
