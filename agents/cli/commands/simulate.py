"""`spillway simulate`: a trace through the simulator, and the report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from spillway.agents.cli.options import (
    FACTOR,
    choose_option,
    html_option,
    json_option,
    pipeline_argument,
    plan_period_option,
    positive,
    seconds,
    sizes,
)
from spillway.agents.cli.policies import POLICY, load_warned, require_policies
from spillway.agents.cli.summary import EMULATED, FOLLOWED, deliver, progress_bar, writing
from spillway.agents.sim.observe import Observer
from spillway.agents.sim.simulation import simulate as run
from spillway.agents.whatif.assumptions import assume
from spillway.agents.whatif.traffic import Sizes, resized
from spillway.producers.load import recorded, traces
from spillway.producers.recording import is_recording, read_recording

if TYPE_CHECKING:
    from spillway.agents.sim.plan import Dispatch


def _numbers(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, ...] | Sizes | None:
    if value is not None and "=" in value:
        return sizes(context, parameter, (value,))[0]
    try:
        return None if value is None else tuple(int(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(
            f"{value!r} is neither a list of numbers such as 5,3,4 nor sizes such as detect=2"
        ) from None


@click.command()
@pipeline_argument
@click.argument("trace")
@click.option(
    "--workers",
    callback=_numbers,
    metavar="N,N,...",
    help="Model instances of every stage, or of some as STAGE=N,...  [default: the file's]",
)
@click.option(
    "--dispatch",
    type=click.Choice(["worker", "shared", "partition"]),
    default="partition",
    show_default=True,
    help="worker: a queue per instance, in turn; shared: one queue per stage; partition: a queue per replica, as live.",
)
@click.option("--slo", callback=positive, metavar="SECONDS", help="Use this SLO, not the pipeline's; also as 400ms.")
@click.option("--scale", type=FACTOR, default=1.0, show_default=True, help="Multiply the number of requests.")
@click.option("--speed", type=FACTOR, default=1.0, show_default=True, help="Multiply the speed of the trace.")
@click.option("--duration", callback=positive, metavar="SECONDS", help="Use only so much of the trace, from its start.")
@click.option("--policy", type=POLICY, help="Use this policy, not the pipeline's; with parameters as pard:quantile=.2.")
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of arrivals, partitions and choices.")
@click.option(
    "--hop",
    callback=seconds,
    metavar="SECONDS",
    help="How long a message takes into each stage, and back to the client.  [default: as recorded, else 4 ms]",
)
@choose_option
@click.option(
    "--recording",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="Take hops, choices and missing durations from this recording.  [default: TRACE, if that is a recording]",
)
@click.option(
    "--report",
    "output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the report there, as JSON.",
)
@plan_period_option
@html_option
@json_option
def simulate(
    pipeline: Path,
    trace: str,
    *,
    workers: tuple[int, ...] | Sizes | None,
    dispatch: Dispatch,
    slo: float | None,
    scale: float,
    speed: float,
    duration: float | None,
    policy: str | None,
    seed: int,
    hop: float | None,
    recording: Path | None,
    choose: dict[str, dict[str, float]],
    output: Path | None,
    plan_period: float | None,
    html: Path | None,
    as_json: bool,
) -> None:
    """Run TRACE through the simulator and report.

    The stages of PIPELINE decide as live ones do, in virtual time; profiles replace their models. TRACE is a CSV file
    (second,requests or t,..., .gz too), a recording's directory, or constant:RATE, poisson:RATE, gamma:RATE,CV with
    --duration. Information that a trace lacks is assumed, and printed first: the duration of a hop, and the choices of
    stages with 'choose'. Write a choice of several successors with '+': '--choose ink=classify+count:.97,classify:.03'.
    The same seed gives the same report.

    \b
    Example:
      spillway simulate examples/video/pipeline.yaml trace.csv --workers 5,3,2,3,4
      spillway simulate examples/video/pipeline.yaml poisson:150 --duration 60 --policy expired --json
    """  # noqa: D301 - click's own marks
    loaded = load_warned(pipeline)
    if slo is not None:
        loaded = loaded.for_slo(slo)  # with the batches that are planned for it
    if isinstance(workers, dict):
        loaded, workers = resized(loaded, {"workers": workers}), None
    require_policies(loaded, policy)
    if not traces.is_process(trace) and is_recording(Path(trace)):
        arrivals = recorded(read_recording(Path(trace)), seed=seed, scale=scale, speed=speed, duration=duration).due
    else:
        arrivals = traces.arrivals(trace, seed=seed, scale=scale, speed=speed, duration=duration)
    assumed = assume(loaded, trace, recording, hop, choose)
    for sentence in assumed.told:
        click.echo(f"assumed: {sentence}", err=True)
    observer = None if html is None else Observer(every=max(1, len(arrivals) // FOLLOWED))
    with progress_bar("simulating", len(arrivals)) as progress:
        result = run(
            loaded,
            arrivals,
            workers=workers,
            dispatch=dispatch,
            policy=policy,
            slo=slo,
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
