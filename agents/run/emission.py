"""From what the core says to send, to messages: which topic, which value, which headers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from spillway.agents.core.actions import Emit, EmitKind, timing_of
from spillway.agents.core.request import Delivery, Request
from spillway.lineage import headers
from spillway.lineage.dead_letters import dead_letter, letter_headers
from spillway.lineage.flags import bounded, merge
from spillway.lineage.message import Outcome, StageTiming
from spillway.lineage.ports import Outgoing
from spillway.lineage.values import codec
from spillway.topology import topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from spillway.lineage.flags import Flags
    from spillway.lineage.headers import Headers
    from spillway.lineage.limits import Limits
    from spillway.lineage.message import Query
    from spillway.lineage.ports import Record


@dataclass(slots=True)
class Carried:
    """A decoded message beside the record that it came in: zero-copy tensors keep the record's bytes alive anyway."""

    record: Record  # as it was, for a dead letter
    headers: Headers | None  # None where the headers could not be read
    message: Query | Outcome | None  # None where the value could not be read


_TEXT_CHARS = 1000  # of an outcome's explanation: a model's message may hold its whole input


class Emission:
    """Makes the messages of one stage."""

    def __init__(self, pipeline: str, stage: str, limits: Limits, clock: Callable[[], float]) -> None:
        self._pipeline = pipeline
        self._stage = stage
        self._limits = limits
        self._clock = clock
        self._dead = topics.dead(pipeline)
        self._topics = {"": topics.outcomes(pipeline)}  # by destination; "" is the gate

    def message(self, emit: Emit) -> Outgoing:
        """Make the message for one emit. A request's headers travel on."""
        source = emit.source
        part = source.parts[0] if isinstance(source, Request) else source
        carried: Carried = part.payload
        if emit.kind is EmitKind.DEAD_LETTER:
            return self._letter(emit, carried)
        came = carried.headers
        if came is None:
            raise ValueError(f"a record without headers cannot be sent on: {emit!r}")
        going = headers.Headers(
            source.request_id,
            came.sent_us,
            came.deadline_us,
            emit.hop,
            emit.path,
            emit.lost,
            came.trace,
            came.extra,
        )
        value: bytes = emit.payload if type(emit.payload) is bytes else self._loss(emit, source)
        destination = emit.destination or ""
        topic = self._topics.get(destination)
        if topic is None:
            topic = self._topics[destination] = topics.stage_input(self._pipeline, destination)
        return Outgoing(topic, source.partition, carried.record.key, value, headers.encode(going))

    def _loss(self, emit: Emit, source: Request | Delivery) -> bytes:
        loss = emit.loss
        if loss is None:
            passed: Carried = emit.payload
            assert passed.record.value is not None  # it was decoded
            return passed.record.value
        outcome = Outcome(
            kind=loss.kind,
            reason=loss.reason,
            text=loss.text[:_TEXT_CHARS],
            stage=self._stage,
            timings=self._timings(source),
        )
        return codec.encode_outcome(outcome, self._limits)

    def _timings(self, source: Request | Delivery) -> list[StageTiming]:
        timings = timings_so_far(source)
        if isinstance(source, Request):
            timings = [*timings, timing_of(self._stage, source, self._clock())]
        return timings[-self._limits.max_timings :]

    def _letter(self, emit: Emit, carried: Carried) -> Outgoing:
        record = carried.record
        reason, text = (emit.loss.reason, emit.loss.text) if emit.loss is not None else ("", "")
        value = dead_letter(record, self._stage, reason, text, self._limits, self._clock())
        key = record.key if value_holds_key(record.key) else None
        told = letter_headers(self._stage, reason, text, emit.request_id)
        return Outgoing(self._dead, record.partition, key, value, told)


def value_holds_key(key: bytes | None) -> bool:
    """Whether a record's key may also be its dead letter's; a huge one stands in the letter's value only."""
    return key is not None and len(key) <= 4096  # noqa: PLR2004 - the largest that the intake takes


def timings_so_far(source: Request | Delivery) -> list[StageTiming]:
    """Gather what the stages before this one told, each stage once."""
    if isinstance(source, Delivery):
        return _told(source)
    parts = source.parts
    if len(parts) == 1:
        return _told(parts[0])
    seen: dict[tuple[str, float], StageTiming] = {}
    for part in parts:
        for timing in _told(part):
            seen.setdefault((timing.stage, timing.executed), timing)
    return list(seen.values())


def flags_with(request: Request, stage: str, own: Flags | None) -> Flags:
    """What a request came with, and what this stage says of its answer, within the bounds."""
    parts = request.parts
    came = [parts[0].payload.message.flags] if len(parts) == 1 else [part.payload.message.flags for part in parts]
    flags: Flags = came[0]
    if not own and len(came) == 1:
        return flags
    flags = merge([*came, {stage: own}] if own else came)
    return bounded(flags, stage) if flags else flags


def about(*sources: Request | Delivery) -> dict[str, str]:
    """What a log line says of the query, or the queries, that it is about, for `extra=`."""
    parts = [source.parts[0] if isinstance(source, Request) else source for source in sources]
    told = {"request_id": ", ".join(part.request_id for part in parts)}
    came = parts[0].payload.headers if len(parts) == 1 and isinstance(parts[0].payload, Carried) else None
    return told if came is None or came.trace is None else {**told, "trace_id": came.trace.trace_id}


def _told(part: Delivery) -> list[StageTiming]:
    message = part.payload.message if isinstance(part.payload, Carried) else None
    return message.timings if message is not None else []
