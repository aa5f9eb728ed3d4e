"""Decoding of messages that were written with another version of a schema: a bounded scan, then fastavro resolves.

fastavro trusts its input: it follows any nesting on the C stack and allocates what a count says. So the bytes are
first scanned by the writer's schema, allocating nothing; only bytes within the limits reach fastavro. Slower than
`spillway.lineage.values.decoding` and with one copy of every tensor, as befits the minutes of a rolling upgrade, dead
letters and replicas' words.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final, TypeVar

import fastavro

from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.limits import MAX_QUANTILES, too_large
from spillway.lineage.message import DeadLetter, Outcome, PlanWord, Query, StageTiming
from spillway.lineage.schemas import FAST_READERS
from spillway.lineage.values import tensors
from spillway.lineage.values.decoding import read_count, read_length, read_long

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spillway.lineage.limits import Limits
    from spillway.lineage.schemas import WriterSchema

_Built = TypeVar("_Built")
_PLAIN: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")  # no set: some types are dicts
_MORE: Final = 0x80  # the bit of a varint's byte that says that more follow
_FIXED_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
# Levels of a schema's own records and unions for each level of a value's nesting, and for the message around it.
_LEVELS_EACH: Final = 4
# Schema nodes visited for each value: ours has 24 in a tensor of rank 16.
_STEPS_EACH: Final = 32


def resolve(schema: WriterSchema, buffer: bytes, at: int, limits: Limits) -> Query | Outcome | DeadLetter | PlanWord:
    """The message at `at`, written with `schema`, as ours. Raises WireError only, whatever the bytes."""
    build = _BUILDERS.get(schema.name)
    if build is None:
        raise WireError(reasons.UNKNOWN_SCHEMA, f"a {schema.name} is not a message of this topic")
    return read_as(schema, buffer, at, limits, build)


def read_as(
    schema: WriterSchema, buffer: bytes, at: int, limits: Limits, build: Callable[[dict[str, Any], Limits], _Built]
) -> _Built:
    """What `build` makes of the record at `at`, written with `schema`. Raises WireError only, whatever the bytes."""
    end = _Scan(schema, limits).scan(buffer, at)
    if end != len(buffer):
        raise WireError(reasons.CORRUPT, f"the message has {len(buffer)} bytes, but by its schema it ends at {end}")
    stream = io.BytesIO(buffer)
    stream.seek(at)
    try:
        record = fastavro.schemaless_reader(stream, schema.fast, FAST_READERS[schema.name], return_record_name=True)
        return build(record, limits)
    except WireError:
        raise
    # fastavro's errors have no common root, and a foreign writer's schema can make many of them.
    except Exception as error:
        raise WireError(reasons.CORRUPT, f"not a {schema.name}: {str(error)[:200]}") from error


class _Scan:
    """Walks bytes by a schema in canonical form, checks every length, counts every item, builds nothing."""

    def __init__(self, schema: WriterSchema, limits: Limits) -> None:
        self._schema = schema.canonical
        self._named = schema.named
        self._limits = limits
        self._items = limits.max_values + limits.max_timings  # may be left: structures, which take memory
        self._steps = self._items * _STEPS_EACH  # may be left: what takes time, even where it takes no bytes
        self._deepest = (limits.max_depth + 2) * _LEVELS_EACH

    def scan(self, buffer: bytes, at: int) -> int:
        """The position after the message that starts at `at`; past the end where its last fields are cut off."""
        try:
            return self._walk(self._schema, buffer, at, 0)
        except IndexError as error:
            raise WireError(reasons.CORRUPT, "the message ends early") from error

    def _walk(self, schema: Any, buffer: bytes, at: int, depth: int) -> int:
        if depth > self._deepest:
            raise too_large("the message's nesting", self._limits.max_depth, "max_depth")
        self._steps -= 1
        if self._steps < 0:
            raise too_large("the number of values in the message", self._limits.max_values, "max_values")
        if isinstance(schema, list):
            branch, at = read_long(buffer, at)
            if not 0 <= branch < len(schema):
                raise WireError(reasons.CORRUPT, f"a union has no branch {branch}")
            return self._walk(schema[branch], buffer, at, depth + 1)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if kind in _FIXED_SIZES:
            return at + _FIXED_SIZES[kind]
        if kind in {"int", "long"}:
            return read_long(buffer, at)[1]
        if kind in {"string", "bytes"}:
            size, at = read_length(buffer, at)
            return at + size
        if kind in {"array", "map"}:
            return self._walk_blocks(schema, buffer, at, depth + 1)
        return self._walk_named(kind, schema, buffer, at, depth + 1)

    def _walk_named(self, kind: str, schema: Any, buffer: bytes, at: int, depth: int) -> int:
        if kind == "record":
            for part in schema["fields"]:
                field = part["type"]
                if type(field) is str and field in _PLAIN:
                    at = self._skip(field, 1, buffer, at)
                else:
                    at = self._walk(field, buffer, at, depth)
            return at
        if kind == "enum":
            symbol, at = read_long(buffer, at)
            if not 0 <= symbol < len(schema["symbols"]):
                raise WireError(reasons.CORRUPT, f"an enum has no symbol {symbol}")
            return at
        if kind == "fixed":
            return at + int(schema["size"])
        return self._walk(self._named[kind], buffer, at, depth)

    def _walk_blocks(self, schema: Any, buffer: bytes, at: int, depth: int) -> int:
        if not buffer[at]:  # most are empty
            return at + 1
        is_map = schema["type"] == "map"
        items = schema["values" if is_map else "items"]
        while True:
            count, at = read_count(buffer, at)
            if not count:
                return at
            if items not in _PLAIN:
                self._items -= count
            if self._items < 0 or count > self._steps:
                raise too_large("the number of values in the message", self._limits.max_values, "max_values")
            if not is_map and items in _PLAIN:
                at = self._skip(items, count, buffer, at)
                continue
            for _ in range(count):
                if is_map:
                    size, at = read_length(buffer, at)
                    at += size
                at = self._walk(items, buffer, at, depth)

    def _skip(self, kind: str, count: int, buffer: bytes, at: int) -> int:
        self._steps -= count
        if self._steps < 0:
            raise too_large("the number of values in the message", self._limits.max_values, "max_values")
        if kind in _FIXED_SIZES:
            return at + _FIXED_SIZES[kind] * count
        if kind in {"int", "long"}:
            for _ in range(count):
                at = at + 1 if buffer[at] < _MORE else read_long(buffer, at)[1]
            return at
        for _ in range(count):
            size, at = read_length(buffer, at)
            at += size
        return at


def _query(record: dict[str, Any], limits: Limits) -> Query:
    inputs, parameters = values_of(record["inputs"], limits), values_of(record["parameters"], limits)
    return Query(inputs, parameters, _timings(record["timings"], limits), values_of(record["flags"], limits))


def _outcome(record: dict[str, Any], limits: Limits) -> Outcome:
    return Outcome(
        record["kind"],
        values_of(record["outputs"], limits),
        _text(record["reason"], limits.max_name_bytes),
        _text(record["text"], limits.max_string_bytes),
        _text(record["stage"], limits.max_name_bytes),
        _timings(record["timings"], limits),
        values_of(record["flags"], limits),
    )


def _dead_letter(record: dict[str, Any], limits: Limits) -> DeadLetter:
    headers = [(header["key"], header["value"]) for header in record["headers"]]
    _text(record["text"], limits.max_string_bytes)
    return DeadLetter(**{**record, "headers": headers})


def _word(record: dict[str, Any], limits: Limits) -> PlanWord:
    _text(record["stage"], limits.max_name_bytes)
    lists = {name: tuple(told) for name, told in record.items() if isinstance(told, list)}
    for told in lists.values():
        if len(told) > MAX_QUANTILES:
            raise too_large(f"a summary of {len(told)} quantiles", MAX_QUANTILES)
    return PlanWord(**(record | lists))


_BUILDERS: Final[Mapping[str, Callable[[dict[str, Any], Limits], Query | Outcome | DeadLetter | PlanWord]]] = {
    "spillway.Query": _query,
    "spillway.Outcome": _outcome,
    "spillway.DeadLetter": _dead_letter,
    "spillway.Word": _word,
}


def values_of(entries: dict[str, Any], limits: Limits, depth: int = 0) -> dict[str, Any]:
    """The values in a record's map of them. Raises WireError for what is over a limit."""
    if len(entries) > limits.max_entries:
        raise too_large(f"a map of {len(entries)} entries", limits.max_entries, "max_entries")
    return {
        _text(name, limits.max_name_bytes): _value(wrapped["of"], limits, depth) for name, wrapped in entries.items()
    }


def _value(value: Any, limits: Limits, depth: int) -> Any:
    if isinstance(value, tuple):  # a record in a union: (its name, its fields)
        name, fields = value
        data = fields["data"]
        if name == "spillway.Bytes":
            if len(data) > limits.max_string_bytes:
                raise too_large(f"a bytes value of {len(data)} bytes", limits.max_string_bytes, "max_string_bytes")
            return data
        return tensors.view(data, 0, len(data), fields["dtype"].encode(), fields["shape"], limits)
    if isinstance(value, str):
        return _text(value, limits.max_string_bytes)
    if isinstance(value, (list, dict)):
        if depth == limits.max_depth:
            raise too_large("the message's nesting", limits.max_depth, "max_depth")
        if isinstance(value, dict):
            return values_of(value, limits, depth + 1)
        return [_value(item["of"], limits, depth + 1) for item in value]
    return value


def _text(text: str, most: int) -> str:
    if len(text) * 4 > most and len(text.encode()) > most:
        raise too_large(f"a text of {len(text)} characters", most)
    return text


def _timings(records: list[dict[str, Any]], limits: Limits) -> list[StageTiming]:
    if len(records) > limits.max_timings:
        raise too_large(f"{len(records)} stage timings", limits.max_timings, "max_timings")
    return [StageTiming(**record) for record in records]
