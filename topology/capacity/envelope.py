"""Traffic envelopes (InferLine, section 4.5): how many queries fell into any window of each length, at the most.

The windows begin with the service time of the pipeline and double up to 60 s. They are half open: [t, t + width).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

LONGEST: Final = 60.0  # seconds
_ROUNDING: Final = 1e-9  # seconds by which sums of times may be off: an even load has no query more at a window's end


def windows(service_time: float) -> tuple[float, ...]:
    """The widths in seconds: `service_time`, doubled while that gives at most 60 s. Raises UsageError for none."""
    if not 0 < service_time <= LONGEST:
        raise UsageError(
            f"a service time of {service_time:g} s has no envelope: it must be above 0 and at most {LONGEST:g}"
        )
    widths = [service_time]
    while 2 * widths[-1] <= LONGEST:
        widths.append(2 * widths[-1])
    return tuple(widths)


def envelope(arrivals: ArrayLike, widths: Sequence[float]) -> tuple[int, ...]:
    """The most queries in any window of each width, for sorted arrivals in seconds; q_i of the thesis."""
    times = np.asarray(arrivals, np.float64)
    first = np.arange(len(times))
    ends = (np.searchsorted(times, times + (width - _ROUNDING)) for width in widths)
    return tuple(int((end - first).max(initial=0)) for end in ends)  # a fullest window begins with a query
