"""The prediction cache of a stage, as its step (`spillway.agents.core.cache` has the rules).

No offline query asks it: none that is online is to wait for one, and their like do not come again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway.agents.core.actions import Ok
from spillway.agents.core.step import Step
from spillway.lineage.flags import is_workers_own

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.agents.core.actions import Result, Work
    from spillway.agents.core.cache import PredictionCache


class CacheStep(Step):
    """Answers what is known, and has one of equal queries evaluated for all."""

    def __init__(self, cache: PredictionCache[Work], key_of: Callable[[Work], bytes]) -> None:
        self.cache = cache
        self._key_of = key_of

    def admit(self, now: float, work: Work) -> None:
        if work.offline:
            self._onward(now, work)
            return
        work.key = self._key_of(work)
        evaluate, value = self.cache.ask(work)
        if evaluate:
            self._onward(now, work)
        elif value is not None:
            self._hit(work, value)

    def executed(self, now: float, work: Work, result: Result) -> None:
        """Learn what a worker answered, even to a query that is gone."""
        if not work.key:
            return
        if not (isinstance(result, Ok) and is_workers_own(result.flags)):
            self.left(now, work)
            return
        self.cache.store(work.key, result.value, result.size)
        for follower in self.cache.land(work):
            self._hit(follower, result.value)

    def left(self, now: float, work: Work) -> None:
        follower = self.cache.leave(work) if work.key else None
        if follower is not None:
            self._onward(now, follower)

    def remove(self, unwanted: Callable[[Work], bool]) -> int:
        return len(self.cache.forget(unwanted))

    def _hit(self, work: Work, value: Any) -> None:
        work.key = b""
        self._stage.hit(work, value)
