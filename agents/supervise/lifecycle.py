"""The life of one supervised process, as a table: when it is started, restarted, given up, stopped or killed.

Pure: the supervisor says what it sees and what time it is, and does what it is told.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MISUSED = 2  # a child's exit code: its input is wrong, so that starting it again changes nothing
FENCED = 3  # likewise: another process has taken its ids, so that whose they are has to be known first
FLAPS_FROM = 3  # deaths that no service has made good, from which on a place is told to flap


class State(StrEnum):
    """Where a child is in its life."""

    BACKING_OFF = "backing off"  # not running; will be started when its delay is over (none at first)
    STARTING = "starting"  # running, has not said yet that it is ready
    RUNNING = "running"
    STOPPING = "stopping"  # was asked to end
    STOPPED = "stopped"
    FAILED = "failed"  # given up


class Event(StrEnum):
    """What can happen to a child."""

    DUE = "due"  # its delay is over
    READY = "ready"
    LATE = "late"  # it should have been ready by now
    STALLED = "stalled"  # the watchdog saw no progress while there was work
    DIED = "died"
    HOPELESS = "hopeless"  # it died once too often, or says that another try is no use
    TAKEN_OVER = "taken over"  # a standby's process goes on in the dead one's place, which counts as a restart
    LENT = "lent"  # it is a standby, and its process has gone to take another child's place
    STOP = "stop"
    GRACE_OVER = "grace over"  # it should have ended by now


class Action(StrEnum):
    """What the supervisor is to do."""

    NOTHING = "nothing"
    START = "start"
    TERMINATE = "terminate"
    KILL = "kill"


# What is not in the table changes nothing. A kill leaves the state as it is: the death that follows moves it on.
TRANSITIONS: dict[tuple[State, Event], tuple[State, Action]] = {
    (State.BACKING_OFF, Event.DUE): (State.STARTING, Action.START),
    (State.BACKING_OFF, Event.TAKEN_OVER): (State.STARTING, Action.NOTHING),
    (State.BACKING_OFF, Event.STOP): (State.STOPPED, Action.NOTHING),
    (State.STARTING, Event.READY): (State.RUNNING, Action.NOTHING),
    (State.STARTING, Event.LATE): (State.STARTING, Action.KILL),
    (State.STARTING, Event.DIED): (State.BACKING_OFF, Action.NOTHING),
    (State.STARTING, Event.HOPELESS): (State.FAILED, Action.NOTHING),
    (State.STARTING, Event.STOP): (State.STOPPING, Action.TERMINATE),
    (State.RUNNING, Event.STALLED): (State.RUNNING, Action.KILL),
    (State.RUNNING, Event.DIED): (State.BACKING_OFF, Action.NOTHING),
    (State.RUNNING, Event.HOPELESS): (State.FAILED, Action.NOTHING),
    (State.RUNNING, Event.LENT): (State.BACKING_OFF, Action.NOTHING),
    (State.RUNNING, Event.STOP): (State.STOPPING, Action.TERMINATE),
    (State.STOPPING, Event.DIED): (State.STOPPED, Action.NOTHING),
    (State.STOPPING, Event.HOPELESS): (State.STOPPED, Action.NOTHING),
    (State.STOPPING, Event.GRACE_OVER): (State.STOPPING, Action.KILL),
}
ALIVE = frozenset({State.STARTING, State.RUNNING, State.STOPPING})
ENDED = frozenset({State.STOPPED, State.FAILED})


@dataclass(frozen=True)
class RestartPolicy:
    """How hard to try. Durations in seconds.

    Each death counts until the child has been ready for `forgiven_after` afterwards: so long a service makes one death
    good. The n-th death that counts is answered with a restart after `first_delay` * 2**(n-1), at most `longest_delay`,
    less up to the share `jitter` of it, so that several that died together do not come back together. A standby that
    went to take over has its successor after `lent_delay`: loading it must not take the processor from what is taken
    over.

    Restarts never end once the pipeline has been ready as a whole, or if it had answered queries before, unless
    `give_up` is set: then the death that makes so many count is the last. Before that moment somebody waits to hear
    whether the pipeline can be served at all: there `max_deaths` is the end, and `first_tries` for a child that has
    never been ready itself.

    A child that was fenced has not failed, and its death does not count. It waits until it is known that its place is
    still this supervisor's (`cleared`), and then `fenced_delay` more.
    """

    give_up: int | None = None
    max_deaths: int = 5
    first_tries: int = 3
    forgiven_after: float = 12.0
    first_delay: float = 0.2
    longest_delay: float = 30.0
    jitter: float = 0.5
    lent_delay: float = 1.0
    fenced_delay: float = 2.0
    start_timeout: float = 180.0  # a model may be large
    grace: float = 15.0  # between asking to end and ending by force

    def delay(self, deaths: int, chance: float) -> float:
        """The delay after so many deaths that count; `chance` is in [0, 1)."""
        doublings = min(deaths - 1, _MOST_DOUBLINGS)
        full = min(self.longest_delay, self.first_delay * 2.0**doublings)
        return full * (1.0 - self.jitter * chance)


_MOST_DOUBLINGS = 64  # beyond any longest delay, and within what a float holds


class Lifecycle:
    """One child's state. `chance` gives numbers in [0, 1) for the jitter."""

    def __init__(self, policy: RestartPolicy, now: float, chance: Callable[[], float]) -> None:
        self.state = State.BACKING_OFF
        self.since = now  # when it came into this state
        self.due = now  # when it is to be started, while it backs off
        self.restarts = 0
        self.exit_code: int | None = None  # of the last death
        self.deaths = 0  # that counted at the last one
        self._policy = policy
        self._chance = chance
        self.fenced = False  # it waits to hear whose its place is
        self._killed = False
        self._was_ready = False
        self.established = False  # the pipeline has been ready as a whole: from then on it is always started again
        self.served_before = False  # it has answered queries before: it can be served, unless its input has changed
        self.progressed = now  # when it was last seen to do something: from then on it has the whole time to be ready
        self._again = False  # the next start comes after a death

    def step(self, now: float, *, exit_code: int | None, ready: bool) -> Action:
        """Look at the child: `exit_code` is None while its process runs."""
        event = self._seen(now, exit_code, ready)
        return Action.NOTHING if event is None else self.take(now, event)

    def lent(self, now: float) -> None:
        """The child's process has gone to take another one's place: another is started, which counts as none."""
        self.due = now + self._policy.lent_delay
        self.take(now, Event.LENT)

    def cleared(self, now: float) -> None:
        """Note that the place of a child that was fenced is still its own."""
        if self.fenced:
            self.fenced = False
            self.due = now + self._policy.fenced_delay

    @property
    def died(self) -> bool:
        """Whether it is to be started again because it died."""
        return self.state is State.BACKING_OFF and self._again

    def flaps(self, now: float) -> bool:
        return self.state is State.FAILED or self._counting(now) >= FLAPS_FROM

    @property
    def deaths_left(self) -> int | None:
        """How many more deaths may count before it is given up; None where there is no end."""
        policy = self._policy
        limit = math.inf if policy.give_up is None else policy.give_up
        if not (self.established or self.served_before):
            limit = min(limit, policy.max_deaths, math.inf if self._was_ready else policy.first_tries)
        return None if limit == math.inf else int(limit) - self.deaths

    def _counting(self, now: float) -> int:
        served = now - self.since if self.state is State.RUNNING else 0.0
        return max(0, self.deaths - int(served / self._policy.forgiven_after))

    def _seen(self, now: float, exit_code: int | None, ready: bool) -> Event | None:  # noqa: FBT001 - from step
        waited = now - self.since
        if self.state is State.BACKING_OFF:
            return Event.DUE if now >= self.due else None
        if self.state not in ALIVE:
            return None
        if exit_code is not None:
            return self._death(now, exit_code)
        if self.state is State.STARTING:
            late = min(waited, now - self.progressed) >= self._policy.start_timeout
            return Event.READY if ready else Event.LATE if late else None
        if self.state is State.STOPPING and waited >= self._policy.grace:
            return Event.GRACE_OVER
        return None

    def _death(self, now: float, exit_code: int) -> Event:
        self.exit_code, self._again = exit_code, True
        if exit_code == FENCED:
            self.fenced = True
            self.deaths = self._counting(now)
            self.due = math.inf
            return Event.DIED
        self.deaths = self._counting(now) + 1
        left = self.deaths_left
        # What the pipeline was ready with cannot be wrong input: a file has changed since, and may be mended.
        hopeless = (exit_code == MISUSED and not self.established) or (left is not None and left <= 0)
        self.due = now + self._policy.delay(self.deaths, self._chance())
        return Event.HOPELESS if hopeless else Event.DIED

    def take(self, now: float, event: Event) -> Action:
        """Take what has happened to the child, and return what to do about it."""
        state, action = TRANSITIONS.get((self.state, event), (self.state, Action.NOTHING))
        if action is Action.KILL:
            if self._killed:
                return Action.NOTHING
            self._killed = True
        if state is State.RUNNING:
            self._was_ready = True
        if action is Action.START or event is Event.TAKEN_OVER:
            self._killed = False
            self.restarts += self._again
            self._again = False
        if state is not self.state:
            self.state, self.since = state, now
        return action
