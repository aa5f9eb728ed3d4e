"""Whose clock counts: a query's effective times, from what its sender says and when the broker took it.

Pure functions over unix microseconds. The root stage applies them once; later stages see the result in the headers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

SKEW_US: Final = 1_000_000
MAX_BUDGET_US: Final = 3_600_000_000
MAX_BUDGET_SLOS: Final = 10


@dataclass(slots=True, frozen=True)
class Times:
    """When a query counts as sent and is due, and what had to be mended for that."""

    sent_us: int
    deadline_us: int
    skewed: bool = False  # the sender's clock was off; both times rest on the broker's
    clamped: bool = False  # the time it asked for was implausible


def effective(sent_us: int, deadline_us: int, appended_us: int, slo_us: int) -> Times:
    """The times to go by for a query that the broker appended at `appended_us` (0 or less: not known).

    A budget (deadline - sent) is plausible from 0 to one hour, or ten times the SLO where that is more, and is
    clamped to that. Where the sender's clock is more than a second off the broker's, in either direction, the query
    counts as sent when it was appended and keeps its budget.
    """
    asked = deadline_us - sent_us
    budget = min(max(asked, 0), max(MAX_BUDGET_US, MAX_BUDGET_SLOS * slo_us))
    skewed = appended_us > 0 and abs(appended_us - sent_us) > SKEW_US
    start = appended_us if skewed else sent_us
    return Times(start, start + budget, skewed, budget != asked)
