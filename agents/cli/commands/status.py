"""`spillway status`: what the processes of a served pipeline do, found through the run directory."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from spillway.agents.cli.options import json_option, name_argument, run_dir_option
from spillway.agents.supervise.table import details, plan_table, state_table, table, variant_table
from spillway.agents.supervise.view import View

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rich.table import Table

_INTERVAL_SECONDS = 1.0


@click.command()
@name_argument
@run_dir_option
@click.option("--watch", is_flag=True, help="Refresh until Ctrl-C.")
@json_option
def status(pipeline: str | None, run_dir: Path, *, watch: bool, as_json: bool) -> int:
    """Show what the processes of a served pipeline do.

    PIPELINE is a pipeline's file or its name. Its learners are shown below it. Without it, all pipelines that are
    served from here are shown. Rates and means cover the last second; counts run from a process's start. The second
    table holds the latest status that replicas exchanged: queueing delay, planned and recent batches, the profiled and
    measured duration of a planned batch, load (arrivals divided by capacity), the order of the queue, and silent
    replicas. For stateful stages, each member's role, epoch, version and lag are shown; for a stage with variants, each
    variant's state and workers. Below the table it is said if Kafka does not answer, and if queries wait and none was
    answered for 3 s. The exit code is 1 if nothing is served, if Kafka does not answer, or if a process is gone, does
    not answer, has stopped a partition whose log lost records, or keeps dying (three deaths or more without 12 s of
    service in between).

    \b
    Example: spillway status --watch
    """  # noqa: D301 - click's own marks
    view = View(run_dir, None if pipeline is None else [pipeline])
    view.read()
    if not view.found:
        what = f"no process of {pipeline}" if pipeline is not None else "nothing"
        click.echo(json.dumps({"pipelines": {}}) if as_json else f"{what} is served under {run_dir}", err=not as_json)
        return 1
    if not watch:
        time.sleep(_INTERVAL_SECONDS)
        view.read()
        view.ask_kafka()
        _show(view, as_json=as_json)
        return 0 if view.healthy else 1
    return _watch(view, as_json=as_json)


def _watch(view: View, *, as_json: bool) -> int:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    console = Console()
    try:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                time.sleep(_INTERVAL_SECONDS)
                view.read()
                view.ask_kafka()
                if as_json or not console.is_terminal:
                    _show(view, as_json=as_json)
                else:
                    live.update(Group(*_tables(view, console.width)), refresh=True)
    except KeyboardInterrupt:  # the way to end watching
        return 0


def _tables(view: View, width: int) -> Iterator[Table | Text]:
    """For each pipeline its processes, and below what they tell one another and what there is to say of them."""
    for name, rows in view.rows().items():
        yield table(rows, name)
        if policies := view.policies(name):
            yield Text(policies)
        yield from map(Text, view.troubles(name))
        for place in view.flapping(name):
            yield Text(f"{place} keeps dying and is restarted each time")
        if unseen := view.unseen(name):
            yield Text(f"of other machines, or gone: {', '.join(unseen)}")
        plan, states = view.plan(name), view.states(name)
        if states:
            yield state_table(states)
        if variants := view.variants(name):
            yield variant_table(variants)
        if plan:
            yield plan_table(plan, view.period(name), width)
        yield from (Text(text) for row in rows if row.figures is not None for text in details(row.figures))


def _show(view: View, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(view.as_json()))
        return
    console = Console(highlight=False)  # where it is no terminal, of 80 characters
    console.print(*_tables(view, console.width), sep="\n")
