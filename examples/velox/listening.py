"""The demonstration's listeners: what they think of songs, when they ask and rate, and what became of it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from examples.velox.ratings import World
from examples.velox.songs import Rotation
from spillway.lineage.errors import SpillwayError
from spillway.lineage.message import PREDICTION
from spillway.producers.client import AsyncClient
from spillway.producers.generations import SWITCHED, TRAINED, Followed

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.lineage.message import Outcome
    from spillway.lineage.tokens import Token
    from spillway.producers.connection import ClientSettings
    from spillway.topology.load import Pipeline

LEARNER: Final = "taste"
LISTENERS, NEWCOMERS, RATINGS, K = 40, 6, 30, 10
RATE, LEARN, DRIFT = 40.0, 25.0, 40.0  # plays a second; seconds until newcomers come, and until songs change at least
PATIENCE, SETTLE = 60.0, 15.0  # seconds from the drift to the last switch at most, and from there to the end
PHASES: Final = ("learning", "learned", "drifted", "switching", "switched")


@dataclass(slots=True)
class Play:
    """A query and the rating after it: seconds, the share of the ten best songs, the squared error; NaN if dropped."""

    due: float
    took: float
    share: float = float("nan")
    loss: float = float("nan")

    @property
    def answered(self) -> bool:
        return self.loss == self.loss


@dataclass(slots=True)
class Run:
    """What has happened; times are seconds since the first play."""

    log: Followed
    worlds: tuple[World, World]  # before the drift and after it
    slo: float
    began: float = 0.0
    drift: float = float("inf")  # when the songs change
    plays: list[Play] = field(default_factory=list)
    newcomers: list[list[float]] = field(default_factory=list)  # the share by the number of ratings
    acknowledged: Counter[str] = field(default_factory=Counter)  # by listener
    kept: Counter[str] = field(default_factory=Counter)  # in the learner's published state, at the end

    @property
    def now(self) -> float:
        return time.time() - self.began

    def world(self) -> World:
        return self.worlds[self.now >= self.drift]

    def events(self) -> list[tuple[float, int, dict[str, Any]]]:
        known = list(self.log.now.known.values())
        told = [(event["at"] - self.began, each.number, dict(event)) for each in known for event in each.events]
        return sorted(told, key=lambda each: each[0])

    def when(self, kind: str) -> dict[int, float]:
        return {number: at for at, number, event in self.events() if event["event"] == kind}

    def phase(self, name: str) -> list[Play]:
        """`switching` is from when new features are there until a second after they are served."""
        trained, switched = self.when(TRAINED), self.when(SWITCHED)
        fills = [(trained[number], at + 1.0) for number, at in switched.items()]
        last = max((end for _, end in fills), default=float("inf"))

        def of(at: float) -> str:
            if any(first <= at < end for first, end in fills):
                return PHASES[3]
            return PHASES[(at >= LEARN) + (at >= self.drift) + 2 * (at >= last)]

        return [play for play in self.plays if of(play.due) == name]

    def error(self, plays: list[Play]) -> float:
        """Root mean squared, in stars; each rating was predicted before it was learned."""
        return float(np.sqrt(np.mean([play.loss for play in plays]))) if plays else float("nan")


def made(seed: int = 1) -> tuple[World, World]:
    """New listeners of the world that the features come from, and the same of songs that are others."""
    rng = np.random.default_rng(seed)
    first, count = Rotation.world(), LISTENERS + NEWCOMERS
    tastes = first.tastes.mean(0) + rng.normal(size=(count, first.tastes.shape[1])) * 0.7
    biases = rng.normal(size=count) * 0.4
    others = rng.permutation(first.items)
    return World(first.items, tastes, biases), World(others, tastes, biases)


def share(world: World, listener: int, outcome: Outcome) -> float:
    best = {f"song-{place}" for place in np.argsort(-world.worth(listener))[:K]}
    return len(best & set(outcome.outputs["items"])) / K


async def rate(run: Run, client: AsyncClient, listener: int, outcome: Outcome, song: int) -> tuple[Token, float]:
    """Rate a song, wait until that is durable: where it stands, and the squared error of what was predicted."""
    value = float(run.world().rated(listener, np.array([song]), np.random.default_rng())[0])
    truth = {"item": f"song-{song}", "value": value - Rotation.middle}
    sent = await client.feedback(LEARNER, outcome, truth)
    token = await asyncio.to_thread(sent.token, 30.0)
    run.acknowledged[f"listener-{listener}"] += 1
    return token, float(sent.outcome(0).outputs["loss"])


async def play(run: Run, client: AsyncClient, due: float, rng: np.random.Generator) -> None:
    """A listener asks when it is due, and rates one of the songs played, or one heard elsewhere."""
    listener, elsewhere = int(rng.integers(LISTENERS)), int(rng.integers(Rotation.songs))
    slot = int(rng.integers(K)) if rng.random() < 0.5 else None
    await asyncio.sleep(run.began + due - time.time())
    outcome = await client.predict({"k": K}, key=f"listener-{listener}")
    took = run.now - due
    if outcome.kind != PREDICTION:
        run.plays.append(Play(due, took))
        return
    found = share(run.world(), listener, outcome)
    song = elsewhere if slot is None else int(outcome.outputs["items"][slot].removeprefix("song-"))
    _, loss = await rate(run, client, listener, outcome, song)
    run.plays.append(Play(due, took, share=found, loss=loss))


async def join(run: Run, client: AsyncClient, listener: int) -> None:
    """A newcomer hears ten songs, rates the first that is new, and asks again."""
    shares: list[float] = []
    run.newcomers.append(shares)
    token, heard = None, set[int]()
    await asyncio.sleep(run.began + LEARN - time.time())
    for _ in range(RATINGS + 1):
        outcome = await client.predict({"k": K}, key=f"listener-{listener}", after=token, deadline=10.0)
        if outcome.kind != PREDICTION:
            raise SpillwayError(f"a newcomer was not answered: {outcome.kind}, {outcome.reason} {outcome.text}")
        shares.append(share(run.world(), listener, outcome))
        played = [int(song.removeprefix("song-")) for song in outcome.outputs["items"]]
        song = next((song for song in played if song not in heard), played[0])
        heard.add(song)
        token, _ = await rate(run, client, listener, outcome, song)


async def listen(run: Run, pipeline: Pipeline, settings: ClientSettings, say: Callable[[str], None]) -> None:
    """Play by the clock until the features have been switched and have settled, or nothing comes of it in time."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(48))
    rng, number, told = np.random.default_rng(5), 0, 0
    async with AsyncClient(pipeline, settings, grace=30.0, linger=0.001) as client, asyncio.TaskGroup() as tasks:
        await client.predict({"k": K}, key="nobody", deadline=60.0)  # a first call takes longer
        run.began = time.time()
        coming = [tasks.create_task(join(run, client, LISTENERS + each)) for each in range(NEWCOMERS)]
        while run.now < min(run.drift, 2 * DRIFT) + PATIENCE:
            tasks.create_task(play(run, client, number / RATE, rng))
            number += 1
            await asyncio.sleep(run.began + number / RATE - time.time())
            if number % round(5 * RATE) == 0:
                late = [each for each in run.plays[-round(3 * RATE) :] if each.answered]
                mean = 100 * np.mean([each.share for each in late]) if late else float("nan")
                say(f"{run.now:4.0f} s  error {run.error(late):.2f} stars, {mean:3.0f} % of the ten best are played")
            if run.drift > run.now > DRIFT and all(task.done() for task in coming):
                run.drift = run.now
                say(f"{run.now:4.0f} s  [bold red]the songs are others than they were[/]")
            events = run.events()
            for at, generation, event in events[told:]:
                say(f"{at:4.0f} s  [bold]generation {generation}: {event['event']}[/] {words(event)}")
            told = len(events)
            switched = run.when(SWITCHED)
            if switched and run.now > max(switched.values()) + SETTLE and run.log.now.open is None:
                break


def words(event: dict[str, Any]) -> str:
    if "new" in event:
        return f"{event['new']:.2f} on {event['held']} held-out ratings, was {event['old']:.2f}"
    return str(event.get("why", ""))
