"""How long an output will be: learned online from the prompt's length.

What a request asks for shows in its prompt's length (requests made from one template are alike), so ended requests are
counted by class of prompt length and by class of output length, both an eighth of an octave wide. A request's chance
to need no more than some tokens is read off its class, mixed with all classes together as far as the class knows
little. What is counted fades: a class remembers about `memory` requests. Only what ended is counted, so a class that
is refused over and over would never be heard of again; its knowledge also fades with each question that no answer
followed, until the mixture lets some in. Bounded: at most 8 * 20 classes of as many counts, whatever comes.
"""

from __future__ import annotations

from math import log2

_WIDTH = 8  # classes per octave
_TOP = 20  # octaves; what is longer than 2^20 tokens counts as that
_CLASSES = _WIDTH * _TOP
_PRIOR = 8.0  # requests of its own that weigh as much as all others together
_SILENCE = 64.0  # questions without an answer that halve what a class knows


def bucket(tokens: float) -> int:
    """The class of a length: 0 for one token, then an eighth of an octave each."""
    return min(_CLASSES - 1, max(0, int(_WIDTH * log2(max(1.0, tokens)))))


class _Counts:
    """Counts by class of output length that fade with each new one."""

    __slots__ = ("asked", "counts", "total")

    def __init__(self) -> None:
        self.counts = [0.0] * _CLASSES
        self.total = 0.0
        self.asked = 0  # since the last answer

    def add(self, length: int, keep: float) -> None:
        self.counts = [keep * count for count in self.counts]
        self.counts[length] += 1.0
        self.total = keep * self.total + 1.0
        self.asked = 0


class LengthsByPrompt:
    """The learned distribution of output lengths, by class of prompt length."""

    __slots__ = ("_all", "_classes", "_keep")

    def __init__(self, memory: float = 500.0) -> None:
        """`memory`: the number of its own latest requests that a class in effect remembers."""
        if memory < 1:
            raise ValueError(f"a memory of {memory} requests: at least 1")
        self._keep = 1.0 - 1.0 / memory
        self._all = _Counts()
        self._classes: dict[int, _Counts] = {}

    def observe(self, prompt: int, output: int) -> None:
        self._all.add(bucket(output), self._keep)
        known = self._classes.setdefault(bucket(prompt), _Counts())
        known.add(bucket(output), self._keep)

    def quantile(self, prompt: int, share: float) -> float:
        """Give the tokens that a `share` of such outputs do not exceed; 1 before anything was seen. Asking counts."""
        common = self._all
        if not common.total:
            return 1.0
        known = self._classes.get(bucket(prompt), common)
        known.asked += 1
        weight = known.total * 2.0 ** (-known.asked / _SILENCE)
        weight /= weight + _PRIOR
        its, others = weight / known.total, (1.0 - weight) / common.total
        below = 0.0
        for length, (own, other) in enumerate(zip(known.counts, common.counts, strict=True)):
            here = its * own + others * other
            if here and below + here >= share:
                return float(2.0 ** ((length + (share - below) / here) / _WIDTH))
            below += here
        return float(2.0**_TOP)
