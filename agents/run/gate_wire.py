"""Records to deliveries for the gate's core, and what the core releases to messages for the egress.

A value goes through as the very bytes that came, unless the outcome is the gate's own making (merged from several
sinks, or a failure); so do the headers. Everything is decoded all the same: what clients read has been checked here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from spillway.agents.core.request import Delivery, Loss
from spillway.lineage import headers as header_codec
from spillway.lineage import reasons
from spillway.lineage.dead_letters import dead_letter, letter_headers
from spillway.lineage.errors import WireError, unreadable
from spillway.lineage.flags import cut
from spillway.lineage.headers import Headers
from spillway.lineage.marks import foreign
from spillway.lineage.message import FAILED, Outcome
from spillway.lineage.metric_names import GATE
from spillway.lineage.ports import UNREADABLE
from spillway.lineage.values.codec import decoded, encode_outcome
from spillway.lineage.values.json_text import MIME, write_outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from spillway.agents.core.joins import Fetch
    from spillway.agents.core.outcomes import Release
    from spillway.lineage.limits import Limits
    from spillway.lineage.marks import Place
    from spillway.lineage.ports import Clock, Record
    from spillway.lineage.ports import Headers as Pairs
    from spillway.lineage.trace import TraceContext
    from spillway.lineage.values.codec import Decoder

_JSON = MIME.encode()
_MICROSECONDS = 1_000_000
_OVERHEAD = 4_000  # bytes of a decoded report in memory, beside its value
_MOST_TEXT = 2_000  # characters of an error's text that are passed on


@dataclass(slots=True)
class Carried:
    """What the core carries along: the message as it came, and the outcome in it (None where it was not decoded)."""

    key: bytes | None
    value: bytes | None  # as it came; None: to be encoded from `outcome`
    headers: Pairs
    outcome: Outcome | None
    taken: float = 0.0  # unix seconds: when the gate took it
    trace: TraceContext | None = None  # None where it was not decoded


@dataclass(slots=True)
class Poison:
    """A message that cannot be taken, and why. `stand_in` fails its query, where that is known."""

    raw: Record
    reason: str
    text: str
    stand_in: Delivery | None


class GateWire:
    """Reads and writes the gate's messages. `relearn` is asked when a schema is unknown: whether more are known now."""

    def __init__(
        self,
        stages: Collection[str],
        decoder: Decoder,
        limits: Limits,
        clock: Clock,
        relearn: Callable[[], bool] = bool,
        places: Collection[Place] = (),
    ) -> None:
        """`places`: the shards of the pipeline's stateful stages, which alone a message can rest on."""
        self._stages = frozenset(stages)
        self._places = frozenset(places)
        self._decoder = decoder
        self._limits = limits
        self._clock = clock
        self._relearn = relearn

    def read(self, record: Record) -> Delivery | Poison:
        return self._read(record, values=True)

    def again(self, fetch: Fetch, record: Record | None) -> tuple[Carried, Loss | None]:
        """Give what was dropped of a report that is read again; None: the log does not have it any more."""
        taken = None if record is None else self.read(record)
        found = taken.stand_in if isinstance(taken, Poison) else taken
        if found is not None:
            return found.payload, None
        part = fetch.part
        assert part is not None  # the core asked for it
        pairs = header_codec.encode(Headers(part.request_id, int(part.sent * 1e6), int(part.deadline * 1e6)))
        text = "a report that waited for the other sinks is gone from the log: the topic's retention is too short"
        nothing = Outcome(FAILED, reason=reasons.PART_GONE, text=text, stage=GATE)
        return Carried(None, None, tuple(pairs), nothing), Loss(FAILED, reasons.PART_GONE, text)

    def envelope(self, record: Record) -> Delivery | None:
        """Decode the headers alone of a record that was taken before; None where it is nobody's."""
        taken = self._read(record, values=False)
        return taken.stand_in if isinstance(taken, Poison) else taken

    @staticmethod
    def released(record: Record) -> tuple[str, float] | None:
        """The id and the time of sending of a query whose outcome is on the egress; None for a foreign record.

        Reads just these two, as a gate that starts may have some hundred thousand to go through.
        """
        try:
            pairs: dict[Any, Any] = dict(record.headers)
            return pairs[header_codec.REQUEST_ID].decode("ascii"), int(pairs[header_codec.SENT]) / _MICROSECONDS
        except (LookupError, ValueError, TypeError, AttributeError):
            return None

    def message(self, release: Release) -> tuple[bytes, Pairs]:
        """The value and headers to put on the egress; an outcome too large to be sent becomes a failed one."""
        carried: Carried = release.source.payload
        if header_codec.json_asked(carried.headers):
            return self._in_json(release), (*carried.headers, (header_codec.CONTENT_TYPE, _JSON))
        if not release.own and carried.value is not None:
            return carried.value, carried.headers
        try:
            return encode_outcome(release.outcome, self._limits), carried.headers
        except WireError as error:
            if _cut(release):
                return self.message(release)
            return encode_outcome(_failed(error), self._limits), carried.headers

    def _in_json(self, release: Release) -> bytes:
        seconds = max(0.0, self._clock.now() - release.source.sent)
        try:
            return write_outcome(release.outcome, release.request_id, seconds, self._limits.max_message_bytes)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is this outcome's alone
            if _cut(release):
                return self._in_json(release)
            return write_outcome(_failed(unreadable(error)), release.request_id, seconds)

    def letter(self, poison: Poison) -> tuple[bytes, Pairs]:
        request_id = poison.stand_in.request_id if poison.stand_in is not None else ""
        value = dead_letter(poison.raw, GATE, poison.reason, poison.text, self._limits, self._clock.now())
        return value, tuple(letter_headers(GATE, poison.reason, poison.text, request_id))

    def _read(self, record: Record, *, values: bool) -> Delivery | Poison:
        pairs = record.headers
        if pairs == UNREADABLE:
            bare = replace(record, headers=())
            return Poison(bare, reasons.BAD_HEADERS, "a header's key is not UTF-8", None)
        try:
            headers = header_codec.decode(pairs)
            self._check_hop(record, headers)
        except Exception as raised:  # noqa: BLE001 - whatever it is, it is wrong with this record alone
            error = unreadable(raised)
            return Poison(record, error.reason, str(error), _nameless(record, error))
        value = record.value if values else None
        try:
            outcome = self._outcome(value) if values else None
        except Exception as raised:  # noqa: BLE001
            error = unreadable(raised)
            carried = Carried(record.key, None, pairs, _failed(error), trace=headers.trace)
            return Poison(record, error.reason, str(error), _delivery(record, headers, carried))
        carried = Carried(record.key, value, pairs, outcome, trace=headers.trace)
        delivery = _delivery(record, headers, carried)
        delivery.size = len(value or b"") + _OVERHEAD
        return delivery

    def _check_hop(self, record: Record, headers: Headers) -> None:
        hop, partition = headers.hop, record.partition
        if hop is None or hop.stage not in self._stages:
            sender = "no stage" if hop is None else repr(hop.stage)
            text = f"sent by {sender}, which is not a stage of this pipeline"
        elif hop.partition != partition:
            text = f"stage {hop.stage!r} sent it from partition {hop.partition} to partition {partition}"
        elif (mark := foreign(hop.marks, self._places)) is not None:
            text = f"depends on {mark}, a shard that this pipeline does not have"
        else:
            return
        raise WireError(reasons.BAD_HEADERS, text, headers.request_id)

    def _outcome(self, value: bytes | None) -> Outcome:
        if value is None:
            raise WireError(reasons.NOT_AVRO, "the message has no value")
        return decoded(self._decoder.outcome, value, self._relearn)


def _cut(release: Release) -> bool:
    """Cut the flags of an outcome, which must not fail for them; False if it has none left to cut."""
    if release.outcome.flags in ({}, cut(GATE)):
        return False
    release.outcome = replace(release.outcome, flags=cut(GATE))
    return True


def _failed(error: WireError) -> Outcome:
    return Outcome(FAILED, reason=error.reason, text=str(error)[:_MOST_TEXT], stage=GATE)


def _nameless(record: Record, error: WireError) -> Delivery | None:
    """A failure for a query of which no more than the id could be read: sent, as far as is known, just now."""
    if error.request_id is None:
        return None
    appended_us = max(0, record.timestamp * 1000)
    asked = header_codec.json_asked(record.headers)
    headers = Headers(error.request_id, appended_us, appended_us, extra=asked)
    carried = Carried(record.key, None, tuple(header_codec.encode(headers)), _failed(error))
    return _delivery(record, headers, carried)


def _delivery(record: Record, headers: Headers, carried: Carried) -> Delivery:
    hop = headers.hop
    return Delivery(
        headers.request_id,
        record.partition,
        record.offset,
        headers.sent_us / _MICROSECONDS,
        headers.deadline_us / _MICROSECONDS,
        hop.stage if hop is not None else "",
        hop,
        headers.path,
        headers.lost,
        record.timestamp / 1000,
        carried,
        offline=header_codec.is_offline(headers),
    )
