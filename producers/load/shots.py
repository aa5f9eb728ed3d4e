"""What a load sends and when: due times, and a query for each, made by a function or taken from a recording."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lineage import headers as wire
from lineage.errors import UsageError, WireError
from lineage.limits import DEFAULT_LIMITS, Limits
from lineage.message import Query
from lineage.values.codec import Decoder, encode_query
from lineage.values.json_text import MIME
from producers.load import schedule

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from producers.load.payloads import Payload
    from producers.recording import Recorded, Recording


@dataclass(slots=True, frozen=True)
class Shot:
    """One query of a load, but for its identity and times."""

    value: bytes
    key: bytes | None = None  # None: the request id
    budget: float | None = None  # seconds to its deadline; None: the load's SLO
    extra: tuple[wire.Pair, ...] = ()


@dataclass(slots=True, frozen=True)
class Load:
    """Due times in seconds from the start, sorted, and the maker of each query; it is asked in order of index."""

    due: NDArray[np.float64]
    shot: Callable[[int], Shot]


def generated(
    due: NDArray[np.float64],
    payload: Payload,
    *,
    seed: int = 0,
    limits: Limits = DEFAULT_LIMITS,
    key: str | None = None,
) -> Load:
    """A load whose inputs `payload` makes, query by query, while it runs; `seed` is its generator's.

    `key` names the input, a text or a whole number, that is each query's key; without it, that is the request's id.
    """
    rng = np.random.default_rng(seed)

    def shot(index: int) -> Shot:
        try:
            inputs = payload(index, rng)
        except Exception as error:  # a user's function may raise anything
            raise UsageError(f"the payload function failed at index {index}: {error!r}") from error
        try:
            value = encode_query(Query(dict(inputs)), limits)
        except (WireError, TypeError, ValueError) as error:
            raise UsageError(f"the payload function's inputs at index {index} cannot travel: {error}") from error
        return Shot(value, None if key is None else _key(key, inputs, index))

    return Load(due, shot)


def _key(name: str, inputs: Mapping[str, Any], index: int) -> bytes:
    value = inputs.get(name)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise UsageError(
            f"the inputs at index {index} have no text or whole number {name!r} to be their key; they are "
            f"{', '.join(map(repr, inputs))}"
        )
    return str(value).encode()


def recorded(
    recording: Recording,
    *,
    seed: int = 0,
    scale: float = 1.0,
    speed: float = 1.0,
    duration: float | None = None,
    budgets: bool = True,
) -> Load:
    """The queries of a recording with their payloads, keys, timing and, if `budgets`, deadlines; under new request ids.

    New, because the pipeline would take the old ones for repetitions. A key that was the request id is so again.
    `scale` above 1 repeats queries, `speed` compresses time, `duration` cuts (in seconds after `speed`).
    """
    queries = recording.queries()
    if not queries:
        raise UsageError(f"{recording.directory} holds no query")
    times = np.array([query.timestamp for query in queries]) - queries[0].timestamp
    due = schedule.paced(schedule.scaled(times, scale, np.random.default_rng(seed)), speed=speed, duration=duration)
    if not len(due):
        raise UsageError(f"{recording.directory}: no query is left at scale {scale}, speed {speed}")
    sources = _sources(times, due * speed)
    return Load(due, lambda index: _again(queries[sources[index]], budgets=budgets))


def _sources(times: NDArray[np.float64], wanted: NDArray[np.float64]) -> NDArray[np.int64]:
    """Which original each wanted time stands for: the last one not after it; equal times are taken in turn."""
    last = np.searchsorted(times, wanted + 1e-9, side="right") - 1
    first = np.searchsorted(times, times[last] - 1e-9, side="left")
    starts = np.searchsorted(last, last, side="left")  # where the run of the same `last` begins in `wanted`
    return np.asarray(first + (np.arange(len(wanted)) - starts) % (last - first + 1))


def _again(query: Recorded, *, budgets: bool) -> Shot:
    own: dict[str, bytes] = {}
    extra: list[wire.Pair] = []
    for name, value in query.headers:
        if name in {wire.REQUEST_ID, wire.SENT, wire.DEADLINE, wire.CONTENT_TYPE}:
            own[name] = value or b""
        elif name.startswith(wire.PASSTHROUGH):
            extra.append((name, value or b""))
    key = None if query.key == own.get(wire.REQUEST_ID) else query.key
    return Shot(
        _in_avro(query.value or b"", own.get(wire.CONTENT_TYPE)), key, _budget(own) if budgets else None, tuple(extra)
    )


def _in_avro(value: bytes, content_type: bytes | None) -> bytes:
    if content_type != MIME.encode():
        return value
    try:
        return encode_query(Decoder(DEFAULT_LIMITS).json_query(value))
    except WireError:
        return value


def _budget(own: dict[str, Any]) -> float | None:
    """Seconds from sending to the deadline; None where the recorded headers do not say (they are as they came)."""
    try:
        return max(0.0, (int(own[wire.DEADLINE]) - int(own[wire.SENT])) / 1e6)
    except (KeyError, ValueError):
        return None
