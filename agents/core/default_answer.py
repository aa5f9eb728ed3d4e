"""The default answer of a stage, for a query that is refused, or not answered by its last moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spillway.agents.core.actions import DEFAULT, Ok
from spillway.agents.core.step import Step

if TYPE_CHECKING:
    from spillway.agents.core.actions import Failed, Result, Work


class DefaultAnswer(Step):
    """Answers in place of a worker; not what has failed."""

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
