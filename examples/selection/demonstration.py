"""Clipper's selection layer in view (section 3.5 of Crankshaw's thesis); `spillway demo clipper-selection` runs this.

Five digit models behind one stage, served on Kafka. Each answer's truth is sent half a second later. Then the best
model is broken: it sees its inputs inverted and says nothing of it. Later it recovers. One member has a tail, for
which no query waits longer than `wait`.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from rich.table import Table

from examples.selection.training import queries
from examples.terminal import shown
from spillway.agents.broker import EmbeddedBroker
from spillway.agents.cli.options import cache_dir
from spillway.agents.core.routes.ensemble import EVERYWHERE
from spillway.agents.learning.chosen import selection_of
from spillway.agents.pages import page
from spillway.agents.supervise.service import ServiceSettings, served
from spillway.producers.client import AsyncClient
from spillway.producers.connection import ClientSettings
from spillway.producers.published import Published
from spillway.topology.load import load
from spillway.topology.topics import table_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from matplotlib.axes import Axes
    from rich.console import Console

    from spillway.lineage.message import Outcome
    from spillway.topology.load import Pipeline

RATE, SECONDS, BREAK_AT, MEND_AT = 25.0, 75.0, 20.0, 40.0
TRUTH_AFTER: Final = 0.5  # seconds from an answer to its truth
STAGE, BROKEN, SLOW = "digit", "nearest", "forest"
LEARNER: Final = f"{STAGE}-weights"
WINDOW: Final = 3.0  # seconds of a point of the charts
FOLDER: Final = Path(__file__).parents[2] / ".spillway" / "demo" / "clipper-selection"
PAGE: Final = FOLDER / "report.html"
SWITCH: Final = FOLDER / "broken"
PHASES: Final = {"before": (0.0, BREAK_AT), "broken": (BREAK_AT, MEND_AT), "mended": (MEND_AT, SECONDS)}


@dataclass(slots=True)
class Asked:
    """One query: when it was due and how long it took in seconds, its truth and its outcome."""

    due: float
    took: float
    truth: int
    outcome: Outcome

    @property
    def members(self) -> dict[str, dict[str, Any]]:
        return self.outcome.flags.get(STAGE, {}).get("members", {})  # type: ignore[no-any-return]

    @property
    def declined(self) -> bool:
        return bool(self.outcome.outputs.get("label") == -1)

    def wrong(self, who: str | None = None) -> float:
        """Whether the stage, or one of its members, was wrong; NaN where it gave no answer."""
        if who is None:
            return float("nan") if self.declined else float(self.outcome.outputs["label"] != self.truth)
        told = self.members.get(who, {})
        return float(told["answer"] != self.truth) if "answer" in told else float("nan")


@dataclass(slots=True)
class Run:
    """All queries, and the members' weights over time."""

    members: list[str]
    asked: list[Asked] = field(default_factory=list)
    weights: list[tuple[float, dict[str, float]]] = field(default_factory=list)
    acknowledged: int = 0

    def phase(self, name: str) -> list[Asked]:
        first, last = PHASES[name]
        return [one for one in self.asked if first <= one.due < last]

    def error(self, asked: list[Asked], who: str | None = None) -> float:
        """The share of wrong answers among those given."""
        wrong = [each for one in asked if (each := one.wrong(who)) == each]
        return float(np.mean(wrong)) if wrong else float("nan")

    def weight(self, who: str, at: float) -> float:
        return next((weights[who] for when, weights in reversed(self.weights) if when <= at), 1 / len(self.members))


async def ask(run: Run, pipeline: Pipeline, settings: ClientSettings, weights: Any, say: Any) -> None:
    """Ask by the clock, send truths, break the switch and mend it."""
    rows, truths = queries(int(RATE * SECONDS), seed=5)
    async with AsyncClient(pipeline, settings, linger=0.001) as client:
        await client.predict({"x": rows[0]}, deadline=60.0)  # a first call takes longer
        began = time.monotonic()

        async def one(place: int) -> None:
            due = place / RATE
            await asyncio.sleep(began + due - time.monotonic())
            outcome = await client.predict({"x": rows[place]})
            run.asked.append(Asked(due, time.monotonic() - began - due, int(truths[place]), outcome))
            await asyncio.sleep(TRUTH_AFTER)
            sent = await client.feedback(LEARNER, outcome, int(truths[place]))
            await asyncio.to_thread(sent.token, 30.0)
            run.acknowledged += 1

        async def switch() -> None:
            for at, what, change in ((BREAK_AT, "broken", SWITCH.touch), (MEND_AT, "mended", SWITCH.unlink)):
                await asyncio.sleep(began + at - time.monotonic())
                change()
                say(f"{at:4.0f} s  [bold red]{BROKEN} is {what}[/]")

        async def watch() -> None:
            while time.monotonic() < began + SECONDS:
                run.weights.append((time.monotonic() - began, weights()))
                if len(run.weights) % 20 == 0:
                    told = ", ".join(f"{name} {share:.2f}" for name, share in run.weights[-1][1].items())
                    late = [each for each in run.asked if each.due > time.monotonic() - began - 5]
                    say(f"{time.monotonic() - began:4.0f} s  error {100 * run.error(late):3.0f} %  weights: {told}")
                await asyncio.sleep(0.25)

        await asyncio.gather(switch(), watch(), *(one(place) for place in range(len(rows))))


def run(console: Console, stack: ExitStack) -> bool:
    """Serve, ask, show; whether all was as promised."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    SWITCH.unlink(missing_ok=True)
    stack.callback(SWITCH.unlink, missing_ok=True)
    pipeline = load(Path(__file__).with_name("pipeline.yaml"))
    ensemble = pipeline.spec.stages[0].ensemble
    assert ensemble is not None  # the file has one
    members, policy = list(ensemble.members), selection_of(STAGE, ensemble.selection)
    work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spillway-selection-")))
    broker = stack.enter_context(EmbeddedBroker(work / "kafka", cache_dir=cache_dir(), notice=console.print))
    settings = ClientSettings(bootstrap=broker.bootstrap)

    def say(text: str) -> None:
        console.print(f"  {text}", style="dim", soft_wrap=True)

    stack.enter_context(served(ServiceSettings(pipeline, settings, work / "run"), say=say))
    topic = table_of(pipeline.spec, LEARNER)
    table = stack.enter_context(Published(settings, topic, partitions=pipeline.spec.partitions, shards=1))

    def weights() -> dict[str, float]:
        row = table.find(EVERYWHERE)
        return policy.weights(policy.initial(members) if row is None else row.value, members)

    console.print(f"\n{RATE:g} queries a second; the truth of each {TRUTH_AFTER:g} s after its answer\n", style="bold")
    done = Run(members)
    asyncio.run(ask(done, pipeline, settings, weights, say))
    console.print()
    console.print(by_member(done))
    rows = told(done)
    for name, value in rows:
        console.print(f"{name:<62} {value}", markup=False)
    write_page(done, rows)
    console.print(f"page  {PAGE}", soft_wrap=True)
    ends = [done.weight(BROKEN, last) for _, last in PHASES.values()]
    return done.acknowledged == len(done.asked) == int(RATE * SECONDS) and ends[1] < min(ends[0], ends[2])


def by_member(done: Run) -> Table:
    """Errors and weights of the members in each phase."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for name in PHASES:
        table.add_column(f"error % {name}", justify="right")
    for name in PHASES:
        table.add_column(f"weight, end of {name}", justify="right")
    table.add_column("missing %", justify="right")
    for who in (*done.members, None):
        errors = [f"{100 * done.error(done.phase(name), who):.1f}" for name in PHASES]
        weights = ["" if who is None else f"{done.weight(who, last):.2f}" for _, last in PHASES.values()]
        missing = [] if who is None else [who in one.members and "answer" not in one.members[who] for one in done.asked]
        share = f"{100 * float(np.mean(missing)):.1f}" if missing else ""
        table.add_row("the stage" if who is None else who, *errors, *weights, share)
    return table


def told(done: Run) -> list[tuple[str, str]]:
    latencies = 1e3 * np.array([one.took for one in done.asked])
    slow = [not one.members.get(SLOW, {"answer": 0}).keys() >= {"answer"} for one in done.asked]
    declined = [f"{100 * np.mean([one.declined for one in done.phase(name)]):.1f}" for name in PHASES]
    return [
        ("queries, truths acknowledged", f"{len(done.asked):,}, {done.acknowledged:,}"),
        (f"declined as too few members agree, %: {', '.join(PHASES)}", ", ".join(declined)),
        ("latency ms, median and 99th percentile", "{:.0f}, {:.0f}".format(*np.percentile(latencies, (50, 99)))),
        (f"queries that did not wait for {SLOW}'s tail", f"{sum(slow):,}"),
    ]


def write_page(done: Run, rows: list[tuple[str, str]]) -> None:
    charts: dict[str, Callable[[Axes], None]] = {
        "Weights of the members": lambda axes: _weights(axes, done),
        f"Errors, over {WINDOW:g} s each": lambda axes: _errors(axes, done),
        "Latencies by when a query was due": lambda axes: _latencies(axes, done),
    }
    title = f"Clipper: five models, one of which fails from {BREAK_AT:g} to {MEND_AT:g} s"
    page.write(PAGE, title, charts, rows, size=(8.0, 3.0))


def _phases(axes: Axes, label: str) -> None:
    axes.axvspan(BREAK_AT, MEND_AT, color="red", alpha=0.08, lw=0)
    axes.set(xlabel="s", ylabel=label, xlim=(0, SECONDS))
    axes.legend(frameon=False, fontsize=8, ncols=3)


def _weights(axes: Axes, done: Run) -> None:
    for name in done.members:
        axes.plot([at for at, _ in done.weights], [weights[name] for _, weights in done.weights], label=name)
    _phases(axes, "share of the vote")


def _errors(axes: Axes, done: Run) -> None:
    starts = np.arange(0.0, SECONDS - WINDOW / 2, WINDOW)
    parts = [[one for one in done.asked if start <= one.due < start + WINDOW] for start in starts]
    for who in (*done.members, None):
        errors = [100 * done.error(part, who) for part in parts]
        style: dict[str, Any] = {"lw": 2.2, "color": "black"} if who is None else {"lw": 0.9}
        axes.plot(starts + WINDOW / 2, errors, label=who or "the stage", **style)
    _phases(axes, "% wrong")


def _latencies(axes: Axes, done: Run) -> None:
    axes.plot([one.due for one in done.asked], [1e3 * one.took for one in done.asked], ".", ms=2, label="a query")
    _phases(axes, "ms")


def main() -> int:
    return shown("five models behind one stage; truths say which of them to believe", run)
