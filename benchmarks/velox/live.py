"""Served: what an update takes (Figure 2.3), how many a second and how soon they count, drifts and switches."""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from benchmarks.output import Table, median_spread, times
from benchmarks.scene import serve
from benchmarks.steady import PATIENCE, Sent, Steady, until
from benchmarks.velox.latency import CATALOGUE, RATINGS, Numbers, dual
from examples.velox.demonstration import STALE
from examples.velox.listening import LISTENERS, made
from examples.velox.songs import Rotation
from spillway.agents.learning.velox import observed
from spillway.agents.learning.velox.learning import HELD, rows_of
from spillway.agents.learning.velox.served import Served
from spillway.agents.learning.velox.weights import fitted, naive
from spillway.lineage.errors import SpillwayError
from spillway.lineage.message import PREDICTION
from spillway.producers.client import Client
from spillway.producers.generations import ASKED, SWITCHED, TRAINED, Followed
from spillway.topology import topics
from spillway.topology.load import load

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from spillway.agents.models.state import State
    from spillway.producers.connection import ClientSettings
    from spillway.topology.load import Pipeline

DIMENSIONS: Final = (16, 64, 256)
FORMS: Final = {"naive": naive, "Sherman-Morrison": None, "dual": dual}
USERS, ASKS, K = 10_000, 20.0, 10
HELD_WITHIN: Final = 1.0  # seconds, at p99, in which observations are acknowledged where a rate is held
_NUMBERS: Final = "benchmarks.velox.latency:Numbers"
_FILE: Final = """
name: velox-{name}
slo: 60s
partitions: 4
stages:
  - {{name: rank, model: "velox:{model}", arguments: {{{arguments}}}, tables: {{user: {{of: taste}}}}}}
learners:
  - name: taste
    model: "{of}"
    arguments: {{{arguments}{more}}}
    state: {{kind: keyed, shards: 2}}
    publish: true
"""


class Timed(Served):
    """Updates users by the form that their keys begin with; each has RATINGS observations from its beginning on."""

    def __init__(self, dimension: int) -> None:
        super().__init__(partial(Numbers, dimension), {})
        self._ms = 0.0  # of the last update, on the processor

    def initialize(self, shared: State) -> State:
        state: Any = super().initialize(shared)
        rng, each, kept = np.random.default_rng(0), state[HELD]["0"], observed.none()
        for item, value in zip(rng.integers(CATALOGUE, size=RATINGS).tolist(), rng.normal(size=RATINGS), strict=True):
            kept = observed.added(kept, item, value, RATINGS)
        rows, values = rows_of(self.thetas.own, kept)
        each["w"], each["inverse"] = fitted(rows, values, self.model.regularization, each["prior"])
        return {**state, **kept}

    def _computed(self, states: Mapping[str, State], query: Any) -> dict[str, Any]:
        return {**super()._computed(states, query), "ms": self._ms}

    def _learned(self, state: dict[str, Any], shared: dict[str, Any], seen: Any, user: str) -> dict[str, Any]:
        began, form = time.thread_time(), FORMS[user.split("/", 1)[0]]
        if form is None:
            learned = super()._learned(state, shared, seen, user)
        else:
            kept = observed.added(state, seen.item, seen.value, RATINGS)
            rows, values = rows_of(self.thetas.own, kept)
            each = state[HELD]["0"]
            weights = form(rows, values, self.model.regularization, each["prior"])
            learned = {HELD: {"0": {**each, "w": weights}}, **kept}
        self._ms = 1e3 * (time.thread_time() - began)
        return learned


@contextmanager
def _serving(
    folder: Path, settings: ClientSettings, name: str, **what: str
) -> Iterator[tuple[Pipeline, Client, Client]]:
    """A pipeline with its learner, and clients of both."""
    file = folder / f"{name}.yaml"
    file.write_text(_FILE.format(**({"name": name, "of": f"velox:{what['model']}", "more": ""} | what)))
    pipeline = load(file)
    with (
        serve(pipeline, settings, folder / name, policy="naive"),
        Client(pipeline, settings, grace=PATIENCE, in_flight=1 << 20) as asked,
        Client(pipeline.learner("taste"), settings, grace=PATIENCE, in_flight=1 << 20) as told,
    ):
        yield pipeline, asked, told


def _ms(sent: list[Sent]) -> list[float]:
    """Latencies. Raises SpillwayError where an outcome is no prediction."""
    for each in sent:
        if each.outcome.kind != PREDICTION:
            raise SpillwayError(f"a query or an observation {each.outcome.kind}: {each.outcome.text}")
    return [1e3 * each.took for each in sent]


def _parts(values: list[float]) -> str:
    return "{:.0f}, {:.0f}".format(*np.percentile(values, (50, 99)))


def _truth(rng: np.random.Generator) -> dict[str, Any]:
    return {"truth": {"item": int(rng.integers(CATALOGUE)), "value": float(rng.normal())}}


def live_updates(folder: Path, settings: ClientSettings, repeats: int, rate: float = 20.0) -> Table:
    """One observation after the other is due; forms by turns."""
    rows, rng, seconds = [], np.random.default_rng(0), 3.0
    for dimension in DIMENSIONS:
        took: dict[str, list[list[float]]] = {form: [] for form in FORMS}
        own: dict[str, list[float]] = {form: [] for form in FORMS}
        what = {"of": "benchmarks.velox.live:Timed", "model": _NUMBERS, "arguments": f"dimension: {dimension}"}
        with _serving(folder, settings, f"updates-{dimension}", **what) as (*_, told):
            for turn in range(repeats + 1):
                for form in FORMS:
                    send = lambda number: told.submit(_truth(rng), key=f"{form}/{number % 8}")  # noqa: B023, E731
                    sent = Steady(rate, send, seconds if turn else 1.0).whole()  # at first, users come
                    if turn:
                        took[form].append(_ms(sent))
                        own[form] += [each.outcome.outputs["ms"] for each in sent[10:]]
        for form, runs in took.items():
            parts = [median_spread([float(np.percentile(run, part)) for run in runs], "{:.0f}") for part in (50, 99)]
            rows.append([str(dimension), form, *parts, median_spread(own[form], "{:.3f}")])
    return Table(
        "Live: from when an observation is due to its acknowledgement (Figure 2.3)",
        ("d", "update", "p50 ms", "p99 ms", "the update's own ms of processor time"),
        rows,
        (
            f"{rate:g} a second, users of {RATINGS} observations, {repeats} runs of {seconds:g} s by turns.",
            "Own: with what is kept of observations, which naive and dual read anew.",
        ),
    )


def rate(folder: Path, settings: ClientSettings, seconds: float = 4.0) -> Table:
    """The highest rate at which observations are acknowledged beside queries, by doubling, then halving the gap."""
    rng, steps = np.random.default_rng(0), {}
    with _serving(folder, settings, "rate", model=_NUMBERS, arguments="dimension: 50") as (_, asked, told):
        users = rng.permutation(USERS).tolist()
        numbers = itertools.count()

        def observe(_number: int) -> Any:
            return told.submit(_truth(rng), key=f"u{users[next(numbers) % USERS]}")

        def ask(number: int) -> Any:
            return asked.submit({"k": K}, key=f"u{users[number % USERS]}")

        def step(rate: float) -> bool:
            both = Steady(rate, observe, seconds), Steady(ASKS, ask, seconds)
            for each in both:
                each.start()
            steps[rate] = [_ms(each.rest()) for each in both]
            return bool(np.percentile(steps[rate][0], 99) <= 1e3 * HELD_WITHIN)

        for _ in range(USERS // 500):  # all users come
            Steady(500.0, observe, 1.0).whole()
        low, high = 0.0, 100.0
        while step(high):
            low, high = high, 2 * high
        for _ in range(3):
            middle = (low + high) / 2
            low, high = (middle, high) if step(middle) else (low, middle)
        shown = {share: _seen(asked, Steady(max(1.0, share * low), observe), rng) for share in (0.1, 0.5)}
    rows = [[f"{each:.0f}", *map(_parts, steps[each]), "yes" if each <= low else "no"] for each in sorted(steps)]
    rows += [[f"{each * low:.0f}", _parts(at), f"visible: {_parts(seen)}", ""] for each, (at, seen) in shown.items()]
    return Table(
        f"Live: observations beside {ASKS:g} queries a second, {USERS:,} users",
        ("observations/s", "until acknowledged, p50, p99, ms", "queries, p50, p99, ms", "held"),
        rows,
        (
            f"Sustained: {low:.0f} a second, 99 % acknowledged within {HELD_WITHIN:g} s of when they were due.",
            f"{seconds:g} s each; d = 50, the {K} best of {CATALOGUE:,}.",
            "Visible: until a query with `after` an observation was answered with it; 20 more observations a second.",
        ),
    )


def _seen(asked: Client, beside: Steady, rng: np.random.Generator) -> tuple[list[float], list[float]]:
    """From when an observation was due, ms: until its acknowledgement, and until a query is answered with it."""
    beside.start()
    asked.feedback("taste", "u0", _truth(rng)["truth"]).token(PATIENCE)  # connects
    began = time.time()

    def one(number: int) -> tuple[float, float]:
        due = began + number / 20
        time.sleep(max(0.0, due - time.time()))
        key = f"u{number}"
        token = asked.feedback("taste", key, _truth(rng)["truth"]).token(PATIENCE)
        acknowledged = time.time() - due
        while "stale" in asked.predict({"k": K}, key=key, after=token).flags["rank"]:
            continue  # it has waited for a second
        return 1e3 * acknowledged, 1e3 * (time.time() - due)

    with ThreadPoolExecutor(64) as pool:
        acknowledged, seen = map(list, zip(*pool.map(one, range(180)), strict=True))
    _ms(beside.end())
    return acknowledged, seen


def drifts(folder: Path, settings: ClientSettings, repeats: int) -> Table:
    """All songs become others: until it is noticed, and until new features are served; queries meanwhile."""
    rows, ratios, queries, before, calm = [], [], 0, 0, 10.0
    for repeat in range(repeats):
        sent, drift, alarms, events = _drift(folder, settings, f"drift-{repeat}", repeat + 1, calm)
        asks, trained, switched = events
        spans = (drift - calm, drift), (asks[0], trained[0]), (trained[0], switched[0] + 1)
        took = [[1e3 * each.took for each in sent if begin <= each.due < end] for begin, end in spans]
        seen = [float(np.percentile(each, 99)) for each in took]
        ratios.append(seen[2] / seen[0])
        queries, before = queries + len(sent), before + alarms
        told_at = [f"{at[0] - drift:.1f}" for at in events]
        count = sum(at < trained[0] for at in asks)
        rows.append([*told_at, str(count), *(f"{each:.0f}" for each in seen), times(ratios[-1])])
    return Table(
        "Live: all songs change; seconds since then, and the p99 of queries, ms",
        ("stale", "trained", "switched", "tries", "before", "until trained", "around the switch", "to before"),
        rows,
        (
            f"Before: {calm:g} s. Around the switch: from when features are trained to a second after they are served;",
            f"p99 was then {median_spread(ratios, '{:.2f}')} times that before.",
            f"Found stale before the songs changed: {before} times. {queries:,} queries, all answered.",
            f"40 queries and 60 generated ratings a second, {LISTENERS} listeners; stale: {STALE}.",
        ),
    )


def _drift(
    folder: Path, settings: ClientSettings, name: str, seed: int, calm: float
) -> tuple[list[Sent], float, int, list[list[float]]]:
    """One drift: the queries, when it was, how often features were found stale before, and what happened after."""
    world, other = made(seed)
    rng, drift = np.random.default_rng(seed), float("inf")
    what = {"model": "examples.velox.songs:Rotation", "arguments": f"folder: {folder / f'{name}-thetas'}"}
    with _serving(folder, settings, name, **what, more=f", stale: {STALE}") as (pipeline, asked, told):

        def tell(number: int) -> Any:
            listener, song = number % LISTENERS, int(rng.integers(Rotation.songs))
            now = other if time.time() > drift else world
            value = float(now.rated(listener, np.array([song]), rng)[0]) - Rotation.middle
            return told.submit({"truth": {"item": f"song-{song}", "value": value}}, key=f"listener-{listener}")

        def ask(number: int) -> Any:
            return asked.submit({"k": K}, key=f"listener-{number % LISTENERS}")

        loads = Steady(40.0, ask), Steady(60.0, tell)
        with Followed(settings, topics.generations(pipeline.learner("taste").spec.name)) as log:
            for load in loads:
                load.start()
            time.sleep(2 * calm)
            drift = time.time()
            until(lambda: all(_when(log, drift)) and log.now.open is None, "a switch after a drift")
            time.sleep(1.0)
            queries, _ = (load.end() for load in loads)
            _ms(queries)
            return queries, drift, len(_when(log, 0.0)[0]) - len(_when(log, drift)[0]), _when(log, drift)


def _when(log: Followed, since: float) -> list[list[float]]:
    """When generations were asked for, trained and switched to."""
    events = [each for one in list(log.now.known.values()) for each in one.events if each["at"] > since]
    return [sorted(each["at"] for each in events if each["event"] == kind) for kind in (ASKED, TRAINED, SWITCHED)]
