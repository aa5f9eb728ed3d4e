"""The contents of a version to what fastavro writes, and from what it reads: columns to rows, bounds, plausibility.

Builders take records that were read from bytes within the limits; they raise WireError for what no encoder makes:
columns of different lengths, negative numbers where none can be, shapes and digests that are none.
"""

from __future__ import annotations

import math
from itertools import accumulate, chain, pairwise
from typing import TYPE_CHECKING, Any, Final

from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.limits import too_large
from spillway.lineage.replication import (
    DIGEST_BYTES,
    NUMPY,
    SCALAR,
    TORCH,
    VALUE,
    Batch,
    ChunkKey,
    ChunkRef,
    Contents,
    Entry,
    InputPlace,
    InputRecord,
    Output,
)
from spillway.lineage.values.resolution import values_of
from spillway.lineage.values.structures import check_length, pack_map
from spillway.lineage.values.tensors import DTYPE_NAMES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from spillway.lineage.limits import Limits

Fields = dict[str, Any]
_MOST_ELEMENTS: Final = 1 << 59
_INT_MOST: Final = (1 << 31) - 1
_LONG_MOST: Final = (1 << 63) - 1


def pack_contents(contents: Contents, limits: Limits) -> Fields:
    check_names(limits, *(entry.name for entry in contents.entries))
    return {
        "names": [entry.name for entry in contents.entries],
        "kinds": [entry.kind for entry in contents.entries],
        "dtypes": [entry.dtype for entry in contents.entries],
        "ranks": [len(entry.shape) for entry in contents.entries],
        "dimensions": [length for entry in contents.entries for length in entry.shape],
        "values": pack_map(contents.values, limits, [limits.max_values]),
        "chunk_bytes": contents.chunk_bytes,
        "own_bytes": contents.own_bytes,
        "chunks": pack_chunks(contents.chunks),
        "pages": list(contents.pages),
        "batches": [
            {"n": batch.n, "taken": _pack_records(batch.taken), "dropped": _pack_records(batch.dropped)}
            for batch in contents.batches
        ],
        "outputs": [_pack_output(output) for output in contents.outputs],
        "inputs": [_pack_input(place) for place in contents.inputs],
        "later": contents.later,
        "data": contents.data or None,
    }


def contents_of(fields: Fields, limits: Limits) -> Contents:
    if fields["chunk_bytes"] < 1 or min(fields["own_bytes"], *fields["pages"], 0) < 0:
        raise corrupt("a layout has impossible sizes")
    if not 0 <= fields["later"] <= len(fields["batches"]):
        raise corrupt("a version has fewer batches than must be recomputed")
    entries = _entries(fields, limits)
    values = values_of(fields["values"], limits)
    if values.keys() != {entry.name for entry in entries if entry.kind == VALUE}:
        raise corrupt("the values of a state do not match its entries")
    return Contents(
        entries,
        values,
        fields["chunk_bytes"],
        fields["own_bytes"],
        chunks_of(fields["chunks"]),
        tuple(fields["pages"]),
        tuple(Batch(batch["n"], _records(batch["taken"]), _records(batch["dropped"])) for batch in fields["batches"]),
        tuple(_output(output) for output in fields["outputs"]),
        tuple(_input(place) for place in fields["inputs"]),
        fields["later"],
        fields["data"] or b"",
    )


def _entries(fields: Fields, limits: Limits) -> tuple[Entry, ...]:
    rows = rows_of(fields, "names", "kinds", "dtypes", "ranks")
    if len(rows) > limits.max_entries:
        raise too_large(f"a state of {len(rows)} entries", limits.max_entries, "max_entries")
    dimensions, at, entries = fields["dimensions"], 0, []
    for name, kind, dtype, rank in rows:
        check_names(limits, name)
        if not 0 <= rank <= limits.max_rank:
            raise too_large(f"a tensor of rank {rank}", limits.max_rank, "max_rank")
        shape = tuple(dimensions[at : at + rank])
        at += rank
        if kind == VALUE:
            plausible = not dtype and not rank
        else:
            # numpy computes with every dimension, even where another one is 0
            size = math.prod(length or 1 for length in shape)
            plausible = (
                (kind in {NUMPY, TORCH} or (kind == SCALAR and not rank))
                and dtype in DTYPE_NAMES
                and len(shape) == rank
            )
            plausible = plausible and min(shape, default=0) >= 0 and size <= _MOST_ELEMENTS
        if not plausible:
            raise corrupt(f"{name!r:.80} is not a valid entry of a state: {kind!r:.20}, {dtype!r:.20}, {shape!r:.80}")
        entries.append(Entry(name, kind, dtype, shape))
    if at != len(dimensions):
        raise corrupt("the shapes of a state's entries do not match their numbers of dimensions")
    if len({entry.name for entry in entries}) != len(entries):
        raise corrupt("two entries of a state have the same name")
    return tuple(entries)


def pack_chunks(chunks: Sequence[ChunkRef]) -> Fields | None:
    """The table of chunks; None for none."""
    if not chunks:
        return None
    if any(len(chunk.digest) != DIGEST_BYTES for chunk in chunks):
        raise WireError(reasons.NOT_ENCODABLE, f"a chunk's digest must have {DIGEST_BYTES} bytes")
    return {
        "epochs": [chunk.key.epoch for chunk in chunks],
        "versions": [chunk.key.version for chunk in chunks],
        "parts": [chunk.key.part for chunk in chunks],
        "sizes": [chunk.size for chunk in chunks],
        "digests": b"".join([chunk.digest for chunk in chunks]),
    }


def chunks_of(table: tuple[str, Fields] | None) -> tuple[ChunkRef, ...]:
    """The chunks in a table, which stands in a union: with its type's name."""
    if table is None:
        return ()
    fields = table[1]
    rows = rows_of(fields, "epochs", "versions", "parts", "sizes")
    digests = fields["digests"]
    if len(digests) != DIGEST_BYTES * len(rows):
        raise corrupt(f"{len(rows)} chunks have {len(digests)} bytes of digests")
    for row in rows:
        if min(row) < 0:
            raise corrupt(f"a chunk's key or size is negative: {row}")
    return tuple(
        ChunkRef(ChunkKey(epoch, version, part), size, digests[at : at + DIGEST_BYTES])
        for at, (epoch, version, part, size) in zip(range(0, len(digests), DIGEST_BYTES), rows, strict=True)
    )


def _pack_records(records: Sequence[InputRecord]) -> Fields:
    return {
        "requests": [record.request for record in records],
        "partitions": [record.partition for record in records],
        "offsets": [record.offset for record in records],
    }


def _records(fields: Fields) -> tuple[InputRecord, ...]:
    return tuple(InputRecord(*row) for row in rows_of(fields, "requests", "partitions", "offsets"))


def _pack_output(output: Output) -> Fields:
    return {
        "topic": output.topic,
        "partition": output.partition,
        "key": output.key,
        "value": output.value,
        "header_names": [name for name, _ in output.headers],
        "header_values": [value for _, value in output.headers],
    }


def _output(fields: Fields) -> Output:
    headers = tuple(rows_of(fields, "header_names", "header_values"))
    return Output(fields["topic"], fields["partition"], fields["key"], fields["value"], headers)


def _pack_input(place: InputPlace) -> Fields:
    runs = [upper - lower for lower, upper in pairwise((place.position, *chain.from_iterable(place.covered)))]
    if not 0 <= place.partition <= _INT_MOST or place.position < 0 or min(runs, default=1) < 1:
        raise WireError(
            reasons.NOT_ENCODABLE, f"partition {place.partition} has ranges out of order from {place.position} on"
        )
    return {"partition": place.partition, "position": place.position, "note": place.note, "runs": runs}


def _input(fields: Fields) -> InputPlace:
    partition, position, runs = (fields[name] for name in ("partition", "position", "runs"))
    bounds = tuple(accumulate(runs, initial=position))[1:]
    if (
        min(partition, position) < 0
        or min(runs, default=1) < 1
        or len(bounds) % 2
        or max(bounds, default=0) > _LONG_MOST
    ):
        raise corrupt(f"partition {partition} has ranges out of order from {position} on")
    return InputPlace(partition, position, fields["note"], tuple(zip(bounds[::2], bounds[1::2], strict=True)))


def rows_of(fields: Fields, *columns: str) -> list[tuple[Any, ...]]:
    try:
        return list(zip(*(fields[column] for column in columns), strict=True))
    except ValueError as error:
        raise corrupt(f"the columns {', '.join(columns)} differ in length") from error


def check_names(limits: Limits, *names: str) -> None:
    """Raise WireError(TOO_LARGE) for a name over the limit."""
    for name in names:
        check_length("a name", name, limits.max_name_bytes)


def corrupt(what: str) -> WireError:
    return WireError(reasons.CORRUPT, what)
