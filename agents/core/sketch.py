"""A few quantiles that stand for many durations, for the wire.

The sketch of N durations in n values holds their quantiles at (i + 1/2) / n, i from 0 to n - 1, so that each value
stands for the same share of them and whoever draws from the values evenly draws from what they stand for.

The error: at no point do the shares at or below it differ by more than 1/(2n) + 1/(2N). A sum of k independent draws
is then off by at most k times that: the lambda quantile of the sum lies between its true quantiles at lambda minus and
plus so much. With the 20 values that travel that is 2.5 % a stage at worst, where all values lie apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

QUANTILES: Final = 20


def sketch(durations: Iterable[float], size: int = QUANTILES) -> tuple[float, ...]:
    """Return at most `size` values, ascending; all the durations where there are no more of them."""
    ordered = sorted(durations)
    count = len(ordered)
    if count <= size:
        return tuple(ordered)
    return tuple(ordered[(2 * index + 1) * count // (2 * size)] for index in range(size))
