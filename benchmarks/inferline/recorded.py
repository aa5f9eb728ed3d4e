"""Recorded and made traces, and steps: the tuner beside AutoScale's rule on the same plan, and what either drops.

A trace is a number of queries by second, scaled to a mean rate and repeated where it is short. Its first `SAMPLE`
seconds are planned for, the next `LIVE` are served. A seed draws the times within seconds and where a long one begins.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.inferline.contest import BY_PARD, EMULATED, OURS, THESIS, Setup, play
from benchmarks.inferline.scene import scene
from benchmarks.output import Table, median_spread
from benchmarks.pard.cases import SHARED_TRACES
from spillway.producers.load import schedule, traces

if TYPE_CHECKING:
    from benchmarks.inferline.scene import Times
    from benchmarks.inferline.serving import Outcome

SAMPLE, LIVE = 300, 600
RATES: Final = (20.0, 40.0)
STEPS: Final = ("steady", "wiki-like")  # served with three times the rate from the middle on, too
RULE: Final = "plan + autoscale"
THRESHOLDS: Final = (1.0, 1.4, 2.0)
WAITS: Final = (0.0, 0.25, 0.5, 1.0)
NAMES: Final = (
    *(OURS, "plan alone", *(f"{RULE}, {each:g}" for each in THRESHOLDS)),
    *(OURS + BY_PARD, "plan alone" + BY_PARD),
)


def files() -> dict[str, Path]:
    """Return the traces that are there, by name."""
    own = Path(__file__).parents[2] / "traces"
    return {file.stem: file for folder in (own, SHARED_TRACES) for file in sorted(folder.glob("*.csv"))}


@cache
def counts(file: Path) -> Times:
    trace = traces.read_trace(file)
    if isinstance(trace, traces.Counts):
        return trace.requests.astype(np.float64)
    return np.bincount(trace.astype(np.int64)).astype(np.float64)


@cache
def setup_of(name: str, rate: float, seed: int) -> Setup:
    """Return what is planned for and what is served: a trace by name, with a step where `+step` follows."""
    base, _, step = name.partition("+")
    whole, seconds = counts(files()[base]), SAMPLE + LIVE
    mine = np.resize(np.roll(whole, -seed * (len(whole) // 5) if len(whole) > seconds else 0), seconds)
    mine = mine * rate / whole.mean()
    if step:
        mine[SAMPLE + LIVE // 2 :] *= 3
    rng = np.random.default_rng((seed, 17))
    due = schedule.from_counts(np.arange(seconds), np.floor(mine + rng.random(seconds)).astype(np.int64), rng)
    return Setup(scene("image", *THESIS), due[due < SAMPLE], due[due >= SAMPLE] - SAMPLE, seed=seed)


def recorded(repeats: int) -> list[Table]:
    """Every strategy on every trace, at both rates; and which wait each trace's others would choose."""
    names = [*files(), *(f"{step}+step" for step in STEPS)]
    found: dict[tuple[str, str], list[Outcome]] = {}
    for trace in names:
        for strategy in NAMES:
            runs = [play(strategy, setup_of(trace, rate, seed)) for rate in RATES for seed in range(repeats)]
            found[trace, strategy] = [run for run in runs if run is not None]
    made = [[trace, strategy, *_cells(runs)] for (trace, strategy), runs in found.items()]
    every = {each: [run for trace in names for run in found[trace, each]] for each in NAMES}
    made += [["all, mean", strategy, *_means(runs)] for strategy, runs in every.items()]
    note = (
        f"At {' and '.join(f'{rate:g}' for rate in RATES)}/s in the mean, {repeats} seeds each; image, {SAMPLE} s "
        f"planned for, {LIVE} s served. AutoScale's number is its threshold, by what a unit holds."
    )
    columns = ("traffic", "strategy", "misses, %", "cost, $", "orders", "reversals")
    return [Table("Recorded traffic and steps", columns, made, (note, EMULATED)), _left_out(names, found)]


def _cells(runs: list[Outcome]) -> list[str]:
    return [
        median_spread([100 * run.misses for run in runs], "{:.2f}"),
        median_spread([run.cost for run in runs], "{:.2f}"),
        median_spread([run.orders for run in runs], "{:.0f}"),
        median_spread([run.reversals for run in runs], "{:.0f}"),
    ]


def _means(runs: list[Outcome]) -> list[str]:
    misses, cost = 100 * fmean(run.misses for run in runs), fmean(run.cost for run in runs)
    return [
        f"{misses:.2f}",
        f"{cost:.2f}",
        *(f"{fmean(getattr(run, of) for run in runs):.1f}" for of in ("orders", "reversals")),
    ]


def _left_out(names: list[str], found: dict[tuple[str, str], list[Outcome]]) -> Table:
    """By trace, the wait by which the others miss least at no more than AutoScale's cost; and what it does there."""
    tried: dict[tuple[str, float], Outcome] = {}
    for trace, wait in product(names, WAITS):
        run = play(f"{OURS}, {wait:g}", setup_of(trace, RATES[0], 0))
        assert run is not None  # where nothing can be had, nothing is ordered
        tried[trace, wait] = run
    rule = {trace: found[trace, f"{RULE}, 1"][0] for trace in names}
    made = []
    for trace in names:
        others = [each for each in names if each.partition("+")[0] != trace.partition("+")[0]]
        most = 1.02 * sum(rule[each].cost for each in others)
        able = [wait for wait in WAITS if sum(tried[each, wait].cost for each in others) <= most] or [WAITS[-1]]
        best = min(able, key=lambda wait: sum(tried[each, wait].misses for each in others))
        run = tried[trace, best]
        made.append([trace, f"{best:g}", *_means([run])[:2], *_means([rule[trace]])[:2]])
    columns = ("left out", "wait chosen", "misses, %", "cost, $", "AutoScale: misses, %", "cost, $")
    return Table(f"The wait that all other traces choose, {RATES[0]:g}/s, one seed", columns, made)
