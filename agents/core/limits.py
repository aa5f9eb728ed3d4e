"""Batch limits that find themselves: how many requests one worker may be given at once.

Clipper, section 3.4 of Crankshaw's thesis ("Dynamic Batch Size"): the best limit is the largest whose batches still end
within the objective. A worker has a limit of its own, as its hardware and its copy of the model may differ from the
next one's. Limits are told each batch's size and the seconds that it ran; they answer with the limit from then on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

import numpy as np

from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

_BACK_OFF: Final = 0.1  # of the limit, after a batch beyond the objective
_FAST: Final = 0.1  # of the limit, at least 1: its growth after a full batch within the objective
_SLOW: Final = 0.00018  # of the limit: the same near a limit that was beyond, times the batches since the last that was
_NEAR: Final = 0.9  # of that limit

_QUANTILE: Final = 0.99
_WINDOW: Final = 200  # batches that are remembered
_USUAL: Final = 0.25  # the quantile of what batches take that do not pause, as long as fewer than half do
_LEAST: Final = 20  # batches before there is a line
_EVERY: Final = 8  # batches between two lines
_PROBE: Final = 16  # every so many full batches one has one query
_STEPS: Final = 12  # of the reweighted least squares
_ONES: Final = 100  # batches of one query that are remembered
_MOSTLY: Final = 0.5  # of them: a limit that is kept for all that is beyond is tried twice as often
_RUN: Final = 2  # of them that are alike
_UNLIKELY: Final = 1e-4  # the probability of a run
_EXCUSES: Final = 2.0  # the most that are kept
_STEADY: Final = 0.001  # of the limit: growth near the line, so that 1 % of batches are beyond
_OFF: Final = 1.5  # times: a limit that is so far above the line goes there at once
_QUIET: Final = 100  # batches that were not beyond: a limit that is below the line goes there


class _Ones:
    """What batches of one query have: no limit can be expected to do better.

    They come where a limit is 1 or there is little to do; else one full batch in 16 is made one, under `aimd` only
    while batches are beyond. A run of them that is very unlikely after those before is of a model that has changed.
    """

    def __init__(self) -> None:
        self._beyond: deque[bool] = deque(maxlen=_ONES)
        self._full = self._run = 0
        self.share = 0.0  # of them that was beyond the objective

    def learn(self, count: int, *, beyond: bool) -> None:
        if count != 1:
            return
        self._run = self._run + 1 if self._beyond and self._beyond[-1] == beyond else 1
        likely = self.share if beyond else 1.0 - self.share
        self._beyond.append(beyond)
        if self._run >= _RUN and likely**self._run < _UNLIKELY:
            self._beyond.clear()
            self._beyond.extend([beyond] * self._run)
        self.share = sum(self._beyond) / len(self._beyond) if len(self._beyond) > _RUN else 0.0

    @property
    def unmet(self) -> bool:
        return len(self._beyond) >= _LEAST and sum(self._beyond) > 1

    def due(self) -> bool:
        """Count a full batch; whether the next one shall be one query."""
        self._full += 1
        return self._full % (_PROBE if self.share < _MOSTLY else _PROBE // 2) == 0


class Limit(ABC):
    """The limit of one worker."""

    def __init__(self, objective: float, most: int) -> None:
        """`objective`: seconds that a batch may run; `most`: the largest batch that the model takes."""
        self.size = 1
        """The most requests that the worker is given now."""
        self._objective = objective
        self._most = most
        self._value = 1.0
        self._batches = 0
        self._ones = _Ones()

    @property
    def unmet(self) -> bool:
        """Whether one query alone takes longer than the objective too often: no limit keeps to it."""
        return self._ones.unmet

    @abstractmethod
    def learn(self, count: int, seconds: float) -> int:
        """Learn from a batch of `count` that ran for `seconds`; return the limit from now on."""


class Aimd(Limit):
    """Additive increase, multiplicative decrease of a real-valued limit.

    It grows by 10 %, and at least 1, after a full batch within the objective. (By 1 alone, a model that takes thousands
    would need a minute.) A batch beyond the objective takes 10 % off. Two of them within 200 batches mark the larger of
    their limits as too large: up to .9 of it growth stays 10 %. From there on it is .018 % times the full batches since
    the last that was beyond, so that one in 25 to 35 is, whatever the limit. One alone says nothing of its size: it may
    be a model's first call, or a pause. A mark lasts for as long as both are among the last 200 batches.

    While there is a mark, batches of one query are tried, too. As large a share of batches as is beyond among those
    counts as within: it is not the size that they are beyond for.
    """

    def __init__(self, objective: float, most: int) -> None:
        super().__init__(objective, most)
        self._beyond: deque[tuple[int, float]] = deque(maxlen=2)  # the last batches beyond: number, and limit
        self._within = 0  # full batches since the last one beyond
        self._excuses = 0.0  # batches beyond that may count as within

    @property
    def unmet(self) -> bool:
        return super().unmet or self._mark() < 2.0  # noqa: PLR2004 - a limit that gives a worker one query at a time

    def learn(self, count: int, seconds: float) -> int:
        self._batches += 1
        beyond = seconds > self._objective
        full = count >= self.size
        self._ones.learn(count, beyond=beyond)
        self._excuses = min(_EXCUSES, self._excuses + self._ones.share)
        if beyond and self._excuses >= 1.0:
            self._excuses -= 1.0
            beyond = False
        self._within = 0 if beyond else self._within + full
        if beyond:
            self._beyond.append((self._batches, max(self._value, float(count))))  # it may be from before the last one
            self._value = max(1.0, self._value * (1.0 - _BACK_OFF))
        mark = self._mark()
        if not beyond and count >= int(self._value):
            self._value = min(self._most, self._grown(_NEAR * mark))
        probes = full and (self._ones.share or mark < inf) and self._ones.due()
        self.size = 1 if probes else int(self._value)
        return self.size

    def _grown(self, near: float) -> float:
        if self._value >= near:
            return self._value * (1.0 + min(_FAST, _SLOW * self._within))
        return min(near, self._value + max(1.0, self._value * _FAST))

    def _mark(self) -> float:
        """Return the limit that is known to be too large; inf where none is."""
        if len(self._beyond) < 2 or self._beyond[0][0] <= self._batches - _WINDOW:  # noqa: PLR2004 - it takes two
            return inf
        return max(limit for _, limit in self._beyond)


class Quantile(Limit):
    """The largest batch whose 99th percentile of evaluation time is within the objective.

    The percentile is taken to be a line over the batch size, drawn by quantile regression through the last 200 batches
    but the slowest, as one alone says nothing. Until there is a line the limit grows by 1 after a full batch within the
    objective. One full batch in 16 has one query, so that the line has sizes to rest on, none of which is beyond.

    A line is late where durations drift, and wrong where they are no line. So it is only where the limit begins: each
    batch beyond takes 10 % off, each full one within adds .1 %, and the limit follows the line where it is 1.5 times
    off. So 1 % of batches are beyond whatever durations are like.

    Where batches of one query are beyond as well, no limit keeps to the objective, and 1 would only be slow. Batches
    that would have been beyond with one query, too, then count for nothing: those are so much above a line through the
    lower quartiles.
    """

    def __init__(self, objective: float, most: int) -> None:
        super().__init__(objective, most)
        self._seen: deque[tuple[int, float]] = deque(maxlen=_WINDOW)
        self._within = _QUIET  # batches since the last one beyond; there is none at first
        self._slope = 0.0  # seconds that one query more takes a batch that does not pause

    def learn(self, count: int, seconds: float) -> int:
        self._batches += 1
        self._seen.append((count, seconds))
        beyond = seconds > self._objective
        full = count >= self.size
        self._ones.learn(count, beyond=beyond)
        if self._batches < _LEAST:
            self._value += full and not beyond
        else:
            self._follow(count, seconds, beyond=beyond)
        self._value = min(self._most, max(1.0, self._value))
        self.size = 1 if full and self._ones.due() else int(self._value)
        return self.size

    def _follow(self, count: int, seconds: float, *, beyond: bool) -> None:
        if self._batches % _EVERY == 0:
            line = self._allowed()
            if self._value > line * _OFF or (self._value < line and self._within >= _QUIET):
                self._value = line
        if beyond and not (self._ones.share and seconds - self._slope * (count - 1) > self._objective):
            self._within = 0
            self._value *= 1.0 - _BACK_OFF
            return
        self._within += 1
        if not beyond and count >= int(self._value):
            self._value *= 1.0 + _STEADY

    def _allowed(self) -> float:
        counts, seconds = np.array(self._seen).T
        most = 2 * float(counts.max())  # no further than twice what was seen: beyond, a line is a guess
        _, self._slope = _line(counts, seconds, _USUAL)
        kept = np.arange(len(seconds)) != seconds.argmax()
        if self._ones.share:
            kept &= seconds - self._slope * (counts - 1) <= self._objective
            if not kept.any():
                return most
        base, slope = _line(counts[kept], seconds[kept], _QUANTILE)
        if slope <= 0.0:
            return most if base <= self._objective else max(1.0, float(counts.min()) * (1.0 - _BACK_OFF))
        return max(1.0, min(most, (self._objective - base) / slope))


def _line(counts: np.ndarray, seconds: np.ndarray, share: float) -> tuple[float, float]:
    """Base and slope of the `share` quantile of `seconds` over `counts`, by iteratively reweighted least squares."""
    if counts.min() == counts.max():
        return 0.0, float(np.quantile(seconds / counts, share))
    weights = np.ones_like(seconds)
    close = 1e-6 * float(np.mean(seconds)) + 1e-12
    base = slope = 0.0
    for _ in range(_STEPS):
        total = weights.sum()
        mean_n, mean_s = (weights @ counts) / total, (weights @ seconds) / total
        slope = float((weights @ ((counts - mean_n) * (seconds - mean_s))) / (weights @ (counts - mean_n) ** 2))
        base = float(mean_s - slope * mean_n)
        rest = seconds - (base + slope * counts)
        weights = np.where(rest > 0, share, 1 - share) / np.maximum(np.abs(rest), close)
    return base, slope


_LIMITS: Final[dict[str, type[Limit]]] = {"aimd": Aimd, "quantile": Quantile}


def limits(name: str | None, objective: float | None, most: int) -> Callable[[], Limit] | None:
    """Give what makes a worker's limit; None where limits do not adapt.

    Raises UsageError for an adaptive limit without an objective.
    """
    if name not in _LIMITS:
        return None
    if objective is None:
        raise UsageError(f"batch limit {name} needs an objective in seconds, as in 'batching: {{objective: 20ms}}'")
    return partial(_LIMITS[name], objective, most)
