"""What a load's outcomes tell of single queries, beyond the tally: where each was lost, and the timings of some."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lineage.message import PREDICTION

if TYPE_CHECKING:
    from lineage.message import Outcome, StageTiming


@dataclass(slots=True)
class Witness:
    """Give its `observe` to the load's pace; timings are kept of one query in `every`, by index."""

    every: int = 1
    lost_at: dict[int, str] = field(default_factory=dict)  # stage
    timings: dict[int, list[StageTiming]] = field(default_factory=dict)

    def observe(self, index: int, outcome: Outcome) -> None:
        if outcome.kind != PREDICTION:
            self.lost_at[index] = outcome.stage
        if index % self.every == 0:
            self.timings[index] = outcome.timings
