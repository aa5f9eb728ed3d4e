"""How the members of stateful shards stand, as a table: who is primary, at which version, and who is behind."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.table import Table

from lineage import metric_names as names

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from agents.supervise.scrape import Snapshot

_COLUMNS = (
    *("member", "role", "epoch", "version", "durable", "lag ms", "behind"),
    *("MB", "copy ms"),
)
_TEXTS = frozenset({"member", "role"})
TITLE = "states: n of the newest version, and what is behind it"


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

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def state_rows(snapshots: Iterable[tuple[str, Snapshot]]) -> list[StateRow]:
    return [_row(name, snapshot) for name, snapshot in snapshots if snapshot.role]


def _row(name: str, snapshot: Snapshot) -> StateRow:
    captures = snapshot.distribution(names.STATE_CAPTURE_SECONDS)
    return StateRow(
        name,
        snapshot.role,
        epoch=int(snapshot.value(names.STATE_EPOCH)),
        version=int(snapshot.value(names.STATE_VERSION)),
        durable=int(snapshot.value(names.STATE_DURABLE_VERSION)),
        durable_lag=snapshot.value(names.STATE_DURABLE_LAG_SECONDS),
        backup_lag=int(snapshot.value(names.STATE_BACKUP_LAG_VERSIONS)),
        written=int(snapshot.value(names.STATE_WRITTEN_BYTES_TOTAL)),
        capture=captures.mean() if captures.count else 0.0,
    )


def state_table(rows: Sequence[StateRow]) -> Table:
    made = Table(title=TITLE, title_justify="left", box=None, pad_edge=False)
    for column in _COLUMNS:
        made.add_column(column, justify="left" if column in _TEXTS else "right", no_wrap=True)
    for row in rows:
        made.add_row(*_cells(row), style="" if row.role == "primary" else "dim")
    return made


def state_line(row: StateRow) -> str:
    name, role, epoch, version, durable, lag, behind, written, capture = _cells(row)
    return (
        f"{name}: {role}, epoch {epoch}, version {version}, durable {durable} (lag {lag} ms), backup lag {behind}, "
        f"written {written} MB, capture {capture} ms"
    )


def _cells(row: StateRow) -> tuple[str, ...]:
    return (
        row.name,
        row.role,
        str(row.epoch),
        str(row.version),
        str(row.durable),
        f"{1000 * row.durable_lag:.0f}",
        str(row.backup_lag) if row.role == "backup" else "-",
        f"{row.written / 1e6:.1f}",
        f"{1000 * row.capture:.1f}" if row.capture else "-",
    )
