"""Which way a request will take, told by how often those of its class were sent where.

A class is what a request's sender says of it in the header `x-class`, which travels with it to every stage; requests
without it are one class. It is a name for what the sender knows and the choice depends on: a camera, a customer, a
language. Nothing of the inputs is looked at, as only the models understand them.

What a chooser decides is counted by class. Counts fade, so that about the last 1,000 choices of a class at a stage
speak, and a class of which little was seen borrows from all classes: their shares count as 10 choices of its own. Of a
stage at which fewer than 20 requests in all have chosen, nothing is told, so all its successors stay open.

`expected` gives what a policy is to reckon with: for each chooser, the most frequent choices which together cover a
share of the requests. With a share of 1 that is every choice that was ever seen; with one of 0, the likeliest alone.
A policy that estimates batch waits by their quantile lambda asks for the same share of the choices, and takes the worst
path among them: lambda says how much of what may come its estimate covers, whatever it is that may come.

At most 1,000 classes are remembered, those last seen, and 64 different choices of a stage; what is beyond these is not
counted.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from spillway.agents.core.actions import Ok
from spillway.agents.core.step import Step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spillway.agents.core.actions import Result, Work
    from spillway.agents.core.request import Path

    Choice = tuple[str, ...]

MOST_CLASSES: Final = 1_000
MOST_CHOICES: Final = 64
_LAST: Final = 1_000.0  # choices that speak
_BORROWED: Final = 10.0  # choices' worth of all classes' shares
_ENOUGH: Final = 20.0  # choices, before anything is told
_FRESH: Final = 32  # new choices after which an answer is worked out anew
ANY: Final = ""  # of a request whose sender says nothing


@dataclass(slots=True)
class _Counts:
    """How often each choice of a stage was made, the last ones most."""

    counts: dict[Choice, float] = field(default_factory=dict)
    total: float = 0.0

    def add(self, choice: Choice) -> None:
        if choice not in self.counts and len(self.counts) >= MOST_CHOICES:
            return
        if self.total >= _LAST:
            fade = 1.0 - 1.0 / _LAST
            self.total *= fade
            for known in self.counts:
                self.counts[known] *= fade
        self.counts[choice] = self.counts.get(choice, 0.0) + 1.0
        self.total += 1.0


@dataclass(slots=True)
class _Class:
    """What is known of one class, and what was last told of it."""

    stages: dict[str, _Counts] = field(default_factory=dict)
    told: dict[float, tuple[Path, int]] = field(default_factory=dict)  # by share; with the choices it stands up to


class PathPredictor(Step):
    """Learns from choices, as a step those of its stage, and foretells those to come."""

    def __init__(self) -> None:
        self._all: dict[str, _Counts] = {}
        self._classes: OrderedDict[str, _Class] = OrderedDict()
        self._stranger = _Class()  # what is told of all classes that are not known
        self._seen = 0

    def observe(self, kind: str, stage: str, choice: Choice) -> None:
        """Learn that a request of class `kind` was sent to these successors by `stage`."""
        self._seen += 1
        self._all.setdefault(stage, _Counts()).add(choice)
        known = self._classes.get(kind)
        if known is None:
            known = self._classes[kind] = _Class()
            if len(self._classes) > MOST_CLASSES:
                self._classes.popitem(last=False)
        self._classes.move_to_end(kind)
        known.stages.setdefault(stage, _Counts()).add(choice)

    def settled(self, work: Work, result: Result) -> None:
        if isinstance(result, Ok) and result.chosen is not None and work.share.live and not work.dead:
            self.observe(work.parts[0].kind, self._stage.stage, tuple(result.chosen))

    def chances(self, kind: str, stage: str) -> Mapping[Choice, float]:
        """How likely each choice of `stage` is for a request of class `kind`; nothing where too little was seen."""
        every = self._all.get(stage)
        if every is None or every.total < _ENOUGH:
            return {}
        known = self._classes.get(kind)
        own = known.stages.get(stage) if known is not None else None
        counts, total = (own.counts, own.total) if own is not None else ({}, 0.0)
        return {
            choice: (counts.get(choice, 0.0) + _BORROWED * count / every.total) / (total + _BORROWED)
            for choice, count in every.counts.items()
        }

    def expected(self, kind: str, share: float) -> Path:
        """The successors to reckon with, by chooser; a chooser that is left out may choose any of its own."""
        known = self._classes.get(kind, self._stranger)
        told, until = known.told.get(share, ({}, 0))
        if self._seen >= until:
            told = self._worked_out(kind, share)
            known.told[share] = told, self._seen + _FRESH
        return told

    def _worked_out(self, kind: str, share: float) -> Path:
        chances = {stage: self.chances(kind, stage) for stage in self._all}
        return {stage: _covering(each, share) for stage, each in chances.items() if each}


def _covering(chances: Mapping[Choice, float], share: float) -> Choice:
    """The successors of the most frequent choices that cover `share`; at least the likeliest choice's."""
    names: dict[str, None] = {}
    covered = 0.0
    for choice, chance in sorted(chances.items(), key=lambda each: (-each[1], each[0])):
        names.update(dict.fromkeys(choice))
        covered += chance
        if covered >= share - 1e-9:  # shares are sums of floats
            break
    return tuple(sorted(names))
