"""Which of several models are asked, and how feedback changes that (Clipper; thesis, section 3.5, Listing 3.2).

Pure. A policy's state is a mapping from member to a few numbers, small enough to be published for each context. The
front draws with `select`; the learner, which alone changes states, follows with `observe`. Rules:

* Weights are kept as logarithms, the largest of them 0, so that no history under- or overflows.
* A member that is new to a state starts at the mean of the others; one that is gone is dropped by the next observation.
* Draws are over members that are ready. What is observed has the probability with which each was asked.
* A member that failed and recovered is found again: under `exp4` `forgetting` draws each weight back towards the
  others, under `exp3` no weight is below that share of the largest. With 0 these are the algorithms as printed.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

State = dict[str, list[float]]  # by member; each policy says what its numbers are
EPSILON: Final = 0.05
ETA: Final = 0.1
FORGETTING: Final = 0.001
_MOST: Final = 1e18
_LEAST_LOG: Final = -700.0  # exp of it is the smallest number that counts


@dataclass(frozen=True, slots=True)
class Observed:
    """What came of asking a member: with which probability it was asked, and its loss in [0, 1].

    A member that was asked and gave no answer has loss 1. `scores` and `truth` are there for a selection that has a
    `combine` of its own. Raises UsageError for a probability outside of (0, 1].
    """

    probability: float
    loss: float = 1.0
    scores: Sequence[float] = ()
    truth: Any = None

    def __post_init__(self) -> None:
        if not 0 < self.probability <= 1:
            raise UsageError(f"a member was asked with a probability in (0, 1], not {self.probability!r}")
        if not 0 <= self.loss <= 1:
            raise UsageError(f"a loss is in [0, 1], not {self.loss!r}")


class Selection(Protocol):
    """A policy of selection, as Listing 3.2 has it.

    It may have a `combine(state, voices, share)` that makes the answer of members' scores, by their weights; else the
    answer is their mean. Then outcomes report the scores, and the learner passes them on with the truth (`Observed`).
    """

    def initial(self, members: Sequence[str]) -> State:
        """Make the state of a context that nothing is known of."""

    def select(self, state: State, ready: Sequence[str], draw: Random) -> dict[str, float]:
        """Say which of the members that are ready are asked, at least one, with which probability each."""

    def weights(self, state: State, members: Sequence[str]) -> dict[str, float]:
        """Say how much each member's answer counts; they sum up to 1."""

    def observe(self, state: State, members: Sequence[str], asked: Mapping[str, Observed]) -> State:
        """Make the state that follows; `state` is left as it is."""


@dataclass(frozen=True)
class Exp4:
    """All members are asked, and each is judged by its own loss (section 3.5, "Ensemble Model Selection Policies").

    One number a member, the logarithm of its weight s_i: s_i <- s_i exp(-eta L_i).
    """

    eta: float = ETA
    forgetting: float = FORGETTING

    def __post_init__(self) -> None:
        _check_parameters(math.inf, eta=self.eta)
        _check_parameters(1, forgetting=self.forgetting)

    def initial(self, members: Sequence[str]) -> State:
        return {member: [0.0] for member in members}

    def select(self, state: State, ready: Sequence[str], draw: Random) -> dict[str, float]:  # noqa: ARG002 - asks all
        return dict.fromkeys(ready, 1.0)

    def weights(self, state: State, members: Sequence[str]) -> dict[str, float]:
        return _exponentials(state, members)

    def observe(self, state: State, members: Sequence[str], asked: Mapping[str, Observed]) -> State:
        known, kept = completed(state, members), 1 - self.forgetting
        losses = {member: asked[member].loss if member in asked else 0.0 for member in members}
        logs = {member: kept * known[member][0] - self.eta * losses[member] for member in members}
        return {member: [value] for member, value in _lifted(logs, _LEAST_LOG).items()}


@dataclass(frozen=True)
class Exp3:
    """One member is drawn by its weight: s_i <- s_i exp(-eta L / p_i) of that one (section 3.5, after Auer et al.).

    A weight is at least `forgetting` of the largest. So draws that explore become few as the choice becomes sure, and
    where the sure one fails the others are as likely as it after as much loss as made it so.

    Without `eta` it is what bounds the regret best over the 1 / `forgetting` queries to come, sqrt(ln K / (K L)), where
    L is the loss that is expected of them: a loss says more where there are few. For that two numbers follow the
    weight's logarithm, as `Epsilon` has them: how often a member was judged, and its losses.
    """

    eta: float | None = None
    forgetting: float = FORGETTING

    def __post_init__(self) -> None:
        _check_parameters(math.inf, eta=ETA if self.eta is None else self.eta)
        _check_parameters(1, forgetting=self.forgetting)

    def initial(self, members: Sequence[str]) -> State:
        return {member: [0.0, 0.0, 0.0] for member in members}

    def select(self, state: State, ready: Sequence[str], draw: Random) -> dict[str, float]:
        return _drawn(self.weights(state, ready), draw)

    def weights(self, state: State, members: Sequence[str]) -> dict[str, float]:
        return _exponentials(state, members)

    def observe(self, state: State, members: Sequence[str], asked: Mapping[str, Observed]) -> State:
        known = {member: (*numbers, 0.0, 0.0)[:3] for member, numbers in completed(state, members).items()}
        eta, logs = self._eta(known), {member: numbers[0] for member, numbers in known.items()}
        for member, one in asked.items():
            logs[member] -= eta * one.loss / one.probability
        tallies = _tallied({member: numbers[1:] for member, numbers in known.items()}, members, asked, self.forgetting)
        lifted = _lifted(logs, math.log(self.forgetting) if self.forgetting else _LEAST_LOG)
        return {member: [lifted[member], *tallies[member]] for member in members}

    def _eta(self, known: Mapping[str, Sequence[float]]) -> float:
        if self.eta is not None or not self.forgetting or len(known) == 1:
            return ETA if self.eta is None else self.eta
        _, judged, lost = (sum(column) for column in zip(*known.values(), strict=True))
        return math.sqrt(math.log(len(known)) / len(known) * self.forgetting / _mean((judged, lost)))


@dataclass(frozen=True)
class Static:
    """One member, the first that is ready of those named, or of all."""

    order: tuple[str, ...] = ()

    def initial(self, members: Sequence[str]) -> State:
        return {member: [] for member in members}

    def select(self, state: State, ready: Sequence[str], draw: Random) -> dict[str, float]:  # noqa: ARG002 - no draw
        return {next((member for member in self.order if member in ready), ready[0]): 1.0}

    def weights(self, state: State, members: Sequence[str]) -> dict[str, float]:  # noqa: ARG002 - none is learned
        return dict.fromkeys(members, 1 / len(members))

    def observe(self, state: State, members: Sequence[str], asked: Mapping[str, Observed]) -> State:  # noqa: ARG002
        return state


@dataclass(frozen=True)
class Uniform(Static):
    """One member, each as likely."""

    def select(self, state: State, ready: Sequence[str], draw: Random) -> dict[str, float]:  # noqa: ARG002
        return _drawn(dict.fromkeys(ready, 1 / len(ready)), draw)


@dataclass(frozen=True)
class Epsilon:
    """The member of the least mean loss, but for a share `epsilon` of the draws, which goes to all alike.

    Numbers of a member: how often it was judged and the sum of its losses, both forgotten by and by.
    """

    epsilon: float = EPSILON
    forgetting: float = FORGETTING

    def __post_init__(self) -> None:
        _check_parameters(1, epsilon=self.epsilon, forgetting=self.forgetting)

    def initial(self, members: Sequence[str]) -> State:
        return {member: [0.0, 0.0] for member in members}

    def select(self, state: State, ready: Sequence[str], draw: Random) -> dict[str, float]:
        known = completed(state, ready)
        best = min(ready, key=lambda member: _mean(known[member]))
        rest = self.epsilon / len(ready)
        return _drawn({member: rest + (1 - self.epsilon) * (member == best) for member in ready}, draw)

    def weights(self, state: State, members: Sequence[str]) -> dict[str, float]:
        known = completed(state, members)
        return _shares({member: 1 - _mean(known[member]) for member in members})

    def observe(self, state: State, members: Sequence[str], asked: Mapping[str, Observed]) -> State:
        return _tallied(completed(state, members), members, asked, self.forgetting)


@dataclass(frozen=True)
class Thompson(Epsilon):
    """The member of the least loss that is drawn from what is known of each: a beta distribution by its losses.

    The probability of a member is not known in closed form, so it is estimated from `_DRAWS` draws.
    """

    epsilon: float = 0.0

    def select(self, state: State, ready: Sequence[str], draw: Random) -> dict[str, float]:
        known = completed(state, ready)

        def lowest() -> str:
            losses = {m: draw.betavariate(1 + known[m][1], 1 + known[m][0] - known[m][1]) for m in ready}
            return min(losses, key=losses.__getitem__)

        chosen = lowest()
        often = Counter(lowest() for _ in range(_DRAWS))[chosen]
        return {chosen: (1 + often) / (1 + _DRAWS)}


_DRAWS: Final = 24


def _check_parameters(most: float, **parameters: Any) -> None:
    """Raise UsageError for a parameter that is no finite number from 0 to `most`."""
    for name, value in parameters.items():
        if not isinstance(value, int | float) or not (0 <= value <= most and math.isfinite(value)):
            raise UsageError(f"{name!r} must be a number of at least 0 and at most {most:g}, not {value!r:.40}")


def completed(state: State, members: Sequence[str]) -> State:
    """The state of these members; one that it does not know is like the mean of those that it knows.

    Raises UsageError for numbers that no learner comes to: a draw by them might not end.
    """
    if not isinstance(state, Mapping):
        raise UsageError(f"a state has numbers by member, and is not {state!r:.80}")
    known = [state[member] for member in members if member in state]
    if not all(abs(number) <= _MOST for numbers in known for number in numbers):
        raise UsageError(f"a state has numbers of at most {_MOST:g}, not {known!r:.80}")
    mean = [sum(column) / len(known) for column in zip(*known, strict=True)] if known else []
    return {member: state.get(member, mean or [0.0, 0.0]) for member in members}


def _exponentials(state: State, members: Sequence[str]) -> dict[str, float]:
    known = completed(state, members)
    return _shares({member: math.exp(max(_LEAST_LOG, known[member][0])) for member in members})


def _lifted(logs: Mapping[str, float], least: float) -> dict[str, float]:
    """Logarithms of weights, of which the largest is 0 and none below `least`."""
    highest = max(logs.values())
    return {member: max(least, value - highest) for member, value in logs.items()}


def _tallied(
    known: Mapping[str, Sequence[float]], members: Sequence[str], asked: Mapping[str, Observed], forgetting: float
) -> State:
    kept = 1 - forgetting
    return {
        member: [kept * known[member][0] + 1, kept * known[member][1] + asked[member].loss]
        if member in asked
        else [kept * known[member][0], kept * known[member][1]]
        for member in members
    }


def _mean(tally: Sequence[float]) -> float:
    """The mean loss, as if one of .5 had been seen before."""
    judged, lost = tally
    return (lost + 0.5) / (judged + 1)


def _shares(values: Mapping[str, float]) -> dict[str, float]:
    total = sum(values.values())
    if not math.isfinite(total):
        raise UsageError(f"weights are finite numbers, not {dict(values)}")
    return {member: value / total if total > 0 else 1 / len(values) for member, value in values.items()}


def _drawn(shares: Mapping[str, float], draw: Random) -> dict[str, float]:
    (member,) = draw.choices(list(shares), list(shares.values()))
    return {member: shares[member]}


# What the members' answers come to ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Combined:
    """What the members' answers come to; `confidence` is the share of the asked members whose own answers agree."""

    answer: Any
    confidence: float


def combine(
    answers: Mapping[str, Any],
    weights: Mapping[str, float],
    asked: int,
    stand_ins: Mapping[str, Any] | None = None,
    averaged: Callable[[Mapping[str, Any], Mapping[str, float]], Any] | None = None,
) -> Combined:
    """Combine what has come, by weight (section 3.5): labels vote, scores (arrays and floats) are averaged.

    `averaged` does the latter in place of `average`. `stand_ins` count in place of missing answers, and never agree.
    Raises UsageError where answers cannot be combined; an answer or a weight that is an object of its own may raise
    anything.
    """
    if not answers:
        raise UsageError("no member has answered, so there is nothing to combine")
    voices = {**(stand_ins or {}), **answers}
    for member, value in answers.items():
        _check(member, value)
    kinds = {is_score(value) for value in voices.values()}
    if len(kinds) > 1:
        raise UsageError(f"some members return labels and others scores: {sorted(voices)}")
    share = _shares({member: weights.get(member, 0.0) for member in voices})
    answer = (averaged or average)(voices, share) if kinds.pop() else _vote(voices, share)
    agree = sum(_same(own, answer) for own in answers.values())
    return Combined(answer, agree / asked)


def _check(member: str, value: Any) -> None:
    """Raise UsageError for an answer that is neither a label nor scores."""
    if isinstance(value, np.ma.MaskedArray):
        raise UsageError(f"member {member!r} answered with a masked array, whose scores may be anything: fill it")
    if is_score(value):
        if not np.size(value):
            raise UsageError(f"member {member!r} answered with an empty array, which has no scores")
    elif value.dtype.hasobject if isinstance(value, np.ndarray) else not isinstance(value, Hashable):
        kind = f"an array of {value.dtype}" if isinstance(value, np.ndarray) else f"a {type(value).__name__}"
        raise UsageError(f"member {member!r} answered with {kind}, which is neither a label nor scores")


def _vote(voices: Mapping[str, Any], share: Mapping[str, float]) -> Any:
    """The label of most weight; of two that have the same that of the member that is named first."""
    votes: dict[Hashable, float] = {}
    labels: dict[Hashable, Any] = {}
    for member, value in voices.items():
        label = _label(value)
        labels.setdefault(label, value)
        votes[label] = votes.get(label, 0.0) + share[member]
    return labels[max(votes, key=votes.__getitem__)]


def average(voices: Mapping[str, Any], share: Mapping[str, float]) -> Any:
    """The mean of scores by weight. Raises UsageError for different shapes."""
    shapes = {np.shape(value) for value in voices.values()}
    if len(shapes) > 1:
        raise UsageError(f"scores of different shapes cannot be averaged: {sorted(shapes)}")
    total = sum(share[member] * np.asarray(value, np.float64) for member, value in voices.items())
    first = next(iter(voices.values()))
    return np.asarray(total, first.dtype) if isinstance(first, np.ndarray) else float(total)


def is_score(value: Any) -> bool:
    """Whether an answer can be averaged, other than a label."""
    return isinstance(value, (float, np.floating)) or (isinstance(value, np.ndarray) and value.dtype.kind == "f")


def _label(value: Any) -> Hashable:
    if isinstance(value, np.ndarray):
        return (value.shape, value.tobytes())
    return value.item() if isinstance(value, np.generic) else value  # type: ignore[no-any-return]


def _same(own: Any, answer: Any) -> bool:
    """Whether an answer says the same: an equal label, or scores whose highest is the same one."""
    if not is_score(own):
        return bool(_label(own) == _label(answer))
    if np.ndim(own) == 0:
        return math.isclose(own, answer, rel_tol=0.05, abs_tol=1e-9)
    return bool(np.argmax(own) == np.argmax(answer))


def zero_one(truth: Any, answer: Any) -> float:
    """1 unless the answer is the truth; of scores the place of the highest is the answer."""
    own = int(np.argmax(answer)) if is_score(answer) and np.ndim(answer) else _label(answer)
    return float(own != _label(truth))


def absolute(truth: Any, answer: Any) -> float:
    """How far a number is off, at most 1."""
    return min(1.0, abs(float(truth) - float(answer)))


LOSSES: Final[dict[str, Callable[[Any, Any], float]]] = {"zero_one": zero_one, "absolute": absolute}
