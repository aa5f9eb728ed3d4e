"""What learns which of an ensemble's members to ask: a keyed stateful model, the one stage of a companion pipeline.

A truth comes as feedback on an outcome, whose flags say who was asked, with which probability, and who answered what
(`agents.core.routes.ensemble`). The state of a context is the selection's (Listing 3.2 of Crankshaw's thesis, observe);
it is published for each context, and the fronts select by it.

Members and selection may change while the stage serves. The learner hears of it from the outcomes alone: their flags
have the epoch of the section that they came of, its members and its selection. So a state depends on nothing but the
truths before it, whoever computes it, and from whatever file it was started. Rules:

* A truth is observed by its own outcome's selection.
* The first truth of a higher epoch than a context has seen brings it that section's members: those that are new start
  at the mean, those that are gone are dropped.
* A truth of a lower epoch changes no members. What it says of those that are gone is ignored; where it says nothing
  else, it changes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from agents.learning.chosen import loss_of, selection_of
from agents.learning.selection import Observed
from agents.models.stateful import SHARED
from lineage.errors import UsageError
from lineage.flags import RULES_OF
from topology.sections import MOST_MEMBERS, selection_family

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agents.learning.selection import Selection, State
    from agents.models.inputs import Inputs

EPOCH: Final = "(epoch)"
"""Beside the members in a state: the highest epoch that it has seen. No member can be called so."""


@dataclass(frozen=True, slots=True)
class _Rules:
    """What an outcome came of."""

    epoch: int
    members: list[str]
    selection: Selection


class Learner:
    """The weights of one stage's members, by context."""

    deterministic = True

    def __init__(self, stage: str, members: list[str], selection: dict[str, Any], loss: str) -> None:
        """`members` and `selection`: of outcomes that do not say by what they came."""
        self._stage = stage
        self._selection = selection
        self._loss = loss_of(stage, loss)
        self._own = _Rules(0, members, selection_of(stage, selection))

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
        said, rules = self._said(query), self._rules(query)
        asked = {member: Observed(said[member]["p"], loss) for member, loss in told["losses"].items()}
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

    def _flags(self, query: Inputs) -> Mapping[str, Any]:
        flags = query.get("flags") or {}
        return flags.get(self._stage) or {}

    def _said(self, query: Inputs) -> Mapping[str, Any]:
        said = self._flags(query).get("members")
        if not said:
            raise UsageError(
                f"the true answer belongs to no outcome that stage {self._stage!r} combined; send it together with "
                "the outcome"
            )
        return said  # type: ignore[no-any-return]

    def _rules(self, query: Inputs) -> _Rules:
        """What the outcome came of. Raises UsageError for what no front says: clients send it back."""
        told = self._flags(query).get(RULES_OF)
        if told is None:
            return self._own
        epoch, members, selection = (told.get(name) for name in ("epoch", "members", "selection"))
        if type(epoch) is not int or not 0 <= epoch < 1 << 52:
            raise UsageError(f"the outcome's rules have an epoch {epoch!r:.40}")
        if not _are_names(members):
            raise UsageError(f"the outcome's rules have no members, but {members!r:.80}")
        if selection == self._selection:
            return _Rules(epoch, members, self._own.selection)
        name = selection.get("name") if isinstance(selection, dict) else None
        if not isinstance(name, str) or selection_family(name) != selection_family(str(self._selection["name"])):
            raise UsageError(f"the outcome's rules have a selection that keeps other weights: {selection!r:.80}")
        if not all(_is_number(value) for key, value in selection.items() if key != "name"):
            raise UsageError(f"the outcome's rules have a selection with odd parameters: {selection!r:.80}")
        return _Rules(epoch, members, selection_of(self._stage, selection))

    def _losses(self, query: Inputs) -> dict[str, float]:
        losses, members = {}, self._rules(query).members
        for member, told in self._said(query).items():
            if member in members:
                if not _is_number(told["p"]):
                    raise UsageError(f"a member was asked with a probability in (0, 1], not {told['p']!r:.80}")
                loss = float(self._loss(query["truth"], told["answer"])) if "answer" in told else 1.0
                losses[member] = Observed(told["p"], loss).loss
        return losses


def _are_names(members: Any) -> bool:
    if not isinstance(members, list) or not 0 < len(members) <= MOST_MEMBERS:
        return False
    return all(isinstance(name, str) and name != EPOCH for name in members) and len({*members}) == len(members)


def _checked(state: State) -> State:
    """A state as it can be kept and published. Raises UsageError for one that cannot."""
    after = {member: [float(number) for number in numbers] for member, numbers in state.items()}
    if not all(isinstance(member, str) and all(map(math.isfinite, numbers)) for member, numbers in after.items()):
        raise UsageError(f"observe must return lists of finite numbers by member, not {after!r:.80}")
    return after


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
