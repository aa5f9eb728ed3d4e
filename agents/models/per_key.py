"""A function of a state and a query as a keyed stateful model, for what needs no torch: filters, counters, bandits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from spillway.agents.models.inputs import Inputs
    from spillway.agents.models.state import State

    Batch = Sequence[Inputs]
    Results = Sequence[Mapping[str, Any]]


class PerKey:
    """Runs `step(state, query) -> (answer, state)`, which must not change the state that it is given.

    `start()` makes a new key's state and `key(query)` tells whose a query is. Queries of one key in a batch follow one
    another. A query for which `reads` holds is answered from the state before the batch, and its new state is dropped.
    """

    def __init__(
        self,
        start: Callable[[], State],
        step: Callable[[State, Inputs], tuple[Mapping[str, Any], State]],
        *,
        key: Callable[[Inputs], str],
        reads: Callable[[Inputs], bool] | None = None,
    ) -> None:
        self.initialize, self.key = start, key
        self._step, self._reads = step, reads
        self._after: dict[str, State] = {}

    def reads(self, query: Inputs) -> bool:
        return self._reads is not None and self._reads(query)

    def compute(self, states: Mapping[str, State], batch: Batch) -> list[Mapping[str, Any]]:
        """Answer all, going on from one query of a key to its next."""
        self._after = dict(states)
        answers = []
        for query in batch:
            key = self.key(query)
            if self.reads(query):
                answer, _ = self._step(states[key], query)
            else:
                answer, self._after[key] = self._step(self._after[key], query)
            answers.append(answer)
        return answers

    def update(self, states: Mapping[str, State], batch: Batch, outputs: Results) -> dict[str, State]:  # noqa: ARG002
        return {key: self._after[key] for key in states}
