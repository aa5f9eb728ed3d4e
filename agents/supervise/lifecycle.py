"""The life of one supervised process: when it is started, restarted, given up, stopped or killed.

Pure: the supervisor says what it sees and what time it is, and does what it is told.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import inf
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


class Action(StrEnum):
    """What the supervisor is to do."""

    NOTHING = "nothing"
    START = "start"
    TERMINATE = "terminate"
    KILL = "kill"


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
        if self.state is State.BACKING_OFF and now >= self.due:
            self._begin(now)
            return Action.START
        if self.state not in ALIVE:
            return Action.NOTHING
        if exit_code is not None:
            self._die(now, exit_code)
        elif self.state is State.STARTING and ready:
            self._was_ready = True
            self._become(State.RUNNING, now)
        elif self._is_late(now):
            return self._kill()
        return Action.NOTHING

    def stop(self, now: float) -> Action:
        if self.state is State.BACKING_OFF:
            self._become(State.STOPPED, now)
        elif self.state in {State.STARTING, State.RUNNING}:
            self._become(State.STOPPING, now)
            return Action.TERMINATE
        return Action.NOTHING

    def stalled(self) -> Action:
        """The watchdog found that the child does nothing while there is work for it."""
        return self._kill() if self.state is State.RUNNING else Action.NOTHING

    def taken_over(self, now: float) -> None:
        """A standby's process goes on in this one's place, which counts as a restart."""
        if self.state is State.BACKING_OFF:
            self._begin(now)

    def lent(self, now: float) -> None:
        """The child's process has gone to take another one's place: another is started, which counts as none."""
        self.due = now + self._policy.lent_delay
        if self.state is State.RUNNING:
            self._become(State.BACKING_OFF, now)

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
        limit = self._limit
        return None if limit is None else limit - self.deaths

    @property
    def _limit(self) -> int | None:
        if self.established or self.served_before:
            return self._policy.give_up
        tries = self._policy.max_deaths if self._was_ready else min(self._policy.first_tries, self._policy.max_deaths)
        return tries if self._policy.give_up is None else min(tries, self._policy.give_up)

    def _counting(self, now: float) -> int:
        served = now - self.since if self.state is State.RUNNING else 0.0
        return max(0, self.deaths - int(served / self._policy.forgiven_after))

    def _is_late(self, now: float) -> bool:
        """Whether it should have been ready, or have ended, by now."""
        waited = now - self.since
        if self.state is State.STOPPING:
            return waited >= self._policy.grace
        return self.state is State.STARTING and min(waited, now - self.progressed) >= self._policy.start_timeout

    def _die(self, now: float, exit_code: int) -> None:
        self.exit_code, self._again = exit_code, True
        fenced, counting = exit_code == FENCED, self._counting(now)
        self.fenced = self.fenced or fenced
        self.deaths = counting if fenced else counting + 1
        self.due = inf if fenced else now + self._policy.delay(self.deaths, self._chance())
        left = self.deaths_left
        # What the pipeline was ready with cannot be wrong input: a file has changed since, and may be mended.
        misused = exit_code == MISUSED and not self.established
        if self.state is State.STOPPING:
            self._become(State.STOPPED, now)
        elif not fenced and (misused or (left is not None and left <= 0)):
            self._become(State.FAILED, now)
        else:
            self._become(State.BACKING_OFF, now)

    def _begin(self, now: float) -> None:
        self._killed = False
        self.restarts += self._again
        self._again = False
        self._become(State.STARTING, now)

    def _kill(self) -> Action:
        """End it by force, once; the death that follows moves the state on."""
        done, self._killed = self._killed, True
        return Action.NOTHING if done else Action.KILL

    def _become(self, state: State, now: float) -> None:
        self.state, self.since = state, now
