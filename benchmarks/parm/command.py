"""`python -m benchmarks parm`: section 5.2 of the ParM paper, its headlines beside ours, in virtual time and live."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Final

import click
import numpy as np

from benchmarks.output import Table, median_spread, show
from benchmarks.parm.accuracy import accuracy
from benchmarks.parm.live import OTHERS, live
from benchmarks.parm.simulated import Setting, latencies, released, sent
from spillway.agents.chaos.schedule import Load, Often
from spillway.agents.coding.codes import Sum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Section = Callable[[int, int], Table | Iterator[Table]]

AT: Final = Setting(270)
BASE: Final = "equal-resources"
SHARED: Final = "coded-shared"
STOPS: Final = Load(slow=Often(0.5, 0.3))  # those of `live`
MARGIN: Final = 0.005  # seconds before a deadline in which an answer is sent (`spillway.agents.core.deadlines`)
EMULATED: Final = "Emulated: instances are timers, shuffles and multitenancy are drawn; nothing of it ran on a GPU."


@cache
def _tail(strategy: str, setting: Setting, seed: int) -> tuple[float, float]:
    """The median and the 99.9th percentile, in ms."""
    ms = 1e3 * latencies(strategy, setting, seed)
    return float(np.median(ms)), float(np.percentile(ms, 99.9))


def _rows(name: str, runs: Sequence[tuple[str, Setting]], repeats: int, queries: int) -> list[list[str]]:
    """A row of each strategy in its setting; the first is what the others are compared with."""
    rows: list[list[str]] = []
    for strategy, setting in runs:
        tails = [
            [_tail(which, replace(at, queries=queries), seed) for seed in range(repeats)]
            for which, at in (runs[0], (strategy, setting))
        ]
        pairs = list(zip(*tails, strict=True))
        gaps = [(base[1] - base[0]) / (own[1] - own[0]) for base, own in pairs]
        lower = [100 * (1 - own[1] / base[1]) for base, own in pairs]
        compared = [median_spread(gaps, "{:.2f}"), median_spread(lower, "{:.0f}")] if rows else ["", ""]
        columns = [median_spread([own[n] for _, own in pairs], "{:.1f}") for n in (0, 1)]
        rows.append([name, strategy, *columns, *compared])
    return rows


def _cells(settings: Sequence[tuple[str, Setting, Sequence[str]]], repeats: int, queries: int) -> list[list[str]]:
    """Rows of each setting's strategies, the first of which the others are compared with."""
    cells = ((name, [(strategy, setting) for strategy in strategies]) for name, setting, strategies in settings)
    return [row for name, runs in cells for row in _rows(name, runs, repeats, queries)]


def _table(title: str, of: str, rows: list[list[str]], *notes: str) -> Table:
    columns = (of, "strategy", "median ms", "p99.9 ms", "gap, times smaller", "p99.9, % lower")
    return Table(title, columns, rows, (*notes, EMULATED))


def _rates(repeats: int, queries: int) -> Table:
    cells: list[tuple[str, Setting, tuple[str, ...]]]
    cells = [(f"{rate}/s, m = 12", Setting(rate), (BASE, "none", "coded")) for rate in (210, 270, 330, 390)]
    cells += [(f"{2 * rate}/s, m = 24", Setting(2 * rate, instances=24), (BASE, "coded")) for rate in (210, 270)]
    note = "Paper: gap 2.6 to 3.2 times smaller, p99.9 38 to 43 % lower (m = 12); 3 to 3.5, 44 to 48 % (m = 24)."
    return _table("Query rates, k = 2 (Figure 11)", "rate", _cells(cells, repeats, queries), note)


def _ks(repeats: int, queries: int) -> Table:
    rows = _cells([("k = 2", AT, (BASE, "coded"))], repeats, queries)
    for k in (3, 4):
        rows += _rows(f"k = {k}", [(BASE, AT), ("coded", replace(AT, k=k))], repeats, queries)[1:]
    note = "k = 3 and 4 have fewer workers than equal-resources has. Paper: gap up to 2.5 times smaller."
    return _table("k = 2, 3, 4 at 270/s (Figure 12)", "k", rows, note)


def _batches(repeats: int, queries: int) -> Table:
    cells = [(f"{size}, {rate}/s", Setting(rate, batch=size), (BASE, "coded")) for size, rate in ((2, 460), (4, 584))]
    note = "Paper: p99.9 43 and 47 % lower."
    return _table("Batches of 2 and 4 (section 5.2.3)", "batch", _cells(cells, repeats, queries), note)


def _load(repeats: int, queries: int) -> Table:
    cells = [(f"{n} shuffles", replace(AT, shuffles=n), (BASE, "coded")) for n in (2, 3, 4, 5)]
    cells.append(("multitenancy", replace(AT, tenants=True), (BASE, "coded")))
    note = "Paper: p99.9 35 and 39 % lower with 2 and 3; gap 3.5 times smaller with 5; up to 2.3 under multitenancy."
    return _table("Kinds of load at 270/s (section 5.2.4)", "load", _cells(cells, repeats, queries), note)


def _beside(repeats: int, queries: int) -> Table:
    strategies = (BASE, "coded", "hedged", "replicate", "approximate")
    cells = [(f"{rate}/s", Setting(rate), strategies) for rate in (210, 270)]
    note = (
        "All have m/k more workers: copies of every batch (replicate, approximate: 2 times the bytes from the front) "
        "need more than these and queue; coding sends 1/k more, hedged what its budget of 10 % allows."
    )
    return _table("Beside it, on the same workers (Figure 15)", "rate", _cells(cells, repeats, queries), note)


def _tails(repeats: int, queries: int) -> Table:
    shares = (50, 99, 99.5, 99.9)
    rows = []
    for name, strategy, setting in (
        (BASE, BASE, AT),
        *((f"coded, k = {k}", "coded", replace(AT, k=k)) for k in (2, 3, 4)),
        ("coded, k = 2, r = 2", "coded", replace(AT, rows=2)),
    ):
        runs = [1e3 * latencies(strategy, replace(setting, queries=queries), seed) for seed in range(repeats)]
        tails = np.array([np.percentile(ms, shares) for ms in runs]).T
        rows.append([name, *(median_spread(each.tolist(), "{:.1f}") for each in tails)])
    columns = ("strategy", *(f"p{share:g} ms" for share in shares))
    note = "k = 3 and 4 have fewer workers than k = 2, and r = 2 has m/k more; it solves for two missing answers."
    return Table("Other percentiles at 270/s (Figure 12), and two parity models", columns, rows, (note, EMULATED))


def _release(repeats: int, queries: int) -> Table:
    rows = []
    for name, held in (("first", None), *((f"budget, SLO {slo} ms", slo / 1e3 - MARGIN) for slo in (40, 60, 100))):
        runs = [released(replace(AT, held=held, queries=queries), seed) for seed in range(repeats)]
        tails = 1e3 * np.array([np.percentile(seconds, (50, 99, 99.9)) for seconds, _ in runs]).T
        made = median_spread([100 * share for _, share in runs], "{:.2f}")
        rows.append([name, *(median_spread(each.tolist(), "{:.1f}") for each in tails), made])
    note = (
        "With `budget` a made answer waits until 5 ms before its query's deadline, as an exact one may still come: "
        "fewer answers are approximate, and slow queries take as long as their deadlines let them."
    )
    columns = ("release", "p50 ms", "p99 ms", "p99.9 ms", "reconstructed %")
    return Table("When a made answer is released: m = 12, k = 2, 270/s", columns, rows, (note, EMULATED))


def _sent(repeats: int, queries: int) -> Table:
    rows = []
    for name, strategy, setting in (
        *((f"coded, k = {k}", "coded", replace(AT, k=k)) for k in (2, 3, 4)),
        *((name, name, AT) for name in ("hedged", "replicate", "approximate")),
    ):
        shares = [sent(strategy, replace(setting, queries=queries), seed) for seed in range(repeats)]
        rows.append([name, median_spread(shares, "{:.2f}")])
    note = (
        "Times what `none` sends. Paper: 1/k more, against 2 times of approximate. What waits is given up once its "
        "group is answered, so it can be less."
    )
    return Table("Inputs from the front to workers at 270/s (section 5.2.6)", ("strategy", "times"), rows, (note,))


def _loses(repeats: int, queries: int) -> Table:
    strategies = (BASE, "coded", "replicate")
    cells = [(f"{n} shuffles at 270/s", replace(AT, shuffles=n), strategies) for n in (4, 16, 48)]
    cells.append(("450/s, saturated", Setting(450), strategies))
    note = "The more workers are slow together, the fewer answers a code can use; at full load coding does harm."
    return _table("Where it loses: m = 12, k = 2", "at", _cells(cells, repeats, queries), note)


def _busy(repeats: int, queries: int) -> Table:
    cells = []
    for kind, strikes in (("pauses", {}), ("slowed", {"slowdowns": True}), ("stops", {"load": STOPS})):
        for rate, m in ((210, 12), (270, 12), (330, 12), (390, 12), (420, 24), (540, 24)):
            cells.append((f"{rate}/s, m = {m}, {kind}", Setting(rate, instances=m, **strikes), (BASE, SHARED)))
    note = "Once in 2 s an instance works at 60 % of its speed for 2 s; or, once in .5 s, it stops for .3 s on average."
    return _table("Up to .8 busy: never much worse", "at", _cells(cells, repeats, queries), note)


def _codes(repeats: int, _queries: int) -> Table:
    rows = []
    draw = np.random.default_rng(0)
    for k in (2, 3, 4):
        code, queries = Sum(k), [{"x": draw.random((3, 224, 224), np.float32)} for _ in range(k)]
        answers = [{"y": draw.random(1_000, np.float32)} for _ in range(k)]
        parity, known = {0: {"y": draw.random(1_000, np.float32)}}, [*answers[1:], None]
        encode = [_median_us(partial(code.encode, queries, 0)) for _ in range(repeats)]
        decode = [_median_us(partial(code.decode, known, parity)) for _ in range(repeats)]
        rows.append([str(k), median_spread(encode, "{:.0f}"), median_spread(decode, "{:.0f}")])
    note = "Measured here: images of 3 x 224 x 224, 1,000 outputs. Paper: 93, 153, 193 us; 8, 14, 19 us."
    return Table("Encoding and decoding (section 5.2.5)", ("k", "encode us", "decode us"), rows, (note,))


def _median_us(what: Callable[[], object], times: int = 300) -> float:
    took = []
    for _ in range(times):
        began = time.perf_counter()
        what()
        took.append(time.perf_counter() - began)
    return 1e6 * float(np.median(took))


SECTIONS: Final[dict[str, Section]] = {
    "rates": _rates,
    "k": _ks,
    "tails": _tails,
    "batches": _batches,
    "load": _load,
    "beside": _beside,
    "release": _release,
    "bytes": _sent,
    "loses": _loses,
    "busy": _busy,
    "codes": _codes,
}
LONG: Final[dict[str, Section]] = {"accuracy": accuracy, "live": live, "live-all": partial(live, others=OTHERS)}
"""Shown when asked for: minutes, or a machine that does nothing else."""


@click.command()
@click.option("--only", multiple=True, type=click.Choice([*SECTIONS, *LONG]), help="This section; may be repeated.")
@click.option("--repeats", type=click.IntRange(1), default=3, show_default=True, help="Of each cell.")
@click.option("--queries", type=click.IntRange(1_000), default=100_000, show_default=True, help="Of each run.")
def parm(*, only: tuple[str, ...], repeats: int, queries: int) -> None:
    """Show what coded computation brings against as many more workers of the model.

    Only where they are named: accuracy, live (against equal-resources) and live-all (against all), for minutes.

    \b
    Example:
      python -m benchmarks parm --only rates --queries 20000
    """  # noqa: D301 - click's own marks
    for name in only or SECTIONS:
        made = (SECTIONS | LONG)[name](repeats, queries)
        show([made] if isinstance(made, Table) else made)
