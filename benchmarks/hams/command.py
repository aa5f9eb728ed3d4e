"""`python -m benchmarks hams`: stateful stages under every mode of replication, live and side by side."""

from __future__ import annotations

import json
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from benchmarks.hams import false_failovers, hold, latency, recovery, standbys
from benchmarks.hams.progress import Progress
from benchmarks.hams.services import MODES, SERVICES
from benchmarks.hams.setting import Section, Setting
from benchmarks.output import fill_in, markdown_option
from benchmarks.scene import kafka
from benchmarks.stolen import StolenMeter, with_note
from spillway.agents.cli.options import json_option
from spillway.lineage.errors import UsageError

OUTPUT = Path("results") / "hams"
SIZES = (1, 8, 16, 32, 64, 128)

SECTIONS = {
    "latency": Section(latency.measure_latency, latency.tables),
    "emulated": Section(latency.measure_emulated, latency.tables),
    "sizes": Section(latency.measure_sizes, latency.tables),
    "recovery": Section(recovery.measure_recovery, recovery.tables),
    "standby": Section(standbys.measure_standbys, standbys.tables),
    "hold": Section(hold.measure_hold, hold.tables),
    "false-failovers": Section(false_failovers.measure_false_failovers, false_failovers.tables),
}


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(SECTIONS)), help="This section; may be repeated.")
@click.option("--service", "services", multiple=True, type=click.Choice(list(SERVICES)), help="This service alone.")
@click.option("--mode", "modes", multiple=True, type=click.Choice(MODES), help="This mode, beside none.")
@click.option("--size", "sizes", multiple=True, type=click.IntRange(1), help="This batch size alone.")
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True)
@click.option("--bursts", type=click.IntRange(2), default=12, show_default=True, help="Batches a run.")
@click.option("--minutes", type=click.FloatRange(min=0.1), default=10.0, show_default=True, help="Of false-failovers.")
@click.option("--again", type=click.IntRange(0), default=0, help="Times to repeat a run that the host slowed much.")
@click.option("--rate", type=click.FloatRange(0.5), help="Queries/s in recovery.  [default: each service's own]")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), default=OUTPUT, show_default=True)
@click.option("--go-on", is_flag=True, help="Keep earlier results of latency, emulated, sizes and recovery.")
@click.option("--render", is_flag=True, help="Measure nothing; make the tables from earlier results.")
@markdown_option
@json_option
def hams(
    *,
    only: tuple[str, ...],
    services: tuple[str, ...],
    modes: tuple[str, ...],
    sizes: tuple[int, ...],
    repeats: int,
    bursts: int,
    minutes: float,
    again: int,
    rate: float | None,
    output: Path,
    go_on: bool,
    render: bool,
    markdown: Path | None,
    as_json: bool,
) -> None:
    """Measure what it costs to replicate states, and how soon a backup takes over, beside the paper's numbers.

    Each section serves its pipelines (benchmarks/hams/pipelines) on a Kafka of its own, one after the other, in turn
    over the modes, and writes NAME.json to the output folder. Run it on a machine that does nothing else.

    \b
    Example:
      python -m benchmarks hams --only latency --service bandit --repeats 5
      python -m benchmarks hams --render --markdown docs/results/hams.md
    """  # noqa: D301 - click's own marks
    names = only or tuple(SECTIONS)
    found: dict[str, Any] = {}
    tables: dict[str, str] = {}
    progress = Progress(output, go_on=go_on)
    with ExitStack() as stack:
        setting = None
        if not render:
            work, cluster = stack.enter_context(kafka())
            setting = Setting(
                cluster,
                work,
                lambda text: click.echo(text, err=True),
                services or tuple(SERVICES),
                ("none", *(mode for mode in modes or MODES if mode != "none")),
                sizes or SIZES,
                repeats,
                bursts,
                minutes,
                progress,
                rate,
                again,
            )
        for name in names:
            section = SECTIONS[name]
            result = progress.read(name) if setting is None else _measured(section, setting)
            if result is not None:
                found[name] = result
                progress.write(name, result)
                tables[name] = "\n".join(table.markdown() for table in with_note(section.tables(result), result))
    if not found:
        raise UsageError(f"nothing was measured in {output} yet: run without --render")
    fill_in(markdown, tables)
    click.echo(json.dumps(found, indent=2) if as_json else "\n".join(tables.values()))


def _measured(section: Section, setting: Setting) -> dict[str, Any]:
    began, meter = time.monotonic(), StolenMeter()
    result = section.measure(setting)
    return result | {"took_seconds": round(time.monotonic() - began, 1), "stolen": meter.share()}
