"""The paper's own numbers (section 5), as far as it gives them in words. Ratios are to PARD's."""

from __future__ import annotations

from typing import NamedTuple


class Range(NamedTuple):
    """From, to."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.low:g} to {self.high:g}"


# Section 5.2 and Fig. 8: how many times PARD's rate the baselines' are.
DROP = {"naive": Range(1.0, 35.0), "nexus": Range(1.6, 16.7), "clipper++": Range(1.6, 16.7)}
INVALID = {"naive": Range(1.0, 129.0), "nexus": Range(1.5, 61.9), "clipper++": Range(1.5, 61.9)}
GOODPUT = Range(0.16, 1.76)  # more than Nexus and Clipper++, in the periods that force drops
WORST = Range(0.41, 0.98)  # by so much lower are transient drop rates, over all widths (Fig. 9)
STRESS_GOODPUT = Range(0.119, 1.329)  # Fig. 14a, beyond the capacity
STRESS_GAP = Range(3.4, 23.4)  # so many times nearer to the optimum
SLO_DROP = Range(0.0085, 0.0304)  # PARD's own, from 200 to 600 ms (Fig. 14b)
SLO_RATIO = Range(1.9, 5.3)
FIRST_TWO = 0.87  # of PARD's drops are in the first two modules (section 5.3)
LAMBDA_BEST = Range(0.075, 0.15)
WINDOW_GAP = Range(0.032, 0.063)  # between the best window and 5 s, relative
DEPQ_SHARE = 0.0016  # of a request's latency
DECISION = 20e-6  # seconds

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
