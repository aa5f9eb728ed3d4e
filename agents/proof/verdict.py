"""What came of the schedules that were played: how many, what went wrong in them, and what an oracle found."""

from __future__ import annotations

import traceback
from collections import Counter
from dataclasses import dataclass, field


def crash(error: BaseException) -> str:
    """Return the problem that an error is which ended a run, or a process in it."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" (line {frames[-1].lineno} of {frames[-1].filename})" if frames else ""
    return f"(e) {type(error).__name__}: {error}{where}"


@dataclass(slots=True)
class Proof:
    """What came of some schedules."""

    schedules: int = 0
    failed: dict[int, list[str]] = field(default_factory=dict)  # by seed: what the oracle found
    struck: Counter[str] = field(default_factory=Counter)  # faults that took place, by what and whom
    counts: Counter[str] = field(default_factory=Counter)  # what happened
    topologies: Counter[str] = field(default_factory=Counter)  # of pipelines with states, as are modes
    modes: Counter[str] = field(default_factory=Counter)
    queries: int = 0
    seconds: float = 0.0  # of virtual time

    def add(self, other: Proof) -> None:
        self.schedules += other.schedules
        self.failed |= other.failed
        for name in ("struck", "counts", "topologies", "modes"):
            getattr(self, name).update(getattr(other, name))
        self.queries += other.queries
        self.seconds += other.seconds

    def judge(self, seed: int, found: list[str]) -> None:
        """Count a schedule, in which the oracle has found these problems."""
        self.schedules += 1
        if found:
            self.failed[seed] = found
