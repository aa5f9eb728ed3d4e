"""`python -m benchmarks pard`: the headlines of PARD's evaluation, from the simulator, side by side."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

from benchmarks.output import fill_in, markdown_option
from benchmarks.pard import ablations, matrix
from benchmarks.pard.cases import Setting, real_traces
from spillway.agents.cli.options import json_option

if TYPE_CHECKING:
    from pathlib import Path

SECONDS, QUICK_SECONDS = 240, 30
SECTIONS = {"matrix": matrix, "ablations": ablations}


@click.command()
@click.option("--only", multiple=True, type=click.Choice(list(SECTIONS)), help="This section; may be repeated.")
@click.option("--seconds", type=click.IntRange(10), help=f"Of each trace.  [default: {SECONDS}]")
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True, help="Traces of each shape.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes.")
@click.option("--quick", is_flag=True, help="Short traces, one seed, a few cells: whether it works.")
@markdown_option
@json_option
def pard(
    *,
    only: tuple[str, ...],
    seconds: int | None,
    seeds: int,
    workers: int,
    quick: bool,
    markdown: Path | None,
    as_json: bool,
) -> None:
    """Show the headlines of PARD's evaluation for all policies, from the simulator, beside the paper's numbers.

    Each section is repeated over seeds. Accelerators are emulated; traces are generated to the paper's burstiness, and
    real ones are added where ../shared/traces has them.

    \b
    Example:
      python -m benchmarks pard --only matrix --seeds 5
    """  # noqa: D301 - click's own marks
    length = seconds or (QUICK_SECONDS if quick else SECONDS)
    setting = Setting(length, (0,) if quick else tuple(range(seeds)), workers, quick)
    found: dict[str, Any] = {}
    tables: dict[str, str] = {}
    for name in only or SECTIONS:
        began = time.monotonic()
        found[name] = SECTIONS[name].measure(setting)
        tables[name] = "\n".join(table.markdown() for table in SECTIONS[name].tables(found[name]))
        click.echo(f"{name} took {time.monotonic() - began:.0f} s", err=True)
    fill_in(markdown, tables)
    traces = ", ".join(real_traces()) or "none here (../shared/traces is absent)"
    text = [f"## {name}\n\n{table}" for name, table in tables.items()]
    text.append(f"All accelerators are emulated. Real traces: {traces}.")
    click.echo(json.dumps(found, indent=2) if as_json else "\n".join(text))
