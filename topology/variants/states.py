"""A variant's life, and the two marks that keep queries from it (INFaaS, section 4, Fig. 4).

The life is over all workers of a variant; one worker's own is in `spillway.agents.core.workers`. `LIFE` is all of it:
what is not in the table cannot happen, and raises. The figure has Inactive, Active, Overloaded and Interfered; the last
two are marks here, beside the life, of a variant that is active. Loading, Draining and Failed are ours.

    event      meaning
    ordered    somebody wants workers of it
    dropped    nobody wants any
    ready      it has a worker that is ready
    died       a worker died: while it loads the variant has failed, while it is active others serve
    lost       its last ready worker died; whoever holds the order starts another
    late       what was ordered is not there in time
    gone       its last worker has ended

Marks take two reports in a row to come and to go, so one odd report changes nothing:

* overloaded: its load is at least what it can do at its peak, over the slack;
* interfered: not overloaded, and the median batch takes more than 1.2 times the profile's at that size.

A variant that was interfered in `STALE` reports in a row is not: its profile is stale. From then on the measured ratio
counts in (`slower`), until two reports agree with the profile again.
"""

from __future__ import annotations

import statistics
from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from spillway.topology.variants.variant import Variant

SLACK: Final = 1.05  # INFaaS, section 5
INTERFERED: Final = 1.2
STALE: Final = 10  # reports
_TWICE: Final = 2
_GRACE: Final = 30.0  # seconds: a host's start
_LATE: Final = 3.0  # loads
_FIRST_RETRY: Final = 1.0  # seconds
_LAST_RETRY: Final = 60.0


class State(StrEnum):
    """Where a variant is in its life."""

    INACTIVE = "inactive"
    LOADING = "loading"
    ACTIVE = "active"
    DRAINING = "draining"
    FAILED = "failed"


class Event(StrEnum):
    """What happens to a variant."""

    ORDERED = "ordered"
    DROPPED = "dropped"
    READY = "ready"
    DIED = "died"
    LOST = "lost"
    LATE = "late"
    GONE = "gone"


LIFE: Final[dict[tuple[State, Event], State]] = {
    (State.INACTIVE, Event.ORDERED): State.LOADING,
    (State.INACTIVE, Event.READY): State.DRAINING,  # nobody ordered it: its front tells it Bye
    (State.LOADING, Event.ORDERED): State.LOADING,
    (State.LOADING, Event.READY): State.ACTIVE,
    (State.LOADING, Event.DIED): State.FAILED,
    (State.LOADING, Event.LATE): State.FAILED,
    (State.LOADING, Event.DROPPED): State.DRAINING,
    (State.ACTIVE, Event.ORDERED): State.ACTIVE,
    (State.ACTIVE, Event.READY): State.ACTIVE,
    (State.ACTIVE, Event.DIED): State.ACTIVE,
    (State.ACTIVE, Event.LATE): State.ACTIVE,
    (State.ACTIVE, Event.LOST): State.LOADING,
    (State.ACTIVE, Event.DROPPED): State.DRAINING,
    (State.DRAINING, Event.ORDERED): State.LOADING,
    (State.DRAINING, Event.READY): State.DRAINING,
    (State.DRAINING, Event.DIED): State.DRAINING,
    (State.DRAINING, Event.GONE): State.INACTIVE,
    (State.FAILED, Event.ORDERED): State.LOADING,
    (State.FAILED, Event.READY): State.FAILED,  # too late: its order is taken back
    (State.FAILED, Event.DIED): State.FAILED,
    (State.FAILED, Event.DROPPED): State.FAILED,
}


@dataclass(frozen=True, slots=True)
class Told:
    """What the fronts of a stage say of one variant."""

    ready: int = 0  # workers that serve, busy or not
    alive: int = 0  # those, and those that load or drain
    died: int = 0  # since the last report
    load: float = 0.0  # queries a second that came to it
    p50: float | None = None  # seconds of a batch at the worker; None: there was none
    batch: int = 1  # queries of that batch
    wait: float = 0.0  # seconds in its lane, as expected


@dataclass(slots=True)
class _Mark:
    """What two reports in a row agree on."""

    on: bool = False
    other: int = 0  # reports in a row that say otherwise

    def say(self, on: bool) -> None:  # noqa: FBT001 - what is said
        self.other = self.other + 1 if on != self.on else 0
        if self.other >= _TWICE:
            self.on, self.other = on, 0


@dataclass(slots=True)
class Life:
    """One variant's state and marks. `now` is in seconds and does not decrease."""

    variant: Variant
    slack: float = SLACK
    state: State = State.INACTIVE
    since: float = 0.0
    slower: float = 1.0
    """Times its profile that batches take, where that is stale."""
    failures: int = 0
    retry: float = 0.0
    """When it may be loaded again, after it has failed."""
    told: Told = field(default_factory=Told)
    _overloaded: _Mark = field(default_factory=_Mark)
    _interfered: _Mark = field(default_factory=_Mark)
    _ratios: deque[float] = field(default_factory=lambda: deque(maxlen=STALE))
    _agreed: int = 0

    @property
    def overloaded(self) -> bool:
        return self.state is State.ACTIVE and self._overloaded.on

    @property
    def interfered(self) -> bool:
        return self.state is State.ACTIVE and self._interfered.on and not self._overloaded.on

    @property
    def marked(self) -> bool:
        return self.overloaded or self.interfered

    @property
    def rate(self) -> float:
        """Queries a second of one worker at its peak, as far as is known."""
        return self.variant.rate / self.slower

    @property
    def latency(self) -> float:
        return self.variant.overhead + (self.variant.latency - self.variant.overhead) * self.slower

    def on(self, now: float, event: Event) -> None:
        """Let an event happen. Raises ValueError for one that cannot happen now."""
        before, following = self.state, LIFE.get((self.state, event))
        if following is None:
            raise ValueError(f"a variant that is {before} cannot be {event}")
        self.state = following
        if self.state is not before:
            self.since = now
        if self.state is not State.ACTIVE:
            self._overloaded, self._interfered = _Mark(), _Mark()
            self._ratios.clear()
        if event is Event.LATE or (event is Event.DIED and before is State.LOADING):
            self.failures += 1
            wait = max(_FIRST_RETRY, self.variant.load) * 2.0 ** min(self.failures - 1, 16)
            self.retry = now + min(_LAST_RETRY, wait)
        elif event is Event.READY and self.state is State.ACTIVE and before is not State.ACTIVE:
            self.failures = 0

    def report(self, now: float, told: Told) -> None:
        """Take a report: what has happened since the last, and how it is doing."""
        for event in self._events(told):
            self.on(now, event)
        self.told = told
        if self.state is State.ACTIVE:
            self._look(told)

    @property
    def patience(self) -> float:
        """Seconds until a worker that was ordered should be there."""
        return _LATE * self.variant.load + _GRACE

    def _events(self, told: Told) -> list[Event]:
        if self.state is State.ACTIVE:
            return [Event.LOST] if told.ready == 0 else [Event.DIED] if told.died else []
        if self.state is State.DRAINING:
            return [Event.GONE] if told.alive == 0 else []
        if told.ready:
            return [Event.READY]
        return [Event.DIED] if told.died and self.state is not State.INACTIVE else []

    def _look(self, told: Told) -> None:
        profiled = self.variant.duration(told.batch)
        if told.p50 is not None:
            self._drift(told.p50 / profiled)
        self._overloaded.say(told.load >= told.ready * self.rate / self.slack)
        if told.p50 is not None:
            slow = told.p50 > INTERFERED * profiled * self.slower
            self._interfered.say(slow and not self._overloaded.on)

    def _drift(self, ratio: float) -> None:
        """Tell interference, which passes or is moved away from, from a profile that is wrong."""
        self._agreed = self._agreed + 1 if ratio <= INTERFERED else 0
        if self.slower > 1.0 and self._agreed >= _TWICE:
            self.slower = 1.0
        if ratio > INTERFERED * self.slower and not self._overloaded.on:
            self._ratios.append(ratio)
        else:
            self._ratios.clear()
        if len(self._ratios) == STALE:
            self.slower = statistics.median(self._ratios)
            self._ratios.clear()
            self._interfered = _Mark()
