"""What a model's `predict` is given for each query."""

from __future__ import annotations

from typing import Any


class Inputs(dict[str, Any]):
    """One query's named inputs: a dict, with the caller's parameters and the request's id at hand."""

    __slots__ = ("parameters", "request_id")

    def __init__(self, values: dict[str, Any], parameters: dict[str, Any], request_id: str) -> None:
        super().__init__(values)
        self.parameters = parameters
        self.request_id = request_id

    def __reduce__(self) -> tuple[Any, ...]:
        return (Inputs, (dict(self), self.parameters, self.request_id))
