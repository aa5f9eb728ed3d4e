"""The contract between Spillway and a model's `predict`, the same in a thread and in a worker process.

1. A model gets copies. Its arrays are read-only: `q["x"] /= 2` raises, and that query fails. Whatever it does to what
   it was given reaches nobody else, and no later call.
2. It is given a batch. If that raises, or does not return one result for each query, each query is run by itself, from
   inputs made anew, so that only the faulty one fails.
3. Whatever it raises is that query's failure (`model-raised`): any BaseException, also one whose text raises. In a
   worker process SystemExit alone ends the process, as `os._exit` and signals do.
4. Results belong to queries by their place, whatever the model did to the list that it was given.
5. A result is a mapping of names to values of the table in `spillway.lineage.values.plain`; any other is `bad-result`.
6. A child that the model forks is its own: it ends where it comes out of `predict`.

This module needs numpy alone, as a worker with an interpreter of its own (`spillway.agents.workers.shim`) loads it by
its path.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np

try:
    from spillway.lineage.values import plain
except ModuleNotFoundError:  # an interpreter that has no Spillway
    import plain  # type: ignore[no-redef,import-not-found]

if TYPE_CHECKING:
    from collections.abc import Callable

# Reasons, as in `spillway.lineage.reasons`.
RAISED: Final = "model-raised"
COUNT: Final = "wrong-result-count"
BAD_RESULT: Final = "bad-result"

Answer = dict[str, Any]
"""`outputs` and, where the model gives some, `flags`; or `error`, `reason` and `trace`."""

_MOST_TEXT: Final = 4_096  # characters
_MOST_NAMES: Final = 20
ATOMS: Final = frozenset({type(None), bool, int, float, str, bytes})


def no_input(query: Mapping[str, Any], name: object) -> KeyError:
    """Return what to raise where a model asks for an input that its query does not have: it says which there are."""
    there = ", ".join(list(query)[:_MOST_NAMES]) + (", ..." if len(query) > _MOST_NAMES else "")
    return KeyError(f"{name}: the query has {there or 'no inputs'}")


def copied(value: Any, *, frozen: bool = False) -> Any:
    """Return a copy of a value, its containers and its tensors. `frozen`: arrays are read-only."""
    kind = type(value)
    if kind is np.ndarray:
        made = value.copy()
        if frozen:
            made.setflags(write=False)
        return made
    if kind in ATOMS:
        return value
    if kind is dict:
        return {name: copied(each, frozen=frozen) for name, each in value.items()}
    if kind is list:
        return [copied(each, frozen=frozen) for each in value]
    return _other_copied(value, frozen=frozen)


def _other_copied(value: Any, *, frozen: bool) -> Any:
    if isinstance(value, plain.Bfloat16):
        if frozen and sys.modules.get("torch") is not None:
            return value.torch()
        return plain.Bfloat16(copied(np.asarray(value.bits), frozen=frozen))
    if plain.is_torch(value):
        return value.clone()
    if isinstance(value, Mapping):
        return {name: copied(each, frozen=frozen) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [copied(each, frozen=frozen) for each in value]
    return value


def given(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a model is given of a query's inputs or parameters: copies, with read-only arrays."""
    return {name: copied(each, frozen=True) for name, each in values.items()}


def answers(
    predict: Callable[[Sequence[int], list[Any]], Any],
    make: Callable[[int], Any],
    places: Sequence[int],
    words: Callable[[BaseException], str],
    ends: tuple[type[BaseException], ...] = (),
    *,
    raw: bool = False,
) -> list[Answer]:
    """Return an answer for each of `places`: of one call of `predict`, else of a call for each.

    `predict` is called with places and a batch, which `make` gives the model's inputs of, anew for each call. `words`
    names what was raised; what is of `ends` is not caught. `raw`: a dict is left as the model made it, as its encoder
    refuses what cannot travel.
    """

    def attempt() -> list[Answer] | Answer:
        """Return the answers of one call, or why there is none for each query."""
        process = os.getpid()
        try:
            outputs = predict(places, [make(place) for place in places])
            end_if_forked(process)
            if not isinstance(outputs, Sequence) or isinstance(outputs, str | bytes | bytearray | memoryview):
                return failed(COUNT, f"predict returned {type(outputs).__name__}, not a list")
            outputs = list(outputs)
        except BaseException as error:
            end_if_forked(process, error)
            if isinstance(error, ends):
                raise
            return failed(RAISED, words(error), trace_of(error))
        if len(outputs) != len(places):
            return failed(COUNT, f"predict returned {len(outputs)} results for {len(places)} queries")
        return [{"outputs": each} if raw and type(each) is dict else answer_of(each, words, ends) for each in outputs]

    whole = attempt()
    if isinstance(whole, list):
        return whole
    if len(places) == 1:
        return [whole]
    return [answer for place in places for answer in answers(predict, make, [place], words, ends, raw=raw)]


def end_if_forked(process: int, error: BaseException | None = None) -> None:
    """End a child that a model has forked and let out of its call: it would go on as `process`, which lives."""
    if os.getpid() != process:
        code = error.code if isinstance(error, SystemExit) else int(error is not None)
        os._exit(code if isinstance(code, int) else int(code is not None))


def answer_of(output: Any, words: Callable[[BaseException], str], ends: tuple[type[BaseException], ...] = ()) -> Answer:
    """Return what a model made for one query, in values that travel, with its flags where it has some."""
    try:
        left = [plain.MOST_VALUES]
        if type(output) is dict:  # as nearly all are
            return {"outputs": plain.plain_map(output, left)}
        if not isinstance(output, Mapping):
            return failed(BAD_RESULT, f"the model returned {type(output).__name__}, not a mapping")
        made: Answer = {"outputs": plain.plain_map(dict(output), left)}
        flags = getattr(output, "flags", None)
        if flags is not None:
            made["flags"] = _flags(flags, left)
    except plain.PlainError as error:
        return failed(BAD_RESULT, str(error))
    except ends:
        raise
    except BaseException as error:  # noqa: BLE001 - a mapping of the author's own may raise anything
        return failed(BAD_RESULT, f"the result cannot be encoded: {words(error)}", trace_of(error))
    return made


def _flags(flags: Any, left: list[int]) -> dict[str, Any]:
    """Return flags in values that travel; the front says which may be told (`spillway.lineage.flags`)."""
    if not isinstance(flags, Mapping):
        raise plain.PlainError(f"the flags are {type(flags).__name__}, not a mapping of names to values")
    try:
        return plain.plain_map(dict(flags), left)
    except plain.PlainError as error:
        raise plain.PlainError(f"flag {error}") from error


def failed(reason: str, text: str, trace: str = "") -> Answer:
    return {"error": text, "reason": reason, "raised": reason == RAISED, "trace": trace}


def text_of(error: BaseException) -> str:
    """Return an error's own text, readable and not too long, whatever its class does when it is asked."""
    try:
        text = str(error)
    except BaseException as another:  # noqa: BLE001 - user code
        text = f"(its text cannot be had: it raises {type(another).__name__})"
    return readable(text)


def trace_of(error: BaseException) -> str:
    """Return an error's traceback, readable, whatever its class does when it is asked."""
    try:
        return "".join(traceback.format_exception(error)).encode("utf-8", "replace").decode()
    except BaseException as another:  # noqa: BLE001 - user code
        return f"(its traceback cannot be had: it raises {type(another).__name__})"


def readable(text: str) -> str:
    """Return a text that can be sent: cut, and without half characters."""
    text = text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - 3] + "..."
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
