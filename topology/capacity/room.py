"""Whether a plan leaves `pard` room, which judges by planned batches: they may be far larger than those that form.

Eq. 3 adds up d of planned batches along the worst path. Where that is past the SLO for a query that waits for nothing
(the plan's `service_time`, of batches of one), `pard` drops nearly all. One of the slowest hundredth takes the plan's
p99 with the batches that form, and by eq. 3 as much more as planned ones are longer. `_SLACK` is from simulated plans
of random pipelines (test_room.py): up to there `pard` drops a few in a hundred at most.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from spillway.topology.quantities import show_duration
from spillway.topology.spec import EmulatedSpec

if TYPE_CHECKING:
    from spillway.topology.capacity.plan import Plan, PlannedStage
    from spillway.topology.spec import PipelineSpec

PLANNED: Final = "pard"
RECENT: Final = "pard:duration=recent"
_SLACK: Final = 1.05  # of the SLO: what eq. 3 may expect of the slowest hundredth


def policy_for(plan: Plan, spec: PipelineSpec) -> str:
    """Return the policy that fits: `pard` as it is, or with the durations of the batches that form."""
    _, alone, slowest = _expected(plan, spec)
    return PLANNED if alone <= spec.slo and slowest <= _SLACK * spec.slo else RECENT


def remark(plan: Plan, spec: PipelineSpec) -> str | None:
    """Return what to say of a plan whose batches leave `pard` no room; None of another."""
    if policy_for(plan, spec) == PLANNED:
        return None
    longer, alone, slowest = (show_duration(float(f"{each:.3g}")) for each in _expected(plan, spec))
    return (
        f"planned batches take {longer} more along a path than those that form at this load. '{PLANNED}' reckons with "
        f"planned ones: a query that never waits would take {alone}, and one of the slowest hundredth {slowest}, of an "
        f"SLO of {show_duration(spec.slo)}. That leaves no room, and drops queries that are in time: serve with "
        f"'--policy {RECENT}'"
    )


def _expected(plan: Plan, spec: PipelineSpec) -> tuple[float, float, float]:
    """Return by how much planned batches are longer than those that form, and what eq. 3 makes of the two queries."""
    after = {stage.name: stage.after for stage in spec.stages}

    @cache
    def until(name: str) -> tuple[float, float]:
        """Return the most by which planned batches are longer than those of one query, and than those that form."""
        one, formed = _differences(plan.stages[name], plan.trace.rate) if name in plan.stages else (0.0, 0.0)
        ones, those = zip((0.0, 0.0), *map(until, after[name]), strict=True)
        return one + max(ones), formed + max(those)

    ones, those = (max(each) for each in zip(*map(until, after), strict=True))
    return those, plan.trace.service_time + ones, plan.p99 + those


def _differences(stage: PlannedStage, rate: float) -> tuple[float, float]:
    """Return by how much a planned batch is longer than one of a query, and than one of what comes while it runs."""
    takes, each = EmulatedSpec(table=stage.takes).duration, rate * stage.share / stage.count
    full = takes(stage.batch)
    overhead = stage.batch / stage.throughput - full
    formed = next((size for size in range(1, stage.batch) if size > each * (takes(size) + overhead)), stage.batch)
    return full - takes(1), full - takes(formed)
