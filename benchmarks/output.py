"""What a section of a benchmark gives: JSON, tables as Markdown, and figures in words."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MISSING = "not measured"


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a title above and sentences below."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        lines = [f"**{self.title}**", "", _line(self.columns), _line(["---"] * len(self.columns))]
        lines += [_line(row) for row in self.rows]
        for note in self.notes:
            lines += ["", note]
        return "\n".join(lines) + "\n"

    def text(self) -> str:
        """Lay it out for a terminal: the first column to the left, all others to the right."""
        cells = [self.columns, *self.rows] if any(self.columns) else self.rows
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(f"{cell:{'>' if at else '<'}{widths[at]}}" for at, cell in enumerate(row)).rstrip()
            for row in cells
        ]
        return "\n".join([self.title, *lines, *self.notes])


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def percent(share: float, digits: int = 2) -> str:
    return f"{100 * share:.{digits}f}"


def spread(shares: Sequence[float], digits: int = 2) -> str:
    """The mean of shares in percent, and from least to most over the repetitions."""
    if not shares:
        return MISSING
    mean = percent(statistics.fmean(shares), digits)
    if len(shares) == 1:
        return mean
    return f"{mean} ({percent(min(shares), digits)} to {percent(max(shares), digits)})"


def median_spread(values: Sequence[float], form: str, missing: str = MISSING) -> str:
    """The median of values as `form` has it, and of several from least to most in brackets; `missing` for none."""
    if not values:
        return missing
    middle, least, most = map(form.format, (statistics.median(values), min(values), max(values)))
    return middle if len(values) == 1 else f"{middle} ({least} to {most})"


def by_key(runs: Sequence[dict[str, float]]) -> list[list[str]]:
    """Make a row of each figure that several runs have."""
    return [[key, median_spread([run[key] for run in runs], "{:.2f}")] for key in runs[0]]


def tell(result: Any, *tables: Table, as_json: bool) -> None:
    """Write what was measured to standard output: as JSON, or as tables."""
    click.echo(json.dumps(result, indent=2) if as_json else "\n\n".join(table.text() for table in tables))


def ratio(value: float, base: float) -> float | None:
    """How many times `base` a value is; None where base is 0."""
    return value / base if base > 0 else None


def times(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}x" if value >= 100 else f"{value:.1f}x" if value >= 10 else f"{value:.2f}x"


def show(tables: Iterable[Table]) -> str:
    """Print tables as Markdown, each as soon as it is made; all of them in one text."""
    texts = []
    for table in tables:
        texts.append(table.markdown())
        click.echo(texts[-1])
    return "\n".join(texts)


markdown_option = click.option(
    "--markdown",
    type=click.Path(path_type=Path, dir_okay=False, exists=True),
    metavar="FILE",
    help="Put the tables between FILE's marks <!-- begin SECTION --> and <!-- end SECTION -->.",
)


def fill_in(document: Path | None, tables: dict[str, str]) -> None:
    """Put tables between the marks of their sections in a Markdown document, where there is one, and say which.

    The marks are `<!-- begin NAME -->` and `<!-- end NAME -->`, each on a line of its own.
    """
    if document is None:
        return
    text = document.read_text(encoding="utf-8")
    filled = []
    for name, table in tables.items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->\n"
        if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
            continue
        head, _, rest = text.partition(begin)
        _, _, tail = rest.partition(end)
        text = head + begin + table + end + tail
        filled.append(name)
    document.write_text(text, encoding="utf-8")
    click.echo(f"{document}: {', '.join(filled) or 'no marks of these sections'}", err=True)
