"""A capacity plan as one HTML page: sizes, how they were found, what other SLOs would cost (InferLine, figure 4.9)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spillway.agents.pages.run_report import LOAD, LOST, svg_of, write_page
from spillway.topology.capacity.planner import NoPlanError
from spillway.topology.quantities import show_duration

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from spillway.topology.capacity.plan import Plan
    from spillway.topology.capacity.provisioning import Provisioning

_FACTORS: Final = (0.5, 0.75, 1.0, 1.5, 2.0, 3.0)  # of the plan's SLO


def write(path: Path, plan: Plan, made: Provisioning, search: str) -> None:
    found: dict[float, float] = {}  # cost per hour by SLO in milliseconds, of SLOs about the plan's
    without_plan = []
    for factor in _FACTORS:
        slo = factor * plan.slo
        try:
            found[1e3 * slo] = plan.cost if factor == 1 else made.plan(slo, search).cost
        except NoPlanError:
            without_plan.append(show_duration(slo))

    def draw(axes: Axes) -> None:
        axes.plot(list(found), list(found.values()), marker="o", color=LOAD)
        axes.axvline(1e3 * plan.slo, color=LOST, linewidth=0.9, linestyle="--", label="the plan's SLO")
        axes.set(xlabel="SLO, ms", ylabel="cost per hour", xlim=(0, None), ylim=(0, None))
        axes.legend(frameon=False, fontsize=8)

    write_page(path, "plan.html", plan=plan, chart=svg_of(draw, (8.0, 3.2)), without=without_plan)
