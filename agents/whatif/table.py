"""A study for a terminal or a file: what was recorded beside what was predicted of it, then all alternatives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from spillway.agents.whatif.study import Row, Study

_NAMED: Final = ("", "policy")
_HEADINGS: Final = (*_NAMED, "bad %", "drop", "late", "good/s", "p50", "p99", "waste", "drops")


EXPLAINED = "bad: dropped or late; p50, p99: ms; waste: % of execution time spent on bad queries"


def head(study: Study) -> list[str]:
    """What comes before the table: what was simulated, and how far to trust it."""
    emulated = ", emulated accelerators" if study.emulated else ""
    lines = [f"{study.pipeline}, {study.traffic}, dispatch {study.dispatch}, {1000 * study.hop:.1f} ms a hop{emulated}"]
    if study.verdict is not None:
        lines.append(f"verdict  {study.verdict.text}")
    return lines


def foot(study: Study) -> list[str]:
    """What comes after it: what its headings mean that need it, and the notes."""
    return [EXPLAINED, f"drops: by stage, {'/'.join(study.stages)}", *(f"note: {note}" for note in study.notes)]


def cells(study: Study) -> list[tuple[str, ...]]:
    return [_HEADINGS, *(_cells(row, study.stages) for row in study.all_rows)]


def table(study: Study, console: Console) -> Table:
    """Without the drops by stage, where a terminal has no room for them; --json and --html have them all."""
    made = _table(study, len(_HEADINGS))
    wide = console.measure(made, options=console.options.update(max_width=1_000)).maximum > console.width
    return _table(study, len(_HEADINGS) - 1) if wide else made


def _table(study: Study, columns: int) -> Table:
    made = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    headings, *rows = cells(study)
    for at, heading in enumerate(headings[:columns]):
        if heading in _NAMED:
            longest = max(len(word) for row in rows for word in row[at].split())
            made.add_column(heading, min_width=longest)
        else:
            made.add_column(heading, justify="right", no_wrap=True)
    for row, texts in zip(study.all_rows, rows, strict=True):
        style = "bold" if row is study.recorded else None
        made.add_row(*texts[:columns], style=style, end_section=row is study.predicted)
    return made


def _cells(row: Row, stages: tuple[str, ...]) -> tuple[str, ...]:
    found = row.figures
    return (
        row.label,
        row.policy,
        f"{100 * found.drop_rate:.2f}",
        str(found.dropped),
        str(found.late),
        f"{found.goodput_rps:.1f}",
        _ms(found.p50),
        _ms(found.p99),
        f"{100 * found.invalid_rate:.2f}",
        "/".join(str(found.drops_per_stage.get(stage, 0)) for stage in stages),
    )


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.0f}"
