"""Truths a second, live: feedback on outcomes, which carry the members' answers, beside asking the models once more.

Clipper joins feedback with predictions through its cache, which answers for models that were asked before (section 3.4
of Crankshaw's thesis, "Caching"). Here the join is in the outcome's flags; without them each truth costs an evaluation.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

from agents.supervise.service import ServiceSettings, served
from benchmarks.output import Table, median_spread
from examples.selection.training import queries
from producers.client import Client
from topology.load import load

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from producers.client.feedback import Feedback
    from producers.connection import ClientSettings

KINDS: Final = ("forest", "linear", "mlp", "nearest")
_LEARNER, _THREADS, _WITHIN = "digit-weights", 16, 60.0
_HEAD: Final = """
name: observed
slo: 60s
stages:
  - name: digit
    policy: naive
    ensemble:
      members:
"""


def _rate(seconds: float, send: Callable[[int], Feedback]) -> float:
    """Acknowledged observations a second, of several threads that send one after another."""
    began = time.monotonic()

    def repeatedly(thread: int) -> list[Feedback]:
        sent: list[Feedback] = []
        while time.monotonic() < began + seconds:
            sent.append(send(thread + _THREADS * len(sent)))
        return sent

    with ThreadPoolExecutor(_THREADS) as pool:
        sent = [each for some in pool.map(repeatedly, range(_THREADS)) for each in some]
    for each in sent:
        each.token(_WITHIN)
    return len(sent) / (time.monotonic() - began)


def observations(folder: Path, settings: ClientSettings, repeats: int, seconds: float) -> Table:
    """Both ways in turns."""
    file = folder / "observed.yaml"
    member = '        {0}: {{model: "examples.selection.models:Digits", arguments: {{kind: {0}, digits: 300}}}}\n'
    file.write_text(_HEAD + "".join(map(member.format, KINDS)))
    pipeline = load(file)
    rows, truths = queries(500)
    rates: dict[str, list[float]] = {"on outcomes": [], "asked once more": []}
    with (
        served(ServiceSettings(pipeline, settings, folder / "observed"), say=lambda _text: None),
        Client(pipeline, settings, linger=0.001) as client,
    ):
        outcomes = [client.predict({"x": row}) for row in rows[:100]]

        def on_outcome(number: int, repeat: int) -> Feedback:
            place = number % len(outcomes)
            return client.feedback(_LEARNER, outcomes[place], int(truths[place]), feedback_id=f"{repeat}-{number}")

        def asked_again(number: int) -> Feedback:
            place = number % len(rows)
            return client.feedback(_LEARNER, client.predict({"x": rows[place]}), int(truths[place]))

        for repeat in range(repeats):
            rates["on outcomes"].append(_rate(seconds, partial(on_outcome, repeat=repeat)))
            rates["asked once more"].append(_rate(seconds, asked_again))
    times = [first / again for first, again in zip(*rates.values(), strict=True)]
    return Table(
        "Truths a second, with the members' answers in hand and without (section 3.4, Caching)",
        ("feedback", "acknowledged truths/s"),
        [[name, median_spread(each, "{:.0f}")] for name, each in rates.items()],
        (
            f"On outcomes: {median_spread(times, '{:.1f}')} times as many; the thesis, cache on and off: 1.6 times.",
            f"Four models ({', '.join(KINDS)}); {_THREADS} threads of one Python client, each waiting for the broker.",
        ),
    )
