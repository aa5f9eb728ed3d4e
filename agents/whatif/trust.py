"""How far the simulator is to be trusted on this traffic: its prediction of what was recorded, held to the recording.

Each figure has a tolerance, and a margin: the difference as a multiple of the tolerance. The worst margin gives the
verdict: close (at most 1), rough (at most 2.5) or poor. The tolerances are those that this project asks of its own
simulator against its live pipelines: a drop rate within .5 points or a fifth, a median latency within 5 ms or a
tenth, a 99th percentile within 10 ms or a fifth; a stage's drops within .5 points of all queries or a quarter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from agents.whatif.figures import Figures

CLOSE, ROUGH, POOR = "close", "rough", "poor"
ROUGH_MARGIN: Final = 2.5
_ADVICE: Final = {
    CLOSE: "differences in the table that are larger than these can be taken as real",
    ROUGH: "take only differences in the table as real that are several times as large as these",
    POOR: "do not trust the table: see the notes, record under more load, or renew the profiles",
}


@dataclass(frozen=True, slots=True)
class Check:
    """One figure of the recorded configuration."""

    name: str
    recorded: float
    predicted: float
    tolerance: float
    unit: str  # "%" for shares (told in points), "ms" for seconds

    @property
    def difference(self) -> float:
        return self.predicted - self.recorded

    @property
    def margin(self) -> float:
        return abs(self.difference) / self.tolerance

    @property
    def text(self) -> str:
        if self.unit == "%":
            return f"{self.name} within {100 * abs(self.difference):.2f} points"
        return f"{self.name} within {1000 * abs(self.difference):.1f} ms"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How close the prediction came."""

    level: str
    checks: tuple[Check, ...]

    @property
    def text(self) -> str:
        told = ", ".join(check.text for check in self.checks if not check.name.startswith("drops at"))
        worst = max(
            (check for check in self.checks if check.name.startswith("drops at")),
            key=lambda check: check.margin,
            default=None,
        )
        stages = f"; {worst.text}" if worst is not None and worst.difference else ""
        return f"{self.level}: {told}{stages}; {_ADVICE[self.level]}"

    def as_json(self) -> dict[str, Any]:
        checks = {
            check.name: {"recorded": check.recorded, "predicted": check.predicted, "margin": check.margin}
            for check in self.checks
        }
        return {"level": self.level, "text": self.text, "checks": checks}


def judge(recorded: Figures, predicted: Figures) -> Verdict:
    checks = [_share("drop rate", recorded.drop_rate, predicted.drop_rate, 0.2)]
    for name, was, will, least, part in (
        ("p50", recorded.p50, predicted.p50, 0.005, 0.1),
        ("p99", recorded.p99, predicted.p99, 0.010, 0.2),
    ):
        if was is not None and will is not None:
            checks.append(Check(name, was, will, max(least, part * was), "ms"))
    requests = max(1, recorded.requests)
    for stage, drops in recorded.drops.items():
        checks.append(_share(f"drops at {stage}", drops / requests, predicted.drops.get(stage, 0) / requests, 0.25))
    worst = max(check.margin for check in checks)
    return Verdict(CLOSE if worst <= 1 else ROUGH if worst <= ROUGH_MARGIN else POOR, tuple(checks))


def _share(name: str, recorded: float, predicted: float, part: float) -> Check:
    return Check(name, recorded, predicted, max(0.005, part * recorded), "%")
