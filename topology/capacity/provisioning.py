"""From a pipeline, a catalogue and an Estimator to a plan that can be written down."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spillway.topology.capacity.envelope import LONGEST, envelope, windows
from spillway.topology.capacity.hardware import can_be_planned
from spillway.topology.capacity.plan import Plan, PlannedStage, TraceFacts
from spillway.topology.capacity.planner import Lane, Planner, Sizing, p99_of
from spillway.topology.capacity.room import remark
from spillway.topology.capacity.search import DEFAULT, SEARCHES
from spillway.topology.quantities import show_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from numpy.typing import NDArray

    from spillway.topology.capacity.hardware import Catalogue, Option
    from spillway.topology.capacity.planner import Choice, Estimate, Found
    from spillway.topology.load import Pipeline


def first_sizes(options: Mapping[str, tuple[Option, ...]]) -> dict[str, Sizing]:
    """Sizes that any Estimator can begin with."""
    return {name: Sizing(1, 1, each[0].duration) for name, each in options.items()}


@dataclass(frozen=True, slots=True)
class Provisioning:
    """What plans are made of."""

    pipeline: Pipeline
    catalogue: Catalogue
    options: Mapping[str, tuple[Option, ...]]
    estimate: Estimate
    shares: Mapping[str, float]
    """s_m by stage."""
    arrivals: NDArray[np.float64]
    trace: str
    remarks: tuple[str, ...] = ()

    def plan(self, slo: float, search: str = DEFAULT) -> Plan:
        """The cheapest plan found for an SLO in seconds. Raises NoPlanError."""
        planner = Planner(
            lanes=[
                Lane(
                    stage.name,
                    self.shares[stage.name],
                    self.options[stage.name],
                    None if stage.coding is None else (stage.coding.k, stage.coding.rows),
                    self._after(stage.after),
                )
                for stage in self.pipeline.spec.stages
                if stage.name in self.options
            ],
            counts={name: kind.count for name, kind in self.catalogue.kinds.items()},
            estimate=self.estimate,
            arrivals=self.arrivals,
            slo=slo,
        )
        return self._written(SEARCHES[search](planner), planner)

    def _written(self, found: Found, planner: Planner) -> Plan:
        service_time = planner.service_time(found.config)
        widths = windows(min(service_time, LONGEST))
        seconds = max(float(self.arrivals[-1] - self.arrivals[0]), 1e-9)
        rate = len(self.arrivals) / seconds
        spec = self.pipeline.spec
        plan = Plan(
            pipeline=spec.name,
            digest=self.pipeline.digest,
            slo=planner.slo,
            cost=found.cost,
            p99=p99_of(found.latencies),
            misses=float((found.latencies > planner.slo).mean()),
            trace=TraceFacts(
                name=self.trace, queries=len(self.arrivals), seconds=seconds, rate=rate, service_time=service_time
            ),
            envelope=tuple(zip(widths, envelope(self.arrivals, widths), strict=True)),
            stages={lane.name: self._stage(lane, found.config[lane.name], rate) for lane in planner.lanes},
            kept={stage.name: stage.worker_count for stage in spec.stages if stage.name not in self.options},
            limits={name: kind.count for name, kind in self.catalogue.kinds.items() if kind.count is not None},
            steps=tuple(
                f"{step.text}; cost {step.cost:.4g}, p99 {show_duration(float(f'{step.p99:.3g}'))}"
                for step in found.steps
            ),
            remarks=self.remarks + self._kept(),
        )
        tight = remark(plan, spec.model_copy(update={"slo": planner.slo}))
        return plan if tight is None else plan.model_copy(update={"remarks": (*plan.remarks, tight)})

    def _after(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The nearest stages before that are planned."""
        spec = self.pipeline.spec
        found = ((name,) if name in self.options else self._after(spec.stage(name).after) for name in names)
        return tuple(dict.fromkeys(each for nearest in found for each in nearest))

    def _stage(self, lane: Lane, choice: Choice, rate: float) -> PlannedStage:
        option, throughput = choice.option, choice.option.throughput(choice.batch)
        sizes = sorted({1, *(1 << power for power in range(choice.batch.bit_length())), choice.batch})
        return PlannedStage(
            hardware=option.kind,
            runs=self.catalogue.kinds[option.kind].runs,
            count=choice.workers,
            batch=choice.batch,
            price=option.price,
            load=option.load,
            share=lane.share,
            throughput=throughput,
            ratio=rate * lane.share / (choice.workers * throughput),
            takes={size: option.duration(size) - option.overhead for size in sizes},
            parity=lane.units(choice.workers) - choice.workers,
        )

    def _kept(self) -> tuple[str, ...]:
        kept = [stage.name for stage in self.pipeline.spec.stages if not can_be_planned(stage)]
        if not kept:
            return ()
        return (f"{', '.join(kept)}: not planned (a state, several fronts or copies), and not part of the cost",)
