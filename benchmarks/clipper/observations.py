"""Truths a second, live: feedback on outcomes, one and many at a time, and by input, with the caches on and off.

An outcome's flags have the members' answers. Whoever has no outcome any more, only the input and its truth, asks the
ensemble again and feeds back on what comes: that is the thesis' case, whose cache answers for the members.
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
from spillway.topology.load import load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from spillway.lineage.message import Outcome
    from spillway.producers.client.feedback import Feedback
    from spillway.producers.connection import ClientSettings

KINDS: Final = ("forest", "linear", "mlp", "nearest")
ONE, MANY, OFF, ON = "on outcomes", "on outcomes, many at a time", "by input, cache off", "by input, cache on"
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
_MEMBER: Final = """        {0}:
          {{model: "examples.selection.models:Digits", arguments: {{kind: {0}, digits: 300}}{1}}}
"""


class Run(NamedTuple):
    """Acknowledged truths a second, and for each members' evaluations and microseconds of CPU, front and members."""

    rate: float
    evaluated: float
    cpu: float


class _Served:
    """A client of a pipeline with four members, whose caches are on or off; all inputs were asked once."""

    def __init__(self, folder: Path, settings: ClientSettings, stack: ExitStack, name: str, cache: str) -> None:
        self._name, self._run_dir, self._turn = name, folder / name, 0
        file = folder / f"{name}.yaml"
        member = (
            '        {0}: {{model: "examples.selection.models:Digits", arguments: {{kind: {0}, digits: 300}}{1}}}\n'
        )
        file.write_text(_HEAD.format(name=name) + "".join(member.format(kind, cache) for kind in KINDS))
        pipeline = load(file)
        stack.enter_context(serve(pipeline, settings, self._run_dir))
        self._client = stack.enter_context(Client(pipeline, settings, linger=0.001))
        rows, labels = queries(_ROWS)
        self._truths: list[int] = labels.tolist()
        self._inputs = [{"x": row} for row in rows]
        outcomes = dict(self._client.outcomes(self._inputs, window=_WINDOW))
        self._outcomes = [outcomes[place] for place in range(_ROWS)]

    def measure(self, way: str, seconds: float) -> Run:
        """Feed back for so long, and wait until all is acknowledged."""
        self._turn += 1
        began, before = time.monotonic(), self._spent()
        numbers = takewhile(lambda _: time.monotonic() < began + seconds, count())
        if way == MANY:
            sent = self._many_at_a_time(numbers)
        elif way == ONE:
            sent = self._one_by_one((n, self._outcomes[n % _ROWS]) for n in numbers)
        else:  # the ensemble is asked again before each truth
            again = (self._inputs[n % _ROWS] for n in numbers)
            sent = self._one_by_one(self._client.outcomes(again, window=_WINDOW))
        for each in sent:
            each.token(_WITHIN)
        took = time.monotonic() - began
        evaluated, cpu = (now - then for now, then in zip(self._spent(), before, strict=True))
        return Run(len(sent) / took, evaluated / len(sent), 1e6 * cpu / len(sent))

    def _many_at_a_time(self, numbers: Iterator[int]) -> list[Feedback]:
        sent: list[Feedback] = []
        while some := list(islice(numbers, _MANY)):
            truths = [(self._outcomes[n % _ROWS], self._truths[n % _ROWS], None, f"{self._turn}-{n}") for n in some]
            sent += self._client.feedback_many(_LEARNER, truths)
        return sent

    def _one_by_one(self, outcomes: Iterable[tuple[int, Outcome]]) -> list[Feedback]:
        sent, room = [], Semaphore(_WINDOW)
        with ThreadPoolExecutor(_THREADS) as pool:
            for number, outcome in outcomes:
                room.acquire()
                about = _LEARNER, outcome, self._truths[number % _ROWS]
                sent.append(pool.submit(self._client.feedback, *about, feedback_id=f"{self._turn}-{number}"))
                sent[-1].add_done_callback(lambda _: room.release())
        return [each.result() for each in sent]

    def _spent(self) -> tuple[float, float]:
        """Queries that members' workers were given so far, and seconds of CPU of the front and all of them."""
        (front,) = (each for each in entries(self._run_dir, self._name) if each.stage == _STAGE)
        told, process = scrape(front, 0.0), psutil.Process(front.pid)
        if told is None:
            raise SpillwayError(f"{front.name} does not tell its metrics")
        return told.value(names.BATCHED_QUERIES_TOTAL), sum(map(cpu_of, (process, *process.children())))


def observations(folder: Path, settings: ClientSettings, repeats: int, seconds: float) -> Table:
    """All ways in turns."""
    measured: dict[str, list[Run]] = {way: [] for way in (ONE, MANY, OFF, ON)}
    with ExitStack() as stack:
        off = _Served(folder, settings, stack, "observed-off", "")
        on = _Served(folder, settings, stack, "observed-on", ", cache: {bytes: 64MiB}")
        for _ in range(repeats):
            for way, runs in measured.items():
                runs.append((on if way == ON else off).measure(way, seconds))
    cached = [one.rate / other.rate for one, other in zip(measured[ON], measured[OFF], strict=True)]
    saved = [other.cpu / one.cpu for one, other in zip(measured[ON], measured[OFF], strict=True)]
    rows = [
        [way, *(median_spread(each, form) for each, form in zip(zip(*runs, strict=True), _FORMS, strict=True))]
        for way, runs in measured.items()
    ]
    return Table(
        "Truths a second, by outcome and by input, with the members' caches on and off (section 3.4, Caching)",
        ("feedback", "acknowledged truths/s", "evaluations a truth", "CPU us a truth (front and members)"),
        rows,
        (
            f"By input, cache on: {median_spread(cached, '{:.2f}')} times as many as off; the thesis: 1.6 times.",
            f"Off, the front and the members take {median_spread(saved, '{:.1f}')} times as much CPU a truth as on.",
            "By input: the ensemble is asked the same input again, and the truth is fed back on what comes.",
            f"Four models ({', '.join(KINDS)}), {_ROWS} digits that were all asked before; one Python client.",
        ),
    )
