"""Estimated against measured latencies (Figure 4.8), and threads against processes (4.13): plans served live.

The thesis' pipelines run on emulated accelerators, five times slower (`examples.inferline.slowed`); two of them also
with models that compute, on this machine's cores. A plan is made for a trace and served on that trace. What a hop
takes, and by how much a batch takes a worker up for longer than the model, is measured on a few queries before, one at
a time, and given to the Estimator. The verdict is `spillway whatif`'s.
"""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import click
import numpy as np

from benchmarks.inferline.scene import CHOICES, gamma
from benchmarks.live_cell import mean_of
from benchmarks.live_cell import slowed as slowed_by
from benchmarks.output import Table
from benchmarks.scene import exchange, kafka, serve
from examples.inferline import slowed
from spillway.agents.cli.commands.profile import profile
from spillway.agents.sim.estimator import POLICY, Estimator
from spillway.agents.whatif.figures import Fates, figures
from spillway.agents.whatif.study import judge
from spillway.lineage.metric_names import GATE, OVERHEAD_SECONDS
from spillway.producers.load import generated
from spillway.producers.load.generator import Pace, run_load
from spillway.producers.report import PREDICTION
from spillway.topology.capacity.hardware import options_of, read_catalogue
from spillway.topology.capacity.plan import read_plan, write_plan
from spillway.topology.capacity.provisioning import Provisioning, first_sizes
from spillway.topology.capacity.served import planned
from spillway.topology.load import load
from spillway.topology.profiles import read_profile_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from benchmarks.inferline.scene import Times
    from spillway.producers.connection import ClientSettings
    from spillway.producers.load.payloads import Payload
    from spillway.topology.load import Pipeline

RATE, CV2, SECONDS = 30.0, 4.0, 40.0
CORES_RATE: Final = 20.0  # queries a second to models that compute
SIDE: Final = 192  # pixels of an image to them
HOP, OVERHEAD = 0.01, 0.002  # what a plan counts on
ALONE: Final = np.arange(0.0, 6.0, 0.5)  # when queries come that wait for nothing
GRACE: Final = 20.0
_STAGE: Final = (
    '  - {{name: {}, model: "benchmarks.inferline.models:{}", batching: {{max: 8}}, '
    "workers: {{where: {}, timeout: 120s}}{}}}"
)
_CORES: Final = "spillway-hardware: 1\nkinds:\n  core: {price: 0.05, runs: core}\n"
_UNSURE: Final = ', choose: "examples.inferline.choices:unsure"'
_REAL: Final = {
    "image-models": ("image", "thread", ("preprocess", "Preprocess", ""), ("classify", "Classify")),
    "cascade-thread": ("cascade", "thread", ("fast", "Fast", _UNSURE), ("slow", "Classify")),
    "cascade-process": ("cascade", "process", ("fast", "Fast", _UNSURE), ("slow", "Classify")),
}
"""By name: the pipeline whose ways its queries go, where workers live, and its two stages."""
_INPUTS: Final[dict[str, Callable[[str], dict[str, Any]]]] = {
    "social": lambda way: {"language": "fr" if "translate" in way else "en"},
    "video": lambda way: {name: True for name in way.split("+") if name},
    "cascade": lambda way: {"sure": 0.0 if way == "slow" else 1.0},
}
"""By pipeline, the inputs of a query that is to go a way, as examples.inferline.choices reads them."""
_EMULATED: Final = (
    f"Gamma traffic, cv2 {CV2:g}, {SECONDS:g} s; {RATE:g}/s, SLO 750 ms: a fifth of the thesis' rate, five times its "
    "SLO and durations, emulated. But image-models and cascade-* are convolutional networks on this machine's cores: "
    f"{CORES_RATE:g}/s, SLO 300 ms; the workers of cascade-thread are threads, those of cascade-process processes."
)
_CLOSE: Final = (
    "Thesis: close to each other and below the SLO in all four; the cascade does as well on either of two serving "
    "systems (4.13). Close: p50 within 5 ms or a tenth, p99 within 10 ms or a fifth, misses within half a point or a "
    "fifth; rough: within 2.5 times that."
)


@dataclass(frozen=True, slots=True)
class Case:
    """A pipeline, its hardware, and what it is asked. `of`: the pipeline whose ways its queries go."""

    name: str
    of: str
    file: Path
    hardware: Path
    profiles: Path
    rate: float
    payload: Payload


def live(_repeats: int) -> list[Table]:
    """Figures 4.8 and 4.13: one run each."""
    made = []
    with kafka() as (work, settings):
        for case in _cases(work):
            made.append(compare(case, settings, work))
            click.echo(" | ".join(made[-1]), err=True)
    columns = (
        *("pipeline", "plan", "hop, ms", "beyond a batch, ms", "p50 estimated, ms", "measured"),
        *("p99 estimated, ms", "measured", "misses estimated, %", "measured", "verdict"),
    )
    return [Table("Estimated and measured, live (Figures 4.8 and 4.13)", columns, made, (_EMULATED, _CLOSE))]


def _cases(folder: Path) -> Iterator[Case]:
    profiles, cores = slowed.profiles_file(folder), folder / "cores.yaml"
    for which in CHOICES:
        file = slowed.pipeline_file(which, which, folder)
        yield Case(which, which, file, slowed.HARDWARE, profiles, RATE, payload_of(which))
    cores.write_text(_CORES, encoding="utf-8")
    for name, (of, where, first, last) in _REAL.items():
        file, measured = folder / f"{name}.yaml", folder / f"{name}.profile.yaml"
        stages = [_STAGE.format(*first[:2], where, first[2]), _STAGE.format(*last, where, f", after: {first[0]}")]
        text = "\n".join([f"name: {name}", "slo: 300ms", *(["sinks: all"] if first[2] else []), "stages:", *stages, ""])
        file.write_text(text, encoding="utf-8")
        words = [str(file), "--sample", "benchmarks.inferline.live:image", "--output", str(measured)]
        with redirect_stdout(sys.stderr):
            profile.main([*words, "--batches", "1,2,4,8", "--runs", "10"], standalone_mode=False)
        file.write_text(f"profile: {measured.name}\n{text}", encoding="utf-8")
        yield Case(name, of, file, cores, measured, CORES_RATE, image)


def image(index: int, rng: np.random.Generator) -> dict[str, Any]:
    """A query to models that compute."""
    return {**payload_of("cascade")(index, rng), "image": rng.integers(0, 256, (SIDE, SIDE), np.uint8)}


def payload_of(which: str) -> Payload:
    """Queries that go each way as often as is assumed of a pipeline."""

    def make(index: int, rng: np.random.Generator) -> dict[str, Any]:
        inputs: dict[str, Any] = {"index": index}
        for chances in CHOICES[which].values():
            way = str(rng.choice(list(chances), p=list(chances.values())))
            inputs |= _INPUTS[which](way)
        return inputs

    return make


def compare(case: Case, settings: ClientSettings, folder: Path) -> list[str]:
    """Plan for a trace, serve the plan on it, and hold the Estimator to what came of that."""
    pipeline, due = load(case.file), gamma(case.rate, CV2, SECONDS, 0)
    catalogue, known = read_catalogue(case.hardware), read_profile_file(case.profiles)
    options = options_of(pipeline, catalogue, known, str(case.profiles), OVERHEAD)
    estimator = _estimator(case, pipeline, due, HOP, sizes=first_sizes(options))
    made = Provisioning(pipeline, catalogue, options, estimator, estimator.shares, due, "live")
    file = folder / f"{case.name}.plan.yaml"
    write_plan(file, made.plan(pipeline.spec.slo))
    plan = read_plan(file)
    as_planned = planned(pipeline, plan)
    with (
        serve(as_planned, settings, folder / "run", policy=POLICY, sizes=("--sizes", str(file))),
        exchange(settings, case.name) as sending,
    ):
        pace = Pace(slo=plan.slo, grace=GRACE)
        alone = run_load(sending, generated(ALONE, case.payload, seed=0), pace)
        names = [stage.name for stage in pipeline.spec.stages]
        overheads = {name: mean_of(folder / "run", case.name, OVERHEAD_SECONDS, name) for name in names}
        result = run_load(sending, generated(due, case.payload, seed=0), pace)
    as_served = replace(as_planned, durations=slowed_by(as_planned.durations, overheads))
    hop = _hop(case, as_served, alone.finished - alone.due)
    budget = np.full(len(due), plan.slo)
    estimated = _estimator(case, as_served, due, hop)({})
    assert estimated is not None  # any number may be late
    kinds = np.full(len(due), PREDICTION, dtype=result.kind.dtype)
    will = figures(Fates(due, estimated, kinds, budget, np.zeros(len(due))), {}, {})
    was = figures(Fates(due, result.finished - due, result.kind, budget, result.spent), {}, {})
    sizes = ", ".join(f"{stage.count} {stage.hardware} x {stage.batch}" for stage in plan.stages.values())
    cells = [f"{1e3 * (each or 0.0):.0f}" for each in (will.p50, was.p50, will.p99, was.p99)]
    misses = [f"{100 * each.drop_rate:.2f}" for each in (will, was)]
    beyond = f"{1e3 * max(overheads.values()):.1f}"
    return [case.name, sizes, f"{1e3 * hop:.1f}", beyond, *cells, *misses, judge(was, will).level]


def _estimator(case: Case, pipeline: Pipeline, due: Times, hop: float, **options: Any) -> Estimator:
    places = [*(stage.name for stage in pipeline.spec.stages), GATE]
    return Estimator(pipeline, due, choices=CHOICES[case.of], hops=dict.fromkeys(places, hop), **options)


def _hop(case: Case, pipeline: Pipeline, latencies: Times) -> float:
    """Seconds of a hop, by what queries took that waited for nothing, their ways being as likely as assumed."""
    without, with_seconds = (_estimator(case, pipeline, 100 * np.arange(500.0), hop)({}) for hop in (0.0, 1.0))
    assert without is not None  # any number may be late
    assert with_seconds is not None
    return max(0.0, float((latencies.mean() - without.mean()) / (with_seconds - without).mean()))
