"""What is claimed of `spillway`, held against measured cells, and whether it depends on the traces that it was set on.

A share that is 0 counts as half a request in geometric means. Cells in which `pard` drops less than .02 % say nothing
about policies and are left out of the geometric mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

OURS, THEIRS = "spillway", "pard"
NEAR, POINTS = 1.05, 0.0005  # how much worse than the best other policy a cell may be
GEOMETRIC, GAP = 0.6, 0.5
_LEAST = 0.0002
_HALF = 2e-5


@dataclass(frozen=True, slots=True)
class Row:
    """A cell under one dispatch, with what each policy came to: (drop rate, invalid rate)."""

    app: str
    trace: str
    load: float
    dispatch: str
    bound: float
    outcomes: Mapping[str, tuple[float, float]]
    seed: int = 0

    def drop(self, policy: str) -> float:
        return self.outcomes[policy][0]

    def best_other(self, ours: Collection[str] = (OURS,)) -> tuple[str, float]:
        """The best of the policies that are not ours, and its drop rate."""
        others = {name: drop for name, (drop, _) in self.outcomes.items() if name.partition(":")[0] not in ours}
        name = min(others, key=others.__getitem__)
        return name, others[name]

    def near_best(self, policy: str = OURS) -> bool:
        """Whether a policy is no more than 5 % or .05 points worse than the best of the others."""
        best = self.best_other()[1]
        return self.drop(policy) <= max(best * NEAR, best + POINTS)


@dataclass(frozen=True, slots=True)
class Verdict:
    """A claim, what was measured, and whether it holds."""

    claim: str
    measured: str
    holds: bool


def ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """Geometric mean of first over second, over the pairs whose second is not next to nothing."""
    logs = [math.log(max(ours, _HALF) / theirs) for ours, theirs in pairs if theirs >= _LEAST]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def verdicts(rows: Sequence[Row], title: str, base: Sequence[Row] | None = None) -> list[Verdict]:
    """Hold `rows` to the claims; `base` has the rows that `pard` is taken from, the same ones by default."""
    pairs = list(zip(rows, base or rows, strict=True))
    geometric = ratio([(row.drop(OURS), other.drop(THEIRS)) for row, other in pairs])
    invalid = [row.outcomes[OURS][1] for row, _ in pairs], [other.outcomes[THEIRS][1] for _, other in pairs]
    ours, theirs = (sum(shares) / len(shares) for shares in invalid)
    gap = sum(row.drop(OURS) - row.bound for row, _ in pairs) / len(pairs)
    their_gap = sum(other.drop(THEIRS) - other.bound for _, other in pairs) / len(pairs)
    found = [
        Verdict(f"{title}: geometric mean of drop rates over pard's <= .6", f"{geometric:.3f}", geometric <= GEOMETRIC),
        Verdict(f"{title}: invalid rate no higher", f"{ours:.3%} against {theirs:.3%}", ours <= theirs),
        Verdict(
            f"{title}: mean gap to the bound at most half of pard's",
            f"{100 * gap:.3f} against {100 * their_gap:.3f} points",
            gap <= GAP * their_gap,
        ),
    ]
    if base is None:
        near = sum(row.near_best() for row in rows)
        claim = f"{title}: within 5 % (or .05 points) of the best other policy in each cell"
        found.append(Verdict(claim, f"in {near} of {len(rows)}", near == len(rows)))
    return found


def left_out(rows: Sequence[Row], settings: Sequence[str]) -> list[tuple[str, str, float, float]]:
    """Choose the best of `settings` on all traces but one, and apply it to that one.

    By trace: what was chosen, its ratio to pard on the trace left out, the ratio of the setting that is best there.
    """
    found = []
    for trace in dict.fromkeys(row.trace for row in rows):
        rest = [row for row in rows if row.trace != trace]
        here = [row for row in rows if row.trace == trace]
        chosen = min(settings, key=lambda each: _against_pard(rest, each))
        best = min(_against_pard(here, each) for each in settings)
        found.append((trace, chosen, _against_pard(here, chosen), best))
    return found


def _against_pard(rows: Sequence[Row], setting: str) -> float:
    return ratio([(row.drop(setting), row.drop(THEIRS)) for row in rows])
