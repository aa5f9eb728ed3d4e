"""Coded computation in view (Kosaian et al., SOSP 2019); `spillway demo parm` runs this.

A LeNet reads digits in worker processes, on Kafka. The same queries come twice while workers are stopped (SIGSTOP) at
random by one schedule: once to six workers of the model, once to four and two of its parity model.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.table import Table

from examples.parm import contest
from examples.parm.contest import FOLDER
from examples.terminal import shown
from spillway.agents.broker import EmbeddedBroker
from spillway.agents.chaos.schedule import Load, Often, schedule
from spillway.agents.cli.options import cache_dir
from spillway.agents.pages import page
from spillway.producers.connection import ClientSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from matplotlib.axes import Axes
    from numpy.typing import NDArray
    from rich.console import Console

    from examples.parm.contest import Run

RATE, SECONDS = 80.0, 35.0
LOAD: Final = Load(slow=Often(0.5, 0.3))
SEED: Final = 0
PAGE: Final = FOLDER / "report.html"
NAMES: Final = {"equal-resources": "6 workers, no code", "coded-shared": "4 workers and 2 for parity, too"}


def run(console: Console, stack: ExitStack) -> bool:
    """Train, serve, strike, show; whether all was as promised."""

    def say(text: str) -> None:
        console.print(f"  {text}", markup=False, style="dim")

    contest.train(FOLDER, say)
    work = stack.enter_context(tempfile.TemporaryDirectory(prefix="spillway-parm-"))
    broker = stack.enter_context(EmbeddedBroker(Path(work) / "kafka", cache_dir=cache_dir(), notice=console.print))
    settings = ClientSettings(bootstrap=broker.bootstrap)
    due = np.cumsum(np.random.default_rng(SEED).exponential(1 / RATE, round(RATE * SECONDS)))
    events = schedule(LOAD, contest.SLOTS, float(due[-1]), SEED)
    runs = {}
    for strategy, text in NAMES.items():
        console.print(f"[bold]{text}[/]: {RATE:g} queries a second, {len(events)} strikes", soft_wrap=True)
        runs[strategy] = contest.run(strategy, f"demo-{strategy}", settings, due, events, FOLDER, say)
    table = rows(runs)
    console.print()
    console.print(told(runs, table))
    write_page(runs, table)
    console.print(f"page  {PAGE}", soft_wrap=True)
    made = runs["coded-shared"].made.any()
    return all(each.lost == 0 == each.result.duplicates for each in runs.values()) and bool(made)


def rows(runs: dict[str, Run]) -> list[list[str]]:
    """A row for each figure, with a column for each run."""
    tails = [each.tail for each in runs.values()]
    found = [[f"latency, {name}, ms", *(f"{tail[name]:.1f}" for tail in tails)] for name in tails[0]]
    every = list(runs.values())
    return [
        *found,
        ["strikes", *(f"{each.struck.total()}" for each in every)],
        ["reconstructed answers", *(f"{100 * each.made.mean():.2f} %" for each in every)],
        ["of them right", *(_share(each.right[each.made]) for each in every)],
        ["of the others right", *(_share(each.right[~each.made]) for each in every)],
        ["queries lost, answered twice", *(f"{each.lost}, {each.result.duplicates}" for each in every)],
    ]


def _share(right: NDArray[np.bool_]) -> str:
    return f"{100 * right.mean():.1f} %" if len(right) else "-"


def told(runs: dict[str, Run], table: list[list[str]]) -> Table:
    made = Table("", box=None, pad_edge=False)
    for name in runs:
        made.add_column(NAMES[name], justify="right")
    for row in table:
        made.add_row(*row)
    return made


def write_page(runs: dict[str, Run], table: list[list[str]]) -> None:
    charts: dict[str, Callable[[Axes], None]] = {
        "Latencies from when a query was due: how many took how long": lambda axes: _histogram(axes, runs),
        "Share of queries that took longer": lambda axes: _tails(axes, runs),
    }
    head = ["", *(NAMES[name] for name in runs)]
    page.write(PAGE, "ParM: workers that stall, with a code and without", charts, table, head=head)


def _histogram(axes: Axes, runs: dict[str, Run]) -> None:
    most = max(each.milliseconds.max() for each in runs.values())
    bins = np.geomspace(1.0, max(10.0, most), 60)
    for name, each in runs.items():
        axes.hist(each.milliseconds, bins, alpha=0.55, label=NAMES[name])  # type: ignore[arg-type]
    axes.set(xscale="log", yscale="log", xlabel="ms", ylabel="queries")
    axes.legend(fontsize=7)


def _tails(axes: Axes, runs: dict[str, Run]) -> None:
    for name, each in runs.items():
        found = np.sort(each.milliseconds)
        axes.plot(found, 100 * (1 - np.arange(len(found)) / len(found)), label=NAMES[name])
    axes.set(xscale="log", yscale="log", xlabel="ms", ylabel="% of queries that took longer")
    axes.legend(fontsize=7)


def main() -> int:
    return shown("workers that stall, and answers that are made without them", run)
