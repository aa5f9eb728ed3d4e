"""What the replicas of a pipeline last told one another, as a table: how each stage fares, and who is silent."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table

from agents.live import metrics as told

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from agents.supervise.scrape import Snapshot

_COLUMNS = (
    *("replica", "last word", "queueing ms", "batch", "recent", "profile ms", "measured ms"),
    *("load", "order", "in/s", "out/s", "dropped", "backlog", "transfer ms"),
)
_WIDE = 130  # characters that all of them take
_NARROW = frozenset({"replica", "last word", "queueing ms", "batch", "load", "dropped", "backlog"})
_TEXTS = frozenset({"replica", "last word", "order"})


@dataclass(frozen=True)
class PlanRow:
    """A replica's newest word that any process knows. Durations in seconds."""

    stage: str
    replica: int
    age: float  # since it was said
    silent: bool  # it has aged out: policies go by the stage's profile
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
    transfer: float = 0.0  # median that a message takes into its queue; of the gate, through it

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def plan_rows(snapshots: Iterable[Snapshot]) -> list[PlanRow]:
    """Put together what the processes know: of each replica the word that is the newest."""
    newest: dict[tuple[str, int], tuple[Mapping[str, float], bool]] = {}
    for snapshot in snapshots:
        for whose, word in snapshot.plan.items():
            kept = newest.get(whose)
            if kept is None or word.get(told.AGE, 0.0) < kept[0].get(told.AGE, 0.0):
                newest[whose] = word, snapshot.silent.get(whose, False)
    return [_row(*whose, word, silent=silent) for whose, (word, silent) in sorted(newest.items())]


def _row(stage: str, replica: int, word: Mapping[str, float], *, silent: bool) -> PlanRow:
    return PlanRow(
        stage,
        replica,
        age=word.get(told.AGE, 0.0),
        silent=silent,
        queueing=word.get(told.QUEUEING, 0.0),
        batch=word.get(told.BATCH, 0.0),
        recent_batch=word.get(told.RECENT_BATCH, 0.0),
        profile=word.get(told.PROFILE, 0.0),
        duration=word.get(told.DURATION, 0.0),
        load=word.get(told.LOAD, 0.0),
        high_first=bool(word.get(told.HBF, 0.0)),
        arrivals=word.get(told.ARRIVALS, 0.0),
        completions=word.get(told.COMPLETIONS, 0.0),
        drops=word.get(told.DROPS, 0.0),
        backlog=word.get(told.BACKLOG, 0.0),
        transfer=word.get(told.TRANSFER, 0.0),
    )


def plan_title(period: float | None) -> str:
    """What stands above the rows; `period`, where it is known: seconds between two words of a replica."""
    return "as the stages tell one another" + ("" if period is None else f", every {period:g} s")


def plan_table(rows: Sequence[PlanRow], period: float | None = None, width: int = _WIDE) -> Table:
    """The table of a terminal of so many characters: a narrow one shows what is looked at first."""
    made = Table(title=plan_title(period), title_justify="left", box=None, pad_edge=False)
    shown = [column for column in _COLUMNS if width >= _WIDE or column in _NARROW]
    for column in shown:
        made.add_column(
            column, justify="left" if column in {"replica", "last word", "order"} else "right", no_wrap=True
        )
    for row in rows:
        cells = dict(zip(_COLUMNS, _cells(row), strict=True))
        made.add_row(*(cells[column] for column in shown), style="yellow" if row.silent else "")
    return made


def plan_line(row: PlanRow) -> str:
    name, said, queueing, batch, recent, profile, measured, load, order, arrivals, completions, drops, backlog, way = (
        _cells(row)
    )
    return (
        f"{name}: {said}, queueing {queueing} ms, batch {batch} (recent {recent}), batch takes {measured} ms "
        f"(profile {profile}), load {load}, order {order}, {arrivals}/s in, {completions}/s out, dropped {drops}, "
        f"backlog {backlog}, transfer {way} ms"
    )


def _cells(row: PlanRow) -> tuple[str, ...]:
    return (
        f"{row.stage}.{row.replica}",
        f"silent for {row.age:.1f} s" if row.silent else f"said {row.age:.1f} s ago",
        f"{1000 * row.queueing:.1f}",
        f"{row.batch:g}",
        f"{row.recent_batch:.1f}",
        f"{1000 * row.profile:.1f}" if row.profile else "-",
        f"{1000 * row.duration:.1f}" if row.duration else "-",
        f"{row.load:.2f}",
        "high first" if row.high_first else "low first",
        f"{row.arrivals:.1f}",
        f"{row.completions:.1f}",
        f"{row.drops:.1%}",
        f"{row.backlog:g}",
        f"{1000 * row.transfer:.1f}",
    )
