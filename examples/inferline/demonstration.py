"""Plans that follow the load in view (InferLine, chapter 4 of Crankshaw's thesis); `spillway demo inferline` runs this.

The Image Processing pipeline at a pace that a laptop keeps: durations and SLO times five, on the thesis' emulated
hardware. A plan is made for a sample at 15 queries a second and served with a tuner, while the load rises to 50. Beside
it, on the same queries, the cheapest plan that keeps the SLO on all of them, which needs to know them before.
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich.table import Table

from examples.inferline import slowed
from examples.inferline.followed import HOUR, Run, watched
from examples.terminal import shown
from spillway.agents.broker import EmbeddedBroker
from spillway.agents.cli.commands.provision import provision
from spillway.agents.cli.options import cache_dir
from spillway.agents.pages import page
from spillway.agents.supervise.service import ServiceSettings, served
from spillway.lineage.errors import SpillwayError
from spillway.producers.client.exchange import Exchange
from spillway.producers.connection import ClientSettings
from spillway.producers.load import recipes, traces
from spillway.producers.load.generator import Pace, generated, run_load
from spillway.topology.capacity.plan import read_plan
from spillway.topology.capacity.served import planned
from spillway.topology.load import load

if TYPE_CHECKING:
    from contextlib import ExitStack

    from matplotlib.axes import Axes
    from numpy.typing import NDArray
    from rich.console import Console

    from spillway.topology.capacity.plan import Plan
    from spillway.topology.load import Pipeline

PIPELINE: Final = "image"
LIVE: Final = ("poisson:rate=15,for=60s", "poisson:rate=15..50,for=65s", "poisson:rate=50,for=5s")
SAMPLES: Final = {"tuned": ("poisson:rate=15,for=5min",), "fixed": LIVE}
NAMES: Final = {"tuned": "planned for 15/s, tuned", "fixed": "planned for all of it, fixed"}
HOP: Final = "10ms"  # what a hop through Kafka takes about on a laptop, for the planner to count on
LEAD: Final = 1.0  # a load begins a second after it is asked for
GRACE: Final = 20.0
WINDOW: Final = 5.0  # seconds of a point of the charts
FOLDER: Final = Path(__file__).parents[2] / ".spillway" / "demo" / "inferline"
PAGE: Final = FOLDER / "report.html"


def plan_for(console: Console, which: str, seed: int) -> tuple[Pipeline, Path]:
    """The pipeline as planned for a sample, by `spillway plan provision`, and the plan's file."""
    file, sample = slowed.pipeline_file(PIPELINE, f"inferline-{which}", FOLDER), FOLDER / f"{which}.csv"
    traces.write_times(sample, recipes.make(SAMPLES[which], seed))
    plan = FOLDER / f"{which}-plan.yaml"
    options = {"--hardware": FOLDER / "hardware.yaml", "--profiles": FOLDER / "profiles.yaml", "--hop": HOP, "-o": plan}
    words = [str(file), str(sample), *(str(word) for option in options.items() for word in option)]
    short = [Path(word).name if "/" in word else word for word in words]
    console.print(f"[bold]{NAMES[which]}[/]: spillway plan provision {' '.join(short)}", soft_wrap=True)
    provision.main(words, standalone_mode=False)
    return planned(load(file), read_plan(plan)), plan


def run(console: Console, stack: ExitStack) -> bool:
    """Plan, serve, load, show; whether nothing was lost, and the workers followed."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    slowed.profiles_file(FOLDER, kinds=slowed.THESIS)
    slowed.hardware_file(FOLDER, slowed.THESIS)
    made = {which: plan_for(console, which, seed) for seed, which in enumerate(NAMES)}
    work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spillway-inferline-")))
    broker = stack.enter_context(EmbeddedBroker(work / "kafka", cache_dir=cache_dir(), notice=console.print))
    settings = ClientSettings(bootstrap=broker.bootstrap)
    due = recipes.make(LIVE, seed=list(NAMES).index("fixed"))
    console.print(f"\nboth are served, on emulated accelerators, and asked the same {len(due):,} queries", style="bold")
    for which, (pipeline, file) in reversed(made.items()):  # a tuner that waits for a load orders fewer workers
        stack.enter_context(
            served(
                ServiceSettings(
                    pipeline,
                    settings,
                    work / "run",
                    policy="naive",
                    tune=which == "tuned",
                    sizes=("--sizes", str(file)),
                ),
                say=lambda text: console.print(f"  {text}", markup=False, style="dim"),
            )
        )
    runs = loaded({which: read_plan(file) for which, (_, file) in made.items()}, settings, work / "run", due, console)
    table = rows(runs)
    console.print()
    console.print(told(table))
    write_page(runs, due, table)
    console.print(f"page  {PAGE}", soft_wrap=True)
    followed = any(min(series) < max(series) for series in runs["tuned"].workers.ready.values())
    return followed and all(each.lost == 0 == each.result.duplicates for each in runs.values())


def loaded(
    plans: dict[str, Plan], settings: ClientSettings, run_dir: Path, due: NDArray[np.float64], console: Console
) -> dict[str, Run]:
    """The same load on each of the served plans, at the same time."""
    runs: dict[str, Run] = {}
    failures: list[SpillwayError] = []

    def follow(which: str) -> None:
        plan = plans[which]
        exchange = Exchange(settings, plan.pipeline, linger=0.001)
        try:
            queries = generated(due, lambda index, _: {"index": index})
            with watched(run_dir, plan, time.monotonic() + LEAD, say) as workers:
                result = run_load(exchange, queries, Pace(slo=plan.slo, grace=GRACE))
            runs[which] = Run(plan, result, workers)
        except SpillwayError as error:
            failures.append(error)
        finally:
            exchange.close()

    def say(text: str) -> None:
        console.print(f"  {text}", markup=False, highlight=False)

    threads = [threading.Thread(target=follow, args=(which,), name=which, daemon=True) for which in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return {which: runs[which] for which in plans}


def rows(runs: dict[str, Run]) -> list[list[str]]:
    """A row for each figure, with a column for each run."""
    every = list(runs.values())
    found = {
        "plan, cost an hour": [f"${each.plan.cost:.2f}" for each in every],
        "cost of the run": [f"${each.workers.costs()[-1]:.4f}" for each in every],
        "the same an hour": [f"${HOUR * each.workers.costs()[-1] / each.workers.times[-1]:.2f}" for each in every],
        "not within the SLO": [f"{100 * each.misses.mean():.2f} %" for each in every],
        "latency, p99": [f"{1e3 * each.p99:.0f} ms" for each in every],
        "queries": [f"{len(each.latency):,}" for each in every],
        "of them lost, answered twice": [f"{each.lost}, {each.result.duplicates}" for each in every],
    }
    for name in every[0].plan.stages:
        ready = [each.workers.ready[name] for each in every]
        found[f"workers of {name}, ready"] = [
            str(min(each)) if min(each) == max(each) else f"{min(each)} to {max(each)}" for each in ready
        ]
    return [[name, *values] for name, values in found.items()]


def told(table: list[list[str]]) -> Table:
    made = Table("emulated accelerators", box=None, pad_edge=False)
    for name in NAMES.values():
        made.add_column(name, justify="right")
    for row in table:
        made.add_row(*row)
    return made


# The page ------------------------------------------------------------------------------------------------------


def write_page(runs: dict[str, Run], due: NDArray[np.float64], table: list[list[str]]) -> None:
    charts: dict[str, Any] = {"Queries a second": lambda axes: _rates(axes, due)}
    for stage in runs["tuned"].plan.stages:
        charts[f"Workers of {stage} (emulated): ready, and dotted, wanted"] = lambda axes, stage=stage: _workers(
            axes, runs, stage
        )
    charts[f"99th percentile of {WINDOW:g} s, ms; the SLO is dashed"] = lambda axes: _tails(axes, runs)
    charts[f"% of the queries of {WINDOW:g} s that are not answered within the SLO"] = lambda axes: _misses(axes, runs)
    charts["Cost so far, $, at the prices of the catalogue"] = lambda axes: _costs(axes, runs)
    text = (
        f"The accelerators are emulated: batches take what the catalogue's profiles say, times {slowed.FACTOR:g}, "
        f"a new worker is ready after its load time. SLO {1e3 * runs['tuned'].plan.slo:g} ms. Times in seconds."
    )
    title = "InferLine: workers that follow the load, beside a plan that knows it"
    page.write(PAGE, title, charts, table, text=text, head=["", *NAMES.values()])


def windowed(due: NDArray[np.float64], values: NDArray[Any], of: Any) -> tuple[NDArray[np.float64], list[float]]:
    """`of` the values of the queries due in each `WINDOW`; NaN where there are none."""
    edges = np.arange(0.0, float(due[-1]), WINDOW)
    parts = np.split(values, np.searchsorted(due, edges[1:]))
    return edges + WINDOW / 2, [float(of(part)) if len(part) else np.nan for part in parts]


def _rates(axes: Axes, due: NDArray[np.float64]) -> None:
    axes.plot(*windowed(due, due, lambda part: len(part) / WINDOW))
    axes.set(ylim=(0, None))


def _workers(axes: Axes, runs: dict[str, Run], stage: str) -> None:
    for number, (which, each) in enumerate(runs.items()):
        workers = each.workers
        axes.step(workers.times, workers.ready[stage], where="post", color=f"C{number}", label=NAMES[which])
        axes.step(workers.times, workers.wanted[stage], ":", where="post", color=f"C{number}")
    axes.set(ylim=(0, None))
    axes.legend(fontsize=7)


def _tails(axes: Axes, runs: dict[str, Run]) -> None:
    for which, each in runs.items():
        tails = windowed(each.result.due, 1e3 * each.latency, lambda part: np.nanquantile(part, 0.99))
        axes.plot(*tails, label=NAMES[which])
    axes.axhline(1e3 * runs["tuned"].plan.slo, color="grey", ls="--", lw=0.9)
    axes.set(ylim=(0, None))
    axes.legend(fontsize=7)


def _misses(axes: Axes, runs: dict[str, Run]) -> None:
    for which, each in runs.items():
        axes.plot(*windowed(each.result.due, each.misses, lambda part: 100 * part.mean()), label=NAMES[which])
    axes.set(ylim=(0, None))
    axes.legend(fontsize=7)


def _costs(axes: Axes, runs: dict[str, Run]) -> None:
    for which, each in runs.items():
        axes.plot(each.workers.times, each.workers.costs(), label=NAMES[which])
    axes.set(ylim=(0, None))
    axes.legend(fontsize=7)


def main() -> int:
    return shown("the cheapest plan for a sample, and workers that follow the load (emulated)", run)
