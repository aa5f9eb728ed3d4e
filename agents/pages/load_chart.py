"""Chart of how loaded each stage was over time, and when it took the high budgets first (PARD, section 4.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

_SHADES: Final = plt.get_cmap("viridis")
_STRIPE: Final = 0.03  # of the chart's height: a stage's times of High Budget First


@dataclass(frozen=True, slots=True)
class StageLoad:
    """One stage, with an element for each synchronisation of the policies."""

    at: NDArray[np.float64]  # seconds
    mu: NDArray[np.float64]  # arrivals by capacity
    high: NDArray[np.bool_]  # whether most replicas take the high budgets first


def loads(axes: Axes, stages: Mapping[str, StageLoad]) -> None:
    """Mu of each stage; below, a stripe where it took the high budgets first."""
    top = max([1.2, *(float(stage.mu.max()) for stage in stages.values() if len(stage.mu))]) * 1.05
    for number, (name, stage) in enumerate(stages.items()):
        colour = _SHADES((number + 0.5) / len(stages))
        axes.plot(stage.at, stage.mu, color=colour, linewidth=1.0, label=name)
        low, high = -_STRIPE * top * (number + 1), -_STRIPE * top * number
        axes.fill_between(stage.at, low, high, where=stage.high, step="post", color=colour, linewidth=0)
    axes.axhline(1.0, color="black", linewidth=0.8, linestyle="--")
    axes.set(xlabel="seconds (stripes: high budgets first)", ylabel="load: arrivals by capacity")
    axes.set(ylim=(-_STRIPE * top * (len(stages) + 1), top), xlim=(0, None))
    axes.legend(frameon=False, fontsize=7, ncols=2)
