"""Two gateways, a stage and the gate are killed in turn, while a client asks that never repeats what failed.

Each of its requests has to get an answer that fits its input, or a code that says what there is to do, or a connection
that the replica just killed refused or reset. No query may have two outcomes.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import aiohttp

from benchmarks.gateway.replicas import NAME, PARTITIONS, asked, scene
from benchmarks.live_hops import records
from benchmarks.output import Table
from benchmarks.steady import until
from spillway.agents.gateway import statuses
from spillway.agents.supervise.registry import entries

if TYPE_CHECKING:
    from benchmarks.gateway.replicas import Replica, Scene

_ROUNDS: Final = 2
_SETTLED_SECONDS: Final = 1.0  # before another is killed
_PATIENCE: Final = 60.0  # the SLO is 20 s
_CODES: Final = {str(each.http) for each in (*statuses.BY_REASON.values(), statuses.TOO_MANY)} - {"400", "413"}


class Asked(NamedTuple):
    """What came of one request, and when it was under way."""

    replica: int
    began: float
    ended: float
    code: str  # the status, or the kind of the error


class Outage(NamedTuple):
    """One process was killed, and again there."""

    victim: str
    began: float
    ended: float


async def _ask(session: aiohttp.ClientSession, replica: Replica, number: int) -> Asked:
    began = time.monotonic()
    code = await asked(session, replica, number)
    return Asked(replica.number, began, time.monotonic(), code)


def _process(served: Scene, stage: str) -> int:
    """Return the id of the process that serves a stage now; 0 where there is none."""
    found = entries(served.work / "run", NAME)
    return next((each.pid for each in found if each.stage == stage and each.ready and each.alive()), 0)


async def _strike(served: Scene, victim: str) -> Outage:
    """Kill a process, and wait until there is another in its place."""
    began = time.monotonic()
    if victim.startswith("gateway"):
        replica = served.replicas[int(victim[-1])]
        replica.kill()
        replica.start()
        there = replica.listens
    else:
        pid = _process(served, victim)
        os.kill(pid, signal.SIGKILL)

        def there() -> bool:
            return _process(served, victim) not in (0, pid)

    await asyncio.to_thread(until, there, f"another {victim}")
    return Outage(victim, began, time.monotonic())


async def _run(served: Scene, count: int, rate: float) -> tuple[list[Asked], list[Outage]]:
    victims = [*(f"gateway.{each.number}" for each in served.replicas), "double", "gate"] * _ROUNDS
    outages: list[Outage] = []
    tasks: list[asyncio.Task[Asked]] = []
    timeout, connections = aiohttp.ClientTimeout(total=_PATIENCE), aiohttp.TCPConnector(limit=0)

    began = time.monotonic()

    async def strike() -> None:
        for number, victim in enumerate(victims, start=1):
            due = began + number * count / rate / (len(victims) + 1)
            await asyncio.sleep(max(_SETTLED_SECONDS, due - time.monotonic()))
            outages.append(await _strike(served, victim))

    async with aiohttp.ClientSession(timeout=timeout, connector=connections) as session:
        striking = asyncio.create_task(strike())
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            replica = served.replicas[number % len(served.replicas)]
            tasks.append(asyncio.create_task(_ask(session, replica, number)))
        answers = list(await asyncio.gather(*tasks))
        await striking
    return answers, outages


def egress_ids(served: Scene) -> Counter[str]:
    """Count how often each request id is on the egress."""
    return Counter(head.request_id for head, _ in records(served.settings, f"{NAME}.egress", PARTITIONS))


def measure(count: int, rate: float) -> dict[str, Any]:
    with scene(2) as served:
        answers, outages = asyncio.run(_run(served, count, rate))
        ids = egress_ids(served)
    codes = Counter(each.code for each in answers)
    unlike = Counter(f"{each.code} by gateway {each.replica}" for each in answers if not allowed(each, outages))
    away: dict[str, list[float]] = {}
    for outage in outages:
        away.setdefault(outage.victim, []).append(outage.ended - outage.began)
    return {
        "requests": len(answers),
        "rate": rate,
        "codes": dict(codes),
        "unlike": dict(unlike),
        "away_s": away,
        "outcomes": ids.total(),
        "twice": sum(n > 1 for n in ids.values()),
    }


def allowed(answer: Asked, outages: list[Outage]) -> bool:
    """Return whether a request ended as it may: a connection may fail while its own replica is away."""
    if answer.code in ("refused", "reset"):
        own = [each for each in outages if each.victim == f"gateway.{answer.replica}"]
        return any(each.began <= answer.ended and answer.began <= each.ended for each in own)
    return answer.code == "200" or answer.code in _CODES


def broken(result: dict[str, Any]) -> list[str]:
    """Return what is not as promised."""
    found = [f"{n} requests: {code}" for code, n in result["unlike"].items()]
    return found + ([f"{result['twice']} ids are on the egress twice"] if result["twice"] else [])


def table(result: dict[str, Any]) -> Table:
    rows = [[code, str(n)] for code, n in sorted(result["codes"].items())]
    away = "; ".join(f"{name} {', '.join(f'{s:.1f}' for s in each)} s" for name, each in result["away_s"].items())
    notes = (
        f"Killed, and how long until there was another: {away}.",
        f"{result['outcomes']} outcomes on the egress, {result['twice']} ids twice.",
        f"Not as promised: {sum(result['unlike'].values())}.",
    )
    return Table(f"{result['requests']} requests at {result['rate']:g}/s", ("what came", "requests"), rows, notes)
