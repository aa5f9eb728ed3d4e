"""The open-loop load generator: every query leaves when it is due, whatever has become of those before it.

Latency counts from when a query was due, not from when it left, so a generator that falls behind, or a pipeline that
stalls it, cannot hide it (no coordinated omission); how far it fell behind is the schedule slip.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from spillway.lineage import headers as wire
from spillway.lineage.errors import UsageError, WireError
from spillway.lineage.headers import Headers, encode
from spillway.lineage.ids import RequestIds
from spillway.lineage.limits import DEFAULT_LIMITS, Limits
from spillway.lineage.message import Query
from spillway.lineage.trace import new_trace
from spillway.lineage.values.codec import Decoder, encode_query
from spillway.producers.client.queries import Prepared
from spillway.producers.load import schedule
from spillway.producers.load.tally import LoadResult, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from spillway.lineage.message import Outcome
    from spillway.producers.client.exchange import Exchange
    from spillway.producers.load.payloads import Payload
    from spillway.producers.recording import Recorded, Recording


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
            raise UsageError(
                f"the payload function, called with an index and a generator, failed at index {index}: {error!r}"
            ) from error
        try:
            value = encode_query(Query(dict(inputs)), limits)
        except (WireError, TypeError, ValueError) as error:
            raise UsageError(f"the payload function's inputs at index {index} cannot be sent: {error}") from error
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
    if not wire.is_json(content_type or b""):
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


_AHEAD = 512  # queries made before they are due
_MARGIN = 0.001  # seconds before a query is due in which none is made ahead
_NAP = 0.05  # at most, so that progress goes on
_SWITCH_SECONDS = 0.001  # how long the reply thread may keep the interpreter from the sending one
_LEAD = 1.0  # seconds from the call to the start of the schedule: time to make queries and to be let in
_SETTLE = 0.2


@dataclass(slots=True, frozen=True)
class Pace:
    """How a load is run. `slo`: deadline of queries without their own; `grace`: how long after it one is awaited."""

    slo: float
    grace: float = 10.0
    settle: float = _SETTLE  # seconds after the last outcome in which duplicates are still counted
    progress: Callable[[int, int], None] = field(default=lambda _sent, _ended: None)  # several times a second
    observe: Callable[[int, Outcome], None] | None = None  # every outcome with its query's index; in another thread


def run_load(exchange: Exchange, load: Load, pace: Pace) -> LoadResult:
    """Send a load and return what became of it, when every query has ended or waited for too long.

    Queries wait for nothing but their time: neither for outcomes nor for room. Blocks; raises what making a query
    raises.
    """
    tally = Tally(load.due, pace.observe)
    run = _Run(exchange, load, pace, tally)
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)  # a query that is due must not wait for a batch of replies
    try:
        run.send_all()
        run.await_all()
    finally:
        sys.setswitchinterval(before)
    return tally.result()


class _Run:
    def __init__(self, exchange: Exchange, load: Load, pace: Pace, tally: Tally) -> None:
        self._exchange = exchange
        self._load = load
        self._pace = pace
        self._tally = tally
        self._ids = RequestIds()
        self._ahead: deque[Shot] = deque()
        self._made = 0
        self._told = 0.0
        self._latest_expiry = 0.0

    def send_all(self) -> None:
        due = self._load.due.tolist()
        self._make_one(len(due))  # what is wrong with the queries shows before any is sent
        unix = time.time() + _LEAD
        start = time.monotonic() + _LEAD
        self._tally.start = start
        for index, seconds in enumerate(due):
            self._wait_until(start + seconds, len(due))
            self._send(index, self._ahead.popleft(), start + seconds, unix + seconds)

    def await_all(self) -> None:
        while not self._tally.done.wait(_NAP) and time.monotonic() < self._latest_expiry + 1:
            self._tell(time.monotonic(), len(self._load.due))
        time.sleep(self._pace.settle)
        self._told = 0.0
        self._tell(time.monotonic(), len(self._load.due))

    def _wait_until(self, at: float, total: int) -> None:
        while True:
            now = time.monotonic()
            left = at - now
            self._tell(now, self._made - len(self._ahead))
            if left <= 0 and self._ahead:
                return
            if self._made < total and (not self._ahead or (left > _MARGIN and len(self._ahead) < _AHEAD)):
                self._make_one(total)
            elif left > 0:
                time.sleep(min(left, _NAP))

    def _make_one(self, total: int) -> None:
        if self._made < total:
            self._ahead.append(self._load.shot(self._made))
            self._made += 1

    def _send(self, index: int, shot: Shot, due: float, unix_due: float) -> None:
        request_id = self._ids.new()
        budget = self._pace.slo if shot.budget is None else shot.budget
        pairs = encode(
            Headers(
                request_id,
                time.time_ns() // 1000,
                int((unix_due + budget) * 1e6),
                trace=new_trace(request_id),
                extra=list(shot.extra),
            )
        )
        expires = due + budget + self._pace.grace
        self._latest_expiry = max(self._latest_expiry, expires)
        key = pairs[0][1] if shot.key is None else shot.key
        now = time.monotonic()
        self._tally.sent(index, now)
        query = Prepared(pairs[0][1], pairs, key, shot.value, now, due, expires)
        self._exchange.send(query, self._tally.waiter(index))

    def _tell(self, now: float, sent: int) -> None:
        if now - self._told >= 2 * _NAP:
            self._told = now
            self._pace.progress(sent, self._tally.ended)
