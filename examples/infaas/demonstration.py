"""INFaaS in view: one application's variants, a load that rises tenfold and falls; `spillway demo infaas` runs this.

Half of the queries ask for any answer that is quick, half for one that is as accurate as can be. No query names a
model. Beside what the variants' workers cost stands what a static choice would cost that is sized for the peak
(`clipper+`: for each kind of query the variant that is cheapest then), which is reckoned by the profiles and not run.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich.table import Table

from examples.selection.training import fitted, queries
from examples.terminal import shown
from spillway.agents.broker import EmbeddedBroker
from spillway.agents.cli.options import cache_dir
from spillway.agents.pages import page
from spillway.agents.supervise.registry import entries
from spillway.agents.supervise.scrape import scrape
from spillway.agents.supervise.service import ServiceSettings, served
from spillway.lineage import metric_names as names
from spillway.producers.client import AsyncClient
from spillway.producers.connection import ClientSettings
from spillway.topology.load import load
from spillway.topology.variants.states import SLACK
from spillway.topology.variants.variant import variants_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from matplotlib.axes import Axes
    from rich.console import Console

    from spillway.lineage.message import Outcome
    from spillway.topology.load import Pipeline
    from spillway.topology.variants.variant import Variant

LOW, HIGH = 8.0, 80.0  # queries a second
TURNS: Final = ((0.0, LOW), (15.0, LOW), (75.0, HIGH), (85.0, HIGH), (95.0, LOW), (135.0, LOW))
"""When the rate turns, in seconds, and what it is then; in between it goes in a line."""
PHASES: Final = {
    "low": (0.0, 15.0),
    "rise": (15.0, 75.0),
    "high": (75.0, 85.0),
    "fall": (85.0, 95.0),
    "low again": (95.0, 135.0),
}
SECONDS: Final = 135.0
GRACE: Final = 60.0  # a first call, and what waits for a worker to come
ASKS: Final = {"quick": {"latency": 0.15, "accuracy": 0.9}, "accurate": {"latency": 0.5, "accuracy": 0.975}}
NOISE: Final = 0.1
STAGE: Final = "digit"
FOLDER: Final = Path(__file__).parents[2] / ".spillway" / "demo" / "infaas"
PAGE: Final = FOLDER / "report.html"
_LOOK: Final = 0.5


@dataclass(slots=True)
class Asked:
    """One query: when it was due, in seconds, what kind it was of, its truth and its outcome."""

    due: float
    kind: str
    truth: int
    outcome: Outcome

    @property
    def flags(self) -> dict[str, Any]:
        return self.outcome.flags.get(STAGE, {})  # type: ignore[no-any-return]

    @property
    def good(self) -> bool:
        return self.outcome.kind == "prediction" and bool(self.flags.get("met")) and not self.outcome.late


@dataclass(slots=True)
class Look:
    """The variants at one moment: how many workers serve, and what all have cost since the beginning."""

    at: float
    workers: dict[str, int]
    cost: float
    orders: int


@dataclass(slots=True)
class Run:
    """All that was asked, and how the variants were meanwhile."""

    variants: tuple[Variant, ...]
    asked: list[Asked] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)

    def phase(self, name: str) -> list[Asked]:
        first, last = PHASES[name]
        return [one for one in self.asked if first <= one.due < last]

    def cost(self, first: float, last: float) -> float:
        inside = [look for look in self.looks if first <= look.at <= last]
        return inside[-1].cost - inside[0].cost

    def most(self, name: str, variant: str) -> int:
        first, last = PHASES[name]
        return max((look.workers.get(variant, 0) for look in self.looks if first <= look.at < last), default=0)


def dues() -> list[float]:
    """When each query is due: one whenever the rate has added up to one more."""
    at = np.linspace(0.0, SECONDS, int(SECONDS * 1_000) + 1)
    rates = np.interp(at, *zip(*TURNS, strict=True))
    came = np.concatenate([[0.0], np.cumsum((rates[1:] + rates[:-1]) / 2 * np.diff(at))])
    due: list[float] = np.interp(np.arange(int(came[-1])), came, at).tolist()
    return due


def look(run_dir: Path, pipeline: str, at: float) -> Look | None:
    """What the front shows of its variants; None while it does not."""
    front = next((entry for entry in entries(run_dir, pipeline) if entry.stage == STAGE), None)
    if front is None:
        return None
    told = scrape(front, at)
    if told is None:
        return None
    workers = told.counts(names.VARIANT_WORKERS, names.VARIANT)
    cost, orders = told.value(names.VARIANT_COST_TOTAL), int(told.value(names.VARIANT_ORDERS_TOTAL))
    return Look(at, workers, cost, orders)


async def ask(run: Run, pipeline: Pipeline, settings: ClientSettings, run_dir: Path, say: Any) -> None:
    """Ask by the clock, and look at the variants."""
    times = dues()
    rows, truths = queries(len(times), seed=7, noise=NOISE)
    kinds = list(ASKS)
    async with AsyncClient(pipeline, settings, linger=0.001, grace=GRACE) as client:
        for needs in ASKS.values():
            await client.online_query({"x": rows[0]}, **(needs | {"latency": 60.0}))  # a first call takes longer
        began = time.monotonic()

        async def one(place: int) -> None:
            await asyncio.sleep(began + times[place] - time.monotonic())
            kind = kinds[place % len(kinds)]
            outcome = await client.online_query({"x": rows[place]}, **ASKS[kind])
            run.asked.append(Asked(times[place], kind, int(truths[place]), outcome))

        async def watch() -> None:
            while (at := time.monotonic() - began) < SECONDS + 1:
                seen = await asyncio.to_thread(look, run_dir, pipeline.spec.name, at)
                if seen is not None:
                    if not run.looks or seen.workers != run.looks[-1].workers:
                        say(f"{at:4.0f} s  " + (_shown(seen.workers) or "no worker"))
                    run.looks.append(seen)
                await asyncio.sleep(_LOOK)

        await asyncio.gather(watch(), *(one(place) for place in range(len(times))))


def _shown(workers: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in workers.items() if count)


def static_choice(variants: tuple[Variant, ...]) -> dict[str, tuple[Variant, int]]:
    """`clipper+`: for each kind of query the variant and its workers that take its share of the peak at least cost."""
    peak = HIGH / len(ASKS) * SLACK
    chosen = {}
    for kind, needs in ASKS.items():
        fit = [each for each in variants if each.accuracy >= needs["accuracy"] and each.latency <= needs["latency"]]
        counts = {each: math.ceil(peak / each.rate) for each in fit}
        best = min(fit, key=lambda each: (counts[each] * each.price, each.name))
        chosen[kind] = (best, counts[best])
    return chosen


def run(console: Console, stack: ExitStack) -> bool:
    """Serve, ask, show; whether all was as promised."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    pipeline = load(Path(__file__).with_name("pipeline.yaml"))
    section = pipeline.spec.stages[0].variants
    assert section is not None  # the file has some
    done = Run(variants_of(section))
    work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spillway-infaas-")))
    broker = stack.enter_context(EmbeddedBroker(work / "kafka", cache_dir=cache_dir(), notice=console.print))
    settings = ClientSettings(bootstrap=broker.bootstrap)

    def say(text: str) -> None:
        console.print(f"  {text}", style="dim", soft_wrap=True)

    stack.enter_context(served(ServiceSettings(pipeline, settings, work / "run"), say=say))
    text = f"{LOW:g} queries a second rise to {HIGH:g} and fall again; durations and costs are emulated"
    console.print(f"\n{text}\n", style="bold")
    asyncio.run(ask(done, pipeline, settings, work / "run", say))
    console.print()
    console.print(by_phase(done))
    rows = told(done)
    for name, value in rows:
        console.print(f"{name:<50} {value}", markup=False, soft_wrap=True)
    write_page(done, rows)
    console.print(f"page  {PAGE}", soft_wrap=True)
    switched = any(done.most("high", each.name) > done.most("low", each.name) for each in done.variants)
    return len(done.asked) == len(dues()) and switched and all(one.outcome.kind != "failed" for one in done.asked)


def by_phase(done: Run) -> Table:
    """What each phase's queries had, and what it cost."""
    table = Table(box=None, pad_edge=False)
    for title in ("", "queries/s", "met %", "wrong %", "p99 ms", "cost/s", "most workers"):
        table.add_column(title, justify="left" if title in ("", "most workers") else "right")
    for name, (first, last) in PHASES.items():
        asked = done.phase(name)
        most = {each.name: done.most(name, each.name) for each in done.variants}
        latencies = [1e3 * (one.outcome.latency or 0.0) for one in asked if one.outcome.kind == "prediction"]
        table.add_row(
            name,
            f"{len(asked) / (last - first):.0f}",
            f"{100 * float(np.mean([one.good for one in asked])):.1f}",
            f"{100 * _wrong(asked):.1f}",
            f"{np.percentile(latencies, 99):.0f}" if latencies else "-",
            f"{done.cost(first, last) / (last - first):.2f}",
            _shown(most),
        )
    return table


def _wrong(asked: list[Asked]) -> float:
    answers = [one for one in asked if one.outcome.kind == "prediction"]
    return float(np.mean([one.outcome.outputs["label"] != one.truth for one in answers])) if answers else math.nan


def told(done: Run) -> list[tuple[str, str]]:
    rows, truths = queries(4_000, seed=11, noise=NOISE)
    accuracy = {kind: float((fitted(kind)(rows).argmax(1) == truths).mean()) for kind in ("linear", "nearest")}
    static = static_choice(done.variants)
    price = sum(each.price * count for each, count in static.values())
    cost, seconds = done.cost(0.0, SECONDS), SECONDS
    by = Counter(one.flags.get("variant", f"none ({one.outcome.kind})") for one in done.asked)
    chosen = ", ".join(f"{kind}: {count} {each.name}" for kind, (each, count) in static.items())
    kinds = {kind: [one.good for one in done.asked if one.kind == kind] for kind in ASKS}
    met = ", ".join(f"{kind} {100 * float(np.mean(good)):.1f}" for kind, good in kinds.items())
    return [
        ("queries", f"{len(done.asked):,}"),
        ("answered by", ", ".join(f"{name} {count:,}" for name, count in by.most_common())),
        ("had what they asked for in time, %", met),
        ("accuracy of the models, measured", ", ".join(f"{kind} {each:.3f}" for kind, each in accuracy.items())),
        ("orders of the controller", str(done.looks[-1].orders)),
        ("cost of all workers, emulated prices", f"{cost:.0f}"),
        (f"clipper+, sized for the peak ({chosen}), reckoned", f"{price * seconds:.0f}"),
        ("clipper+ by that", f"{price * seconds / cost:.2f}x"),
    ]


def write_page(done: Run, rows: list[tuple[str, str]]) -> None:
    charts: dict[str, Callable[[Axes], None]] = {
        "Workers that serve, by variant": lambda axes: _workers(axes, done),
        "Cost a second, and clipper+'s": lambda axes: _costs(axes, done),
        "Latencies by when a query was due; red: not as it asked": lambda axes: _latencies(axes, done),
    }
    text = "What the models answer is real. How long a batch takes on which hardware, and what it costs, is emulated."
    page.write(PAGE, "INFaaS: a load that rises tenfold, and variants", charts, rows, text=text, size=(8.0, 3.0))


def _framed(axes: Axes, label: str) -> None:
    first, last = PHASES["high"]
    axes.axvspan(first, last, color="orange", alpha=0.1, lw=0)
    axes.set(xlabel="s", ylabel=label, xlim=(0, SECONDS))


def _workers(axes: Axes, done: Run) -> None:
    for each in done.variants:
        axes.step(
            [one.at for one in done.looks], [one.workers.get(each.name, 0) for one in done.looks], label=each.name
        )
    axes.legend(frameon=False, fontsize=8, ncols=3)
    _framed(axes, "workers")


def _costs(axes: Axes, done: Run) -> None:
    looks, step = done.looks, 4
    pairs = list(zip(looks[:-step], looks[step:], strict=True))
    at = [late.at for _, late in pairs]
    axes.step(at, [(late.cost - early.cost) / (late.at - early.at) for early, late in pairs], label="the stage")
    static = sum(each.price * count for each, count in static_choice(done.variants).values())
    axes.axhline(static, color="black", ls="--", lw=1, label="clipper+")
    axes.legend(frameon=False, fontsize=8)
    _framed(axes, "cost/s")


def _latencies(axes: Axes, done: Run) -> None:
    for good, color in ((True, "tab:blue"), (False, "red")):
        some = [one for one in done.asked if one.good is good]
        latencies = [1e3 * (one.outcome.latency or 0.0) for one in some]
        axes.plot([one.due for one in some], latencies, ".", ms=2, color=color)
    axes.set_yscale("log")
    _framed(axes, "ms")


def main() -> int:
    return shown("queries say what they need; variants come and go as the load does", run)
