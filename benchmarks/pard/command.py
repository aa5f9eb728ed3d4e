"""`spillway bench pard`: the figures of PARD's evaluation, from the simulator, side by side."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from agents.bench.pard import ablations, costs, curves, matrix, plots, scale_up, stages, timeline
from agents.bench.pard.cases import Runner, real_traces
from agents.bench.pard.output import fill_in, read_section, write_section
from agents.bench.pard.sections import ALL, Section, Setting, no_charts
from agents.cli.options import json_option
from agents.cli.progress import progress_bar
from lineage.errors import UsageError

OUTPUT = Path("results") / "pard"
SECONDS, QUICK_SECONDS = 240, 30
SEEDS = (0, 1, 2)

SECTIONS = {
    section.name: section
    for section in (
        Section("matrix", "drop, invalid, goodput", matrix.measure, matrix.tables, plots.draw_matrix),
        Section("windows", "worst windows", matrix.measure_windows, matrix.window_tables, plots.draw_windows),
        Section("slo", "tight SLOs", curves.measure_slo, curves.slo_tables, plots.draw_slo),
        Section("scaling", "replicas added by load", scale_up.measure, scale_up.tables, plots.draw_scaling),
        Section("stress", "goodput beyond capacity", curves.measure_stress, curves.stress_tables, plots.draw_stress),
        Section("stages", "drops, waits, budgets", stages.measure, stages.tables, plots.draw_stages),
        Section("ablations", "each beside the paper's", ablations.measure, ablations.tables, no_charts),
        Section(
            "sensitivity",
            "lambda, window, period, burstiness",
            curves.measure_sensitivity,
            curves.sensitivity_tables,
            plots.draw_sensitivity,
        ),
        Section("mu", "mu, order, single requests", timeline.measure, timeline.tables, plots.draw_timeline),
        Section("cost", "a decision's cost", costs.measure_cost, costs.cost_tables, no_charts),
        Section("speed", "the simulator's speed", costs.measure_speed, costs.speed_tables, no_charts),
    )
}


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(SECTIONS)), help="This section; may be repeated.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), default=OUTPUT, show_default=True)
@click.option("--seconds", type=click.IntRange(10), help=f"Of each trace.  [default: {SECONDS}]")
@click.option("--seeds", type=click.IntRange(1), default=len(SEEDS), show_default=True, help="Traces of each shape.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@click.option("--without", multiple=True, type=click.Choice(["spillway"]), help="Leave this policy out.")
@click.option("--quick", is_flag=True, help="Short traces, one seed, a few points: whether it works.")
@click.option("--long", is_flag=True, help="Also the simulator's speed with 1e7 requests: some minutes.")
@click.option("--render", is_flag=True, help="Measure nothing; make tables and charts of what was measured before.")
@click.option(
    "--markdown",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Put the tables between FILE's marks <!-- begin SECTION --> and <!-- end SECTION -->.",
)
@json_option
def pard(
    *,
    only: tuple[str, ...],
    output: Path,
    seconds: int | None,
    seeds: int,
    workers: int,
    without: tuple[str, ...],
    quick: bool,
    long: bool,
    render: bool,
    markdown: Path | None,
    as_json: bool,
) -> None:
    """Show every figure of PARD's evaluation for all policies, from the simulator, beside the paper's numbers.

    Each section is repeated over seeds and writes NAME.json, NAME.md and charts to the output folder. Accelerators are
    emulated; traces are generated to the paper's burstiness, and real ones are added where ../shared/traces has them.

    \b
    Example:
      spillway bench pard --only matrix --seeds 5
      spillway bench pard --render --markdown docs/pard.md
    """  # noqa: D301 - click's own marks
    names = only or tuple(SECTIONS)
    if render and quick:
        raise UsageError("--render measures nothing, so --quick has nothing to shorten: give one of them")
    length = seconds or (QUICK_SECONDS if quick else SECONDS)
    found: dict[str, Any] = {}
    tables: dict[str, str] = {}
    with progress_bar("measuring", len(names)) as progress:
        own = (0,) if quick else tuple(range(seeds))
        setting = Setting(Runner(workers), length, own, quick=quick, long=long, without=without)
        for number, name in enumerate(names):
            result = _stored(output, name) if render else _measured(setting, SECTIONS[name])
            if result is not None:
                found[name] = result
                tables[name] = _write(output, SECTIONS[name], result)
            progress(number + 1)
    if markdown is not None:
        click.echo(f"{markdown}: {', '.join(fill_in(markdown, tables)) or 'no marks of these sections'}", err=True)
    click.echo(json.dumps(found, indent=2) if as_json else _text(tables, setting, output, render=render))


def _stored(output: Path, name: str) -> dict[str, Any] | None:
    result = read_section(output, name)
    if result is None:
        click.echo(f"{output / name}.json is not there: {name} was not measured", err=True)
    return result


def _measured(setting: Setting, section: Section) -> dict[str, Any]:
    before, used = time.monotonic(), time.process_time()
    result = section.measure(setting)
    wall, used = time.monotonic() - before, time.process_time() - used
    return result | {"took": {"wall_seconds": round(wall, 1), "processor_seconds": round(used, 1)}}


def _write(output: Path, section: Section, result: dict[str, Any]) -> str:
    made = section.tables(result)
    write_section(output, section.name, result, made)
    section.draw(result, output)
    return "\n".join(table.markdown() for table in made)


def _text(tables: dict[str, str], setting: Setting, output: Path, *, render: bool) -> str:
    lines = [f"## {name}: {SECTIONS[name].about}\n\n{table}" for name, table in tables.items()]
    absent = [name for name in ALL if name not in setting.policies()]
    notes = [
        "All accelerators are emulated.",
        f"Real traces: {', '.join(real_traces()) or 'none here (../shared/traces is absent)'}.",
    ]
    if absent:
        notes.append(f"Not measured: policy {', '.join(absent)}.")
    if not render:
        cost = setting.runner.cost
        notes.append(f"{cost['cases']} simulations, {cost['stage_visits']:,} stage visits.")
    return "\n".join([*lines, " ".join(notes), f"Written to {output}."])
