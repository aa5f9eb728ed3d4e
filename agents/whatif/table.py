"""A study for a terminal or a file: what was recorded beside what was predicted of it, then all alternatives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console

    from spillway.agents.whatif.figures import Figures
    from spillway.agents.whatif.study import Study

_SHORT = ("", "policy", "bad %", "drop", "late", "good/s", "p50", "p99", "waste")
_HEADINGS = ("", "policy", "drop rate", "dropped", "late", "good/s", "p50 ms", "p99 ms", "invalid", "drops")


EXPLAINED = "bad: dropped or late; p50, p99: ms; waste: % of execution time spent on bad queries"


def head(study: Study) -> list[str]:
    """What comes before the table: what was simulated, and how far to trust it."""
    emulated = ", emulated accelerators" if study.emulated else ""
    lines = [f"{study.pipeline}, {study.traffic}, dispatch {study.dispatch}, {1000 * study.hop:.1f} ms a hop{emulated}"]
    if study.verdict is not None:
        lines.append(f"verdict  {study.verdict.text}")
    return lines


def foot(study: Study) -> list[str]:
    return [f"drops: by stage, {'/'.join(study.stages)}", *(f"note: {note}" for note in study.notes)]


def cells(study: Study) -> list[tuple[str, ...]]:
    rows = ((row.label, row.policy, *_figures(row.figures, study.stages)) for row in study.all_rows)
    return [_HEADINGS, *rows]


def table(study: Study, console: Console) -> Table:
    """Without the drops by stage, where a terminal has no room for them; --json and --html have them all."""
    made = _table(study, drops=True)
    wide = console.measure(made, options=console.options.update(max_width=1_000)).maximum > console.width
    return _table(study, drops=False) if wide else made


def _table(study: Study, *, drops: bool) -> Table:
    made = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    for heading in (*_SHORT, *(["drops"] if drops else ())):
        names = {"": [row.label for row in study.all_rows], "policy": [row.policy for row in study.all_rows]}
        made.add_column(
            heading,
            justify="left" if heading in names else "right",
            no_wrap=heading not in names,
            min_width=max((len(word) for name in names.get(heading, ()) for word in name.split()), default=0),
        )
    for number, row in enumerate(study.all_rows):
        measured = study.recorded is not None and number == 0
        apart = study.recorded is not None and number == 1
        found = row.figures
        made.add_row(
            row.label,
            row.policy,
            f"{100 * found.drop_rate:.2f}",
            *(str(found.dropped), str(found.late), f"{found.goodput:.1f}", _ms(found.p50), _ms(found.p99)),
            f"{100 * found.invalid:.2f}",
            *([_drops(found, study.stages)] if drops else ()),
            style="bold" if measured else None,
            end_section=apart,
        )
    return made


def _figures(found: Figures, stages: tuple[str, ...]) -> tuple[str, ...]:
    return (
        f"{found.drop_rate:.2%}",
        str(found.dropped),
        str(found.late),
        f"{found.goodput:.1f}",
        _ms(found.p50),
        _ms(found.p99),
        f"{found.invalid:.2%}",
        _drops(found, stages),
    )


def _drops(found: Figures, stages: tuple[str, ...]) -> str:
    return "/".join(str(found.drops.get(stage, 0)) for stage in stages)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.0f}"
