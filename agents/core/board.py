"""What each replica of each stage last said of itself, as one replica knows it. Pure: `now` in unix seconds.

* The newest word of a replica counts: of one process the one said last, and of two processes that bear its name the
  one of the process that began later. What comes out of order is refused as `OUTDATED`. A word may be old when it
  comes, as the topic is read from its beginning; it is then silent from the first, but one knows how long.
* A word ages from when it came, by the clock of who hears it, as two hosts' clocks may be `APART`; one that was said
  longer before is old when it comes. When nothing has been heard of a replica for `silence` seconds it is silent: its
  word counts no more, and holds up no other (so whoever lied about the time is forgotten once it stops). A stage all of
  whose replicas are silent is missing in `states`, so that policies fall back on its offline profile.
* A replica that stops for good says so (`forget`).
* A word that cannot be true is refused and counted by reason: what it says takes part in decisions about everybody's
  requests. It then changes nothing; the replica's word before it stands until it has aged out.

Memory is bounded by the stages and the replicas that they may have.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import TYPE_CHECKING, Final

from spillway.agents.core.policy import StageState
from spillway.lineage.message import PlanWord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


# A few quantiles that stand for many durations, for the wire.
#
# The sketch of N durations in n values holds their quantiles at (i + 1/2) / n, i from 0 to n - 1, so that each value
# stands for the same share of them and whoever draws from the values evenly draws from what they stand for.
#
# The error: at no point do the shares at or below it differ by more than 1/(2n) + 1/(2N). A sum of k independent draws
# is then off by at most k times that: the lambda quantile of the sum lies between its true quantiles at lambda minus
# and plus so much. With the 20 values that travel that is 2.5 % a stage at worst, where all values lie apart.

QUANTILES: Final = 20


def sketch(durations: Iterable[float], size: int = QUANTILES) -> tuple[float, ...]:
    """Return at most `size` values, ascending; all the durations where there are no more of them."""
    ordered = sorted(durations)
    count = len(ordered)
    if count <= size:
        return tuple(ordered)
    return tuple(ordered[(2 * index + 1) * count // (2 * size)] for index in range(size))


# Why a word is refused; as they stand in metric labels.
UNREADABLE: Final = "unreadable"  # the driver could not decode it
UNKNOWN: Final = "unknown-stage"  # no such stage, or no such replica of it
OUTDATED: Final = "outdated"
FUTURE: Final = "future"
NOT_A_NUMBER: Final = "not-a-number"
NEGATIVE: Final = "negative"
TOO_MUCH: Final = "too-much"

APART: Final = 5.0  # seconds that a sender's clock may be ahead of ours, or behind
SILENT_PERIODS: Final = 3
SILENT_GRACE: Final = 0.5  # seconds beyond: a collection of garbage, or a broker's hiccup, is no silence

_LONGEST: Final = 3600.0
_MOST: Final = 1e9
_DURATIONS: Final = ("queueing", "duration", "recent_duration", "span")
_AMOUNTS: Final = (
    *("entered", "waits_seen", "batch", "recent_batch", "arrival_rate", "completion_rate", "backlog"),
    *("utilisation", "slower"),
    "replica",
)


_SAID: Final = {each.name for each in fields(StageState)} - {"at"}  # by the same names in both


@dataclass(frozen=True, slots=True)
class Heard:
    """A replica's newest word."""

    state: StageState
    began_us: int
    at_us: int
    came: float  # when, as if it had come at once
    age: float = 0.0
    silent: bool = False


def silence_of(period: float) -> float:
    """After how many seconds without a word a replica that speaks once a period counts as silent."""
    return SILENT_PERIODS * period + SILENT_GRACE


def word_of(state: StageState, began_us: int) -> PlanWord:
    """Make the word that tells a replica's state; of its batch waits and hops goes a sketch.

    What truly takes longer than the longest duration that is believed is told as that.
    """
    told = {name: getattr(state, name) for name in _SAID}
    told |= {name: min(told[name], _LONGEST) for name in _DURATIONS}
    told |= {name: tuple(min(each, _LONGEST) for each in sketch(told[name])) for name in ("waits", "hops")}
    return PlanWord(**told, began_us=began_us, at_us=round(state.at * 1e6))


def state_of(word: PlanWord) -> StageState:
    return StageState(**{name: getattr(word, name) for name in _SAID}, at=word.at_us / 1e6)


class Board:
    """The newest word of every replica."""

    def __init__(self, stages: Collection[str], replicas: int, silence: float) -> None:
        """`replicas`: the most that a stage may have. `silence`: seconds, see `silence_of`."""
        if replicas < 1 or silence <= 0:
            raise ValueError(f"replicas {replicas}, silence {silence}: at least 1, and above 0")
        self._stages = tuple(stages)
        self._replicas = replicas
        self._silence = silence
        self._heard: dict[tuple[str, int], Heard] = {}
        self.words = 0  # taken
        self.refused: dict[str, int] = {}  # by reason

    def hear(self, now: float, word: PlanWord, came: float | None = None) -> str | None:
        """Take a word; return why it is refused, or None.

        `came`: the time by the clock that the other methods are asked by, a monotonic one; None: it is the same.
        """
        came = now if came is None else came
        reason = self._objection(now, came, word)
        if reason is not None:
            self.refuse(reason)
            return reason
        self.words += 1
        late = now - word.at_us / 1e6
        came -= late if late > APART else 0.0
        self._heard[word.stage, word.replica] = Heard(state_of(word), word.began_us, word.at_us, came)
        return None

    def refuse(self, reason: str) -> None:
        self.refused[reason] = self.refused.get(reason, 0) + 1

    def forget(self, stage: str, replica: int) -> None:
        self._heard.pop((stage, replica), None)

    def states(self, now: float) -> dict[str, list[StageState]]:
        """Give the newest states of all replicas that are not silent, by stage; a stage without any is missing."""
        states: dict[str, list[StageState]] = {}
        for (stage, _), heard in sorted(self._heard.items()):
            if now - heard.came <= self._silence:
                states.setdefault(stage, []).append(heard.state)
        return states

    def heard(self, now: float) -> list[Heard]:
        """Give every replica's newest word with its age, the silent ones' too. May be asked by another thread."""
        return [
            replace(heard, age=(age := now - heard.came), silent=age > self._silence)
            for _, heard in sorted(self._heard.copy().items())
        ]

    def _objection(self, now: float, came: float, word: PlanWord) -> str | None:
        if word.stage not in self._stages or not 0 <= word.replica < self._replicas:
            return UNKNOWN
        if max(word.at_us, word.began_us) > (now + APART) * 1e6:
            return FUTURE
        kept = self._heard.get((word.stage, word.replica))
        if kept is not None and not self._follows(came, word, kept):
            return OUTDATED
        return _implausible(word)

    def _follows(self, now: float, word: PlanWord, kept: Heard) -> bool:
        """Whether a word is newer than the one that is kept, or that one is silent and this one later."""
        if now - kept.came > self._silence:
            return word.at_us > kept.at_us
        return (word.began_us, word.at_us) > (kept.began_us, kept.at_us)


def _implausible(word: PlanWord) -> str | None:
    durations = [*(getattr(word, name) for name in _DURATIONS), *word.waits, *word.hops]
    amounts = [getattr(word, name) for name in _AMOUNTS]
    if not all(map(isfinite, (*durations, *amounts, word.drop_rate))):
        return NOT_A_NUMBER
    if min(*durations, *amounts, word.drop_rate) < 0 or min(word.began_us, word.at_us) < 0:
        return NEGATIVE
    if max(durations) > _LONGEST or max(amounts) > _MOST or word.drop_rate > 1:
        return TOO_MUCH
    return None
