"""`python -m benchmarks pard`: the headlines of PARD's evaluation, from the simulator, side by side."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import click

from benchmarks.output import fill_in, read_section, write_section
from benchmarks.pard import ablations, matrix
from benchmarks.pard.cases import ALL, Setting, real_traces
from spillway.agents.cli.options import json_option
from spillway.agents.cli.summary import progress_bar
from spillway.lineage.errors import UsageError

OUTPUT = Path("results") / "pard"
SECONDS, QUICK_SECONDS = 240, 30
SEEDS = 3
SECTIONS = {"matrix": matrix, "ablations": ablations}


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(SECTIONS)), help="This section; may be repeated.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), default=OUTPUT, show_default=True)
@click.option("--seconds", type=click.IntRange(10), help=f"Of each trace.  [default: {SECONDS}]")
@click.option("--seeds", type=click.IntRange(1), default=SEEDS, show_default=True, help="Traces of each shape.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@click.option("--without", multiple=True, type=click.Choice(["spillway"]), help="Leave this policy out.")
@click.option("--quick", is_flag=True, help="Short traces, one seed, a few cells: whether it works.")
@click.option("--render", is_flag=True, help="Measure nothing; make tables of what was measured before.")
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
    render: bool,
    markdown: Path | None,
    as_json: bool,
) -> None:
    """Show the headlines of PARD's evaluation for all policies, from the simulator, beside the paper's numbers.

    Each section is repeated over seeds and writes NAME.json and NAME.md to the output folder. Accelerators are
    emulated; traces are generated to the paper's burstiness, and real ones are added where ../shared/traces has them.

    \b
    Example:
      python -m benchmarks pard --only matrix --seeds 5
      python -m benchmarks pard --render --markdown docs/results/pard.md
    """  # noqa: D301 - click's own marks
    names = only or tuple(SECTIONS)
    if render and quick:
        raise UsageError("--render measures nothing, so --quick has nothing to shorten: give one of them")
    length = seconds or (QUICK_SECONDS if quick else SECONDS)
    setting = Setting(length, (0,) if quick else tuple(range(seeds)), workers, quick, without)
    found: dict[str, Any] = {}
    tables: dict[str, str] = {}
    with progress_bar("measuring", len(names)) as progress:
        for number, name in enumerate(names):
            result = _stored(output, name) if render else _measured(setting, name)
            if result is not None:
                found[name] = result
                made = SECTIONS[name].tables(result)
                write_section(output, name, result, made)
                tables[name] = "\n".join(table.markdown() for table in made)
            progress(number + 1)
    if markdown is not None:
        click.echo(f"{markdown}: {', '.join(fill_in(markdown, tables)) or 'no marks of these sections'}", err=True)
    click.echo(json.dumps(found, indent=2) if as_json else _text(tables, setting, output))


def _stored(output: Path, name: str) -> dict[str, Any] | None:
    result = read_section(output, name)
    if result is None:
        click.echo(f"{output / name}.json is not there: {name} was not measured", err=True)
    return result


def _measured(setting: Setting, name: str) -> dict[str, Any]:
    began = time.monotonic()
    result: dict[str, Any] = SECTIONS[name].measure(setting)
    return result | {"took_seconds": round(time.monotonic() - began, 1)}


def _text(tables: dict[str, str], setting: Setting, output: Path) -> str:
    lines = [f"## {name}\n\n{table}" for name, table in tables.items()]
    notes = [
        "All accelerators are emulated.",
        f"Real traces: {', '.join(real_traces()) or 'none here (../shared/traces is absent)'}.",
    ]
    if absent := [name for name in ALL if name not in setting.policies()]:
        notes.append(f"Not measured: policy {', '.join(absent)}.")
    return "\n".join([*lines, " ".join(notes), f"Written to {output}."])
