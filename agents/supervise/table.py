"""How a pipeline's processes look to a person: tables on a terminal, plain lines elsewhere."""

from __future__ import annotations

import logging
import math
import sys
import time
from dataclasses import dataclass, fields
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from spillway.agents import metrics as told
from spillway.agents.core.dispatch import WHY_PAUSED
from spillway.lineage import metric_names as names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import IO

    from spillway.agents.supervise.scrape import Figures, Snapshot

log = logging.getLogger(__name__)

_LINES_EVERY_SECONDS = 10.0


class _Optional:
    """A stream that may lose its reader (a pipe, a terminal): to serve and to drain goes on without one."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lost = False

    def write(self, text: str) -> int:
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        except OSError as error:
            if not self._lost:
                self._lost = True
                log.warning("%s takes nothing any more: %s", self._stream.name, error)


class Display:
    """Shows on stderr; stdout has one line, `ready`, for scripts that wait for it."""

    def __init__(self, title: str, *, quiet: bool) -> None:
        self._title = title
        self._quiet = quiet
        self._console = Console(stderr=True, highlight=False)
        self._console.file = cast("IO[str]", _Optional(self._console.file))
        self._console.soft_wrap = not self._console.is_terminal  # a terminal's lines break between words
        self._live: Live | None = None
        self._next_lines = time.monotonic() + _LINES_EVERY_SECONDS
        self._said: dict[str, str] = {}  # the last line of each process

    def __enter__(self) -> Self:
        if self._console.is_terminal and not self._quiet:
            self._live = Live(console=self._console, auto_refresh=False, transient=True, redirect_stdout=False)
            self._live.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        self._console.print(Text(text))  # without markup for the text alone: options go for the live table as well

    def ready(self) -> None:
        if self._live is not None and sys.stdout.isatty():
            self.say("ready")
        else:
            print("ready", file=_Optional(sys.stdout), flush=True)

    def show(self, rows: Sequence[Row]) -> None:
        if self._live is not None:
            self._live.update(table(rows, self._title), refresh=True)
        elif not self._quiet and time.monotonic() >= self._next_lines:
            self._next_lines = time.monotonic() + _LINES_EVERY_SECONDS
            self.tell(rows)

    def tell(self, rows: Sequence[Row]) -> None:
        """Say a line of each process of which it would be another one than the last time."""
        for row in rows:
            if self._said.get(row.name) != (text := line(row)):
                self._said[row.name] = text
                self.say(text)


_COLUMNS = ("process", "state", "wrk", "/s", "queue", "batch", "ms", "p99", "done", "drop", "fail", "dup")
_STYLES = {
    "running": "green",
    "failed": "bold red",
    "gone": "red",
    "starting": "yellow",
    "backing off": "yellow",
    "standby": "cyan",
}


@dataclass(frozen=True)
class Row:
    """One process: its name, its state in a word or two, and its figures where it answers."""

    name: str
    state: str
    figures: Figures | None
    restarts: int = 0

    @property
    def note(self) -> str:
        return f"({self.restarts} restart{'s' if self.restarts > 1 else ''})" if self.restarts else ""


def table(rows: Sequence[Row], title: str) -> Table:
    made = Table(title=title, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for column in _COLUMNS:
        made.add_column(
            column, justify="left" if column in {"process", "state"} else "right", no_wrap=column != "state"
        )
    for row in rows:
        style = _STYLES.get(row.state.split(",")[0], "")
        state = f"[{style}]{row.state}[/]" if style else row.state
        made.add_row(row.name, state + (f" ↻{row.restarts}" if row.restarts else ""), *cells(row.figures))
    return made


def line(row: Row) -> str:
    if row.figures is None:
        return f"{row.name}: {row.state} {row.note}".rstrip()
    workers, rate, queue, batch, latency, p99, done, dropped, failed, repeats = cells(row.figures)
    return (
        f"{row.name}: {row.state}, workers {workers}, {rate}/s, queue {queue}, batch {batch}, "
        f"latency {latency} ms (p99 {p99}), done {done}, dropped {dropped}, failed {failed}, "
        f"repeats suppressed {repeats} {row.note}"
    ).rstrip()


def cells(figures: Figures | None) -> tuple[str, ...]:
    """The figures as short texts, in the order of the columns; "-" for what is not known."""
    if figures is None:
        return ("-",) * (len(_COLUMNS) - 2)
    limit = f"/{figures.queue_limit}" if figures.queue_limit else ""
    done = figures.count("prediction") if figures.role == "gate" else figures.queries
    ready, wanted = figures.workers, figures.wanted
    return (
        "-" if not wanted else f"{ready}" if ready == wanted else f"{ready}/{wanted}",
        _number(figures.rate),
        f"{figures.queue}{limit}",
        "-" if figures.role == "gate" else _number(figures.batch),
        _milliseconds(figures.latency),
        _milliseconds(figures.latency_p99),
        str(done),
        str(figures.count("dropped")),
        str(figures.count("failed")),
        str(figures.duplicates),
    )


def details(figures: Figures) -> list[str]:
    """Outcomes by kind and reason, and dead letters by reason, a line each; nothing where there is none."""
    return [f"{figures.name}: {text}" for text in (*_of_queries(figures), *_of_workers(figures), *_of_gate(figures))]


def _of_queries(figures: Figures) -> Iterator[str]:
    for kind, reasons in figures.outcomes.items():
        for reason, count in reasons.items():
            yield f"{count} {kind}" + (f" ({reason})" if reason else "")
    for reason, count in figures.dead_letters.items():
        yield f"{count} dead letters ({reason})"
    for partition, offset in figures.stopped.items():
        yield f"partition {partition} is stopped: its log lost the records from offset {offset} (see the process's log)"
    if not math.isnan(figures.agreement):
        agreed = f"{100 * figures.agreement:.1f} % of reconstructed answers agree with the exact ones"
        yield f"{agreed} ({figures.graded} graded)"
    if figures.uncoded:
        yield f"coding is paused: {WHY_PAUSED.get(figures.uncoded, figures.uncoded)}"
    if figures.batch_unmet:
        unmet = "one query alone often takes longer than the objective of batches"
        yield f"{unmet}; they hold up to {figures.batch_limit}"


def _of_workers(figures: Figures) -> Iterator[str]:
    if figures.order:
        ready = "" if figures.workers == figures.wanted else f", {figures.workers} ready"
        yield f"{figures.wanted} workers wanted{ready}; ordered by {figures.order}"
    for member, counts in sorted(figures.caches.items()):
        yield f"{member}'s cache: {counts.get('hits', 0)} hits, {counts.get('misses', 0)} misses"
    if any(figures.versions):
        told = ", ".join(f"{version or 'none'} ({count})" for version, count in figures.versions.items())
        yield f"version of its model, and workers that have it: {told}"
    if figures.members:
        told = ", ".join(f"{name} {ready}/{wanted}" for name, (ready, wanted) in figures.members.items())
        yield f"members ready: {told}"
    if figures.ensemble:
        yield f"its ensemble was changed by {figures.ensemble}"
    for name, why in sorted(figures.troubles.items()):
        yield f"member {name} does not serve: {why}"
    for stage, what in sorted(figures.tuning.items()):
        yield f"{stage} is {what}"


def _of_gate(figures: Figures) -> Iterator[str]:
    if figures.role == "gate":
        yield f"{figures.good} good, {figures.late} late"
    counts = {
        "transactions aborted and done again": figures.aborted,
        "queries got the default outputs": figures.defaults,
        f"of {figures.combined} combined without all members": figures.partial,
    }
    yield from (f"{count} {what}" for what, count in counts.items() if count)
    if not math.isnan(figures.hold):
        waited = f"{_milliseconds(figures.hold)} ms (p99 {_milliseconds(figures.hold_p99)})"
        yield f"outcomes waited {waited} for versions to become durable"
    if not math.isnan(figures.marks):
        yield f"{_number(figures.marks)} bytes of marks per message"


def _number(value: float) -> str:
    return "-" if value != value else f"{value:.1f}"  # noqa: PLR0124 - NaN: nothing happened


def _milliseconds(seconds: float) -> str:
    return _number(seconds * 1000.0)


# What the replicas of a pipeline last told one another: how each stage fares, and who is silent.


@dataclass(frozen=True)
class PlanRow:
    """A replica's newest word that any process knows. Durations in seconds."""

    stage: str
    replica: int
    silent: bool  # it has aged out: policies go by the stage's profile
    age: float  # since it was said
    queueing: float
    batch: float  # planned
    recent_batch: float
    profile: float  # what a planned batch takes by its profile; 0 where there is none
    duration: float  # and as lately measured; 0 where it was not
    load: float  # mu of the whole stage
    high_first: bool
    arrivals: float
    completions: float
    drops: float
    backlog: float
    transfer: float  # median that a message takes into its queue; of the gate, through it


_SAID = {"recent_batch": told.RECENT_BATCH, "high_first": told.HBF}  # what a word calls otherwise than the row
_PLAN: Final[dict[str, Callable[[PlanRow], str]]] = {
    "replica": lambda row: f"{row.stage}.{row.replica}",
    "last word": lambda row: f"silent for {row.age:.1f} s" if row.silent else f"said {row.age:.1f} s ago",
    "queueing ms": lambda row: f"{1000 * row.queueing:.1f}",
    "batch": lambda row: f"{row.batch:g}",
    "recent": lambda row: f"{row.recent_batch:.1f}",
    "profile ms": lambda row: f"{1000 * row.profile:.1f}" if row.profile else "-",
    "measured ms": lambda row: f"{1000 * row.duration:.1f}" if row.duration else "-",
    "load": lambda row: f"{row.load:.2f}",
    "order": lambda row: "high first" if row.high_first else "low first",
    "in/s": lambda row: f"{row.arrivals:.1f}",
    "out/s": lambda row: f"{row.completions:.1f}",
    "dropped": lambda row: f"{row.drops:.1%}",
    "backlog": lambda row: f"{row.backlog:g}",
    "transfer ms": lambda row: f"{1000 * row.transfer:.1f}",
}
_WIDE = 130  # characters that all of them take
_NARROW = frozenset({"replica", "last word", "queueing ms", "batch", "load", "dropped", "backlog"})


def plan_rows(snapshots: Iterable[Snapshot]) -> list[PlanRow]:
    """Put together what the processes know: of each replica the word that is the newest."""
    newest: dict[tuple[str, int], tuple[Mapping[str, float], bool]] = {}
    for snapshot in snapshots:
        for whose, word in snapshot.plan.items():
            kept = newest.get(whose)
            if kept is None or word.get(told.AGE, 0.0) < kept[0].get(told.AGE, 0.0):
                newest[whose] = word, whose in snapshot.silent
    return [_plan_row(*whose, word, silent=silent) for whose, (word, silent) in sorted(newest.items())]


def _plan_row(stage: str, replica: int, word: Mapping[str, float], *, silent: bool) -> PlanRow:
    said = {field.name: word.get(_SAID.get(field.name, field.name), 0.0) for field in fields(PlanRow)[3:]}
    return PlanRow(stage, replica, silent, **{**said, "high_first": bool(said["high_first"])})  # type: ignore[arg-type]


def plan_title(period: float | None) -> str:
    """What stands above the rows; `period`, where it is known: seconds between two words of a replica."""
    return "latest status of the replicas" + ("" if period is None else f", every {period:g} s")


def plan_table(rows: Sequence[PlanRow], period: float | None = None, width: int = _WIDE) -> Table:
    """The table of a terminal of so many characters: a narrow one shows what is looked at first."""
    shown = {column: cell for column, cell in _PLAN.items() if width >= _WIDE or column in _NARROW}
    styles = ["yellow" if row.silent else "" for row in rows]
    return _grid(plan_title(period), shown, rows, styles)


# How the members of stateful shards stand: who is primary, at which version, and who is behind.

STATES_TITLE = "states: each member's newest version, and how far it is behind"


@dataclass(frozen=True)
class StateRow:
    """One member. Versions are their n."""

    name: str  # <stage>.<shard>.<member>
    role: str
    epoch: int
    version: int
    durable: int
    durable_lag: float  # seconds since the oldest version that is not durable yet
    backup_lag: int  # durable versions that a backup has not applied
    written: int  # bytes
    capture: float  # mean seconds of a copy since the start; 0 of none


_STATES: Final[dict[str, Callable[[StateRow], str]]] = {
    "member": lambda row: row.name,
    "role": lambda row: row.role,
    "epoch": lambda row: str(row.epoch),
    "version": lambda row: str(row.version),
    "durable": lambda row: str(row.durable),
    "lag ms": lambda row: f"{1000 * row.durable_lag:.0f}",
    "behind": lambda row: str(row.backup_lag) if row.role == "backup" else "-",
    "MB": lambda row: f"{row.written / 1e6:.1f}",
    "copy ms": lambda row: f"{1000 * row.capture:.1f}" if row.capture else "-",
}


def state_rows(snapshots: Iterable[tuple[str, Snapshot]]) -> list[StateRow]:
    return [
        StateRow(
            name,
            snapshot.role,
            epoch=int(snapshot.value(names.STATE_EPOCH)),
            version=int(snapshot.value(names.STATE_VERSION)),
            durable=int(snapshot.value(names.STATE_DURABLE_VERSION)),
            durable_lag=snapshot.value(names.STATE_DURABLE_LAG_SECONDS),
            backup_lag=int(snapshot.value(names.STATE_BACKUP_LAG_VERSIONS)),
            written=int(snapshot.value(names.STATE_WRITTEN_BYTES_TOTAL)),
            capture=captures.mean() if (captures := snapshot.distribution(names.STATE_CAPTURE_SECONDS)).count else 0.0,
        )
        for name, snapshot in snapshots
        if snapshot.role
    ]


def state_table(rows: Sequence[StateRow]) -> Table:
    return _grid(STATES_TITLE, _STATES, rows, ["" if row.role == "primary" else "dim" for row in rows])


# The variants of a stage, as its front shows them.


@dataclass(frozen=True)
class VariantRow:
    """One variant, by its stage's front."""

    stage: str
    variant: str
    state: str  # "" where it is not known
    ready: int
    wanted: int
    asked: int  # queries, since the front's start


_VARIANTS: Final[dict[str, Callable[[VariantRow], str]]] = {
    "variant": lambda row: row.variant,
    "state": lambda row: row.state or "-",
    "ready": lambda row: f"{row.ready}" if row.ready == row.wanted else f"{row.ready}/{row.wanted}",
    "asked": lambda row: str(row.asked),
}


def variant_rows(snapshots: Iterable[tuple[str, Snapshot]]) -> list[VariantRow]:
    """All variants of the stages; those with workers first."""
    rows = []
    for stage, snapshot in snapshots:
        states = {each[names.VARIANT]: each[names.STATE] for each, _ in snapshot.samples.get(names.VARIANT_STATE, ())}
        metrics = names.VARIANT_WORKERS, names.VARIANT_WANTED, names.VARIANT_ASKED_TOTAL
        counts = [snapshot.counts(metric, names.VARIANT) for metric in metrics]
        rows += [
            VariantRow(stage, name, states.get(name, ""), *(count.get(name, 0) for count in counts))
            for name in dict.fromkeys(chain(*counts, states))
        ]
    return sorted(rows, key=lambda row: (row.stage, not row.wanted, not row.ready, row.variant))


def variant_table(rows: Sequence[VariantRow]) -> Table:
    stages = ", ".join(dict.fromkeys(row.stage for row in rows))
    return _grid(f"variants of {stages}", _VARIANTS, rows, ["" if row.ready else "dim" for row in rows])


_LEFT = frozenset({"replica", "last word", "order", "member", "role", "variant", "state"})
_RowType = TypeVar("_RowType")


def _grid(
    title: str, columns: Mapping[str, Callable[[_RowType], str]], rows: Sequence[_RowType], styles: Sequence[str]
) -> Table:
    made = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in columns:
        made.add_column(column, justify="left" if column in _LEFT else "right", no_wrap=True)
    for row, style in zip(rows, styles, strict=True):
        made.add_row(*(cell(row) for cell in columns.values()), style=style)
    return made
