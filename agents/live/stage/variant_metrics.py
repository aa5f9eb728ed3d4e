"""What a front shows of its stage's variants (`spillway.lineage.metric_names`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spillway.agents.metrics import by_one
from spillway.lineage import metric_names as names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from prometheus_client import Metric

    from spillway.agents.core.lanes import Lanes
    from spillway.agents.core.routes.variants import Counts
    from spillway.agents.live.stage.scaling import Scaling
    from spillway.agents.metrics import Families

_OF = (names.VARIANT,)


@dataclass(frozen=True, slots=True)
class VariantMetrics:
    """Where the figures come from."""

    lanes: Lanes
    counts: Counts
    wanted: Callable[[], Mapping[str, int]]
    scaling: Scaling | None

    def __call__(self, make: Families) -> Iterator[Metric]:
        told, ready = self.counts, self.lanes.ready()
        asked = {name: told.asked[name] for name in ready}  # of a former version nothing
        yield make.gauges(names.VARIANT_WORKERS, "Workers of a variant", _OF, by_one(ready))
        yield make.gauges(names.VARIANT_WANTED, "Workers ordered for a variant", _OF, by_one(self.wanted()))
        yield make.counters(names.VARIANT_ASKED_TOTAL, "Queries routed to a variant", _OF, by_one(asked))
        text = "Queries by how their variant was chosen"
        yield make.counters(names.VARIANT_FOUND_TOTAL, text, (names.HOW,), by_one(told.found))
        yield make.counter(names.VARIANT_ANSWERED_TOTAL, "Queries that a variant answered", told.answered)
        yield make.counter(names.VARIANT_MET_TOTAL, "Answered queries whose needs were met", told.met)
        if self.scaling is None:
            return
        yield make.counter(names.VARIANT_ORDERS_TOTAL, "Orders of workers for variants", self.scaling.orders)
        yield make.counter(names.VARIANT_COST_TOTAL, "Cost of variants' workers", self.scaling.cost)
        yield make.gauges(names.VARIANT_HOSTS, "Emulated hosts of a kind", (names.KIND,), by_one(self.scaling.hosts))
        yield make.counter(names.VARIANT_HOSTS_COST_TOTAL, "Cost of emulated hosts", self.scaling.hosts_cost)
        text = "1 for the state that a variant is in"
        yield make.gauges(names.VARIANT_STATE, text, (names.VARIANT, names.STATE), dict(self.scaling.states))
        text = "Ratio of a variant's batch durations to its profile, if the profile is stale"
        yield make.gauges(names.VARIANT_STALE, text, _OF, by_one(self.scaling.stale))
