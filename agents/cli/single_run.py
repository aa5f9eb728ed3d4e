"""One run of a trace through the simulator, and its report: what `spillway whatif --once` does."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from spillway.agents.cli.policies import require_policies
from spillway.agents.cli.summary import EMULATED, FOLLOWED, deliver, progress_bar
from spillway.agents.sim.observe import Observer
from spillway.agents.sim.simulation import simulate
from spillway.agents.whatif.assumptions import assume
from spillway.agents.whatif.traffic import resized
from spillway.producers.load import traces
from spillway.producers.load.generator import recorded
from spillway.producers.recording import read_recording

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.agents.whatif.traffic import Alternative
    from spillway.topology.load import Pipeline


def run(loaded: Pipeline, trace: str, wanted: Alternative, options: Mapping[str, Any], *, as_json: bool) -> None:
    """Run a pipeline as `wanted` on a trace or a recording's arrivals, and report as `replay` does.

    `options` are the command's.
    """
    if wanted.slo is not None:
        loaded = loaded.for_slo(wanted.slo)  # with the batches that are planned for it
    loaded = resized(loaded, wanted.sizes)
    require_policies(loaded, wanted.policy)
    drawn = {name: options[name] for name in ("seed", "scale", "speed", "duration")}
    if Path(trace).is_dir():
        arrivals = recorded(read_recording(Path(trace), partial(click.echo, err=True)), **drawn).due
    else:
        arrivals = traces.arrivals(trace, **drawn)
    assumed = assume(loaded, trace, options["recording"], options["hop"], options["choose"])
    for sentence in assumed.told:
        click.echo(f"assumed: {sentence}", err=True)
    html: Path | None = options["html"]
    observer = None if html is None else Observer(every=max(1, len(arrivals) // FOLLOWED))
    with progress_bar("simulating", len(arrivals)) as progress:
        result = simulate(
            loaded,
            arrivals,
            dispatch=options["dispatch"],
            policy=wanted.policy,
            slo=wanted.slo,
            seed=options["seed"],
            choices=assumed.choices,
            durations=assumed.durations,
            hop_delay=assumed.hop,
            period=options["plan_period"],
            observer=observer,
            progress=progress,
        )
    report = result.report(trace, options["duration"])
    emulated = any(stage.emulated is not None for stage in loaded.spec.stages)
    deliver(report, options["output"], as_json=as_json, instead=EMULATED if emulated else "simulated")
    if html is not None and observer is not None:
        from spillway.agents.pages import run_report, visits  # noqa: PLC0415 - takes a second to import

        series, loads = visits.simulated_series(result, observer), visits.stage_loads(loaded, result, observer)
        run_report.write(html, report, *series, loads)
