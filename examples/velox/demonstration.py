"""Velox in view (chapter 2 of Crankshaw's thesis); `spillway demo velox` runs this.

The radio of songs.yaml, with a rotation of few songs, served on Kafka. Listeners hear ten songs and rate one. Newcomers
are learned rating by rating. Then what the songs are changes, and the features are stale: the model manager notices it
by the errors, retrains in a process of its own, and switches. Ratings are generated: no person has made any.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from rich.table import Table

from examples.terminal import shown
from examples.velox.listening import LEARNER, LISTENERS, NEWCOMERS, PHASES, RATE, RATINGS, Run, listen, made, words
from spillway.agents.broker import EmbeddedBroker
from spillway.agents.cli.options import cache_dir
from spillway.agents.pages import page
from spillway.agents.supervise.service import ServiceSettings, served
from spillway.lineage.errors import SpillwayError
from spillway.producers.connection import ClientSettings
from spillway.producers.generations import ASKED, SWITCHED, TRAINED, Followed
from spillway.producers.published import Published
from spillway.topology import topics
from spillway.topology.load import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack

    from matplotlib.axes import Axes
    from rich.console import Console

    from examples.velox.listening import Play

WINDOW: Final = 2.0  # seconds of a point of the charts
STALE: Final = "{error: 0.95, window: 120}"
SAID: Final = (
    "Listeners and their ratings are generated (examples/velox/ratings.py) and stand in for real ones: "
    "what holds for them may not hold for people. No query is dropped for being late (policy naive)."
)
PAGE: Final = Path(__file__).parents[2] / ".spillway" / "demo" / "velox" / "report.html"


def run(console: Console, stack: ExitStack) -> bool:
    """Serve, listen, show; whether all was as promised."""
    work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spillway-velox-")))
    text = Path(__file__).with_name("songs.yaml").read_text(encoding="utf-8").replace(":Songs", ":Rotation")
    text = text.replace(".spillway/songs", str(work / "thetas")).replace("{window: 200}", STALE)
    (work / "songs.yaml").write_text(text, encoding="utf-8")
    pipeline = load(work / "songs.yaml")
    broker = stack.enter_context(EmbeddedBroker(work / "kafka", cache_dir=cache_dir(), notice=console.print))
    settings = ClientSettings(bootstrap=broker.bootstrap)

    def say(text: str) -> None:
        console.print(f"  {text}", style="dim", soft_wrap=True)

    console.print(SAID, style="bold", soft_wrap=True)
    stack.enter_context(served(ServiceSettings(pipeline, settings, work / "run", policy="naive"), say=say))
    learner = pipeline.learner(LEARNER).spec
    done = Run(stack.enter_context(Followed(settings, topics.generations(learner.name))), made(), pipeline.spec.slo)
    done.log.require()
    console.print(f"\n{LISTENERS} listeners, {RATE:g} plays and ratings a second\n", style="bold")
    try:
        asyncio.run(listen(done, pipeline, settings, say))
    except ExceptionGroup as failed:
        raise SpillwayError(f"a listener got no answer: {failed.exceptions[0]!r}") from failed
    shards = learner.stages[0].shards
    topic = topics.table(learner.name, LEARNER)
    with Published(settings, topic, partitions=learner.partitions, shards=shards) as table:
        table.read()
        until = time.monotonic() + 10.0
        while (kept := counted(table, done)) != done.acknowledged and time.monotonic() < until:
            time.sleep(0.2)
    done.kept.update(kept)
    return show(console, done)


def counted(table: Published, done: Run) -> Counter[str]:
    """How many observations of each listener the learner's published state has."""
    rows = {name: table.find(name) for name in done.acknowledged}
    return Counter({name: row.value["n"] for name, row in rows.items() if row is not None})


def show(console: Console, done: Run) -> bool:
    rows = told(done)
    table = Table(box=None, pad_edge=False)
    for column, name in enumerate(("", *PHASES)):
        table.add_column(name, justify="right" if column else "left")
    for row in by_phase(done):
        table.add_row(*row)
    console.print()
    console.print(table)
    console.print()
    for name, value in rows:
        console.print(f"{name:<50} {value}", markup=False, soft_wrap=True)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    write_page(done, rows)
    console.print(f"page  {PAGE}", soft_wrap=True)
    missing = [name for name, kept in promised(done).items() if not kept]
    for name in missing:
        console.print(f"did not happen: {name}", style="red")
    return not missing


def by_phase(done: Run) -> list[list[str]]:
    phases = [done.phase(name) for name in PHASES]
    answered = [[play for play in plays if play.answered] for plays in phases]
    latencies = [1e3 * np.array([play.took for play in plays] or [np.nan]) for plays in phases]
    return [
        ["queries", *(f"{len(plays):,}" for plays in phases)],
        ["not answered", *(str(len(plays) - len(some)) for plays, some in zip(phases, answered, strict=True))],
        *([f"latency, p{part}, ms", *(f"{np.percentile(each, part):.0f}" for each in latencies)] for part in (50, 99)),
        [f"over {1e3 * done.slo:.0f} ms", *(str(int((each > 1e3 * done.slo).sum())) for each in latencies)],
        ["RMS error, stars", *(f"{done.error(plays):.2f}" for plays in answered)],
        ["best ten played", *(_mean(plays) for plays in answered)],
    ]


def _mean(plays: list[Play]) -> str:
    return f"{100 * np.mean([play.share for play in plays]):.0f} %" if plays else "-"


def told(done: Run) -> list[tuple[str, str]]:
    shares = np.mean(done.newcomers, axis=0)
    counts = [count for count in (0, 5, 10, 20, RATINGS) if count < len(shares)]
    return [
        (
            f"newcomer: best ten after {', '.join(map(str, counts))} ratings",
            ", ".join(f"{100 * shares[count]:.0f} %" for count in counts),
        ),
        ("the songs change", f"{done.drift:.1f} s"),
        *((f"generation {each}: {what['event']}", f"{at:.1f} s  {words(what)}") for at, each, what in done.events()),
        ("ratings acknowledged, in the learner's state", f"{done.acknowledged.total():,}, {done.kept.total():,}"),
    ]  # fmt: skip


def promised(done: Run) -> dict[str, bool]:
    asked, switched = done.when(ASKED), done.when(SWITCHED)
    shares = np.mean(done.newcomers, axis=0)
    _, before, drifted, _, after = (done.error([play for play in done.phase(name) if play.answered]) for name in PHASES)
    return {
        "each query is answered": all(play.answered for play in done.plays),
        "a newcomer's ranking improves": bool(shares[-5:].mean() > shares[0]),
        "the error rises when songs change": drifted > before,
        "features are found stale after the drift, not before": min(asked.values(), default=0.0) > done.drift,
        "new features are switched to, and the error falls": bool(switched) and after < drifted,
        "each acknowledged rating counts once": done.acknowledged == done.kept,
    }


def write_page(done: Run, rows: list[tuple[str, str]]) -> None:
    charts: dict[str, Callable[[Axes], None]] = {
        f"Newcomers: their ten best songs, mean of {NEWCOMERS} and each": lambda axes: _newcomers(axes, done),
        f"Error, over {WINDOW:g} s each": lambda axes: _over_time(axes, done, "stars", done.error),
        "How many of their ten best songs listeners hear": lambda axes: _over_time(
            axes, done, "%", lambda plays: 100 * float(np.mean([play.share for play in plays]))
        ),
        "Latencies by when a query was due": lambda axes: _latencies(axes, done),
    }
    table = [["", *PHASES], *by_phase(done), *([name, value, *[""] * 4] for name, value in rows)]
    title = "Velox: a radio learns its listeners, and notices that its songs have changed"
    page.write(PAGE, title, charts, table[1:], text=SAID, head=table[0], size=(8.0, 3.0))


def _newcomers(axes: Axes, done: Run) -> None:
    for shares in done.newcomers:
        axes.plot(100 * np.array(shares), color="grey", lw=0.5)
    axes.plot(100 * np.mean(done.newcomers, axis=0), lw=2.2, label="mean")
    axes.set(xlabel="ratings given", ylabel="% of the ten best", ylim=(0, 100))
    axes.legend(frameon=False, fontsize=8)


def _over_time(axes: Axes, done: Run, label: str, of: Callable[[list[Play]], float]) -> None:
    plays = [play for play in done.plays if play.answered]
    starts = np.arange(0.0, max(play.due for play in plays), WINDOW)
    parts = [[play for play in plays if start <= play.due < start + WINDOW] for start in starts]
    axes.plot(starts + WINDOW / 2, [of(part) if part else np.nan for part in parts], color="black")
    _marks(axes, done, label)


def _latencies(axes: Axes, done: Run) -> None:
    axes.plot([play.due for play in done.plays], [1e3 * play.took for play in done.plays], ".", ms=2)
    axes.set(yscale="log")
    _marks(axes, done, "ms")


def _marks(axes: Axes, done: Run, label: str) -> None:
    axes.axvline(done.drift, color="red", lw=1, label="the songs change")
    for kind, color in ((ASKED, "orange"), (TRAINED, "blue"), (SWITCHED, "green")):
        for place, at in enumerate(done.when(kind).values()):
            axes.axvline(at, color=color, lw=1, ls="--", label=None if place else kind)
    axes.set(xlabel="s", ylabel=label)
    axes.legend(frameon=False, fontsize=8, ncols=4)


def main() -> int:
    return shown("a radio that learns its listeners, and whose songs change", run)
