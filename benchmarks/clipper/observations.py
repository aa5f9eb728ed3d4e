"""Truths a second, live: feedback on outcomes, one and many at a time, and by input, with the caches on and off.

Clipper joins feedback with predictions through its cache, which answers for models that were asked before (section 3.4
of Crankshaw's thesis, "Caching"). Here an outcome's flags have the members' answers. Whoever has no outcome any more,
only the input and its truth, asks the ensemble again and feeds back on what comes: that is the thesis' case.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count, islice, takewhile
from threading import Semaphore
from typing import TYPE_CHECKING, Final, NamedTuple

import psutil

from benchmarks.output import Table, median_spread
from benchmarks.scene import cpu_of, serve
from examples.selection.training import queries
from spillway.agents.supervise.registry import entries
from spillway.agents.supervise.scrape import scrape
from spillway.lineage import metric_names as names
from spillway.lineage.errors import SpillwayError
from spillway.producers.client import Client
from spillway.producers.client.feedback import Feedback
from spillway.topology.load import load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from spillway.lineage.message import Outcome
    from spillway.producers.connection import ClientSettings

KINDS: Final = ("forest", "linear", "mlp", "nearest")
_STAGE, _LEARNER = "digit", "digit-weights"
_THREADS, _WINDOW, _WITHIN = 16, 128, 60.0
_ROWS: Final = 500
_MANY: Final = 500  # truths of one call
_FORMS: Final = ("{:.0f}", "{:.1f}", "{:.0f}")
_HEAD: Final = """
name: {name}
slo: 60s
stages:
  - name: digit
    policy: naive
    ensemble:
      members:
"""


class Run(NamedTuple):
    """Acknowledged truths a second, and for each members' evaluations and microseconds of CPU, front and members."""

    rate: float
    evaluated: float
    cpu: float


class _Served:
    """A client of a pipeline with four members, whose caches are on or off; all inputs were asked once."""

    def __init__(self, folder: Path, settings: ClientSettings, stack: ExitStack, cache: str) -> None:
        self._name = name = f"observed-{cache}"
        self._run_dir = folder / name
        file = folder / f"{name}.yaml"
        kept = ", cache: {bytes: 64MiB}" if cache == "on" else ""
        member = (
            '        {0}: {{model: "examples.selection.models:Digits", arguments: {{kind: {0}, digits: 300}}{1}}}\n'
        )
        file.write_text(_HEAD.format(name=name) + "".join(member.format(kind, kept) for kind in KINDS))
        pipeline = load(file)
        stack.enter_context(serve(pipeline, settings, self._run_dir))
        self._client = stack.enter_context(Client(pipeline, settings, linger=0.001))
        rows, self._truths = queries(_ROWS)
        self._inputs = [{"x": row} for row in rows]
        outcomes = dict(self._client.outcomes(self._inputs, window=_WINDOW))
        self._outcomes = [outcomes[place] for place in range(_ROWS)]
        self._turn = 0

    def on_outcomes(self, seconds: float) -> Run:
        """Feed back on outcomes that are in hand."""
        self._turn += 1
        until = time.monotonic() + seconds
        return self._rate(enumerate(self._outcomes[n % _ROWS] for n in _counted(until)), f"{self._turn}-")

    def many_at_a_time(self, seconds: float) -> Run:
        """Feed back on outcomes that are in hand, by calls of many that wait for nobody."""
        self._turn += 1
        began, evaluated, cpu = time.monotonic(), *self._spent()
        numbers, sent = _counted(began + seconds), list[Feedback]()
        while some := list(islice(numbers, _MANY)):
            sent += self._client.feedback_many(
                _LEARNER,
                [(self._outcomes[n % _ROWS], int(self._truths[n % _ROWS]), None, f"{self._turn}-{n}") for n in some],
            )
        return self._run(sent, began, evaluated, cpu)

    def by_input(self, seconds: float) -> Run:
        """Ask the ensemble again before each truth."""
        until = time.monotonic() + seconds
        again = self._client.outcomes((self._inputs[n % _ROWS] for n in _counted(until)), window=_WINDOW)
        return self._rate(again, "")

    def _rate(self, outcomes: Iterable[tuple[int, Outcome]], turn: str) -> Run:
        began, evaluated, cpu = time.monotonic(), *self._spent()
        room = Semaphore(_WINDOW)

        def send(number: int, outcome: Outcome) -> Feedback:
            own = f"{turn}{number}" if turn else None
            try:
                return self._client.feedback(_LEARNER, outcome, int(self._truths[number % _ROWS]), feedback_id=own)
            finally:
                room.release()

        sent = []
        with ThreadPoolExecutor(_THREADS) as pool:
            for number, outcome in outcomes:
                room.acquire()
                sent.append(pool.submit(send, number, outcome))
        return self._run([each.result() for each in sent], began, evaluated, cpu)

    def _run(self, sent: list[Feedback], began: float, evaluated: float, cpu: float) -> Run:
        """Wait until all is acknowledged."""
        for each in sent:
            each.token(_WITHIN)
        rate = len(sent) / (time.monotonic() - began)
        evaluated, cpu = (now - before for now, before in zip(self._spent(), (evaluated, cpu), strict=True))
        return Run(rate, evaluated / len(sent), 1e6 * cpu / len(sent))

    def _spent(self) -> tuple[float, float]:
        """Queries that members' workers were given so far, and seconds of CPU of the front and all of them."""
        (front,) = (each for each in entries(self._run_dir, self._name) if each.stage == _STAGE)
        told, process = scrape(front, 0.0), psutil.Process(front.pid)
        if told is None:
            raise SpillwayError(f"{front.name} does not tell its metrics")
        return told.value(names.BATCHED_QUERIES_TOTAL), sum(map(cpu_of, (process, *process.children())))


def _counted(until: float) -> Iterator[int]:
    return takewhile(lambda _: time.monotonic() < until, count())


def observations(folder: Path, settings: ClientSettings, repeats: int, seconds: float) -> Table:
    """All ways in turns."""
    ways = ("on outcomes", "on outcomes, many at a time", "by input, cache off", "by input, cache on")
    measured: dict[str, list[Run]] = {way: [] for way in ways}
    with ExitStack() as stack:
        off, on = (_Served(folder, settings, stack, cache) for cache in ("off", "on"))
        for _ in range(repeats):
            for way, measure in zip(
                ways, (off.on_outcomes, off.many_at_a_time, off.by_input, on.by_input), strict=True
            ):
                measured[way].append(measure(seconds))
    in_hand, many, cache_off, cache_on = measured.values()
    cached = [one.rate / other.rate for one, other in zip(cache_on, cache_off, strict=True)]
    saved = [other.cpu / one.cpu for one, other in zip(cache_on, cache_off, strict=True)]
    together = [one.rate / other.rate for one, other in zip(many, in_hand, strict=True)]
    asked = [one.rate / other.rate for one, other in zip(in_hand, cache_off, strict=True)]
    return Table(
        "Truths a second, by outcome and by input, with the members' caches on and off (section 3.4, Caching)",
        ("feedback", "acknowledged truths/s", "evaluations a truth", "CPU us a truth (front and members)"),
        [
            [way, *(median_spread(each, form) for each, form in zip(zip(*runs, strict=True), _FORMS, strict=True))]
            for way, runs in measured.items()
        ],
        (
            f"By input, cache on: {median_spread(cached, '{:.2f}')} times as many as off; the thesis: 1.6 times.",
            f"Off, the front and the members take {median_spread(saved, '{:.1f}')} times as much CPU a truth as on.",
            f"On outcomes: {median_spread(asked, '{:.1f}')} times as many as by input, cache off.",
            f"Many, {_MANY} in a call: {median_spread(together, '{:.1f}')} times as many as one at a time.",
            "By input: the ensemble is asked the same input again, and the truth is fed back on what comes.",
            f"Four models ({', '.join(KINDS)}), {_ROWS} digits that were all asked before; one Python client.",
        ),
    )
