"""The last moment of a query at a stage: its deadline, less what is still before it behind the stage.

What is settled then is just in time at the pipeline's end. So a default answer waits for it, as Clipper waits for
stragglers (section 3.5 of Crankshaw's thesis), and so does an answer that was made, where an exact one may still come.

What is still before it is L_sub of PARD's eq. 3, as the outlook has it, whatever the stage's policy. PARD drops by a
low quantile of later waits, so that it drops none that may do. Here it is a high one: an answer that comes late is
worth nothing, and one that comes a little early is worth the same. `now` is in unix seconds and does not decrease.
"""

from __future__ import annotations

import heapq
from itertools import count
from typing import TYPE_CHECKING, Final

from spillway.agents.core.actions import DEFAULT, Ok
from spillway.agents.core.estimates.outlook import Outlook
from spillway.agents.core.step import Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.agents.core.actions import Failed, Result, Work
    from spillway.agents.core.policy import StageState
    from spillway.agents.core.step import Enter, Stage

_SHARE: Final = 0.95
_DRAWS: Final = 1_000
_MARGIN: Final = 0.005  # seconds in which the stage makes and sends the answer
_GRAIN: Final = 0.003  # seconds: moments that are this close are one, so that the queue is looked through once
_FEW: Final = 1_000  # entries below which nobody looks for those that are over


class Deadlines(Step):
    """Those of one stage's queries; at each the stage is to spare the query its wait. No offline one has any."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, Work]] = []
        self._many = _FEW
        self._numbers = count()

    def begin(self, stage: Stage, onward: Enter) -> None:
        super().begin(stage, onward)
        self._outlook = Outlook(stage.view, _SHARE, _DRAWS)
        self.rest = self._outlook.later(stage.stage).total
        """Seconds from the stage to the pipeline's end, along the worst path."""

    def admit(self, now: float, work: Work) -> None:
        if not work.offline:
            heapq.heappush(self._entries, (work.deadline, next(self._numbers), work))
            if len(self._entries) > self._many:
                self._entries = [entry for entry in self._entries if _open(entry[2])]
                heapq.heapify(self._entries)
                self._many = max(_FEW, 2 * len(self._entries))
        self._onward(now, work)

    def over(self, now: float, work: Work) -> bool:
        return work.deadline - self.rest - _MARGIN <= now

    def advance(self, now: float) -> None:
        """Spare those whose last moment has come, once each; not those that are settled."""
        due: list[Work] = []
        if not self._entries or not self.over(now, self._entries[0][2]):
            return
        while self._entries and self.over(now + _GRAIN, self._entries[0][2]):
            work = heapq.heappop(self._entries)[2]
            if _open(work):
                due.append(work)
        self._stage.spare(now, due)

    def next_wake(self, _now: float) -> float | None:
        while self._entries and not _open(self._entries[0][2]):
            heapq.heappop(self._entries)
        return self._entries[0][0] - self.rest - _MARGIN if self._entries else None

    def tick(self, now: float, states: Mapping[str, Sequence[StageState]]) -> None:
        self._outlook.hear(now, states)
        self.rest = self._outlook.later(self._stage.stage).total


class DefaultAnswer(Step):
    """The default answer of a stage, for what is refused or has come to its last moment, not for what has failed."""

    def __init__(self) -> None:
        self.given = 0  # queries that it settled

    def spare(self, work: Work, failed: Failed | None) -> bool:
        if failed is not None or work.due:
            return False
        work.due = True
        self._stage.hit(work, DEFAULT)
        return True

    def settled(self, _work: Work, result: Result) -> None:
        self.given += isinstance(result, Ok) and result.value is DEFAULT


def _open(work: Work) -> bool:
    return not work.settled and work.share.live
