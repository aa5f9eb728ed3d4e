"""Batch limits that find themselves: how many requests one worker may be given at once.

Clipper, section 3.4 of Crankshaw's thesis ("Dynamic Batch Size"): the best limit is the largest whose batches still end
within the objective. A worker has a limit of its own, as its hardware and its copy of the model may differ from the
next one's. Limits are told each batch's size and the seconds that it ran; they answer with the limit from then on.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

_BACK_OFF: Final = 0.9  # of the limit, after a batch beyond the objective
_START: Final = 0.1  # of the limit, at least 1: its growth until a batch is beyond
_GROWTH: Final = 0.01  # of the limit, after a full batch within it, once one was beyond

_QUANTILE: Final = 0.99
_WINDOW: Final = 200  # batches that the line is drawn through
_LEAST: Final = 20  # batches before there is a line
_EVERY: Final = 8  # batches between two lines
_PROBE: Final = 16  # every so many full batches one is larger
_LARGER: Final = 1.1
_STEPS: Final = 12  # of the reweighted least squares


class Limit(Protocol):
    """The limit of one worker."""

    @property
    def size(self) -> int:
        """The most requests that the worker is given now."""
        ...

    def learn(self, count: int, seconds: float) -> int:
        """Take note that a batch of `count` ran for `seconds`; give the limit from now on."""
        ...


class Aimd:
    """Additive increase, multiplicative decrease of a real-valued limit.

    It grows by 10 %, and at least 1, after a full batch within the objective, until the first one beyond. (By 1 alone,
    a model that takes thousands would need a minute.) From then on it grows by 1 %, so that about one full batch in
    eleven is beyond, whatever the limit. A batch beyond the objective takes 10 % off.
    """

    __slots__ = ("_beyond", "_most", "_objective", "_value")

    def __init__(self, objective: float, most: int) -> None:
        """`objective`: seconds that a batch may run; `most`: the largest batch that the model takes."""
        self._objective = objective
        self._most = float(most)
        self._value = 1.0
        self._beyond = False

    @property
    def size(self) -> int:
        return int(self._value)

    def learn(self, count: int, seconds: float) -> int:
        if seconds > self._objective:
            self._beyond = True
            self._value = max(1.0, self._value * _BACK_OFF)
        elif count >= int(self._value):
            step = self._value * _GROWTH if self._beyond else max(1.0, self._value * _START)
            self._value = min(self._most, self._value + step)
        return int(self._value)


class Quantile:
    """The largest batch whose 99th percentile of evaluation time is within the objective.

    The percentile is taken to be a line over the batch size, drawn by quantile regression through the last 200 batches.
    Until there is a line the limit grows by 1 after a full batch within the objective. One full batch in 16 is a tenth
    larger than the line allows, so that a model that became faster is noticed, and the line has sizes to rest on.
    """

    __slots__ = ("_batches", "_full", "_line", "_most", "_objective", "_seen", "_size")

    def __init__(self, objective: float, most: int) -> None:
        """See `Aimd`."""
        self._objective = objective
        self._most = most
        self._seen: deque[tuple[int, float]] = deque(maxlen=_WINDOW)
        self._batches = self._full = 0
        self._size = self._line = 1  # the limit in force, and what the line allows

    @property
    def size(self) -> int:
        return self._size

    def learn(self, count: int, seconds: float) -> int:
        self._seen.append((count, seconds))
        self._batches += 1
        full = count >= self._size
        self._full += full
        if self._batches < _LEAST:
            if full and seconds <= self._objective:
                self._line += 1
        elif self._batches % _EVERY == 0:
            self._line = self._allowed()
        larger = full and self._full % _PROBE == 0
        self._size = min(self._most, max(self._line + 1, round(self._line * _LARGER)) if larger else self._line)
        return self._size

    def _allowed(self) -> int:
        counts, seconds = np.array(self._seen).T
        base, slope = _line(counts, seconds)
        largest = int(2 * counts.max())  # no further than twice what was seen: beyond, a line is a guess
        if slope <= 0.0:
            return largest if base <= self._objective else max(1, int(counts.min() * _BACK_OFF))
        return max(1, min(largest, int((self._objective - base) / slope)))


def _line(counts: np.ndarray, seconds: np.ndarray) -> tuple[float, float]:
    """Base and slope of the 99th percentile of `seconds` over `counts`, by iteratively reweighted least squares."""
    if counts.min() == counts.max():
        return 0.0, float(np.quantile(seconds / counts, _QUANTILE))
    weights = np.ones_like(seconds)
    close = 1e-6 * float(np.mean(seconds)) + 1e-12
    base = slope = 0.0
    for _ in range(_STEPS):
        total = weights.sum()
        mean_n, mean_s = (weights @ counts) / total, (weights @ seconds) / total
        slope = float((weights @ ((counts - mean_n) * (seconds - mean_s))) / (weights @ (counts - mean_n) ** 2))
        base = float(mean_s - slope * mean_n)
        rest = seconds - (base + slope * counts)
        weights = np.where(rest > 0, _QUANTILE, 1 - _QUANTILE) / np.maximum(np.abs(rest), close)
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
