"""Batch limits that find themselves: how many requests one worker may be given at once.

Clipper, section 3.4 of Crankshaw's thesis ("Dynamic Batch Size"): the best limit is the largest whose batches still end
within the objective. A worker has a limit of its own, as its hardware and its copy of the model may differ from the
next one's. Limits are told each batch's size and the seconds that it ran; they answer with the limit from then on.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

_BACK_OFF: Final = 0.9  # of the limit, after a batch beyond the objective
_FAST: Final = 0.1  # of the limit, at least 1: its growth after a full batch within the objective
_SLOW: Final = 0.005  # of the limit: the same, near a limit that was beyond
_NEAR: Final = 0.9  # of that limit

_QUANTILE: Final = 0.99
_WINDOW: Final = 200  # batches that are remembered
_USUAL: Final = 0.25  # the quantile of what batches take that do not pause, as long as fewer than half do
_LEAST: Final = 20  # batches before there is a line
_EVERY: Final = 8  # batches between two lines
_PROBE: Final = 16  # every so many full batches one is larger
_LARGER: Final = 1.1
_STEPS: Final = 12  # of the reweighted least squares
_ONES: Final = 100  # batches of one query that are remembered
_POINT: Final = 0.01  # of all batches: so many more may be beyond than if each held one query


class Limit(Protocol):
    """The limit of one worker."""

    @property
    def size(self) -> int:
        """The most requests that the worker is given now."""
        ...

    @property
    def unmet(self) -> bool:
        """Whether one query alone takes longer than the objective too often: no limit keeps to it."""
        ...

    def learn(self, count: int, seconds: float) -> int:
        """Learn from a batch of `count` that ran for `seconds`; return the limit from now on."""
        ...


class Aimd:
    """Additive increase, multiplicative decrease of a real-valued limit.

    It grows by 10 %, and at least 1, after a full batch within the objective. (By 1 alone, a model that takes thousands
    would need a minute.) A batch beyond the objective takes 10 % off. Two of them within 200 batches mark the larger of
    their limits as too large: up to .9 of it growth stays 10 %, and is .5 % from there on, so that about one full batch
    in 21 is beyond, whatever the limit. One alone says nothing of its size: it may be a model's first call, or a pause.
    A mark lasts for as long as both are among the last 200 batches.
    """

    def __init__(self, objective: float, most: int) -> None:
        """`objective`: seconds that a batch may run; `most`: the largest batch that the model takes."""
        self._objective = objective
        self._most = float(most)
        self._value = 1.0
        self._batches = 0
        self._beyond: deque[tuple[int, float]] = deque(maxlen=2)  # the last batches beyond: number, and limit

    @property
    def size(self) -> int:
        return int(self._value)

    @property
    def unmet(self) -> bool:
        return self._mark() < 2.0  # noqa: PLR2004 - a limit that gives a worker one query at a time

    def learn(self, count: int, seconds: float) -> int:
        self._batches += 1
        if seconds > self._objective:
            self._beyond.append((self._batches, max(self._value, float(count))))  # it may be from before the last one
            self._value = max(1.0, self._value * _BACK_OFF)
        elif count >= int(self._value):
            self._value = min(self._most, self._grown())
        return int(self._value)

    def _grown(self) -> float:
        near = _NEAR * self._mark()
        if self._value >= near:
            return self._value * (1.0 + _SLOW)
        return min(near, self._value + max(1.0, self._value * _FAST))

    def _mark(self) -> float:
        """Return the limit that is known to be too large; inf where none is."""
        if len(self._beyond) < 2 or self._beyond[0][0] <= self._batches - _WINDOW:  # noqa: PLR2004 - it takes two
            return inf
        return max(limit for _, limit in self._beyond)


class Quantile:
    """The largest batch whose 99th percentile of evaluation time is within the objective.

    The percentile is taken to be a line over the batch size, drawn by quantile regression through the last 200 batches
    but the slowest, as one alone says nothing. Until there is a line the limit grows by 1 after a full batch within the
    objective. One full batch in 16 is a tenth larger than the line allows, so that a model that became faster is
    noticed, and the line has sizes to rest on.

    Where two of the last 100 batches of one query were beyond, no limit keeps to the objective, and 1 would only be
    slow: it is then the largest of whose batches at most 1 % more are beyond than of those of one. A line through the
    lower quartiles, and how far batches are above it, say how many are; one full batch in 16 has one query.
    """

    def __init__(self, objective: float, most: int) -> None:
        self._objective = objective
        self._most = most
        self._seen: deque[tuple[int, float]] = deque(maxlen=_WINDOW)
        self._ones: deque[bool] = deque(maxlen=_ONES)  # of batches of one query, whether they were beyond
        self._batches = self._full = 0
        self._size = self._line = 1  # the limit in force, and what the line allows

    @property
    def size(self) -> int:
        return self._size

    @property
    def unmet(self) -> bool:
        return len(self._ones) >= _LEAST and sum(self._ones) > 1

    def learn(self, count: int, seconds: float) -> int:
        self._seen.append((count, seconds))
        if count == 1:
            self._ones.append(seconds > self._objective)
        self._batches += 1
        full = count >= self._size
        self._full += full
        if self._batches < _LEAST:
            if full and seconds <= self._objective:
                self._line += 1
        elif self._batches % _EVERY == 0:
            self._line = self._allowed()
        self._size = min(self._most, self._probe() if full and self._full % _PROBE == 0 else self._line)
        return self._size

    def _probe(self) -> int:
        return 1 if self.unmet else max(self._line + 1, round(self._line * _LARGER))

    def _allowed(self) -> int:
        counts, seconds = np.array(self._seen).T
        most = 2 * int(counts.max())  # no further than twice what was seen: beyond, a line is a guess
        if self.unmet:
            base, slope = _line(counts, seconds, _USUAL)
            rooms = np.sort(self._objective - seconds + slope * counts)  # what its queries may take, of each batch
            beyond = int((rooms < slope).sum() + _POINT * len(rooms))
            if beyond >= len(rooms):
                return most
            base = self._objective - rooms[beyond]
        else:
            kept = np.arange(len(seconds)) != seconds.argmax()
            base, slope = _line(counts[kept], seconds[kept], _QUANTILE)
        if slope <= 0.0:
            return most if base <= self._objective else max(1, int(counts.min() * _BACK_OFF))
        return max(1, min(most, int((self._objective - base) / slope)))


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


_LIMITS: Final[dict[str, type[Aimd | Quantile]]] = {"aimd": Aimd, "quantile": Quantile}


def limits(name: str | None, objective: float | None, most: int) -> Callable[[], Limit] | None:
    """Give what makes a worker's limit; None where limits do not adapt.

    Raises UsageError for an adaptive limit without an objective.
    """
    if name not in _LIMITS:
        return None
    if objective is None:
        raise UsageError(f"batch limit {name} needs an objective in seconds, as in 'batching: {{objective: 20ms}}'")
    return partial(_LIMITS[name], objective, most)
