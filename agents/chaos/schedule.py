"""What strikes which worker when: a list of timed events over slots, the same for each seed.

A slot is a place for a worker, whoever has it. Strategies that are compared get one schedule over as many slots as the
largest has workers; what strikes a slot that is empty strikes nobody. Each kind of load draws from a generator of its
own, so that more of one changes nothing of another.

Background load is that of the ParM paper (sections 5.1 and 5.2.4): shuffles, between two workers at a time, and light
multitenancy, on every ninth worker. Neither network nor processor is taken: a worker is stopped (SIGSTOP) for as long
as a query would have waited. How often and how long was set once, on one cell of the paper's Figure 11
(`equal-resources`, 270 queries/s), where a query takes 24 ms, and is not changed from one experiment to the next.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

TRANSFER: Final = (128e6, 256e6)  # bytes of a shuffle
BANDWIDTH: Final = 110e6  # bytes a second of it
STALLS: Final = 0.06 / 0.024  # a second, of a worker that shuffles: 6 % of queries of 24 ms meet one
STALL_SECONDS: Final = 0.0085  # mean
TENANT_EVERY: Final = 9
TENANT_QUERIES: Final = 0.05 / 0.024  # a second: 5 % of queries meet one
TENANT_SECONDS: Final = 0.024  # at most
DELAY_PERIOD: Final = 0.01  # seconds: a delayed worker stands still for half of each


class Kind(StrEnum):
    """What is done to a worker."""

    STOP = "stop"
    KILL = "kill"
    HOG = "hog"


@dataclass(frozen=True, slots=True, order=True)
class Event:
    """A strike. `at`, in seconds from the beginning, and how many `seconds` it lasts; a kill lasts none."""

    at: float
    slot: int
    kind: Kind
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Often:
    """Once in `every` seconds on average, for `lasts` seconds on average (half to one and a half of it)."""

    every: float
    lasts: float = 0.0


@dataclass(frozen=True, slots=True)
class Load:
    """What goes on; each of the first four strikes a worker at random, as often as it says."""

    slow: Often | None = None
    """A worker stands still (SIGSTOP)."""
    kill: Often | None = None
    hog: Often | None = None
    """A process takes up the processor that the worker is on."""
    delay: Often | None = None
    """A worker runs at half its speed."""
    shuffles: int = 0
    """How many go on at any time."""
    multitenancy: bool = False


def schedule(load: Load, slots: int, seconds: float, seed: int) -> list[Event]:
    events: list[Event] = []
    for kind, name in ((Kind.STOP, "slow"), (Kind.KILL, "kill"), (Kind.HOG, "hog")):
        events += [Event(at, slot, kind, lasts) for at, slot, lasts in _drawn(load, name, slots, seconds, seed)]
    for at, slot, lasts in _drawn(load, "delay", slots, seconds, seed):
        pulses = range(round(lasts / DELAY_PERIOD))
        events += [Event(at + n * DELAY_PERIOD, slot, Kind.STOP, DELAY_PERIOD / 2) for n in pulses]
    for number in range(load.shuffles if slots > 1 else 0):
        events += _shuffles(slots, seconds, _random(f"{seed} shuffle {number}"))
    for slot in range(0, slots if load.multitenancy else 0, TENANT_EVERY):
        draw = _random(f"{seed} tenant {slot}")
        arrivals = _poisson(TENANT_QUERIES, 0.0, seconds, draw)
        events += [Event(at, slot, Kind.STOP, draw.uniform(0.0, TENANT_SECONDS)) for at in arrivals]
    return sorted(event for event in events if event.at < seconds)


def _drawn(load: Load, name: str, slots: int, seconds: float, seed: int) -> Iterator[tuple[float, int, float]]:
    often: Often | None = getattr(load, name)
    if often is None:
        return
    draw = _random(f"{seed} {name}")
    for at in _poisson(1 / often.every, 0.0, seconds, draw):
        yield at, draw.randrange(slots), often.lasts * draw.uniform(0.5, 1.5)


def _random(seed: str) -> random.Random:
    return random.Random(seed)  # noqa: S311 (no secret)


def _shuffles(slots: int, seconds: float, draw: random.Random) -> Iterator[Event]:
    now = 0.0
    while now < seconds:
        ends = now + draw.uniform(*TRANSFER) / BANDWIDTH
        for slot in draw.sample(range(slots), 2):
            for at in _poisson(STALLS, now, ends, draw):
                yield Event(at, slot, Kind.STOP, draw.expovariate(1 / STALL_SECONDS))
        now = ends


def _poisson(rate: float, now: float, end: float, draw: random.Random) -> Iterator[float]:
    while (now := now + draw.expovariate(rate)) < end:
        yield now
