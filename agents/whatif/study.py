"""The study: the recorded configuration first, held to the recording, then every alternative, on the same queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from spillway.agents.sim.simulation import simulate
from spillway.agents.whatif.figures import Fates, Figures, figures
from spillway.agents.whatif.traffic import Alternative, Measured, resized
from spillway.lineage.errors import UsageError
from spillway.producers.report import DROPPED

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from spillway.agents.sim.observe import SimulationResult
    from spillway.agents.sim.plan import Dispatch
    from spillway.agents.whatif.traffic import Traffic
    from spillway.topology.load import Pipeline


# How far the simulator is to be trusted on this traffic: its prediction of what was recorded, held to the recording.
#
# Each figure has a tolerance, and a margin: the difference as a multiple of the tolerance. The worst margin gives the
# verdict: close (at most 1), rough (at most 2.5) or poor. The tolerances are those that this project asks of its own
# simulator against its live pipelines: a drop rate within .5 points or a fifth, a median latency within 5 ms or a
# tenth, a 99th percentile within 10 ms or a fifth; a stage's drops within .5 points of all queries or a quarter.

CLOSE, ROUGH, POOR = "close", "rough", "poor"
ROUGH_MARGIN: Final = 2.5
_ADVICE: Final = {
    CLOSE: "differences in the table that are larger than these errors are real",
    ROUGH: "trust only differences in the table that are several times larger than these errors",
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
    for stage, drops in recorded.drops_per_stage.items():
        expected = predicted.drops_per_stage.get(stage, 0)
        checks.append(_share(f"drops at {stage}", drops / requests, expected / requests, 0.25))
    worst = max(check.margin for check in checks)
    return Verdict(CLOSE if worst <= 1 else ROUGH if worst <= ROUGH_MARGIN else POOR, tuple(checks))


def _share(name: str, recorded: float, predicted: float, part: float) -> Check:
    return Check(name, recorded, predicted, max(0.005, part * recorded), "%")


Durations = Literal["profile", "recorded"]
RECORDED, PREDICTED = "recorded", "predicted"


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration: its name, its figures, and what became of each counted query."""

    label: str
    policy: str
    period: float | None  # seconds between two synchronisations of its policies; None: not known
    figures: Figures
    fates: Fates


@dataclass(frozen=True, slots=True)
class Study:
    """What a study found. Without a recording, `recorded`, `predicted` and `verdict` are None."""

    pipeline: str
    traffic: str
    stages: tuple[str, ...]
    dispatch: str
    hop: float
    recorded: Row | None
    predicted: Row | None
    verdict: Verdict | None
    rows: tuple[Row, ...]
    notes: tuple[str, ...]
    emulated: bool

    @property
    def all_rows(self) -> list[Row]:
        return [row for row in (self.recorded, self.predicted, *self.rows) if row is not None]

    def as_json(self) -> dict[str, Any]:
        def told(row: Row | None) -> dict[str, Any] | None:
            if row is None:
                return None
            return {"label": row.label, "policy": row.policy, "plan_period_s": row.period} | row.figures.as_json()

        return {
            "pipeline": self.pipeline,
            "traffic": self.traffic,
            "dispatch": self.dispatch,
            "hop_ms": round(1000 * self.hop, 3),
            "recorded": told(self.recorded),
            "predicted": told(self.predicted),
            "verdict": None if self.verdict is None else self.verdict.as_json(),
            "alternatives": [told(row) for row in self.rows],
            "notes": list(self.notes),
            "emulated": self.emulated,
        }


def study(
    pipeline: Pipeline,
    traffic: Traffic,
    wanted: Sequence[Alternative],
    *,
    dispatch: Dispatch = "partition",
    durations: Durations = "profile",
    period: float | None = None,
    seed: int = 0,
    progress: Callable[[int], None] = lambda _done: None,
) -> Study:
    """Simulate the recorded configuration and every alternative. `progress` hears how many simulations are done.

    `durations`: profiles first, and the recording's for stages without one; or the recording's first. `dispatch` is the
    alternatives'; the recorded configuration is simulated as it ran, by partition, and with the period
    that was recorded. `period`: seconds of the policies' synchronisation (None: as each alternative's policies say).
    """
    told: list[str] = []
    recorded = predicted = verdict = None
    if traffic.recorded is not None and traffic.history is not None:
        runner = _Runner(traffic, "partition", durations, traffic.period or period, seed, told)
        recorded = _recorded(traffic)
        predicted = runner.row(traffic.recorded, Alternative(), PREDICTED)
        if traffic.period is None:
            told.append(
                "the recording does not say how often stages exchanged their state: its configuration is "
                f"simulated with {predicted.period:g} s"
            )
        verdict = judge(recorded.figures, predicted.figures)
        progress(1)
    runner = _Runner(traffic, dispatch, durations, period, seed, told)
    rows = []
    for number, alternative in enumerate(wanted, start=2):
        rows.append(runner.row(pipeline, alternative, alternative.label))
        progress(number)
    return Study(
        pipeline=pipeline.spec.name,
        traffic=traffic.name,
        stages=tuple(stage.name for stage in pipeline.spec.stages),
        dispatch=dispatch,
        hop=traffic.hop,
        recorded=recorded,
        predicted=predicted,
        verdict=verdict,
        rows=tuple(rows),
        notes=(*traffic.notes, *dict.fromkeys(told)),
        emulated=any(stage.emulated is not None for stage in pipeline.spec.stages),
    )


class _Runner:
    """Simulates configurations on one traffic."""

    def __init__(
        self,
        traffic: Traffic,
        dispatch: Dispatch,
        durations: Durations,
        period: float | None,
        seed: int,
        told: list[str],
    ) -> None:
        self._traffic, self._measured = traffic, traffic.measured()
        self._dispatch: Dispatch = dispatch
        self._period, self._seed, self._prefer, self._told = period, seed, durations, told

    def row(self, pipeline: Pipeline, alternative: Alternative, label: str) -> Row:
        traffic = self._traffic
        changed = pipeline if alternative.slo is None else pipeline.for_slo(alternative.slo)
        changed = resized(changed, alternative.sizes)
        budget = traffic.budget if alternative.slo is None else np.full(len(traffic.due), alternative.slo)
        choosers = {stage.name for stage in changed.spec.stages if stage.choose is not None}
        result = simulate(
            changed,
            traffic.due,
            dispatch=self._dispatch,
            policy=alternative.policy,
            slo=alternative.slo,
            seed=self._seed,
            choices={name: choice for name, choice in traffic.choices.items() if name in choosers},
            durations=self._durations(changed),
            hop_delay=traffic.hop,
            period=self._period,
            budgets=budget,
            partitions=traffic.partition,
            hops=traffic.hops,
        )
        return Row(label, result.policy, result.period, *self._reckon(result, budget))

    def _reckon(self, result: SimulationResult, budget: NDArray[np.float64]) -> tuple[Figures, Fates]:
        counted = self._traffic.counted
        fates = Fates(
            result.due[counted],
            (result.finished - result.due)[counted],
            result.kind[counted],
            budget[counted],
            result.spent[counted],
        )
        drops = {name: totals.dropped for name, totals in result.stages.items()}
        batches = {name: totals.queries / max(1, totals.batches) for name, totals in result.stages.items()}
        return figures(fates, drops, batches), fates

    def _durations(self, pipeline: Pipeline) -> dict[str, Callable[[int], float]]:
        found: dict[str, Callable[[int], float]] = {}
        for stage in pipeline.spec.stages:
            known, seen = pipeline.durations.get(stage.name), self._measured.get(stage.name)
            chosen = (seen or known) if self._prefer == "recorded" else (known or seen)
            if chosen is None:
                raise UsageError(
                    f"stage {stage.name} has no profile, and the traffic does not show how long its batches take: "
                    f"run 'spillway plan profile {pipeline.path}', or use a recording with more traffic"
                )
            if known is None:
                alone = isinstance(chosen, Measured) and chosen.sizes == 1
                self._told.append(
                    f"stage {stage.name} has no profile: its durations are taken from the recording"
                    + (", which shows only one batch size: larger batches will seem too fast" if alone else "")
                )
            found[stage.name] = chosen
        return found


def _recorded(traffic: Traffic) -> Row:
    past, counted = traffic.history, traffic.counted
    assert past is not None
    fates = Fates(
        past.due[counted], past.latency[counted], past.kind[counted], traffic.budget[counted], past.spent[counted]
    )
    drops = dict.fromkeys(past.stages, 0)
    for index in np.flatnonzero(counted & (past.kind == DROPPED)).tolist():
        drops[past.lost_at[index]] = drops.get(past.lost_at[index], 0) + 1
    batches = {name: stage.queries / stage.batches for name, stage in past.stages.items() if stage.batches}
    policies: Mapping[str, None] = dict.fromkeys(
        stage.policy or "" for stage in (traffic.recorded.spec.stages if traffic.recorded is not None else ())
    )
    return Row(RECORDED, "/".join(policies), traffic.period, figures(fates, drops, batches), fates)
