"""How many of the answers that a code makes agree with the exact ones that come too late: A_d as it is served.

ParM (section 4.1) measures A_d before a stage is served, on data of that time. Queries drift. A worker's own answer
that comes after all grades what was made in its place, for nothing. The share is of the last `SEEN` that were graded.
With a floor, coding pauses where the share falls below it, for `AGAIN` seconds. Then it is tried anew, on new grades
alone.
`now` is in seconds and does not decrease.
"""

from __future__ import annotations

from collections import deque
from typing import Final

SEEN: Final = 200
LEAST: Final = 50  # grades before the share says anything
AGAIN: Final = 60.0


class Agreement:
    """That of one front's coded stage."""

    def __init__(self, floor: float | None = None) -> None:
        self._floor = floor
        self._grades: deque[bool] = deque()
        self._agreed = 0
        self._until: float | None = None  # when coding goes on, while it pauses
        self.graded = 0
        self.pauses = 0

    @property
    def share(self) -> float | None:
        """None as long as too few are graded."""
        count = len(self._grades)
        return self._agreed / count if count >= LEAST else None

    def hear(self, agreed: int, graded: int) -> None:
        """Take grades; those of a pause are of answers that were made before it, and change nothing."""
        self.graded += graded
        if self._until is not None:
            return
        for number in range(graded):
            self._grades.append(number < agreed)
            self._agreed += number < agreed
            if len(self._grades) > SEEN:
                self._agreed -= self._grades.popleft()

    def paused(self, now: float) -> bool:
        """Whether coding is to pause at `now`."""
        share = self.share
        if self._until is not None and now >= self._until:
            self._until = None
        elif self._until is None and self._floor is not None and share is not None and share < self._floor:
            self._until = now + AGAIN
            self.pauses += 1
            self._grades.clear()
            self._agreed = 0
        return self._until is not None
