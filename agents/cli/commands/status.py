"""`spillway status`: what the processes of a served pipeline do, found through the run directory."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from spillway.agents.cli.options import json_option, name_argument, run_dir_option
from spillway.agents.supervise.child import STANDBY
from spillway.agents.supervise.registry import Entry, ServeEntry, entries, with_learners
from spillway.agents.supervise.scrape import Figures, Snapshot, figures, scrape
from spillway.agents.supervise.table import (
    PlanRow,
    Row,
    StateRow,
    VariantRow,
    details,
    plan_rows,
    plan_table,
    state_rows,
    state_table,
    table,
    variant_rows,
    variant_table,
)
from spillway.lineage.errors import UsageError
from spillway.lineage.metric_names import PLACE, PLACE_FLAPPING, UNANSWERED_SECONDS
from spillway.producers.cluster import answers
from spillway.producers.connection import ClientSettings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table

_INTERVAL_SECONDS = 1.0
_ANSWER_SECONDS = 2.0  # that Kafka is given
_UNANSWERED_SECONDS = 3.0  # for which queries wait before it is said
_GONE, _SILENT = "gone", "not answering"


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
    view = _View(run_dir, pipeline)
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


def _watch(view: _View, *, as_json: bool) -> int:
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


def _tables(view: _View, width: int) -> Iterator[Table | Text]:
    """For each pipeline its processes, and below what they tell one another and what there is to say of them."""
    for name, rows in view.rows().items():
        yield table(rows, name)
        if policies := view.policies(name):
            yield Text(policies)
        yield from map(Text, view.troubles(name))
        for place in view.flapping(name):
            yield Text(f"{place} keeps dying and is restarted each time")
        plan, states = view.plan(name), view.states(name)
        if states:
            yield state_table(states)
        if variants := view.variants(name):
            yield variant_table(variants)
        if plan:
            yield plan_table(plan, view.period(name), width)
        yield from (Text(text) for row in rows if row.figures is not None for text in details(row.figures))


def _show(view: _View, *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(view.as_json()))
        return
    console = Console(highlight=False)  # where it is no terminal, of 80 characters
    console.print(*_tables(view, console.width), sep="\n")


class _View:
    """The entries of a run directory, each with its last two readings."""

    def __init__(self, run_dir: Path, pipeline: str | None) -> None:
        self.found: list[Entry] = []
        self._run_dir = run_dir
        self._pipeline = pipeline
        self._now: dict[int, Snapshot | None] = {}  # by process id
        self._before: dict[int, Snapshot | None] = {}
        self._flapping: frozenset[tuple[str, str]] = frozenset()  # pipelines, and names of their places
        self._gone: dict[str, str] = {}  # by pipeline whose Kafka does not answer: what to say
        self._unanswered: dict[str, float] = {}  # by pipeline, seconds

    @property
    def healthy(self) -> bool:
        """Whether Kafka and every process answer, none has stopped a partition, and none dies again and again."""
        return (
            not self._flapping
            and not self._gone
            and all(
                self._state(entry) not in {_GONE, _SILENT} and not ((now := self._now.get(entry.pid)) and now.stopped)
                for entry in self.found
            )
        )

    def read(self) -> None:
        which = [None] if self._pipeline is None else with_learners(self._run_dir, self._pipeline)
        self.found = [entry for each in which for entry in entries(self._run_dir, each)]
        self._before = self._now
        self._now = {
            entry.pid: scrape(entry, time.monotonic()) if entry.alive() and entry.role != STANDBY else None
            for entry in self.found
        }
        told = {name: self._supervisor(name) for name in {entry.pipeline for entry in self.found}}
        self._flapping = frozenset(
            (name, place) for name, seen in told.items() if seen for place in seen.marked(PLACE_FLAPPING, PLACE)
        )
        self._unanswered = {name: seen.value(UNANSWERED_SECONDS) for name, seen in told.items() if seen}

    def ask_kafka(self) -> None:
        pipelines = {entry.pipeline for entry in self.found}
        self._gone = {name: text for name in pipelines if (text := _silent_kafka(self._served(name)))}

    def troubles(self, pipeline: str) -> list[str]:
        """What to say of a pipeline as a whole."""
        said = [self._gone[pipeline]] if pipeline in self._gone else []
        waited = self._unanswered.get(pipeline, 0.0)
        if waited >= _UNANSWERED_SECONDS:
            said.append(f"nothing was answered for {waited:.0f} s while queries wait")
        return said

    def _supervisor(self, pipeline: str) -> Snapshot | None:
        served = self._served(pipeline)
        return scrape(served, time.monotonic()) if served is not None and served.port else None

    def rows(self) -> dict[str, list[Row]]:
        made: dict[str, list[Row]] = {}
        for entry in self.found:
            flaps = (entry.pipeline, entry.name) in self._flapping
            state = self._state(entry) + (", flaps" if flaps else "")
            made.setdefault(entry.pipeline, []).append(Row(entry.name, state, self._figures(entry)))
        return made

    def flapping(self, pipeline: str) -> list[str]:
        return sorted(place for name, place in self._flapping if name == pipeline)

    def plan(self, pipeline: str) -> list[PlanRow]:
        of = (self._now.get(entry.pid) for entry in self.found if entry.pipeline == pipeline)
        return plan_rows(snapshot for snapshot in of if snapshot is not None)

    def states(self, pipeline: str) -> list[StateRow]:
        of = ((entry.name, self._now.get(entry.pid)) for entry in self.found if entry.pipeline == pipeline)
        return state_rows((name, snapshot) for name, snapshot in of if snapshot is not None)

    def variants(self, pipeline: str) -> list[VariantRow]:
        of = ((entry.stage, self._now.get(entry.pid)) for entry in self.found if entry.pipeline == pipeline)
        return variant_rows((stage, snapshot) for stage, snapshot in of if snapshot is not None)

    def period(self, pipeline: str) -> float | None:
        """Seconds between two words of a replica, as the pipeline is served; None where nobody says."""
        served = self._served(pipeline)
        return None if served is None else served.plan_period

    def policies(self, pipeline: str) -> str:
        """What the stages of a pipeline run with, in words; empty where nobody says."""
        served = self._served(pipeline)
        return "" if served is None else served.policies

    def as_json(self) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for entry in self.found:
            known = self._figures(entry)
            served = self._served(entry.pipeline)
            pipeline = made.setdefault(
                entry.pipeline,
                {
                    "bootstrap": None if served is None else served.bootstrap,
                    "policies": None if served is None else served.policies,
                    "plan_period": None if served is None else served.plan_period,
                    "processes": {},
                },
            )
            pipeline["processes"][entry.name] = {
                "stage": entry.stage,
                "replica": entry.replica,
                "pid": entry.pid,
                "port": entry.port,
                "metrics": f"http://{entry.host}:{entry.port}/metrics" if entry.port else None,
                "state": self._state(entry),
                "figures": known.as_json() if known is not None else None,
            }
        for name, pipeline in made.items():
            pipeline["flapping"] = self.flapping(name)
            pipeline["kafka"] = self._gone.get(name)
            pipeline["unanswered_seconds"] = self._unanswered.get(name)
            pipeline["states"] = {row.name: row.as_json() for row in self.states(name)}
            pipeline["variants"] = [row.as_json() for row in self.variants(name)]
            pipeline["plan"] = {f"{row.stage}.{row.replica}": row.as_json() for row in self.plan(name)}
        return {"pipelines": made}

    def _served(self, pipeline: str) -> ServeEntry | None:
        served = ServeEntry.read(self._run_dir, pipeline)
        return served if served is not None and served.alive() else None

    def _state(self, entry: Entry) -> str:
        if not entry.alive():
            return _GONE
        if entry.role == STANDBY:  # it counts nothing yet
            return STANDBY if entry.ready else "starting"
        if self._now.get(entry.pid) is None:
            return _SILENT
        return "running" if entry.ready else "starting"

    def _figures(self, entry: Entry) -> Figures | None:
        now = self._now.get(entry.pid)
        return figures(entry, now, self._before.get(entry.pid)) if now is not None else None


def _silent_kafka(served: ServeEntry | None) -> str:
    """Return a line if the Kafka of a served pipeline does not answer; empty where it does, or is not known."""
    if served is None:
        return ""
    file = None if served.client_config is None else Path(served.client_config)
    try:
        settings = ClientSettings.load(served.bootstrap, file)
    except UsageError as error:
        return f"cannot ask Kafka: {error}"
    where = f"Kafka at {served.bootstrap} does not answer: no query can come in or be answered"
    return "" if answers(settings, _ANSWER_SECONDS) else where
