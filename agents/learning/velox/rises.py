"""Whether losses have risen for good: a test for a change over all that came since features were served.

Each loss counts as l / (|l| + 3 c), c the mean of the first `window` losses: nearly proportional where it is small, and
at most 1, so that a few huge ones say little. Scores are kept as sums over blocks of `window`. Of more than four of a
size the oldest two become one, so that a few tens of blocks say what is to be known of any number of losses, the last
ones in detail, and the first ones are never forgotten: what is compared with does not follow.

At every border between two blocks the mean score after it is compared with that before; z is the largest difference
in its standard errors. Losses come in bursts, too: where blocks differ among themselves by more than single losses
explain, the error is that which neighbouring blocks have, of the size at which it is largest. There is a rise where z
is beyond sqrt(6 + 3 ln(n / that size)), with n blocks, which of independent losses 2 to 5 of 100 series ever are. Where
losses have fallen as clearly, as while users are being learned, what was before the fall is left out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.agents.learning.velox.weights import Matrix, Vector

_OF_A_SIZE: Final = 4
BOUND: Final = 3.0  # of scores, in means of the first losses
_FEWEST: Final = 8  # blocks, below which nothing is said
_BURSTS: Final = 4.0  # standard deviations beyond which blocks differ by more than single losses explain
_PAIRS: Final = 3  # of a size, below which they say nothing of it
_BASE, _SLOPE = 6.0, 3.0  # of the limit's square

Series = dict[str, Any]  # `blocks`: number, scores, their squares, losses; `pairs` by size: number, squared differences


class Rise(NamedTuple):
    """How many times the mean loss is what it was, and since how many observations."""

    times: float
    since: int


def empty() -> Series:
    return {"blocks": np.zeros((0, 4)), "pairs": np.zeros((0, 2))}


def added(series: Series, loss: float, first: float, window: int) -> Series:
    """A series with one loss more; `first`: the mean of the losses before it began."""
    score = loss / (abs(loss) + BOUND * abs(first)) if loss else 0.0
    blocks = series["blocks"].copy()
    if not len(blocks) or blocks[-1, 0] >= window:
        blocks = np.concatenate([blocks, np.zeros((1, 4))])
    blocks[-1] += 1, score, score * score, loss
    return (
        merged({"blocks": blocks, "pairs": series["pairs"]}, window)
        if blocks[-1, 0] == window
        else {**series, "blocks": blocks}
    )


def merged(series: Series, window: int) -> Series:
    """The series when its last block has become full."""
    blocks, pairs = series["blocks"], series["pairs"]
    size, level = window, 0
    while (same := np.flatnonzero(blocks[:, 0] == size)).size > _OF_A_SIZE:
        pairs = np.concatenate([pairs, np.zeros((level + 1 - len(pairs), 2))]) if level >= len(pairs) else pairs.copy()
        pairs[level] += 1, _difference(blocks[same[0]], blocks[same[1]])
        blocks[same[0]] += blocks[same[1]]
        blocks = np.delete(blocks, same[1], axis=0)
        size, level = 2 * size, level + 1
    return {"blocks": blocks, "pairs": pairs}


def risen(shards: Sequence[Mapping[str, Any]], window: int) -> Rise | None:
    """How the losses of all shards have risen, if they have: in each shard at the same part of its own."""
    kept = []
    for each in shards:
        blocks = np.reshape(each["blocks"], (-1, 4))
        blocks = blocks[blocks[:, 0] >= window]
        if len(blocks) >= _FEWEST // 2:
            kept.append((blocks, _noise(blocks, np.reshape(each["pairs"], (-1, 2)), window)))
    while kept and sum(blocks[:, 0].sum() for blocks, _ in kept) >= _FEWEST * window:
        z, borders = _compared(kept)
        total = sum(float(blocks[:, 0].sum()) for blocks, _ in kept) / window
        limit = math.sqrt(_BASE + _SLOPE * max(0.0, math.log(total / max(noise.size for _, noise in kept))))
        if z.max() > limit:
            at = int(z.argmax())
            pairs = list(zip(kept, borders, strict=True))
            before = sum(blocks[: border[at]].sum(0) for (blocks, _), border in pairs)
            after = sum(blocks[border[at] :].sum(0) for (blocks, _), border in pairs)
            return Rise(float(after[3] / after[0] / (before[3] / before[0])), int(after[0]))
        if -z.min() <= limit:
            return None
        at = int(z.argmin())
        rest = [(blocks[border[at] :], noise) for (blocks, noise), border in zip(kept, borders, strict=True)]
        kept = [each for each in rest if len(each[0]) > 1]
    return None


class _Noise(NamedTuple):
    """How many times that of independent losses the variance of a mean is, from how many pairs of which size."""

    times: float
    pairs: float
    size: int  # in windows


def _noise(blocks: Matrix, pairs: Matrix, window: int) -> _Noise:
    sums = blocks.sum(0)
    variance = sums[2] / sums[0] - (sums[1] / sums[0]) ** 2
    found = _Noise(1.0, math.inf, 1)
    level, size = 0, float(window)
    while variance > 0 and size <= blocks[:, 0].max():
        count, square = pairs[level] if level < len(pairs) else (0.0, 0.0)
        same = blocks[blocks[:, 0] == size]
        for one, other in zip(same[::2], same[1::2], strict=False):
            count, square = count + 1, square + _difference(one, other)
        times = square / count / variance if count else 0.0
        if level == 0 and times <= 1 + _BURSTS * math.sqrt(2 / max(count, 1)):
            return found
        if count >= _PAIRS and times > found.times:
            found = _Noise(times, count, 1 << level)
        level, size = level + 1, 2 * size
    return found


def _difference(one: Vector, other: Vector) -> float:
    """What two neighbouring blocks of a size say of the variance of a score: squared, half the difference of sums."""
    return float((one[1] - other[1]) ** 2 / (2 * one[0]))


def _compared(kept: Sequence[tuple[Matrix, _Noise]]) -> tuple[Vector, list[Any]]:
    """By border of the shard with the most blocks: z, and each shard's border at the same part of its losses."""
    ends = [blocks[:, 0].cumsum() / blocks[:, 0].sum() for blocks, _ in kept]
    parts = max(ends, key=len)[:-1]
    above, below, borders = np.zeros(len(parts)), np.zeros(len(parts)), []
    for (blocks, noise), end in zip(kept, ends, strict=True):
        border = np.clip(np.searchsorted(end, parts), 0, len(end) - 2)
        count, score, square, _ = blocks.sum(0)
        n, before = blocks[:, 0].cumsum()[border], blocks[:, 1].cumsum()[border]
        spread = noise.times * max(square / count - (score / count) ** 2, 1e-12) * (1 / n + 1 / (count - n))
        above += ((score - before) / (count - n) - before / n) / spread
        below += 1 / spread
        borders.append(border + 1)
    t, pairs = above / np.sqrt(below), min(noise.pairs for _, noise in kept)
    return t * (1 - 1 / (4 * pairs)) / np.sqrt(1 + t * t / (2 * pairs)), borders
