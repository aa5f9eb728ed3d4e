"""Records of stateful shards that nobody writes: one typed error, in bounded memory."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.lineage import reasons
from spillway.lineage.marks import Version
from spillway.lineage.replication import (
    Beat,
    ChunkKey,
    ChunkRef,
    Contents,
    Entry,
    Fence,
    InputPlace,
    Manifest,
    Report,
    Yield,
)
from spillway.lineage.schemas import CONTENTS, FENCE, HEADER_BYTES, MANIFEST, MARKER, OWN_TEXTS
from spillway.lineage.values.replication import encode, sealed

from .hostile_bytes import BOMB, memory_held, refusal, text, varint
from .replication_records import ALL_HEADERS, CHECKED_HEADERS, HEADERS, checked, read, shard_records
from .schema_versions import written_with


def attempt(message):
    return refusal(read, message)


def memory_of(message):
    return memory_held(read, message)


@pytest.mark.parametrize(
    "place",
    [
        {"partition": -1, "position": 0},
        {"partition": 0, "position": -1},
        {"partition": 0, "position": 5, "runs": [1, 0]},
        {"partition": 0, "position": 5, "runs": [2]},
        {"partition": 0, "position": 2**62, "runs": [2**62, 2**62]},
    ],
)
def test_inputs_that_no_shard_has_read_are_corrupt(place):
    assert attempt(written_with(OWN_TEXTS[CONTENTS], {"inputs": [place]})) == reasons.CORRUPT


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
    "bytes behind the end": (encode(Fence(1, "me"))[:-16] + b"\0", reasons.CORRUPT),
    "2**62 entries": (HEADERS[CONTENTS] + varint(BOMB), reasons.TOO_LARGE),
    "a list without an end": (HEADERS[CONTENTS] + varint(60_000) + b"\0" * 50_000, reasons.CORRUPT),
    "2**62 batches": (HEADERS[CONTENTS] + b"\0" * 6 + b"\2\0\0\0" + varint(BOMB), reasons.TOO_LARGE),
    "2**62 inputs": (HEADERS[CONTENTS] + b"\0" * 6 + b"\2\0\0\0" + b"\0" * 2 + varint(BOMB), reasons.TOO_LARGE),
    "2**62 offsets that are covered": (
        HEADERS[CONTENTS] + b"\0" * 6 + b"\2\0\0\0" + b"\0" * 2 + b"\2\0\0\0" + varint(BOMB),
        reasons.TOO_LARGE,
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_give_their_reason_and_take_no_memory(name):
    message, reason = HOSTILE[name]
    message = checked(message)
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


RAW = {
    "epoch": 1,
    "n": 1,
    "digest": b"",
    "contents": b"",
    "checksum": bytes(16),
}  # bytes whose defaults fastavro would not write


@pytest.mark.parametrize("columns", [{"parts": [1]}, {"sizes": [1, 2, 3]}, {"digests": b"d" * 31}, {"epochs": []}])
def test_columns_of_different_lengths_are_corrupt(columns):
    table = {"epochs": [1, 1], "versions": [1, 1], "parts": [0, 1], "sizes": [5, 5], "digests": b"d" * 32}
    for spilled, reason in ((table, None), (table | columns, reasons.CORRUPT)):
        message = written_with(OWN_TEXTS[MANIFEST], RAW | {"spilled": spilled})
        assert attempt(sealed(message)) == reason


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
        Contents(inputs=(InputPlace(0, 5, "", ((5, 6),)),)),
        Contents(inputs=(InputPlace(0, 5, "", ((9, 10), (8, 9))),)),
        Contents(inputs=(InputPlace(0, 5, None),)),
    ],
)
def test_what_cannot_travel_is_refused_by_its_writer(record):
    assert refusal(encode, record) in {reasons.NOT_ENCODABLE, reasons.TOO_LARGE}


@given(st.sampled_from(ALL_HEADERS), st.binary(max_size=300))
def test_arbitrary_bytes_give_one_typed_error(header, body):
    attempt(body)
    attempt(header + body)
    attempt(checked(header + body))


SMALL = st.integers(0, 40).map(varint) | st.sampled_from([b"\x02v", b"\x08int8", b"\x0anumpy", b"\0", b"\x02", b"\x04"])


@given(st.sampled_from(ALL_HEADERS), st.lists(SMALL, max_size=120))
def test_bytes_that_look_like_structure_give_one_typed_error(header, parts):
    attempt(checked(header + b"".join(parts)))


@st.composite
def damaged(draw):
    message = bytearray(encode(draw(shard_records)))
    if draw(st.booleans()):
        message[:HEADER_BYTES] = draw(st.sampled_from(ALL_HEADERS))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(HEADER_BYTES, len(message)))
        end = at + draw(st.integers(0, 3))
        message[at:end] = draw(st.binary(max_size=3) | st.integers(-(2**63), BOMB).map(varint))
    again = bytes(message[:HEADER_BYTES]) in CHECKED_HEADERS and draw(st.booleans())
    return sealed(bytes(message)) if again else bytes(message)


@given(damaged())
def test_damaged_records_give_one_typed_error_in_bounded_memory(message):
    attempt(message)
    assert memory_of(message) < 100 * len(message) + 200_000


@given(shard_records, st.data())
def test_a_record_cut_short_is_corrupt(record, data):
    message = encode(record)
    cut = data.draw(st.integers(HEADER_BYTES, len(message) - 1))
    assert attempt(message[:cut]) == reasons.CORRUPT


@given(shard_records, st.data())
def test_no_changed_bit_of_a_record_that_versions_are_judged_by_is_accepted(record, data):
    message = bytearray(encode(record))
    bit = data.draw(st.integers(0, 8 * len(message) - 1))
    message[bit // 8] ^= 1 << bit % 8
    if HEADERS[f"spillway.{type(record).__name__}"] in CHECKED_HEADERS:
        assert attempt(bytes(message)) in {reasons.NOT_AVRO, reasons.UNKNOWN_SCHEMA, reasons.CORRUPT}
