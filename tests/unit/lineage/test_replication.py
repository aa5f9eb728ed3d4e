"""Records of stateful shards come back as they went, through other schemas too; hostile bytes give one typed error."""

import io
import json
import tracemalloc
from dataclasses import replace
from itertools import accumulate

import avro.schema
import fastavro
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from hypothesis import given
from hypothesis import strategies as st

from lineage import reasons
from lineage.errors import WireError
from lineage.marks import Mark, Version
from lineage.message import Query
from lineage.replication import (
    Base,
    Batch,
    Beat,
    ChunkKey,
    ChunkRef,
    Claim,
    Contents,
    DedupLane,
    Entry,
    Fence,
    InputPlace,
    Manifest,
    Output,
    Record,
    Report,
    Taken,
    Yield,
)
from lineage.schemas import (
    CONTENTS,
    FENCE,
    HEADER_BYTES,
    MANIFEST,
    MARKER,
    OWN_FINGERPRINTS,
    OWN_PARSED,
    REPLICATION,
    SchemaBook,
)
from lineage.values.codec import Decoder, encode_query
from lineage.values.replication import ReplicationDecoder, encode

from .schema_versions import NEXT, TWINS, V0
from .strategies import names, same, values

numbers = st.integers(0, 2**62)
ints = st.integers(0, 2**31 - 1)
versions = st.builds(Version, numbers, numbers)
chains = st.lists(st.tuples(st.integers(2**40, 2**41), st.builds(Version, st.integers(0, 2**20), numbers)), max_size=3)
chunks = st.lists(
    st.builds(ChunkRef, st.builds(ChunkKey, numbers, numbers, ints), ints, st.binary(min_size=16, max_size=16)),
    max_size=4,
).map(tuple)
records = st.lists(st.builds(Record, names, ints, numbers), max_size=4).map(tuple)
manifests = st.builds(
    Manifest,
    versions,
    chains.map(tuple),
    st.lists(st.builds(Mark, names, ints, versions), max_size=3).map(tuple),
    names,
    numbers,
    numbers,
    numbers,
    ints,
    ints,
    st.just(b"") | st.binary(min_size=16, max_size=16),
    st.binary(max_size=40),
    chunks,
)
shapes = st.lists(st.integers(0, 100), max_size=4).map(tuple)
entries = st.lists(
    st.builds(
        Entry, names, st.sampled_from(["numpy", "torch"]), st.sampled_from(["float32", "bfloat16", "bool"]), shapes
    ),
    max_size=4,
    unique_by=lambda entry: entry.name,
)

inputs = st.lists(
    st.builds(
        lambda partition, position, note, gaps: InputPlace(
            partition, position, note, tuple(accumulate(gaps, initial=position))[1:]
        ),
        ints,
        numbers,
        names,
        st.lists(st.integers(1, 2**50), max_size=3),
    ),
    max_size=2,
).map(tuple)


@st.composite
def contents_of(draw):
    tensors = draw(entries)
    small = draw(st.dictionaries(names, values, max_size=3))
    taken = {entry.name for entry in tensors}
    small = {name: value for name, value in small.items() if name not in taken}
    return Contents(
        (*tensors, *(Entry(name, "value", "", ()) for name in small)),
        small,
        draw(st.integers(1, 2**31 - 1)),
        draw(ints),
        draw(chunks),
        draw(st.lists(ints, max_size=3).map(tuple)),
        draw(st.lists(st.builds(Batch, numbers, records, records, records), max_size=3).map(tuple)),
        draw(
            st.lists(
                st.builds(
                    DedupLane,
                    ints,
                    names,
                    numbers,
                    st.lists(
                        st.builds(
                            Taken,
                            numbers,
                            names,
                            st.lists(names, max_size=2).map(tuple),
                            st.binary(max_size=9),
                            numbers,
                        ),
                        max_size=3,
                    ).map(tuple),
                ),
                max_size=2,
            ).map(tuple)
        ),
        draw(
            st.lists(
                st.builds(
                    Output,
                    names,
                    ints,
                    st.binary(max_size=9),
                    st.binary(max_size=9),
                    st.lists(st.tuples(names, st.binary(max_size=5)), max_size=2).map(tuple),
                ),
                max_size=2,
            ).map(tuple)
        ),
        draw(inputs),
    )


others = st.one_of(
    st.builds(Fence, numbers, names, numbers),
    st.builds(Base, numbers, names, versions, chains.map(tuple)),
    st.builds(Claim, names, ints, numbers, names, numbers, names),
    st.builds(Beat, names, ints, names, numbers, names, numbers, numbers, versions),
    st.builds(Report, names, ints, st.lists(names, max_size=3).map(tuple), numbers, names),
    st.builds(Yield, names, ints, numbers, names, numbers, names),
)
shard_records = st.one_of(manifests, contents_of(), others)

BOOK = SchemaBook()
HEADERS = {name: MARKER + OWN_FINGERPRINTS[name] for name in REPLICATION}
NAME_OF = {header: name for name, header in HEADERS.items()}
TWIN_HEADERS = {name: MARKER + BOOK.add(TWINS[name]) for name in REPLICATION}
NEXT_HEADERS = {name: MARKER + BOOK.add(NEXT[name]) for name in REPLICATION}
DECODER = ReplicationDecoder(BOOK)
CONTENTS_HEADERS = {versions[CONTENTS] for versions in (HEADERS, TWIN_HEADERS, NEXT_HEADERS)}
ALL_HEADERS = [*HEADERS.values(), *TWIN_HEADERS.values(), *NEXT_HEADERS.values()]
BOMB = (1 << 63) - 1


def read(message, decoder=DECODER):
    return (decoder.contents if message[:HEADER_BYTES] in CONTENTS_HEADERS else decoder.record)(message)


def attempt(message):
    """The reason why it cannot be decoded, or None where it can. Any other error is the test's failure."""
    try:
        read(message)
    except WireError as error:
        refusal = error
    else:
        return None
    assert 0 < len(str(refusal)) < 1_000
    return refusal.reason


def memory_of(message):
    tracemalloc.start()
    try:
        attempt(message)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def varint(number):
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


@given(shard_records)
def test_a_record_comes_back_as_it_went(record):
    message = encode(record)
    assert NAME_OF[message[:HEADER_BYTES]] == f"spillway.{type(record).__name__}"
    assert same(record, read(message))


@given(shard_records)
def test_another_schema_that_ours_can_read_gives_the_same(record):
    message = encode(record)
    twin = TWIN_HEADERS[NAME_OF[message[:HEADER_BYTES]]] + message[HEADER_BYTES:]
    assert same(record, read(twin))


@given(manifests)
def test_what_the_next_version_adds_is_skipped(manifest):
    message = encode(manifest)
    stream = io.BytesIO(message[HEADER_BYTES:])
    fields = fastavro.schemaless_reader(stream, fastavro.parse_schema(OWN_PARSED[MANIFEST].to_json()))
    stream = io.BytesIO()
    fastavro.schemaless_writer(
        stream, fastavro.parse_schema(json.loads(NEXT[MANIFEST])), fields | {"extras": {"a": [1]}}
    )
    assert same(DECODER.record(NEXT_HEADERS[MANIFEST] + stream.getvalue()), manifest)


def test_contents_of_the_previous_version_cover_no_inputs():
    previous = avro.schema.parse(V0[CONTENTS])
    verdict = ReaderWriterCompatibilityChecker().get_compatibility(reader=OWN_PARSED[CONTENTS], writer=previous)
    assert verdict.compatibility is SchemaCompatibilityType.compatible, verdict.messages
    book = SchemaBook()
    stream = io.BytesIO(MARKER + book.add(V0[CONTENTS]))
    stream.seek(0, io.SEEK_END)
    fields = {"pages": [7], "batches": [], "values": {}}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(json.loads(V0[CONTENTS])), fields)
    assert ReplicationDecoder(book).contents(stream.getvalue()) == Contents(pages=(7,))


@pytest.mark.parametrize(
    "place",
    [
        {"partition": -1, "position": 0},
        {"partition": 0, "position": -1},
        {"partition": 0, "position": 5, "gaps": [1, 0]},
        {"partition": 0, "position": 5, "gaps": [-3]},
        {"partition": 0, "position": 2**62, "gaps": [2**62, 2**62]},
    ],
)
def test_inputs_that_no_shard_has_read_are_corrupt(place):
    stream = io.BytesIO()
    schema = fastavro.parse_schema(OWN_PARSED[CONTENTS].to_json())
    fastavro.schemaless_writer(stream, schema, {"inputs": [place]})
    assert attempt(HEADERS[CONTENTS] + stream.getvalue()) == reasons.CORRUPT


@pytest.mark.parametrize("name", REPLICATION)
def test_the_next_version_and_ours_can_read_one_another(name):
    following = avro.schema.parse(NEXT[name])
    for reader, writer in ((OWN_PARSED[name], following), (following, OWN_PARSED[name])):
        verdict = ReaderWriterCompatibilityChecker().get_compatibility(reader=reader, writer=writer)
        assert verdict.compatibility is SchemaCompatibilityType.compatible, verdict.messages


def test_a_record_of_one_kind_is_not_taken_for_another():
    fence = encode(Fence(1, "me"))
    for wrong in (DECODER.manifest, DECODER.contents, DECODER.claim, DECODER.beat):
        with pytest.raises(WireError) as error:
            wrong(fence)
        assert error.value.reason == reasons.UNKNOWN_SCHEMA
    with pytest.raises(WireError) as error:
        DECODER.record(encode(Contents()))
    assert error.value.reason == reasons.UNKNOWN_SCHEMA
    with pytest.raises(WireError) as error:
        DECODER.record(encode_query(Query({})))
    assert error.value.reason == reasons.UNKNOWN_SCHEMA
    with pytest.raises(WireError) as error:
        Decoder(book=BOOK).message(fence)
    assert error.value.reason == reasons.UNKNOWN_SCHEMA


def text(content):
    return varint(len(content)) + content


NO_TABLE = b"\0" * 14
HOSTILE = {
    "no bytes": (b"", reasons.NOT_AVRO),
    "half a header": (HEADERS[MANIFEST][:5], reasons.NOT_AVRO),
    "an unknown fingerprint": (MARKER + b"\0" * 8, reasons.UNKNOWN_SCHEMA),
    "a header alone": (HEADERS[MANIFEST], reasons.CORRUPT),
    "a chain of 2**62": (HEADERS[MANIFEST] + b"\2\2" + varint(BOMB), reasons.TOO_LARGE),
    "2**62 marks": (HEADERS[MANIFEST] + b"\2\2\0" + varint(BOMB), reasons.TOO_LARGE),
    "a claimant of 2**40 bytes": (HEADERS[FENCE] + b"\2" + varint(2**40), reasons.CORRUPT),
    "a claimant of -1 bytes": (HEADERS[FENCE] + b"\2\1", reasons.CORRUPT),
    "a claimant that is no UTF-8": (HEADERS[FENCE] + b"\2\2\xff\0", reasons.CORRUPT),
    "a claimant over the limit": (HEADERS[FENCE] + b"\2" + text(b"n" * 1_025) + b"\0", reasons.TOO_LARGE),
    "an epoch below 0": (HEADERS[FENCE] + b"\1" + text(b"me") + b"\0", reasons.CORRUPT),
    "an epoch of 70 bits": (HEADERS[FENCE] + b"\xff" * 9 + b"\x7f", reasons.CORRUPT),
    "bytes behind the end": (encode(Fence(1, "me")) + b"\0", reasons.CORRUPT),
    "2**62 entries": (HEADERS[CONTENTS] + varint(BOMB), reasons.TOO_LARGE),
    "a list without an end": (HEADERS[CONTENTS] + varint(60_000) + b"\0" * 50_000, reasons.CORRUPT),
    "2**62 batches": (HEADERS[CONTENTS] + b"\0" * 6 + b"\2\0\0\0" + varint(BOMB), reasons.TOO_LARGE),
    "2**62 inputs": (HEADERS[CONTENTS] + b"\0" * 6 + b"\2\0\0\0" + b"\0" * 3 + varint(BOMB), reasons.TOO_LARGE),
    "2**62 offsets that are covered": (
        HEADERS[CONTENTS] + b"\0" * 6 + b"\2\0\0\0" + b"\0" * 3 + b"\2\0\0\0" + varint(BOMB),
        reasons.TOO_LARGE,
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_give_their_reason_and_take_no_memory(name):
    message, reason = HOSTILE[name]
    assert attempt(message) == reason
    assert memory_of(message) < 3 * len(message) + 400_000


CHUNK = ChunkRef(ChunkKey(1, 2, 3), 4, b"d" * 16)
IMPLAUSIBLE = {
    "a kind that is none": Contents((Entry("a", "list", "float32", ()),)),
    "a dtype that is none": Contents((Entry("a", "numpy", "object", ()),)),
    "a negative dimension": Contents((Entry("a", "numpy", "int8", (-1,)),)),
    "a dimension that overflows": Contents((Entry("a", "numpy", "int8", (2**40, 0, 2**40)),)),
    "an entry twice": Contents((Entry("a", "numpy", "int8", ()),) * 2),
    "a value of no entry": Contents((), {"a": 1}),
    "an entry without its value": Contents((Entry("a", "value", "", ()),)),
    "a value with a shape": Contents((Entry("a", "value", "int8", (1,)),), {"a": 1}),
    "chunks of no bytes": Contents(chunk_bytes=0),
    "a page of -1 bytes": Contents(pages=(-1,)),
    "a chunk of a negative version": Contents(chunks=(replace_key := ChunkRef(ChunkKey(1, -2, 3), 4, b"d" * 16),)),
    "a scalar with a shape": Contents((Entry("a", "scalar", "int8", (1,)),)),
    "a tensor of rank 17": Contents((Entry("a", "numpy", "int8", (1,) * 17),)),
}


@pytest.mark.parametrize("name", IMPLAUSIBLE)
def test_contents_that_no_shard_writes_are_refused(name):
    message = encode(IMPLAUSIBLE[name])
    assert attempt(message) in {reasons.CORRUPT, reasons.TOO_LARGE}


RAW = {"epoch": 1, "n": 1, "digest": b"", "contents": b""}  # bytes whose defaults fastavro would not write


@pytest.mark.parametrize(
    "columns",
    [
        {"parts": [1]},
        {"sizes": [1, 2, 3]},
        {"digests": b"d" * 31},
        {"epochs": []},
    ],
)
def test_columns_of_different_lengths_are_corrupt(columns):
    table = {"epochs": [1, 1], "versions": [1, 1], "parts": [0, 1], "sizes": [5, 5], "digests": b"d" * 32}
    stream = io.BytesIO()
    schema = fastavro.parse_schema(OWN_PARSED[MANIFEST].to_json())
    fastavro.schemaless_writer(stream, schema, RAW | {"spilled": table})
    assert attempt(HEADERS[MANIFEST] + stream.getvalue()) is None
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, schema, RAW | {"spilled": table | columns})
    assert attempt(HEADERS[MANIFEST] + stream.getvalue()) == reasons.CORRUPT


@pytest.mark.parametrize(
    "record",
    [
        Fence(-1, "me"),
        Fence(1, "m" * 2_000),
        Fence(1, None),
        Fence(2**70, "me"),
        Manifest(Version(-1, 0)),
        Manifest(Version(1, 1), spilled=(replace_key._replace(digest=b"short"),)),
        Beat("s", 0, "m", 1, "primary", -1, 0),
        Report("s", 0, ("m" * 2_000,)),
        Report("s", -1, ("m",)),
        Yield("s", 0, -1, "me"),
        Contents((Entry("a", "value", "", ()),), {"a": object()}),
        Contents(inputs=(InputPlace(-1, 0),)),
        Contents(inputs=(InputPlace(2**31, 0),)),
        Contents(inputs=(InputPlace(0, -1),)),
        Contents(inputs=(InputPlace(0, 2**63),)),
        Contents(inputs=(InputPlace(0, 5, "", (5,)),)),
        Contents(inputs=(InputPlace(0, 5, "", (9, 8)),)),
        Contents(inputs=(InputPlace(0, 5, None),)),
    ],
)
def test_what_cannot_travel_is_refused_by_its_writer(record):
    with pytest.raises(WireError) as error:
        encode(record)
    assert error.value.reason in {reasons.NOT_ENCODABLE, reasons.TOO_LARGE}


@given(st.sampled_from(ALL_HEADERS), st.binary(max_size=300))
def test_arbitrary_bytes_give_one_typed_error(header, body):
    attempt(body)
    attempt(header + body)


SMALL = st.integers(0, 40).map(varint) | st.sampled_from([b"\x02v", b"\x08int8", b"\x0anumpy", b"\0", b"\x02", b"\x04"])


@given(st.sampled_from(ALL_HEADERS), st.lists(SMALL, max_size=120))
def test_bytes_that_look_like_structure_give_one_typed_error(header, parts):
    attempt(header + b"".join(parts))


@st.composite
def damaged(draw):
    message = bytearray(encode(draw(shard_records)))
    if draw(st.booleans()):
        message[:HEADER_BYTES] = draw(st.sampled_from(ALL_HEADERS))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(HEADER_BYTES, len(message)))
        end = at + draw(st.integers(0, 3))
        message[at:end] = draw(st.binary(max_size=3) | st.integers(-(2**63), BOMB).map(varint))
    return bytes(message)


@given(damaged())
def test_damaged_records_give_one_typed_error_in_bounded_memory(message):
    attempt(message)
    assert memory_of(message) < 100 * len(message) + 200_000


@given(shard_records, st.data())
def test_a_record_cut_short_is_corrupt(record, data):
    message = encode(record)
    cut = data.draw(st.integers(HEADER_BYTES, len(message) - 1))
    assert attempt(message[:cut]) == reasons.CORRUPT


def test_a_manifest_of_a_batch_is_small():
    """What the gate and the neighbours read, per version; 400 chunks are a state of 100 MB."""
    refs = tuple(ChunkRef(ChunkKey(3, 1_000 + at % 7, at), 262_144, bytes(16)) for at in range(400))
    batch = Batch(1_000, tuple(Record(f"{at:032x}", at % 12, 10**6 + at) for at in range(64)))
    inside = encode(Contents((Entry("w", "torch", "float32", (26_214_400,)),), {}, 262_144, 65_536, refs, (), (batch,)))
    assert len(inside) < 13_000
    head = replace(
        Manifest(Version(3, 1_000), ((3, Version(2, 900)),), (Mark("detect", 0, Version(1, 999)),)), spilled=refs[:1]
    )
    assert len(encode(head)) < 110
