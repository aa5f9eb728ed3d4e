"""Whether a method of a model's can be called as its stage will call it: found before anything is served."""

from __future__ import annotations

import inspect
from typing import Any

from lineage.errors import ModelError


def check_method(place: str, method: str, function: Any, parameters: tuple[str, ...]) -> None:
    """Raise ModelError, which begins with `place`, for what cannot be called as `method(*parameters)`.

    `parameters` are written with `self`, as an author does; `function` is bound.
    """
    written = f"{method}({', '.join(parameters)})"
    if not callable(function):
        raise ModelError(f"{place} is {type(function).__name__}, not a method; write {written}")
    if is_async(function) or inspect.isgeneratorfunction(function):
        raise ModelError(f"{place} must be a plain method that returns its result, neither async nor a generator")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of a builtin; calling it will tell
        return
    try:
        signature.bind(*([None] * (len(parameters) - 1)))
    except TypeError as error:
        raise ModelError(f"{place}{signature} cannot be called as {written}: {error}") from error


def is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
