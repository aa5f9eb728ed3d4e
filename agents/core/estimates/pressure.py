"""How loaded a stage is, and which order follows from it: PARD's load factor and delayed transition (section 4.3).

mu = T_in / T_m: the arrivals of the whole stage over the last second (or period, if that is longer), over what its
workers can do in full batches. eps = sum |T_in - T_s| / sum T_in over the last 30 s, T_s the mean of the last 5 s.
Every replica works mu and eps out from the same messages, so replicas agree as soon as they have heard the same. Within
the band the order stays; a replica that is new there takes that of the majority of the others.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agents.core.policy import StageState

SMOOTHED = 5.0  # seconds of T_s
REMEMBERED = 30.0  # seconds of eps
_LEAST = 1.0  # seconds of arrivals that make T_in, however short the period
_SLACK = 1e-6


def high_first(high: bool, load: float, band: float) -> bool:  # noqa: FBT001 - the state, not a switch
    """Say whether the high budgets come first from now on, if they did (`high`) or did not until now.

    `load`: mu. `band`: eps. Above 1 + eps they do, below 1 - eps they do not, between the two nothing changes.
    """
    if load > 1.0 + band:
        return True
    if load < 1.0 - band:
        return False
    return high


class Pressure:
    """One stage's load factor and band, and the order that is to be; shared by the queues of a process."""

    __slots__ = (
        "_arrivals",
        "_deviations",
        "_first",
        "_heard",
        "_rates",
        "_states",
        "_times",
        "band",
        "high",
        "load",
    )

    def __init__(self) -> None:
        self.load = 0.0  # mu
        self.band = 0.0  # eps
        self.high = False  # new stages start with the low budgets first
        self._rates: deque[tuple[float, float]] = deque()  # (at, arrivals a second), of each synchronisation
        self._times: deque[float] = deque()  # of the two that follow
        self._arrivals: deque[float] = deque()  # T_in
        self._deviations: deque[float] = deque()  # |T_in - T_s|
        self._states: Sequence[StageState] | None = None
        self._heard = -1.0
        self._first = True

    def hear(self, now: float, states: Sequence[StageState], capacity: float, *, steady: bool = True) -> bool:
        """Take in what the stage's replicas last said; say whether the high budgets come first.

        `capacity`: T_m, requests a second. With `steady` unset the band is 0 (the ablation `instant`).
        """
        if now == self._heard and states is self._states:
            return self.high
        first, self._first = self._first, False
        self._states, self._heard = states, now
        arriving = self._arriving(now, sum(state.arrival_rate for state in states))
        self.band = self._spread(now, arriving) if steady else 0.0
        self.load = arriving / capacity if capacity > 0 else 0.0
        if first:
            self.high = 2 * sum(state.hbf for state in states) > len(states)
        self.high = high_first(self.high, self.load, self.band)
        return self.high

    def _arriving(self, now: float, rate: float) -> float:
        """T_in: the mean rate of the last second, or of the last period."""
        self._rates.append((now, rate))
        while now - self._rates[0][0] >= max(_LEAST, SMOOTHED) - _SLACK:
            if len(self._rates) == 1:
                break
            self._rates.popleft()
        recent = [seen for at, seen in self._rates if now - at < _LEAST - _SLACK]
        return sum(recent) / len(recent)

    def _spread(self, now: float, arriving: float) -> float:
        """eps; T_s is the mean of the last five seconds."""
        smoothed = sum(rate for _, rate in self._rates) / len(self._rates)
        self._times.append(now)
        self._arrivals.append(arriving)
        self._deviations.append(abs(arriving - smoothed))
        while now - self._times[0] >= REMEMBERED - _SLACK:
            self._times.popleft()
            self._arrivals.popleft()
            self._deviations.popleft()
        total = sum(self._arrivals)
        return sum(self._deviations) / total if total > 0 else 0.0
