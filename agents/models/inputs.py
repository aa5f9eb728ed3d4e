"""What a model is given for each query."""

from __future__ import annotations

from typing import Any


class Inputs(dict[str, Any]):
    """One query's named inputs: a dict, with the caller's parameters, the request's id and its key at hand.

    `key` is the key of the query's Kafka message as text: what the client has sent it with, else the request's id. All
    queries of a key come by one partition; a keyed model's `key(query)` may simply return it. What is no UTF-8 in it is
    escaped by backslashes. It is empty for a query that came by no message.
    """

    __slots__ = ("key", "parameters", "request_id")

    def __init__(self, values: dict[str, Any], parameters: dict[str, Any], request_id: str, key: str = "") -> None:
        super().__init__(values)
        self.parameters = parameters
        self.request_id = request_id
        self.key = key

    def __reduce__(self) -> tuple[Any, ...]:
        return (Inputs, (dict(self), self.parameters, self.request_id, self.key))
