"""The paper's own numbers (section 5), as far as it gives them in words. Ratios are to PARD's."""

from __future__ import annotations

from typing import NamedTuple

EVEN = 0.0005  # rates that differ by less are equal


class Range(NamedTuple):
    """From, to."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


# Section 5.2 and Fig. 8: how many times PARD's rate the baselines' are.
DROP = {"naive": Range(1.0, 35.0), "nexus": Range(1.6, 16.7), "clipper++": Range(1.6, 16.7)}
INVALID = {"naive": Range(1.0, 129.0), "nexus": Range(1.5, 61.9), "clipper++": Range(1.5, 61.9)}

# Section 5.3 on lv-tweet: drop and invalid rates as multiples of PARD's; None where the paper gives none in words.
# "2.6x higher" is 3.6 times, as "drop rates lower by 72 %" confirms; of WCL only 2.8 times fits its "64 % lower".
ABLATIONS: dict[str, tuple[float | None, float | None]] = {
    "back": (4.6, 24.0),
    "sf": (2.1, None),
    "oc": (3.1, 4.0),
    "split": (3.6, 7.7),
    "wcl": (2.8, 5.4),
    "lower": (None, 4.5),
    "upper": (2.3, None),
    "fcfs": (2.8, None),
    "lbf": (3.2, None),
    "hbf": (1.5, None),
    "instant": (1.25, None),
}
