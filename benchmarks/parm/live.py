"""ParM live: real workers on Kafka, stopped by one schedule, under each strategy (`examples.parm.contest`).

Their service times are emulated (`examples.parm.timed`): what is measured is what a stop costs, and not how many
workers share a processor. The stops are those of `spillway demo parm`: longer than the paper's shuffles, so that they
stand out over Kafka's own delays. They were set before anything was measured with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
import numpy as np

from benchmarks.output import Table, median_spread
from benchmarks.scene import kafka
from examples.parm import contest
from spillway.agents.chaos.schedule import Load, Often, schedule
from spillway.lineage.errors import SpillwayError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from examples.parm.contest import Run

FOLDER: Final = contest.FOLDER / "timed"
RATE: Final = 80.0
SLOW: Final = Load(slow=Often(0.5, 0.3))
MOST: Final = 4_000
BASE: Final = "equal-resources"
OTHERS: Final = tuple(each for each in contest.STRATEGIES if each not in (BASE, "coded"))


def live(repeats: int, queries: int, others: Sequence[str] = ()) -> Table:
    """Serve `BASE`, `coded` and the others `repeats` times, each repeat with arrivals and stops of its seed.

    At most `MOST` queries. Three repeats of two strategies take six minutes.
    """
    queries = min(queries, MOST)
    order = (BASE, "coded", *others)
    runs: dict[str, list[Run]] = {strategy: [] for strategy in order}
    with kafka() as (_, settings):
        contest.train(FOLDER, _say, timed=True)
        for seed in range(repeats):
            due = np.cumsum(np.random.default_rng(seed).exponential(1 / RATE, queries))
            events = schedule(SLOW, contest.SLOTS, float(due[-1]), seed)
            for strategy in order if seed % 2 == 0 else order[::-1]:  # a machine that is busy for a while hits all
                name = f"live-{strategy}-{seed}"
                run = contest.run(strategy, name, settings, due, events, FOLDER, lambda _: None, timed=True)
                if run.lost or run.result.duplicates:
                    raise SpillwayError(f"{strategy}: {run.lost} queries lost, {run.result.duplicates} answered twice")
                runs[strategy].append(run)
                tail = ", ".join(f"{name} {ms:.0f} ms" for name, ms in _tail(run).items())
                _say(f"{strategy}, repeat {seed + 1} of {repeats}: {tail}, {run.struck.total()} stops")
    rows = [row for strategy, own in runs.items() for row in _rows(strategy, own, runs[BASE])]
    columns = ("strategy", "p50", "p99", "p99.9", "gap", "made", "of them right", "CPU ms a query")
    note = (
        f"In ms; then how many times smaller than {BASE}, repeat by repeat. {repeats} x {queries:,} queries at "
        f"{RATE:g}/s, policy naive, on one Kafka; {contest.WORKERS} workers and 2 beside them, or {contest.SLOTS}. "
        "Every half second, on average, one of them stops for about 300 ms (SIGSTOP). A worker's 25 ms a query are "
        "emulated: it computes, then waits. Latency counts from when a query was due, through Kafka and gate. CPU: of "
        "front and workers."
    )
    return Table("Live: a LeNet on digits, workers stopped at random, k = 2", columns, rows, (note,))


def _tail(run: Run) -> dict[str, float]:
    return {**run.tail, "gap": run.tail["p99.9"] - run.tail["p50"]}


def _rows(strategy: str, own: Sequence[Run], base: Sequence[Run]) -> list[list[str]]:
    tails, theirs = [_tail(each) for each in own], [_tail(each) for each in base]
    made, right = (np.concatenate([getattr(each, name) for each in own]) for name in ("made", "right"))
    first = [
        strategy,
        *(median_spread([tail[name] for tail in tails], "{:.0f}") for name in tails[0]),
        f"{100 * made.mean():.1f} %" if made.any() else "",
        f"{100 * right[made].mean():.1f} %" if made.any() else "",
        median_spread([1e3 * each.cpu / len(each.made) for each in own], "{:.1f}"),
    ]
    if strategy == BASE:
        return [first]
    pairs = list(zip(theirs, tails, strict=True))
    times = (median_spread([a[name] / b[name] for a, b in pairs], "{:.2f}") for name in tails[0])
    return [first, [f"{strategy}, times smaller", *times, "", "", ""]]


def _say(text: str) -> None:
    click.echo(text, err=True)
