"""What learns which of an ensemble's members to ask: a keyed stateful model, the one stage of a companion pipeline.

A truth comes as feedback on an outcome, whose flags say who was asked, with which probability, and who answered what
(`agents.core.routes.ensemble`). The state of a context is the selection's (Listing 3.2 of Crankshaw's thesis, observe);
it is published for each context, and the fronts select by it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agents.learning.chosen import loss_of, selection_of
from agents.learning.selection import Observed
from agents.models.stateful import SHARED
from lineage.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from agents.learning.selection import State
    from agents.models.inputs import Inputs


class Learner:
    """The weights of one stage's members, by context."""

    deterministic = True

    def __init__(self, stage: str, members: list[str], selection: dict[str, Any], loss: str) -> None:
        self._stage = stage
        self._members = members
        self._selection = selection_of(stage, selection)
        self._loss = loss_of(stage, loss)

    def share(self) -> State:
        """The weights over all contexts, from which a new one starts."""
        return self._selection.initial(self._members)

    def initialize(self, shared: State) -> State:
        return self.publish(shared)

    def key(self, query: Inputs) -> str:
        return query.key

    def compute(self, _states: Mapping[str, State], batch: Sequence[Inputs]) -> list[dict[str, Any]]:
        """The members' losses. Raises UsageError for a truth without an outcome, or that the loss cannot judge."""
        return [{"losses": self._losses(query)} for query in batch]

    def update(
        self, states: dict[str, State], batch: Sequence[Inputs], outputs: Sequence[Mapping[str, Any]]
    ) -> dict[str, State]:
        """Observe the truths, one after the other, in their contexts and over all."""
        for query, told in zip(batch, outputs, strict=True):
            said = self._said(query)
            asked = {member: Observed(said[member]["p"], loss) for member, loss in told["losses"].items()}
            for context in (query.key, SHARED):
                states[context] = self._selection.observe(states[context], self._members, asked)
        return states

    def publish(self, state: State) -> State:
        return {member: list(numbers) for member, numbers in state.items()}

    def _said(self, query: Inputs) -> Mapping[str, Any]:
        flags = query.get("flags") or {}
        said = flags.get(self._stage, {}).get("members")
        if not said:
            raise UsageError(
                f"the truth is about no outcome that stage {self._stage!r} has combined; send it with the outcome"
            )
        return said  # type: ignore[no-any-return]

    def _losses(self, query: Inputs) -> dict[str, float]:
        losses = {}
        for member, told in self._said(query).items():
            if member in self._members:
                loss = float(self._loss(query["truth"], told["answer"])) if "answer" in told else 1.0
                losses[member] = Observed(told["p"], loss).loss
        return losses
