"""Members' scores combined by a logistic regression that learns from truths, where it beats their weighted mean.

Stacking (Wolpert; Breiman), online, on top of Exp4. The combination's logits are

    log mean + sum over the members k of x_k V_k

where `mean` is Exp4's weighted mean of the scores, x_k the logarithms of member k's scores about their mean, and V_k a
matrix of the classes, 0 at first. So it begins as Exp4's mean, leaves a member that fails as fast as that does, and
learns what each member confuses. Each truth is a step down the gradient of the log loss, of the size `eta` by the root
of what the squared gradients of that member add up to (Adagrad), which are forgotten as losses are.

While truths are few a learned combination may be worse than the mean. So it answers where, of late, it was right and
the mean was wrong more often than the reverse, by more than chance: the difference is above the root of the sum.

Numbers of a member: the logarithm of its weight; that difference and that sum, the same for all members; the sum of
its squared gradients; V_k, row by row, which is as good as 0 where it is missing or of another number of classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from spillway.agents.learning.selection import Exp4, average, completed
from spillway.lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from spillway.agents.learning.selection import Observed, State

    Numbers = NDArray[np.float64]

MOST_NUMBERS: Final = 2_048  # of all members' matrices, which are published with each truth
_FLOOR: Final = 0.001  # of each member's scores is spread evenly, so that a score of 0 has a logarithm
_ROUNDED: Final = 0.001  # by which a score may be outside of [0, 1]
_HEAD: Final = 4  # numbers of a member before its matrix


@dataclass(frozen=True)
class Stacked(Exp4):
    """Exp4 whose members' scores are stacked. Labels vote, and single numbers are averaged, as under Exp4."""

    def initial(self, members: Sequence[str]) -> State:
        return {member: [0.0] * _HEAD for member in members}

    def weights(self, state: State, members: Sequence[str]) -> dict[str, float]:
        return super().weights(_first(state), members)

    def combine(self, state: State, voices: Mapping[str, Any], share: Mapping[str, float]) -> Any:
        """Combine scores; `share` is each member's weight. Raises UsageError for what is no probability of a class."""
        mean = average(voices, share)
        if np.ndim(mean) != 1:
            return mean
        logs = _logs(voices)
        _, ahead, apart = next(iter(_heads(state, list(voices)).values()))
        if ahead <= 0 or ahead * ahead <= apart:
            return mean
        learned = (logs[:, :, None] * _matrices(state, voices, len(mean))).sum((0, 1))
        return np.asarray(_softmax(_smooth(mean) + learned), mean.dtype)

    def observe(self, state: State, members: Sequence[str], asked: Mapping[str, Observed]) -> State:
        """Make the state that follows. Raises UsageError for scores that no front reports."""
        heads = _heads(state, members)
        _, ahead, apart = heads[members[0]]
        logged = super().observe(_first(heads), members, asked)
        rests = {member: state.get(member, [])[_HEAD - 1 :] or [0.0] for member in members}
        told = {member: np.asarray(one.scores, np.float64) for member, one in asked.items() if len(one.scores)}
        if told:
            mean = _smooth(average(told, super().weights(_first(heads), list(told))))
            logs, matrices = _logs(told), _matrices(state, told, len(mean))
            logits = mean + (logs[:, :, None] * matrices).sum((0, 1))
            place = _place(next(iter(asked.values())).truth, len(mean))
            if place is not None:
                gain = float(mean.argmax() != place) - float(logits.argmax() != place)
                ahead, apart = self._kept(ahead) + gain, self._kept(apart) + abs(gain)
                gradient = _softmax(logits)
                gradient[place] -= 1
                steps = logs[:, :, None] * gradient
                # Where a matrix is new, so is the sum of its squared gradients.
                for member, before, step in zip(told, matrices, steps, strict=True):
                    squared = self._kept(rests[member][0]) * bool(before.any()) + float((step * step).sum())
                    after = before - self.eta / math.sqrt(squared or 1.0) * step
                    rests[member] = [squared, *after.ravel().tolist()]
        return {member: [*logged[member], ahead, apart, *rests[member]] for member in members}

    def _kept(self, value: float) -> float:
        return (1 - self.forgetting) * value


def _heads(state: State, members: Sequence[str]) -> State:
    """All that is known of members but for their matrices; of a new one the mean of the others'."""
    known = completed({member: list(numbers[: _HEAD - 1]) for member, numbers in state.items()}, members)
    return {member: [*numbers, 0.0, 0.0][: _HEAD - 1] for member, numbers in known.items()}


def _first(state: State) -> State:
    return {member: list(numbers[:1]) for member, numbers in state.items()}


def _logs(voices: Mapping[str, Any]) -> Numbers:
    """Logarithms of scores, by member and class, each member's about their mean."""
    scores = np.asarray(list(voices.values()), np.float64)
    members, classes = scores.shape
    if members * classes * classes > MOST_NUMBERS:
        most = math.isqrt(MOST_NUMBERS // members)
        raise UsageError(f"'stacked' takes at most {most} classes of {members} members, not {classes}; take 'exp4'")
    if not (scores.min() >= -_ROUNDED and scores.max() <= 1 + _ROUNDED):
        raise UsageError(f"'stacked' takes probabilities of classes, and the members answered {scores.tolist()!r:.80}")
    logs = _smooth(scores)
    return np.asarray(logs - logs.sum(1, keepdims=True) / classes)


def _smooth(scores: Any) -> Numbers:
    given = np.minimum(np.maximum(scores, 0.0), 1.0)
    return np.asarray(np.log((1 - _FLOOR) * given + _FLOOR / given.shape[-1]), np.float64)


def _matrices(state: State, members: Collection[str], classes: int) -> Numbers:
    """What was learned of members, by the class of a score and that of the combination."""
    matrices = np.zeros((len(members), classes * classes))
    for place, member in enumerate(members):
        held = state.get(member, ())[_HEAD:]
        if len(held) == classes * classes:
            matrices[place] = held
    return matrices.reshape(-1, classes, classes)


def _softmax(logits: Numbers) -> Numbers:
    powers = np.exp(logits - logits.max())
    return np.asarray(powers / powers.sum(), np.float64)


def _place(truth: Any, classes: int) -> int | None:
    """The class that a truth names, if it names one."""
    value = truth.item() if isinstance(truth, np.generic) else truth
    return int(value) if isinstance(value, int | float) and value in range(classes) else None
