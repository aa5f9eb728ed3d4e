"""A request's way through its pipeline: what every protocol of the gateway asks, and what it gets.

- The request id is the gateway's own, as clients number from 1 and Spillway runs an id once. With an idempotency key it
  is a hash of that key and of whose it is, so a repetition is the same query on every replica.
- The answer comes with the outcome, or a second after the deadline.
- A client that goes away leaves its query running.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from spillway.agents.gateway import statuses
from spillway.agents.gateway.bodies import MAX_ID, bad
from spillway.agents.gateway.signature import Signature
from spillway.agents.gateway.statuses import NOT_FOUND, RefusedError
from spillway.agents.metrics import Distribution
from spillway.lineage import headers, trace
from spillway.lineage.errors import SpillwayError, UsageError
from spillway.lineage.ids import is_request_id, new_request_id
from spillway.lineage.message import PREDICTION
from spillway.producers.client import AsyncClient, ClientClosedError, TooManyInFlightError
from spillway.topology import names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spillway.agents.gateway.parameters import Ask
    from spillway.agents.gateway.security import Caller
    from spillway.agents.gateway.statuses import Status
    from spillway.lineage.message import Outcome, Value
    from spillway.lineage.trace import TraceContext
    from spillway.producers.connection import ClientSettings
    from spillway.topology.load import Pipeline

log = logging.getLogger(__name__)

GRACE: Final = 1.0  # seconds after its deadline that an outcome is waited for
QUERIES: Final = 10_000  # under way at a time, of one pipeline
LONGEST: Final = 3_600.0  # seconds of a deadline
CLIENT_ID: Final = "x-client-id"  # the `id` of a request, as its client numbers it
CLIENT_REQUEST_ID: Final = "x-client-request-id"  # what came as x-request-id
_VERSION_DIGITS: Final = 12


@dataclass(frozen=True, slots=True)
class Asked:
    """One query as a protocol has read it."""

    inputs: Mapping[str, Value]
    ask: Ask
    id: str = ""  # the client's, echoed and carried
    idempotency_key: str = ""
    caller: str = ""  # whose token it came with
    request_id: str = ""  # what came as x-request-id
    traceparent: str = ""
    tracestate: str = ""
    timeout: float | None = None  # seconds of the protocol's own deadline; the shorter one counts

    @classmethod
    def of(
        cls,
        headers: Mapping[str, str],
        caller: Caller,
        inputs: Mapping[str, Value],
        ask: Ask,
        client_id: str,
        timeout: float | None = None,
    ) -> Self:
        """Return a query with what its request's headers say. Raises WireError(BAD_INPUT) for an idempotency key."""
        idempotency_key = headers.get("idempotency-key", "")
        if idempotency_key and not is_request_id(idempotency_key):
            raise bad("Idempotency-Key: must have 1 to 128 visible ASCII characters")
        return cls(
            inputs,
            ask,
            client_id,
            idempotency_key,
            caller.name,
            request_id=headers.get("x-request-id", "")[:MAX_ID],
            traceparent=headers.get("traceparent", ""),
            tracestate=headers.get("tracestate", ""),
            timeout=timeout,
        )


class Answered(NamedTuple):
    """What came of a query."""

    status: Status
    error: str  # what there is to say of any status but OK
    request_id: str
    outcome: Outcome | None  # a late prediction has its outputs, too


@dataclass(slots=True)
class Traffic:
    """What the gateway counts of one pipeline and protocol."""

    by_status: Counter[str] = field(default_factory=Counter)
    seconds: Distribution = field(default_factory=Distribution)
    passed_over: int = 0  # outcomes that came when their clients had gone


class Served:
    """A pipeline that the gateway answers for."""

    def __init__(self, pipeline: Pipeline, settings: ClientSettings, lost: asyncio.Event) -> None:
        """`lost`: to be set when the client has failed for good: every query would fail from then on."""
        spec = pipeline.spec
        self.pipeline, self.name, self.slo = pipeline, spec.name, spec.slo
        self.signature = Signature.of(spec)
        self.version = pipeline.digest[:_VERSION_DIGITS]
        self.limits = spec.limits.merged()
        self.keyed = any(stage.state is not None and stage.state.kind == "keyed" for stage in spec.stages)
        self.under_way = 0
        self.traffic: dict[str, Traffic] = {}
        self._lost = lost
        self.client = AsyncClient(pipeline, settings, grace=GRACE, in_flight=QUERIES, replies="shared")

    def of(self, protocol: str) -> Traffic:
        return self.traffic.setdefault(protocol, Traffic())

    async def ask(self, query: Asked, protocol: str) -> Answered:
        """Run one query. Whatever is wrong with it is in the answer; nothing is raised but cancellation."""
        start = time.monotonic()
        self.under_way += 1
        try:
            answered = await self._ask(query)
        except SpillwayError as error:
            if isinstance(error, ClientClosedError):
                self._lost.set()
            answered = Answered(statuses.status_of(error), str(error), getattr(error, "request_id", "") or "", None)
        finally:
            self.under_way -= 1
        traffic = self.of(protocol)
        traffic.by_status[answered.status.grpc] += 1
        traffic.seconds.observe(time.monotonic() - start)
        if answered.status is not statuses.OK:
            extra = {"request_id": answered.request_id}
            log.info("%s: %s (id %r): %s", self.name, answered.status.grpc, query.id, answered.error, extra=extra)
        return answered

    async def _ask(self, query: Asked) -> Answered:
        ask = query.ask
        if self.keyed and ask.key is None:
            raise bad(f"pipeline {self.name!r} has a state for each key: give the query its 'key'")
        if self.under_way > QUERIES:
            raise TooManyInFlightError(f"{QUERIES} queries of {self.name!r} are under way; try again later")
        deadline = min(self.slo if ask.deadline is None else ask.deadline, LONGEST, query.timeout or LONGEST)
        told = {CLIENT_ID: query.id, CLIENT_REQUEST_ID: query.request_id, headers.PRIORITY: ask.priority or ""}
        outcome = await self.client.predict(
            query.inputs,
            ask.own,
            deadline=deadline,
            key=ask.key,
            after=ask.after,
            request_id=self._same_query(query) if query.idempotency_key else None,
            trace=_trace(query),
            headers={name: text for name, text in told.items() if text},
        )
        request_id = outcome.request_id or ""
        if outcome.kind != PREDICTION:
            said = f"{outcome.kind}: {outcome.reason}{f' at {outcome.stage}' if outcome.stage else ''}"
            numbers = _in_numbers(outcome, deadline)
            text = f"{said}: {outcome.text or numbers}" if outcome.text or numbers else said
            return Answered(statuses.status_of_reason(outcome.reason), text, request_id, outcome)
        if outcome.late:
            return Answered(statuses.LATE, f"answered late: {_in_numbers(outcome, deadline)}", request_id, outcome)
        return Answered(statuses.OK, "", request_id, outcome)

    def _same_query(self, query: Asked) -> str:
        """Return the request id of an idempotency key, whose owner nobody else can be."""
        parts = (self.name, query.caller, query.idempotency_key)
        digest = blake2b("\0".join(parts).encode("utf-8", "replace"), digest_size=16).hexdigest()
        return f"idempotent-{digest}"


class Pipelines:
    """The pipelines of one gateway, by name."""

    def __init__(self, pipelines: Iterable[Pipeline], settings: ClientSettings) -> None:
        self.settings = settings
        self.served: dict[str, Served] = {}
        self.draining = False
        self.lost = asyncio.Event()  # a client has failed for good
        for pipeline in pipelines:
            if pipeline.spec.name in self.served:
                raise UsageError(f"{pipeline.path}: pipeline {pipeline.spec.name!r} is given twice")
            self.served[pipeline.spec.name] = Served(pipeline, settings, self.lost)

    async def open(self) -> None:
        """Connect to the cluster. Raises BrokerError or TopicError."""
        for served in self.served.values():
            await served.client.__aenter__()

    async def close(self) -> None:
        await asyncio.gather(*(served.client.close() for served in self.served.values()))

    @property
    def ready(self) -> bool:
        return not self.draining and not self.lost.is_set()

    def find(self, name: str, version: str, allowed: frozenset[str] | None) -> Served:
        """Return a pipeline by its name and, where one is given, its version.

        Raises RefusedError, which tells of the names that the caller may see alone.
        """
        seen = {known: each for known, each in self.served.items() if allowed is None or known in allowed}
        served = seen.get(name)
        if served is None:
            hint = names.meant(name[:80], list(seen))
            raise RefusedError(NOT_FOUND, f"there is no pipeline {name!r:.80} here; {hint}")
        if version and version != served.version:
            text = f"pipeline {name!r} is served as version {served.version}, not {version!r:.80}"
            raise RefusedError(NOT_FOUND, text)
        return served


def _trace(query: Asked) -> TraceContext | None:
    if not query.traceparent:
        return None
    parent, state = (text.encode("utf-8", "replace") for text in (query.traceparent, query.tracestate))
    return trace.read(new_request_id(), parent, state or None, None)


def _in_numbers(outcome: Outcome, deadline: float) -> str:
    if outcome.latency is None:
        return ""
    return f"after {outcome.latency * 1000:.0f} ms of {deadline * 1000:.0f} ms"
