"""When an offline job pauses: by what the replicas of a pipeline say of their online queries (INFaaS, section 6.3.2).

A job pauses where online queries take more than `MOST_UTILISED` of a stage's workers' time, or their batches longer
than the profile says. As for INFaaS' marks, that is more than `SLOWER` times as long. Both are means over the last
seconds, as one word tells of a second, or of a tenth. A stage that is slower for `DOUBTED` seconds while nothing of
the job is under way is not slower because of it: from then on it is held against what it takes now.

Pure: `now` is in seconds of the hearer's monotonic clock, by which a word ages from when it came.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from spillway.lineage.message import PlanWord

MOST_UTILISED: Final = 0.4  # section 5, (a)
SLOWER: Final = 1.2
DOUBTED: Final = 20.0
LOOK: Final = 3.0  # seconds over which words count
_LEAST: Final = 3.0  # batches that say something of how long they take
_PERCENT: Final = 100.0


@dataclass(slots=True)
class _Stage:
    words: dict[int, deque[tuple[float, PlanWord]]] = field(default_factory=dict)  # by replica, and when they came
    usual: float = 1.0  # what its batches take by the profile, as far as that is not this job's doing
    slow_since: float | None = None


class Pace:
    """Whether an offline job may send more."""

    def __init__(self) -> None:
        self._stages: dict[str, _Stage] = {}

    def hear(self, now: float, word: PlanWord) -> None:
        stage = self._stages.setdefault(word.stage, _Stage())
        stage.words.setdefault(word.replica, deque(maxlen=int(LOOK / 0.1))).append((now, word))

    def paused(self, now: float, under_way: int) -> str:
        """Why the job is to pause; empty where it may go on. `under_way`: its queries that are not answered."""
        why = (self._of(now, name, stage, under_way) for name, stage in sorted(self._stages.items()))
        return next((each for each in why if each), "")

    def _of(self, now: float, name: str, stage: _Stage, under_way: int) -> str:
        words = [[word for came, word in told if now - came <= LOOK] for told in stage.words.values()]
        words = [told for told in words if told]
        if not words:
            return ""
        utilised = sum(_utilised(told) for told in words) / len(words)
        slower = _slower([word for told in words for word in told])
        if slower <= SLOWER * stage.usual or under_way:
            stage.slow_since = None
        elif stage.slow_since is None:
            stage.slow_since = now
        elif now - stage.slow_since >= DOUBTED:
            stage.usual, stage.slow_since = slower, None
        if utilised > MOST_UTILISED:
            return f"online queries take {_PERCENT * utilised:.0f} % of the time of stage {name!r}"
        if slower > SLOWER * stage.usual:
            return f"online batches of stage {name!r} take {slower:.1f} times what they take by the profile"
        return ""


def _utilised(words: list[PlanWord]) -> float:
    span = sum(word.span for word in words)
    return sum(word.utilisation * word.span for word in words) / span if span > 0 else 0.0


def _slower(words: list[PlanWord]) -> float:
    """The mean over batches; 0 where there are too few, or no profile."""
    told = [word for word in words if word.slower > 0 and word.recent_batch > 0]
    counts = [word.completion_rate * word.span / word.recent_batch for word in told]
    slower = sum(count * word.slower for count, word in zip(counts, told, strict=True))
    return slower / sum(counts) if sum(counts) >= _LEAST else 0.0
