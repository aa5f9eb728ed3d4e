"""Estimated against measured latencies (Figure 4.8): plans served live.

The thesis' pipelines run on emulated accelerators, five times slower (`examples.inferline.slowed`). A plan is made for
a trace and served on that trace. What a hop takes, and by how much a batch takes a worker up for longer than the model,
is measured on a few queries before, one at a time, and given to the Estimator. The verdict is `spillway whatif`'s.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import click
import numpy as np

from benchmarks.inferline.scene import CHOICES, gamma
from benchmarks.live_cell import mean_of
from benchmarks.live_cell import slowed as slowed_by
from benchmarks.output import Table
from benchmarks.scene import exchange, kafka, serve
from examples.inferline import slowed
from spillway.agents.sim.estimator import POLICY, Estimator
from spillway.agents.whatif.figures import Fates, figures
from spillway.agents.whatif.study import judge
from spillway.lineage.metric_names import GATE, OVERHEAD_SECONDS
from spillway.producers.load.generator import Pace, generated, run_load
from spillway.producers.report import PREDICTION
from spillway.topology.capacity.hardware import options_of, read_catalogue
from spillway.topology.capacity.plan import read_plan, write_plan
from spillway.topology.capacity.provisioning import Provisioning, first_sizes
from spillway.topology.capacity.served import planned
from spillway.topology.load import load
from spillway.topology.profiles import read_profile_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from benchmarks.inferline.scene import Times
    from spillway.producers.connection import ClientSettings
    from spillway.producers.load.payloads import Payload
    from spillway.topology.load import Pipeline

RATE, CV2, SECONDS = 30.0, 4.0, 40.0
HOP, OVERHEAD = 0.01, 0.002  # what a plan counts on
ALONE: Final = np.arange(0.0, 6.0, 0.5)  # when queries come that wait for nothing
GRACE: Final = 20.0
_INPUTS: Final[dict[str, Callable[[str], dict[str, Any]]]] = {
    "social": lambda way: {"language": "fr" if "translate" in way else "en"},
    "video": lambda way: {name: True for name in way.split("+") if name},
    "cascade": lambda way: {"sure": 0.0 if way == "slow" else 1.0},
}
"""By pipeline, the inputs of a query that is to go a way, as examples.inferline.choices reads them."""
_ABOUT: Final = (
    f"Gamma traffic, cv2 {CV2:g}, {SECONDS:g} s; {RATE:g}/s, SLO 750 ms: a fifth of the thesis' rate, five times its "
    "SLO and durations, emulated. Thesis: close to each other and below the SLO. Close: p50 within 5 ms or a tenth, "
    "p99 within 10 ms or a fifth, misses within half a point or a fifth; rough: within 2.5 times that."
)


def live(_repeats: int) -> Table:
    """Figure 4.8: one run each."""
    made = []
    with kafka() as (work, settings):
        profiles = slowed.profiles_file(work)
        for name in CHOICES:
            made.append(_compared(name, slowed.pipeline_file(name, name, work), profiles, settings))
            click.echo(" | ".join(made[-1]), err=True)
    columns = (
        *("pipeline", "plan", "hop, ms", "beyond a batch, ms", "p50 estimated, ms", "measured"),
        *("p99 estimated, ms", "measured", "misses estimated, %", "measured", "verdict"),
    )
    return Table("Estimated and measured, live (Figure 4.8)", columns, made, (_ABOUT,))


def payload_of(which: str) -> Payload:
    """Queries that go each way as often as is assumed of a pipeline."""

    def make(index: int, rng: np.random.Generator) -> dict[str, Any]:
        inputs: dict[str, Any] = {"index": index}
        for chances in CHOICES[which].values():
            way = str(rng.choice(list(chances), p=list(chances.values())))
            inputs |= _INPUTS[which](way)
        return inputs

    return make


def _compared(name: str, file: Path, profiles: Path, settings: ClientSettings) -> list[str]:
    """Plan for a trace, serve the plan on it, and hold the Estimator to what came of that."""
    pipeline, due, folder = load(file), gamma(RATE, CV2, SECONDS, 0), file.parent
    catalogue, known = read_catalogue(slowed.HARDWARE), read_profile_file(profiles)
    options = options_of(pipeline, catalogue, known, str(profiles), OVERHEAD)
    estimator = _estimator(pipeline, due, HOP, sizes=first_sizes(options))
    made = Provisioning(pipeline, catalogue, options, estimator, estimator.shares, due, "live")
    file = folder / f"{name}.plan.yaml"
    write_plan(file, made.plan(pipeline.spec.slo))
    plan = read_plan(file)
    as_planned = planned(pipeline, plan)
    with (
        serve(as_planned, settings, folder / "run", policy=POLICY, sizes=("--sizes", str(file))),
        exchange(settings, name) as sending,
    ):
        pace = Pace(slo=plan.slo, grace=GRACE)
        alone = run_load(sending, generated(ALONE, payload_of(name), seed=0), pace)
        names = [stage.name for stage in pipeline.spec.stages]
        overheads = {stage: mean_of(folder / "run", name, OVERHEAD_SECONDS, stage) for stage in names}
        result = run_load(sending, generated(due, payload_of(name), seed=0), pace)
    as_served = replace(as_planned, durations=slowed_by(as_planned.durations, overheads))
    hop = _hop(as_served, alone.finished - alone.due)
    estimated = _estimator(as_served, due, hop)({})
    assert estimated is not None  # any number may be late
    budget, kinds = np.full(len(due), plan.slo), np.full(len(due), PREDICTION, dtype=result.kind.dtype)
    will = figures(Fates(due, estimated, kinds, budget, np.zeros(len(due))), {}, {})
    was = figures(Fates(due, result.finished - due, result.kind, budget, result.spent), {}, {})
    sizes = ", ".join(f"{stage.count} {stage.hardware} x {stage.batch}" for stage in plan.stages.values())
    cells = [f"{1e3 * (each or 0.0):.0f}" for each in (will.p50, was.p50, will.p99, was.p99)]
    misses = [f"{100 * each.drop_rate:.2f}" for each in (will, was)]
    beyond = f"{1e3 * max(overheads.values()):.1f}"
    return [name, sizes, f"{1e3 * hop:.1f}", beyond, *cells, *misses, judge(was, will).level]


def _estimator(pipeline: Pipeline, due: Times, hop: float, **options: Any) -> Estimator:
    places = [*(stage.name for stage in pipeline.spec.stages), GATE]
    return Estimator(pipeline, due, choices=CHOICES[pipeline.spec.name], hops=dict.fromkeys(places, hop), **options)


def _hop(pipeline: Pipeline, latencies: Times) -> float:
    """Seconds of a hop, by what queries took that waited for nothing, their ways being as likely as assumed."""
    without, with_seconds = (_estimator(pipeline, 100 * np.arange(500.0), hop)({}) for hop in (0.0, 1.0))
    assert without is not None  # any number may be late
    assert with_seconds is not None
    return max(0.0, float((latencies.mean() - without.mean()) / (with_seconds - without).mean()))
