"""One run of a trace through the simulator, and its report: what `spillway whatif --once` does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from spillway.agents.cli.policies import require_policies
from spillway.agents.cli.summary import EMULATED, FOLLOWED, deliver, progress_bar, writing
from spillway.agents.sim.observe import Observer
from spillway.agents.sim.simulation import simulate
from spillway.agents.whatif.assumptions import assume
from spillway.agents.whatif.traffic import resized
from spillway.producers.load import recorded, traces
from spillway.producers.recording import is_recording, read_recording

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.agents.sim.plan import Dispatch
    from spillway.agents.whatif.traffic import Alternative
    from spillway.topology.load import Pipeline


def run(
    loaded: Pipeline,
    trace: str,
    wanted: Alternative,
    *,
    dispatch: Dispatch,
    scale: float,
    speed: float,
    duration: float | None,
    seed: int,
    hop: float | None,
    recording: Path | None,
    choose: Mapping[str, Mapping[str, float]],
    plan_period: float | None,
    output: Path | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """Run a pipeline as `wanted` on a trace or a recording's arrivals, and report as `replay` does."""
    if wanted.slo is not None:
        loaded = loaded.for_slo(wanted.slo)  # with the batches that are planned for it
    loaded = resized(loaded, wanted.sizes)
    require_policies(loaded, wanted.policy)
    if not traces.is_process(trace) and is_recording(Path(trace)):
        arrivals = recorded(read_recording(Path(trace)), seed=seed, scale=scale, speed=speed, duration=duration).due
    else:
        arrivals = traces.arrivals(trace, seed=seed, scale=scale, speed=speed, duration=duration)
    assumed = assume(loaded, trace, recording, hop, choose)
    for sentence in assumed.told:
        click.echo(f"assumed: {sentence}", err=True)
    observer = None if html is None else Observer(every=max(1, len(arrivals) // FOLLOWED))
    with progress_bar("simulating", len(arrivals)) as progress:
        result = simulate(
            loaded,
            arrivals,
            dispatch=dispatch,
            policy=wanted.policy,
            slo=wanted.slo,
            seed=seed,
            choices=assumed.choices,
            durations=assumed.durations,
            hop_delay=assumed.hop,
            period=plan_period,
            observer=observer,
            progress=progress,
        )
    report = result.report(trace, duration)
    emulated = any(stage.emulated is not None for stage in loaded.spec.stages)
    deliver(report, output, as_json=as_json, instead=EMULATED if emulated else "simulated")
    if html is not None and observer is not None:
        from spillway.agents.pages import run_report, visits  # noqa: PLC0415 - takes a second to import

        series, loads = visits.simulated_series(result, observer), visits.stage_loads(loaded, result, observer)
        writing(html, lambda file: run_report.write(file, report, *series, loads))
