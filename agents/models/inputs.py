"""What a model is given for each query."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spillway.agents.models.contract import ATOMS, copied, given, no_input

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class Inputs(dict[str, Any]):
    """One query's named inputs: a dict, with the caller's parameters, the request's id and its key at hand.

    `key` is the key of the query's Kafka message as text: what the client has sent it with, else the request's id. All
    queries of a key come by one partition; a keyed model's `key(query)` may simply return it. What is no UTF-8 in it is
    escaped by backslashes. It is empty for a query that came by no message.

    `control` is what the owners of a learner said when its batch began, in a log that no client can write
    (`spillway.agents.live.stateful.control`); None where they said nothing, and in all other stages.
    """

    __slots__ = ("control", "key", "parameters", "request_id")

    def __init__(
        self, values: dict[str, Any], parameters: dict[str, Any], request_id: str, key: str = "", control: Any = None
    ) -> None:
        super().__init__(values)
        self.parameters = parameters
        self.request_id = request_id
        self.key = key
        self.control = control

    def __missing__(self, name: str) -> Any:
        raise no_input(self, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Inputs, (dict(self), self.parameters, self.request_id, self.key, self.control))


def given_inputs(query: Inputs) -> Inputs:
    """Return what a model is given of a query: a copy with read-only arrays."""
    parameters = query.parameters
    made = Inputs(query, given(parameters) if parameters else {}, query.request_id, query.key, query.control)
    for name, value in query.items():
        if type(value) not in ATOMS:
            made[name] = copied(value, frozen=True)
    return made


def taken(query: Mapping[str, Any], names: Sequence[str]) -> Sequence[str]:
    """Which of a query's inputs a model with inputs of these names gets, in their order: a single one by any name."""
    if all(name in query for name in names):
        return names
    if len(names) == len(query) == 1:
        return list(query)
    raise ValueError(f"the model takes {', '.join(names)}, and the query has {', '.join(query) or 'nothing'}")


def check_count(fixed: int | None, count: int) -> None:
    """Raise ValueError for a batch that a file does not take: one whose first dimension is `fixed`."""
    if fixed not in {None, count}:
        raise ValueError(
            f"the file takes only batches of {fixed}, not of {count}; export it with a dynamic first dimension"
        )
