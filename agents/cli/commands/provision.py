"""`spillway plan provision`: the cheapest hardware, counts and batch limits whose estimated p99 keeps the SLO."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from spillway.agents.cli.options import (
    FILE,
    choose_option,
    html_option,
    json_option,
    pipeline_argument,
    positive,
    seconds,
    trace_duration_option,
)
from spillway.agents.sim.estimator import Estimator
from spillway.agents.whatif.traffic import read_traffic
from spillway.lineage.errors import UsageError
from spillway.lineage.metric_names import GATE
from spillway.topology.capacity.hardware import options_of, read_catalogue
from spillway.topology.capacity.plan import write_plan
from spillway.topology.capacity.provisioning import Provisioning, first_sizes
from spillway.topology.capacity.search import DEFAULT, SEARCHES
from spillway.topology.load import load
from spillway.topology.profiles import read_profile_file
from spillway.topology.quantities import show_duration

if TYPE_CHECKING:
    from pathlib import Path

    from spillway.agents.whatif.traffic import Traffic
    from spillway.topology.capacity.hardware import Catalogue, Option
    from spillway.topology.capacity.plan import Plan
    from spillway.topology.load import Pipeline


@click.command()
@pipeline_argument
@click.argument("trace")
@click.option("--slo", callback=positive, metavar="TIME", help="Use this SLO, not the pipeline's; also as 150ms.")
@click.option(
    "--hardware", type=FILE, required=True, metavar="FILE", help="Hardware catalogue: kinds and their prices."
)
@click.option("--profiles", type=FILE, metavar="FILE", help="Durations of models.  [default: the pipeline's 'profile']")
@click.option("-o", "--output", type=FILE, metavar="FILE", help="Write the plan there, as YAML.")
@click.option("--search", type=click.Choice(list(SEARCHES)), default=DEFAULT, show_default=True, help="How to search.")
@click.option(
    "--hop", callback=seconds, metavar="TIME", help="Time of a hop between stages.  [default: as recorded, else 4 ms]"
)
@click.option(
    "--gate", callback=seconds, metavar="TIME", help="Time from the last stage to the answer.  [default: --hop]"
)
@click.option("--overhead", callback=seconds, metavar="TIME", help="Time of a batch beyond its model.  [default: 0]")
@trace_duration_option
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of arrivals and choices.")
@choose_option
@html_option
@json_option
def provision(
    pipeline: Path,
    trace: str,
    *,
    slo: float | None,
    hardware: Path,
    profiles: Path | None,
    output: Path | None,
    search: str,
    hop: float | None,
    gate: float | None,
    overhead: float | None,
    duration: float | None,
    seed: int,
    choose: dict[str, dict[str, float]],
    html: Path | None,
    as_json: bool,
) -> None:
    """Find the cheapest plan for PIPELINE that answers 99 of 100 queries of TRACE within the SLO.

    TRACE is a recording's directory, whose queries take their recorded paths, or a trace or process as for `whatif`.
    Profiles come from `spillway plan profile`; figures of other hardware are in the same file. With --html, the cost
    over the SLO is planned too.

    \b
    Example:
      spillway plan provision examples/inferline/social.yaml gamma:150,1 --duration 600 --slo 150ms \\
        --hardware examples/inferline/hardware.yaml --profiles examples/inferline/profiles.yaml -o plan.yaml
    """  # noqa: D301 - click's own marks
    loaded = load(pipeline, profiled=profiles is None)
    traffic = read_traffic(loaded, trace, seed=seed, duration=duration, hop=hop, choices=choose)
    options = _options(loaded, hardware, profiles, overhead or 0.0)
    made = _provisioning(loaded, traffic, *options, choose, gate, seed)
    objective = loaded.spec.slo if slo is None else slo
    plan = made.plan(objective, search)
    if output is not None:
        write_plan(output, plan)
    if as_json:
        click.echo(plan.model_dump_json(by_alias=True))
    else:
        _tell(plan, output)
    if html is not None:
        from spillway.agents.pages import plan_page  # noqa: PLC0415 - takes a second to import

        plan_page.write(html, plan, made, search)


def _options(
    pipeline: Pipeline, hardware: Path, profiles: Path | None, overhead: float
) -> tuple[Catalogue, dict[str, tuple[Option, ...]]]:
    catalogue = read_catalogue(hardware)
    if profiles is None:
        named = pipeline.written.profile
        if named is None:
            raise UsageError(
                f"{pipeline.path} has no profile file; make one ('spillway plan profile') or give --profiles"
            )
        profiles = pipeline.path.parent / named
    return catalogue, options_of(pipeline, catalogue, read_profile_file(profiles), str(profiles), overhead)


def _provisioning(
    pipeline: Pipeline,
    traffic: Traffic,
    catalogue: Catalogue,
    options: dict[str, tuple[Option, ...]],
    choose: dict[str, dict[str, float]],
    gate: float | None,
    seed: int,
) -> Provisioning:
    unplanned = [stage for stage in pipeline.spec.stages if stage.name not in options]
    left = [stage.name for stage in unplanned if stage.unmeasured and stage.name not in pipeline.durations]
    told = "; ".join(f"{name} has {pipeline.spec.stage(name).unmeasured}" for name in left)
    if not options:
        raise UsageError(f"{pipeline.path}: there is no stage to plan{': ' if told else ''}{told}")
    alone = f"not planned, and estimated to take no time: {told}. Leave it some of the SLO with --slo"
    pipeline = replace(pipeline, durations={**dict.fromkeys(left, lambda _size: 1e-9), **pipeline.durations})
    stages = [stage.name for stage in pipeline.spec.stages]
    choosers = [stage.name for stage in pipeline.spec.stages if stage.choose is not None]
    chosen = (
        {}
        if traffic.history is None
        else {name: [path.get(name) for path in traffic.history.paths] for name in choosers if name not in choose}
    )
    estimator = Estimator(
        pipeline,
        traffic.due,
        choices=traffic.choices,
        chosen=chosen,
        hops={**dict.fromkeys(stages, traffic.hop), GATE: traffic.hop if gate is None else gate},
        sizes=first_sizes(options),
        seed=seed,
    )
    if estimator.remark is not None:
        click.echo(f"note: {estimator.remark}", err=True)  # before minutes of silence
    remarks = [*[alone] * bool(left), *traffic.notes, *([] if estimator.remark is None else [estimator.remark])]
    if any(option.emulated for each in options.values() for option in each):
        remarks.append("figures of emulated hardware are emulated")
    return Provisioning(
        pipeline, catalogue, options, estimator, estimator.shares, estimator.due, traffic.name, tuple(remarks)
    )


def _tell(plan: Plan, output: Path | None) -> None:
    table = Table("stage", "hardware", "workers", "batch", "price", "share", "queries/s", "load", box=None)
    for name, stage in plan.stages.items():
        workers = f"{stage.count} + {stage.parity} parity" if stage.parity else str(stage.count)
        figures = f"{(stage.count + stage.parity) * stage.price:.3f}", f"{stage.share:.2f}"
        load = f"{stage.count * stage.throughput:,.0f}", f"{stage.ratio:.0%}"
        table.add_row(name, stage.hardware, workers, str(stage.batch), *figures, *load)
    for name, count in plan.kept.items():
        table.add_row(name, "as the file says", str(count))
    console = Console(highlight=False)
    for number, step in enumerate(plan.steps, start=1):
        click.echo(f"{number:3}. {step}")
    console.print(table)
    click.echo(
        f"cost {plan.cost:.3f} per hour; p99 {1e3 * plan.p99:.1f} ms for an SLO of {show_duration(plan.slo)}, "
        f"{100 * plan.misses:.2f} % late of {plan.trace.queries:,} queries at {plan.trace.rate:.1f}/s (estimated)"
    )
    for remark in plan.remarks:
        click.echo(f"note: {remark}")
    if output is not None:
        click.echo(f"written to {output}")
