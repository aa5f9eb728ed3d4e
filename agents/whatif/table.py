"""A study for a terminal or a file: what was recorded beside what was predicted of it, then all alternatives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from agents.whatif.figures import Figures
    from agents.whatif.study import Study

_HEADINGS = ("", "policy", "drop rate", "dropped", "late", "good/s", "p50 ms", "p99 ms", "invalid", "drops", "gap")


def head(study: Study) -> list[str]:
    """What comes before the table: what was simulated, and how far to trust it."""
    emulated = ", emulated accelerators" if study.emulated else ""
    lines = [f"{study.pipeline}, {study.traffic}, dispatch {study.dispatch}, {1000 * study.hop:.1f} ms a hop{emulated}"]
    if study.verdict is not None:
        lines.append(f"verdict  {study.verdict.text}")
    return lines


def foot(study: Study) -> list[str]:
    lines = [f"drops: by stage, {'/'.join(study.stages)}"]
    if any(row.figures.bound is not None for row in study.all_rows):
        lines.append("gap: percentage points worse than the best possible policy, which knows every query beforehand")
    return [*lines, *(f"note: {note}" for note in study.notes)]


def cells(study: Study) -> list[tuple[str, ...]]:
    rows = ((row.label, row.policy, *_figures(row.figures, study.stages)) for row in study.all_rows)
    return [_HEADINGS, *rows]


def table(study: Study) -> Table:
    headings, *rows = cells(study)
    made = Table(box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(headings):
        made.add_column(heading, justify="left" if number < 2 else "right", overflow="fold")  # noqa: PLR2004 - names
    for number, row in enumerate(rows):
        measured = study.recorded is not None and number == 0
        apart = study.recorded is not None and number == 1
        made.add_row(*row, style="bold" if measured else None, end_section=apart)
    return made


def text(study: Study) -> str:
    rows = cells(study)
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    lines = []
    for row in rows:
        names = [cell.ljust(width) for cell, width in zip(row[:2], widths[:2], strict=True)]
        numbers = [cell.rjust(width) for cell, width in zip(row[2:], widths[2:], strict=True)]
        lines.append("  ".join([*names, *numbers]).rstrip())
    return "\n".join(lines)


def _figures(found: Figures, stages: tuple[str, ...]) -> tuple[str, ...]:
    return (
        f"{found.drop_rate:.2%}",
        str(found.dropped),
        str(found.late),
        f"{found.goodput:.1f}",
        _ms(found.p50),
        _ms(found.p99),
        f"{found.invalid:.2%}",
        "/".join(str(found.drops.get(stage, 0)) for stage in stages),
        "" if found.gap is None else f"{100 * found.gap:.2f}",
    )


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.0f}"
