"""What learns which of an ensemble's members to ask: a keyed stateful model, the one stage of a companion pipeline.

A truth comes as feedback on an outcome, whose flags say who was asked, with which probability, and who answered what
(`spillway.agents.core.routes.ensemble`). The state of a context is the selection's (Listing 3.2 of Crankshaw's thesis,
observe); it is published for each context, and the fronts select by it.

Members and selection may change while the stage serves. The learner hears of it from the table of sizes alone, as
`control` of a query: what an outcome says it came of, a client sends back, and may have made up. Rules:

* A truth is observed by the newest section's selection; before there is one, by the pipeline file's.
* The first truth under a higher epoch than a context has seen brings it that section's members: those that are new
  start at the mean, those that are gone are dropped.
* Under a lower epoch, as where a new primary reads late, members stay as they are.
* What a truth says of those that are none of the section's is ignored; where it says nothing else, it changes nothing.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.learning.chosen import loss_of, selection_of
from spillway.agents.learning.selection import Observed
from spillway.agents.models.stateful import SHARED
from spillway.lineage.errors import SpillwayError, UsageError
from spillway.topology.sections import selection_family

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spillway.agents.learning.selection import Selection, State
    from spillway.agents.models.inputs import Inputs
    from spillway.topology.ensembles import Served

log = logging.getLogger(__name__)

EPOCH: Final = "(epoch)"
"""Beside the members in a state: the highest epoch that it has seen. No member can be called so."""


@dataclass(frozen=True, slots=True)
class _Rules:
    """What truths are observed by."""

    epoch: int
    members: list[str]
    selection: Selection


class Learner:
    """The weights of one stage's members, by context."""

    deterministic = True

    def __init__(self, stage: str, members: list[str], selection: dict[str, Any], loss: str) -> None:
        """`members` and `selection`: of the pipeline file, until there is a section in the table of sizes."""
        self._stage = stage
        self._family = selection_family(str(selection["name"]))
        self._loss = loss_of(stage, loss)
        self._own = self._rules = _Rules(0, members, selection_of(stage, selection))
        self._read: Served | None = None  # what `_rules` are made of

    def share(self) -> State:
        """The weights over all contexts, from which a new one starts."""
        return self._own.selection.initial(self._own.members)

    def initialize(self, shared: State) -> State:
        return {name: list(numbers) for name, numbers in shared.items()}

    def key(self, query: Inputs) -> str:
        return query.key

    def compute(self, states: Mapping[str, State], batch: Sequence[Inputs]) -> list[dict[str, Any]]:
        """The members' losses. Raises UsageError for a truth without an outcome, or that the loss cannot judge.

        Each truth is observed for nothing, too: what the selection cannot take is refused before it changes a state.
        """
        losses = [{"losses": self._losses(query)} for query in batch]
        for query, told in zip(batch, losses, strict=True):
            self._observe(states, query, told)
        return losses

    def update(
        self, states: dict[str, State], batch: Sequence[Inputs], outputs: Sequence[Mapping[str, Any]]
    ) -> dict[str, State]:
        """Observe the truths, one after the other, in their contexts and over all."""
        for query, told in zip(batch, outputs, strict=True):
            states |= self._observe(states, query, told)
        return states

    def _observe(self, states: Mapping[str, State], query: Inputs, told: Mapping[str, Any]) -> dict[str, State]:
        """The states that follow a truth, of its context and over all; those before stay as they are."""
        said, rules = self._said(query), self._rules_of(query)
        asked = {
            member: Observed(said[member]["p"], loss, said[member].get("scores", ()), query["truth"])
            for member, loss in told["losses"].items()
        }
        return {context: self._observed(states[context], rules, asked) for context in (query.key, SHARED)}

    def publish(self, state: State) -> State:
        return {member: list(numbers) for member, numbers in state.items() if member != EPOCH}

    def _observed(self, state: State, rules: _Rules, asked: Mapping[str, Observed]) -> State:
        known = self.publish(state)
        seen = int(state[EPOCH][0]) if EPOCH in state else 0
        members = rules.members if rules.epoch > seen or not seen else list(known)
        judged = {member: one for member, one in asked.items() if member in members}
        if not judged:
            return state
        after = _checked(rules.selection.observe(known, members, judged))
        newest = max(seen, rules.epoch)
        return {EPOCH: [float(newest)], **after} if newest else after

    def _said(self, query: Inputs) -> Mapping[str, Any]:
        said = ((query.get("flags") or {}).get(self._stage) or {}).get("members")
        if not said:
            raise UsageError(
                f"the true answer belongs to no outcome that stage {self._stage!r} combined; send it together with "
                "the outcome"
            )
        return said  # type: ignore[no-any-return]

    def _rules_of(self, query: Inputs) -> _Rules:
        """By the section that stood in the table when the batch began; one that cannot be used is passed over."""
        served: Served | None = query.control
        if served is None:
            return self._own
        if served is not self._read:
            self._read, said = served, served.section.selection
            try:
                if selection_family(str(said["name"])) != self._family:
                    raise UsageError(f"selection {said['name']!r} keeps other weights")
                self._rules = _Rules(served.epoch, list(served.section.members), selection_of(self._stage, said))
            except SpillwayError as error:
                log.error("%s: it learns by the section before: %s", self._stage, error)  # noqa: TRY400 - the user's mistake
        return self._rules

    def _losses(self, query: Inputs) -> dict[str, float]:
        losses, members = {}, self._rules_of(query).members
        for member, told in self._said(query).items():
            if member in members:
                if not _is_number(told["p"]):
                    raise UsageError(f"a member was asked with a probability in (0, 1], not {told['p']!r:.80}")
                scores = told.get("scores", [])
                if not isinstance(scores, list) or not all(map(_is_number, scores)):
                    raise UsageError(f"a member's scores are a list of numbers, not {scores!r:.80}")
                loss = float(self._loss(query["truth"], told["answer"])) if "answer" in told else 1.0
                losses[member] = Observed(told["p"], loss).loss
        return losses


def _checked(state: State) -> State:
    """A state as it can be kept and published. Raises UsageError for one that cannot."""
    after = {member: [float(number) for number in numbers] for member, numbers in state.items()}
    if not all(isinstance(member, str) and all(map(math.isfinite, numbers)) for member, numbers in after.items()):
        raise UsageError(f"observe must return lists of finite numbers by member, not {after!r:.80}")
    return after


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
