"""ParM live: real workers on digits, stopped by one schedule, under each strategy (`examples.parm.contest`)."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import numpy as np

from agents.broker import EmbeddedBroker
from agents.chaos.schedule import Load, Often, schedule
from agents.cli.options import cache_dir
from benchmarks.output import Table, median_spread
from examples.parm import contest
from lineage.errors import SpillwayError
from producers.connection import ClientSettings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from examples.parm.contest import Run

RATE: Final = 80.0
SLOW: Final = Load(slow=Often(0.5, 0.3))
MOST: Final = 4_000
BASE: Final = "equal-resources"


def live(repeats: int, queries: int) -> Table:
    """Serve each strategy `repeats` times, with arrivals and strikes of that repeat's seed; at most `MOST` queries."""
    queries = min(queries, MOST)
    order = (BASE, *(each for each in contest.STRATEGIES if each != BASE))
    runs: dict[str, list[Run]] = {strategy: [] for strategy in order}
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spillway-parm-")))
        broker = stack.enter_context(EmbeddedBroker(work / "kafka", cache_dir=cache_dir()))
        settings = ClientSettings(bootstrap=broker.bootstrap)
        contest.train(contest.FOLDER, _say)
        for seed in range(repeats):
            due = np.cumsum(np.random.default_rng(seed).exponential(1 / RATE, queries))
            events = schedule(SLOW, contest.SLOTS, float(due[-1]), seed)
            for strategy in order if seed % 2 == 0 else order[::-1]:  # a machine that is busy for a while hits all
                run = contest.run(
                    strategy, f"live-{strategy}-{seed}", settings, due, events, contest.FOLDER, lambda _: None
                )
                if run.lost or run.result.duplicates:
                    raise SpillwayError(f"{strategy}: {run.lost} queries lost, {run.result.duplicates} answered twice")
                runs[strategy].append(run)
                tail = ", ".join(f"{name} {ms:.0f} ms" for name, ms in run.tail.items())
                _say(f"{strategy}, repeat {seed + 1} of {repeats}: {tail}")
    columns = (
        "strategy",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "gap, times smaller",
        "made",
        "of them right",
        "CPU ms a query",
    )
    note = (
        f"{repeats} x {queries:,} queries at {RATE:g}/s, policy naive, on one Kafka; a worker of {contest.SLOTS} stops "
        "for 150 to 450 ms (SIGSTOP), twice a second on average. Latency counts from when a query was due, through "
        "Kafka and gate. CPU: front and workers. No query was lost or answered twice."
    )
    rows = [_row(strategy, own, runs[BASE]) for strategy, own in runs.items()]
    return Table("Live: a LeNet on digits, workers stopped at random, k = 2", columns, rows, (note,))


def _row(strategy: str, own: Sequence[Run], base: Sequence[Run]) -> list[str]:
    tails = [[each.tail for each in some] for some in (base, own)]
    gaps = [(a["p99.9"] - a["p50"]) / (b["p99.9"] - b["p50"]) for a, b in zip(*tails, strict=True)]
    made = np.concatenate([each.made for each in own])
    right = np.concatenate([each.right for each in own])
    return [
        strategy,
        *(median_spread([tail[name] for tail in tails[1]], "{:.0f}") for name in tails[1][0]),
        "" if strategy == BASE else median_spread(gaps, "{:.2f}"),
        f"{100 * made.mean():.1f} %" if made.any() else "",
        f"{100 * right[made].mean():.1f} %" if made.any() else "",
        median_spread([1e3 * each.cpu / len(each.made) for each in own], "{:.1f}"),
    ]


def _say(text: str) -> None:
    click.echo(text, err=True)
