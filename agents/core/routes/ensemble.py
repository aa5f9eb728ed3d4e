"""Several models behind one stage, of which some are asked and whose answers are combined (Clipper).

The selection layer of section 3.5 of Crankshaw's thesis, without what learns: the weights come from a table that a
learner writes (`spillway.agents.learning`), and are fixed for a query when its members are chosen. Lanes hold who was
asked and what came (`spillway.agents.core.lanes`). Late is worse than inaccurate: what has come by the route's `wait`
is combined.

Members and rules may change while it serves (`change`). A query keeps the rules under which it came; it is drawn among
the members that serve when it is asked, as the new ones are as good as the old.

A selection may be the author's own, and a member may answer with anything. Whatever either raises fails the query that
it was raised for, and no other. Weights by which a selection raises, and would not by those that it begins with, are
odd: the query goes by the latter, and counts them as stale.

Pure: draws come from a seeded generator.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import numpy as np

from spillway.agents.core.actions import Failed
from spillway.agents.learning.selection import Combined, combine, is_score
from spillway.agents.models.model_errors import words_of
from spillway.lineage import reasons
from spillway.lineage.errors import UsageError
from spillway.lineage.flags import KEYS, REQUEST, RULES_OF, STALE, VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from spillway.agents.core.query import Query
    from spillway.agents.core.request import Request
    from spillway.agents.learning.selection import Selection, State

_T = TypeVar("_T")
EVERYWHERE: Final = "all"
"""The context of queries that have none of their own."""
Missing = Literal["own_mean", "ensemble_mean", "skip"]
_LONG: Final = 64  # characters of a label in the flags
_ROOM: Final = 1_024  # characters of all labels of a query there
_SCORES: Final = 256  # numbers of all members' scores there, for a selection that combines by them
_KEY: Final = 128  # characters of a context
_ROUNDED: Final = 1e-6  # by which a probability that was added up may be above 1


@dataclass(frozen=True, slots=True)
class Weights:
    """What the learner has published for a context, and under which version."""

    state: State
    version: Any = None
    stale: bool = False


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds for the queries that come while it stands."""

    selection: Selection
    wait: float = math.inf
    """Seconds after which a query that has any answer waits for no other."""
    missing: Missing = "own_mean"
    threshold: float = 0.0
    """Below such a confidence the stage's default is the answer."""
    members: tuple[str, ...] = ()
    """All that there are, serving or not."""
    told: Mapping[str, Any] | None = None
    """What an outcome says of it; None: nothing."""


@dataclass(frozen=True, slots=True)
class Joint:
    """What a query's members came to: the stage's answer, or, `declined`, its default one; and what to say of it."""

    outputs: dict[str, Any]
    flags: dict[str, Any]
    declined: bool
    batch: int
    """How many members answered."""


@dataclass(slots=True)
class Shares:
    """What an ensemble counted since it began."""

    combined: int = 0
    declined: int = 0  # of them, below the threshold
    partial: int = 0  # of them, without all members that were asked
    late: int = 0  # answers that changed nothing
    asked: dict[str, int] = field(default_factory=dict)
    missing: dict[str, int] = field(default_factory=dict)


class Ensemble:
    """The route of a stage with members (`spillway.agents.core.query.Route`)."""

    def __init__(
        self,
        rules: Rules,
        weights: Callable[[Request, str], Weights],
        draw: Random,
        *,
        context_of: Callable[[Request], str] = lambda _: EVERYWHERE,
        answer: str = "label",
        learner: str = "",
        raised: Callable[[BaseException, str, Request], str] = lambda error, *_: words_of(error),
    ) -> None:
        """`weights` gives those for a query and its context, which `context_of` gives; an empty state of what has none.

        `answer` names the output that is combined, `learner` whom feedback goes to; none: to nobody. `raised` logs an
        error, what raised it and for which request, and gives its text.
        """
        self.rules = rules
        self._weights = weights
        self._draw = draw
        self._context_of = context_of
        self._answer = answer
        self._learner = learner
        self._raised = raised
        self._means: dict[str, _Mean] = {}
        self.stats = Shares()

    @property
    def wait(self) -> float:
        return self.rules.wait

    def change(self, rules: Rules) -> None:
        """Go by these rules for the queries that come from now on."""
        self.rules = rules
        self._means = {member: mean for member, mean in self._means.items() if member in rules.members}

    def select(self, query: Query, lanes: Sequence[str]) -> Mapping[str, float]:
        """Draw members (Listing 3.2, select). Where those that were asked are missing, draw among the others."""
        if not lanes:
            return {}
        try:
            asked = self._drawn(query, lanes)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - the author's selection
            what = f"selection {type(self._rules_of(query).selection).__name__}"
            query.refused = Failed(reasons.BAD_RESULT, f"{what} raised {self._raised(error, what, query.request)}")
            return {}
        for member in asked:
            self.stats.asked[member] = self.stats.asked.get(member, 0) + 1
        return asked

    def _drawn(self, query: Query, lanes: Sequence[str]) -> dict[str, float]:
        """Draw members by what is known of the query's context. Raises whatever the selection does."""
        rules = self._rules_of(query)
        if query.note is None:
            context = self._context_of(query.request)[:_KEY] or EVERYWHERE
            query.note = (context, self._weights(query.request, context))
        return self._by(query, lambda state: self._selected(rules, query, state, lanes))

    def _by(self, query: Query, make: Callable[[State], _T]) -> _T:
        """What is made of the published weights; of the selection's first where there are none, or they raise."""
        (context, known), rules = query.note, self._rules_of(query)
        if isinstance(known.state, dict) and not known.state:
            return make(rules.selection.initial(rules.members))
        try:
            return make(known.state)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever the row is, and the author's selection
            made = make(rules.selection.initial(rules.members))
            self._raised(
                error, f"selection {type(rules.selection).__name__}, by the weights of {context!r},", query.request
            )
            query.note = (context, Weights({}, stale=True))
            return made

    def _selected(self, rules: Rules, query: Query, state: State, lanes: Sequence[str]) -> dict[str, float]:
        drawn = rules.selection.select(state, lanes, self._draw)
        if not isinstance(drawn, Mapping) or not (drawn or query.asked) or not all(each in lanes for each in drawn):
            raise UsageError(f"select names members of {list(lanes)} with their probabilities, not {drawn!r:.80}")
        asked = {member: float(probability) for member, probability in drawn.items()}
        if not all(0 < probability <= 1 + _ROUNDED for probability in asked.values()):
            raise UsageError(f"select asks members with a probability in (0, 1], not {asked}")
        return {member: min(1.0, probability) for member, probability in asked.items()}

    def heard(self, member: str, answer: Any, *, late: bool) -> None:
        """Take any answer of a member, a late one as well, for its mean."""
        self.stats.late += late
        if self.rules.missing == "own_mean" and is_score(answer):
            self._means.setdefault(member, _Mean()).add(answer)

    def combine(self, query: Query) -> Joint | Failed:
        """Combine what has come, at least one answer (Listing 3.2, combine)."""
        answers = {member: query.answers[member] for member in query.asked if member in query.answers}
        try:
            return self._joined(query, answers)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 - the author's selection, and what members answered
            ours = type(error) is UsageError
            words = str(error) if ours else self._raised(error, "combining the members' answers", query.request)
            by = type(self._rules_of(query).selection).__name__
            text = f"the answers of {', '.join(answers)} cannot be combined by selection {by}: {words}"
            return Failed(reasons.BAD_RESULT, text)

    def _joined(self, query: Query, answers: Mapping[str, Any]) -> Joint:
        """Combine answers. Raises whatever the selection does, or what an answer does that is read."""
        rules = self._rules_of(query)
        absent = [member for member in query.asked if member not in answers]
        for member in absent:
            self.stats.missing[member] = self.stats.missing.get(member, 0) + 1
        stand_ins = self._stand_ins(rules, absent, answers)

        def made_by(state: State) -> Combined:
            weights = rules.selection.weights(state, list(query.asked))
            own = getattr(rules.selection, "combine", None)
            averaged = None if own is None else functools.partial(own, state)
            return combine(answers, weights, len(query.asked), stand_ins, averaged)

        made = self._by(query, made_by)
        flags = self._flags(query, made, *query.note)
        declined = made.confidence < rules.threshold
        self.stats.combined += 1
        self.stats.partial += bool(absent)
        self.stats.declined += declined
        return Joint({self._answer: made.answer}, flags, declined, len(answers))

    def _rules_of(self, query: Query) -> Rules:
        return self.rules if query.rules is None else query.rules

    def _stand_ins(self, rules: Rules, absent: Sequence[str], answers: Mapping[str, Any]) -> dict[str, Any]:
        """The values that count in place of missing scores; a label has no mean, so it is skipped."""
        if rules.missing == "skip" or not all(map(is_score, answers.values())):
            return {}
        if rules.missing == "own_mean":
            first = np.shape(next(iter(answers.values())))
            known = {member: self._means[member].value for member in absent if member in self._means}
            return {member: value for member, value in known.items() if np.shape(value) == first}
        if len({np.shape(value) for value in answers.values()}) > 1:
            return {}
        mean = sum(np.asarray(value, np.float64) for value in answers.values()) / len(answers)
        return dict.fromkeys(absent, mean)

    def _flags(self, query: Query, made: Combined, context: str, known: Weights) -> dict[str, Any]:
        members: dict[str, dict[str, Any]] = {}
        longest = min(_LONG, _ROOM // len(query.asked))
        scored = hasattr(self._rules_of(query).selection, "combine")
        for member, probability in query.asked.items():
            members[member] = {"p": float(f"{probability:.6g}")}
            if member in query.answers:
                answer = query.answers[member]
                members[member]["answer"] = said(answer, longest)
                if scored and is_score(answer) and np.ndim(answer) == 1 and len(answer) * len(query.asked) <= _SCORES:
                    members[member]["scores"] = [float(f"{score:.4g}") for score in answer]
        flags: dict[str, Any] = {"members": members, "confidence": round(made.confidence, 6)}
        if self._learner:
            flags[REQUEST] = query.request.request_id
            flags[KEYS] = {self._learner: context}
            flags[VERSIONS] = {self._learner: known.version}
            if (told := self._rules_of(query).told) is not None:
                flags[RULES_OF] = told
        if known.stale:
            flags[STALE] = True
        return flags


class _Mean:
    """The mean of a member's answers, of the newest ones more."""

    __slots__ = ("_count", "value")

    def __init__(self) -> None:
        self._count = 0
        self.value: Any = 0.0

    def add(self, answer: Any) -> None:
        given = np.asarray(answer, np.float64)
        if not np.isfinite(given).all():
            return  # no mean would be finite any more
        if self._count and np.shape(self.value) != given.shape:
            self._count = 0
        self._count = min(self._count + 1, _MOST)
        self.value = given if self._count == 1 else self.value + (given - self.value) / self._count


_MOST: Final = 1_000


def said(answer: Any, longest: int = _LONG) -> Any:
    """An answer as flags have it: a number, a short text, or of scores the place of the highest."""
    if is_score(answer):
        return int(np.argmax(answer)) if np.ndim(answer) else float(answer)
    if isinstance(answer, np.ndarray):
        answer = answer.tolist() if answer.ndim == 0 else repr(answer.tolist())
    elif isinstance(answer, np.generic):
        answer = answer.item()
    return answer if isinstance(answer, bool | int) or answer is None else str(answer)[:longest]
