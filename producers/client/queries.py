"""From a caller's arguments to a query ready for the wire, and until when its outcome is awaited."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spillway.lineage.errors import UsageError, WireError
from spillway.lineage.headers import AFTER, Headers, encode
from spillway.lineage.ids import RequestIds
from spillway.lineage.limits import DEFAULT_LIMITS
from spillway.lineage.message import Query
from spillway.lineage.reasons import NOT_ENCODABLE
from spillway.lineage.trace import new_trace
from spillway.lineage.values.codec import encode_query
from spillway.topology.spec import PipelineSpec
from spillway.topology.variants.needs import needs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

    from spillway.lineage.headers import Pair
    from spillway.lineage.message import Outcome, Value
    from spillway.lineage.tokens import Token
    from spillway.lineage.trace import TraceContext
    from spillway.topology.load import Pipeline

GRACE = 10.0  # seconds after its deadline that an outcome is waited for
IN_FLIGHT = 10_000  # queries of one client
CONNECT_SECONDS = 30.0
_REUSED = "; was the id used before? The same id within ten minutes is the same query and is answered once"
WINDOW = 256  # queries in flight of a stream of outcomes


def keyed(
    queries: Iterable[Mapping[str, Value]], key: Callable[[Mapping[str, Value]], str] | None
) -> Iterator[tuple[int, Mapping[str, Value], str | None]]:
    """Each query's number, inputs and key."""
    for index, inputs in enumerate(queries):
        yield index, inputs, None if key is None else key(inputs)


def asked(
    app: str | None = None,
    latency: float | str | None = None,
    accuracy: float | str | None = None,
    model: str | None = None,
    variant: str | None = None,
) -> tuple[dict[str, Value], float | None]:
    """What a query of an application with variants needs: its parameters, and its deadline in seconds.

    None where it asks no latency. Raises UsageError that names the argument and the fix.
    """
    told = {"app": app, "latency": latency, "accuracy": accuracy, "model": model, "variant": variant}
    parameters: dict[str, Value] = {name: value for name, value in told.items() if value is not None}
    return parameters, needs_of({"app": "any", **parameters}).latency


@dataclass(slots=True, frozen=True)
class Prepared:
    """A query ready to be sent."""

    request_id: bytes
    headers: list[Pair]
    key: bytes
    value: bytes
    sent: float  # this and the next two on the monotonic clock
    due: float  # its deadline
    expires: float  # when to stop waiting for its outcome
    hint: str = ""  # what else there is to say where none comes

    def received(self, outcome: Outcome, at: float) -> Outcome:
        """Return its outcome, which came `at`, with the request id, its latency and whether it is late."""
        outcome.latency, outcome.late = at - self.sent, at > self.due
        outcome.request_id = self.request_id.decode()
        return outcome


class QueryMaker:
    """Prepares one pipeline's queries. `pipeline` and `slo` as of `Client`; safe for several threads."""

    spec: PipelineSpec | None

    def __init__(
        self,
        pipeline: str | Pipeline | PipelineSpec,
        *,
        slo: float | None,
        grace: float,
        clock: tuple[Callable[[], float], Callable[[], float]] | None = None,
    ) -> None:
        """`clock`: unix seconds, and seconds for waits; None: the machine's."""
        self._time, self._monotonic = clock or (time.time, time.monotonic)
        if isinstance(pipeline, str):
            self.pipeline, self.limits = pipeline, DEFAULT_LIMITS
            self.spec = None
        else:
            spec = pipeline if isinstance(pipeline, PipelineSpec) else pipeline.spec
            self.pipeline, self.limits = spec.name, spec.limits.merged()
            self.spec = spec
            slo = spec.slo if slo is None else slo
        self._slo = slo
        self._grace = _seconds("grace", grace)
        self.landing: Callable[[], tuple[Collection[int], int] | None] = lambda: None  # as of the exchange
        self.begin()

    def begin(self) -> None:
        """Belong to this process from now on."""
        self._process = os.getpid()
        self._ids = RequestIds()

    @property
    def forked(self) -> bool:
        """Whether this process is a fork of the one that the client was made in."""
        return os.getpid() != self._process

    def require_home(self) -> None:
        """Raise UsageError in a fork: connections and threads have stayed where the client was made."""
        if self.forked:
            raise UsageError(
                f"the client was made in process {self._process}, and this one, {os.getpid()}, was forked from it: its "
                "connections and its thread are not here; create a client after the fork, in each process"
            )

    def prepare(
        self,
        inputs: Mapping[str, Value],
        parameters: Mapping[str, Value] | None,
        deadline: float | None,
        request_id: str | None,
        key: str | None,
        trace: TraceContext | None,
        extra: Mapping[str, str] | None,
        after: Token | None = None,
    ) -> Prepared:
        """Encode a query to be sent now.

        Raises `WireError` for what cannot travel, `UsageError` without a deadline, for inputs that have no names, or in
        a fork of the client's process.
        """
        self.require_home()
        for what, named in (("inputs", inputs), ("parameters", parameters or {})):
            if not isinstance(named, Mapping):
                kind = type(named).__name__
                raise UsageError(f"the {what} of a query are values by name, as in {{'name': 'Ada'}}, not a {kind}")
        seconds = self._slo if deadline is None else deadline
        if seconds is None:
            raise UsageError("a query needs a deadline: give one, or make the client with an slo")
        seconds = _seconds("deadline", seconds)
        identity = self.new_id(key) if request_id is None else request_id
        sent = int(self._time() * 1e6)
        headers = Headers(
            identity,
            sent,
            sent + int(seconds * 1e6),
            trace=new_trace(identity) if trace is None else trace,
            extra=[(name, _utf8(f"header {name}", text)) for name, text in extra.items()] if extra else [],
        )
        if after is not None:
            headers.extra.append((AFTER, str(after).encode()))
        pairs = encode(headers)
        value = encode_query(Query(dict(inputs), dict(parameters or {})), self.limits)
        start = self._monotonic()
        due = start + seconds
        hint = "" if request_id is None else _REUSED
        chosen = pairs[0][1] if key is None else _utf8("the key", key)
        return Prepared(pairs[0][1], pairs, chosen, value, start, due, due + self._grace, hint)

    def new_id(self, key: str | None) -> str:
        """An id for a query; without a key it is the key, too.

        With shared replies such a query is to go to a partition of the client's own. An explicit partition would do for
        most of its way, as each stage passes a query on in the partition that it came from. But stages with keyed state
        and tables, and whoever plays a recording, go by murmur2 of the key: so the id is made for the partition.
        """
        where = self.landing() if key is None else None
        return self._ids.new() if where is None else self._ids.new_in(*where)


def _utf8(what: str, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair, which JSON can hold and UTF-8 cannot
        raise WireError(NOT_ENCODABLE, f"{what} is no text that UTF-8 can hold: {text!a:.80}") from error


_LONGEST = 1e12  # seconds; a deadline is in microseconds of 64 bits


def _seconds(name: str, value: float) -> float:
    if not 0 <= value <= _LONGEST:
        raise UsageError(f"{name} is {value} s: it must be 0 or more, and at most {_LONGEST:g}")
    return value
