"""From a record on a stage's input topic to a delivery for the core, or to the reason why it cannot be one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spillway.agents.core.request import Delivery, Loss
from spillway.agents.run.emission import Carried
from spillway.agents.run.truths import divide
from spillway.lineage import headers, reasons
from spillway.lineage.errors import WireError, unreadable
from spillway.lineage.limits import LOOSEST_LIMITS
from spillway.lineage.marks import foreign
from spillway.lineage.message import FAILED, Outcome, Query
from spillway.lineage.ports import Record
from spillway.lineage.values.json_tensors import elements, flattened
from spillway.lineage.values.tensors import DTYPES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from spillway.agents.core.joins import Fetch
    from spillway.agents.metrics import StageMetrics
    from spillway.lineage.marks import Place
    from spillway.lineage.values.codec import Decoder

_NAMED, _NAME = 5, 40  # of a query's names as an error tells them


class Signature:
    """Checks a query's inputs; dimensions told as None, -1 or a name may be of any size."""

    def __init__(self, inputs: Mapping[str, Any]) -> None:
        """`inputs` maps names to objects (or mappings) with `dtype` and `shape`; either may be None for any."""
        self._inputs = {name: (_told(one, "dtype"), _shape(_told(one, "shape"))) for name, one in inputs.items()}

    def check(self, inputs: dict[str, Any]) -> None:
        """Raise WireError(BAD_INPUT) that names the first input that does not fit; more inputs may be there.

        A list of numbers becomes the tensor that is wanted.
        """
        for name, (dtype, shape) in self._inputs.items():
            if name not in inputs:
                raise WireError(reasons.BAD_INPUT, f"input {name!r} is missing{_others(inputs)}")
            value = inputs[name]
            if isinstance(value, list) and dtype in DTYPES and (made := _tensor(value, dtype)) is not None:
                value = inputs[name] = made
            found_dtype, found_shape = describe(value)
            if dtype is not None and dtype != found_dtype:
                raise WireError(reasons.BAD_INPUT, f"input {name!r} is {found_dtype}, not {dtype}")
            if shape is not None and isinstance(value, list):
                text = f"input {name!r} is a list, not a tensor; name its 'dtype' in the stage's 'inputs', or send one"
                raise WireError(reasons.BAD_INPUT, text)
            if shape is not None and not _fits(shape, found_shape):
                raise WireError(reasons.BAD_INPUT, f"input {name!r} has shape {list(found_shape)}, not {list(shape)}")


def _others(inputs: Mapping[str, Any]) -> str:
    """The names that a query has, where it lacks one: a misspelt one is seen so."""
    named = [repr(name)[:_NAME] for name in list(inputs)[:_NAMED]]
    more = ", ..." if len(inputs) > _NAMED else ""
    return f"; the query has {', '.join(named)}{more}" if named else "; the query has none"


def _tensor(value: list[Any], dtype: str) -> Any:
    """The tensor of a list of numbers; None where it is none, or would not hold them."""
    wanted = DTYPES[dtype]
    try:
        flat, shape = flattened(value, LOOSEST_LIMITS.max_rank)
        made = elements(flat, "float64" if wanted.kind == "c" else dtype)
        return made.astype(wanted, copy=False).reshape(shape)
    except (WireError, ValueError, OverflowError):
        return None


def describe(value: Any) -> tuple[str, tuple[int, ...]]:
    """Name a value's dtype and shape; of what is no tensor, its type and no dimensions."""
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return type(value).__name__, ()
    return str(dtype).removeprefix("torch."), tuple(value.shape)


def _fits(shape: tuple[int | None, ...], found: tuple[int, ...]) -> bool:
    return len(shape) == len(found) and all(want in (None, have) for want, have in zip(shape, found, strict=True))


def _told(one: Any, field: str) -> Any:
    return one.get(field) if isinstance(one, dict) else getattr(one, field, None)


def _shape(told: Any) -> tuple[int | None, ...] | None:
    if told is None:
        return None
    return tuple(size if isinstance(size, int) and size >= 0 else None for size in told)


# Whose clock counts: a query's effective times, from what its sender says and when the broker took it.
#
# Pure functions over unix microseconds. The root stage applies them once; later stages see the result in the headers.

SKEW_US: Final = 1_000_000
MAX_BUDGET_US: Final = 3_600_000_000
MAX_BUDGET_SLOS: Final = 10


@dataclass(slots=True, frozen=True)
class Times:
    """When a query counts as sent and is due, and what had to be mended for that."""

    sent_us: int
    deadline_us: int
    skewed: bool = False  # the sender's clock was off; both times rest on the broker's


def effective(sent_us: int, deadline_us: int, appended_us: int, slo_us: int) -> Times:
    """The times to go by for a query that the broker appended at `appended_us` (0 or less: not known).

    A budget (deadline - sent) is plausible from 0 to one hour, or ten times the SLO where that is more, and is
    clamped to that. Where the sender's clock is more than a second off the broker's, in either direction, the query
    counts as sent when it was appended and keeps its budget.
    """
    asked = deadline_us - sent_us
    budget = min(max(asked, 0), max(MAX_BUDGET_US, MAX_BUDGET_SLOS * slo_us))
    skewed = appended_us > 0 and abs(appended_us - sent_us) > SKEW_US
    start = appended_us if skewed else sent_us
    return Times(start, start + budget, skewed)


_MAX_CLASS_BYTES = 64
_OVERHEAD = 4_000  # bytes of a decoded message in memory, beside its value
_MAX_KEY_BYTES = 4096  # keys travel with every message of a query, on top of its value


class PoisonError(WireError):
    """A record that the stage cannot take. `delivery` says what could be read; without an id it is nobody's query."""

    def __init__(self, cause: WireError, delivery: Delivery) -> None:
        super().__init__(cause.reason, str(cause))
        self.delivery = delivery


class Intake:
    """Decodes the records of one stage's input."""

    def __init__(
        self,
        *,
        predecessors: tuple[str, ...],
        decoder: Decoder,
        signature: Signature | None,
        slo: float,
        metrics: StageMetrics,
        places: Collection[Place] = (),
        needs: Callable[[Query], float | None] | None = None,
        truths: bool = False,
    ) -> None:
        """`predecessors` is empty for a root stage; `signature` is checked here only where nothing is joined.

        `places`: the shards of the pipeline's stateful stages, which alone a message can rest on. `needs` gives the
        latency in seconds that a query asks by its parameters, which is its deadline then; None: none. `truths`:
        whether messages of many are taken (`spillway.agents.run.truths`).
        """
        self._predecessors = predecessors
        self._root = not predecessors
        self._decoder = decoder
        self._signature = signature
        self._slo_us = int(slo * 1e6)
        self._metrics = metrics
        self._places = frozenset(places)
        self._needs = needs
        self._many = truths

    def delivery(self, record: Record) -> Delivery:
        """Decode a record. Raises PoisonError."""
        delivery = self.envelope(record)
        carried: Carried = delivery.payload
        try:
            self._read_value(delivery, record.value, carried)
        except Exception as error:
            raise PoisonError(unreadable(error), delivery) from error
        delivery.size = len(record.value or b"") + _OVERHEAD
        return delivery

    def part(self, record: Record) -> Delivery:
        """Decode a record for a join whose value is not at hand: it is read again when the join wants it."""
        delivery = self.envelope(record)
        delivery.payload, delivery.dropped = None, True
        return delivery

    def again(self, fetch: Fetch, record: Record | None) -> tuple[Carried, Loss | None]:
        """Give what was dropped of a record that is read again; None: the log does not have it any more."""
        text = "a part that waited for other parts is gone from the log: the topic's retention is too short"
        asked = [] if record is None else headers.json_asked(record.headers)
        if record is not None:
            try:
                return self.delivery(record).payload, None
            except PoisonError as poison:
                text = f"a part that waited for other parts could not be read again: {poison}"
        part = fetch.part
        assert part is not None  # the core asked for it
        known = headers.Headers(part.request_id, int(part.sent * 1e6), int(part.deadline * 1e6), extra=asked)
        nothing = Record(
            "",
            fetch.partition,
            fetch.offset,
            int(part.appended * 1e3),
            log_append=False,
            key=None,
            value=None,
            headers=(),
        )
        return Carried(nothing, known, None), Loss(FAILED, reasons.PART_GONE, text)

    def envelope(self, record: Record) -> Delivery:
        """Decode only the headers: all that memory needs of a record taken before. Raises PoisonError."""
        try:
            # A client may leave its times out; between stages they are never missing.
            appended_us = record.timestamp * 1000 if self._root else None
            decoded = headers.decode(record.headers, appended_us=appended_us, slo_us=self._slo_us)
        except Exception as error:
            told = unreadable(error)
            raise PoisonError(told, self._unplaced(record, told.request_id or "")) from error
        try:
            _check_record(record)
            return self._placed(record, decoded)
        except Exception as error:
            raise PoisonError(unreadable(error), self._unplaced(record, decoded.request_id)) from error

    def remembered(self, record: Record) -> Delivery | None:
        """What memory needs of a record taken before; None where it has no use for it.

        Of a client's record that is the id alone, which takes a tenth of what all its headers take.
        """
        if self._root:
            request_id = headers.identify(record.headers)
            if not request_id:
                return None
            appended = record.timestamp / 1000
            return Delivery(
                request_id, record.partition, record.offset, appended, appended, "", None, appended=appended,
                ids=self._ids(record) if self._many else (),
            )  # fmt: skip
        try:
            delivery = self.envelope(record)
        except PoisonError as poison:
            delivery = poison.delivery
        delivery.payload = None  # else the record stays in memory with it
        return delivery if delivery.request_id else None

    def _placed(self, record: Record, decoded: headers.Headers) -> Delivery:
        hop = decoded.hop
        if self._root:
            predecessor, hop = "", None
            decoded.hop, decoded.path, decoded.lost = None, {}, ()  # a client's claims about hops mean nothing
            self._settle_times(record, decoded)
        elif hop is None or not (
            # A tombstone comes from any stage before; it speaks for predecessors of this one.
            set(decoded.lost).issubset(self._predecessors) if decoded.lost else hop.stage in self._predecessors
        ):
            sender = "no stage" if hop is None else repr(hop.stage)
            raise WireError(reasons.BAD_HEADERS, f"sent by {sender}, which is not a predecessor of this stage")
        elif hop.marks and (mark := foreign(hop.marks, self._places)) is not None:
            raise WireError(reasons.BAD_HEADERS, f"depends on {mark}, a shard that this pipeline does not have")
        else:
            predecessor = hop.stage
        return Delivery(
            decoded.request_id,
            record.partition,
            record.offset,
            decoded.sent_us / 1e6,
            decoded.deadline_us / 1e6,
            predecessor,
            hop,
            decoded.path,
            decoded.lost,
            record.timestamp / 1000,
            Carried(record, decoded, None),
            _class_of(decoded),
            offline=headers.is_offline(decoded),
            ids=self._ids(record) if self._many else (),
        )

    def _ids(self, record: Record) -> tuple[str, ...]:
        return headers.truths(record.headers) or ()

    def _settle_times(self, record: Record, decoded: headers.Headers) -> None:
        appended = record.timestamp * 1000 if record.log_append else 0  # 0: not known
        times = effective(decoded.sent_us, decoded.deadline_us, appended, self._slo_us)
        self._metrics.clock_skew += times.skewed
        decoded.sent_us, decoded.deadline_us = times.sent_us, times.deadline_us
        if headers.is_offline(decoded):
            decoded.deadline_us = decoded.sent_us + MAX_BUDGET_US

    def _unplaced(self, record: Record, request_id: str) -> Delivery:
        """Make a delivery of a record whose headers say too little: sent when appended, due as the SLO has it."""
        appended = record.timestamp / 1000
        sent_us = record.timestamp * 1000
        asked = headers.json_asked(record.headers)
        known = headers.Headers(request_id, sent_us, sent_us + self._slo_us, extra=asked) if request_id else None
        return Delivery(
            request_id,
            record.partition,
            record.offset,
            appended,
            appended + self._slo_us / 1e6,
            "",
            None,
            appended=appended,
            payload=Carried(record, known, None),
            ids=self._ids(record) if self._many and request_id else (),
        )

    def _read_value(self, delivery: Delivery, value: bytes | None, carried: Carried) -> None:
        if value is None:
            raise WireError(reasons.NOT_AVRO, "the message has no value")
        json = self._root and carried.headers is not None and headers.is_json(carried.headers.content_type)
        message = self._decoder.json_query(value) if json else self._decoder.message(value)
        if isinstance(message, Outcome) != bool(delivery.lost):
            wanted = "an outcome" if delivery.lost else "a query"
            raise WireError(
                reasons.UNKNOWN_SCHEMA, f"the value is no {wanted[wanted.index(' ') + 1 :]}, as its headers say"
            )
        carried.message = message
        if self._root and message.flags:
            message.flags = {}  # as are a client's claims about hops
        if isinstance(message, Query):
            if self._needs is not None:
                self._hasten(delivery, carried, self._needs(message))
            check = None if self._signature is None else self._signature.check
            if self._many and headers.truths(carried.record.headers) is not None:
                delivery.truths = divide(delivery, delivery.ids, check)
            elif check is not None:
                check(message.inputs)

    @staticmethod
    def _hasten(delivery: Delivery, carried: Carried, latency: float | None) -> None:
        """Have a query due as soon as it asks, if that is before its deadline."""
        told = carried.headers
        if delivery.offline:
            return
        if latency is not None and told is not None and told.sent_us + latency * 1e6 < told.deadline_us:
            told.deadline_us = told.sent_us + int(latency * 1e6)
            delivery.deadline = told.deadline_us / 1e6


def _class_of(decoded: headers.Headers) -> str:
    said = dict(reversed(decoded.extra)).get(headers.CLASS, b"")  # the first one, where there are several
    try:
        return said[:_MAX_CLASS_BYTES].decode()
    except UnicodeDecodeError:
        return ""


def _check_record(record: Record) -> None:
    if record.key is not None and len(record.key) > _MAX_KEY_BYTES:
        text = f"a key of {len(record.key)} bytes is over the limit of {_MAX_KEY_BYTES}"
        raise WireError(reasons.TOO_LARGE, text)
    for name, _ in record.headers:
        if type(name) is bytes:
            raise WireError(reasons.BAD_HEADERS, f"header key {name[:64]!r} is not UTF-8")
