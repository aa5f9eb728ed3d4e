import io
import json

import avro.schema
import numpy as np
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.datafile import DataFileReader, DataFileWriter
from avro.io import DatumReader, DatumWriter
from fastavro.schema import fingerprint as fast_fingerprint
from fastavro.schema import to_parsing_canonical_form
from hypothesis import given
from hypothesis import strategies as st

from spillway.lineage import reasons
from spillway.lineage.errors import WireError
from spillway.lineage.message import DROPPED, DeadLetter, Outcome, Query, StageTiming
from spillway.lineage.schemas import (
    DEAD_LETTER,
    MARKER,
    MAX_SCHEMA_BYTES,
    MAX_SCHEMAS,
    OUTCOME,
    OWN_FINGERPRINTS,
    OWN_PARSED,
    OWN_SCHEMAS,
    OWN_TEXTS,
    QUERY,
    SchemaBook,
    fingerprint_of,
)
from spillway.lineage.values.codec import Decoder, encode_query

from .hostile_bytes import refusal
from .schema_versions import LESS, NEXT, reader_of, written_with

ARRAY = np.arange(3, dtype=np.float32)
TENSOR = {"dtype": "float32", "shape": [3], "data": ARRAY.tobytes()}


def test_fingerprints_are_those_of_the_specification_and_of_fastavro():
    # The specification's own example: "int" has 0x7275d51a3f395c8f, which is written little-endian.
    assert fingerprint_of(avro.schema.parse('"int"')) == (0x7275D51A3F395C8F).to_bytes(8, "little")
    for name, text in OWN_TEXTS.items():
        canonical = to_parsing_canonical_form(json.loads(text))
        assert OWN_PARSED[name].canonical_form == canonical
        assert OWN_FINGERPRINTS[name].hex() == fast_fingerprint(canonical, "CRC-64-AVRO")


def test_what_a_writer_registers_is_self_contained_and_what_it_writes():
    assert set(OWN_SCHEMAS) == set(OWN_FINGERPRINTS.values())
    for fingerprint, text in OWN_SCHEMAS.items():
        assert fingerprint_of(avro.schema.parse(text)) == fingerprint
        assert SchemaBook().add(text) == fingerprint
    assert encode_query(Query({})).startswith(MARKER + OWN_FINGERPRINTS[QUERY])


OTHERS = [(name, LESS, False) for name in LESS] + [(name, NEXT, True) for name in NEXT]


@pytest.mark.parametrize(("name", "versions", "mutual"), OTHERS)
def test_other_versions_are_compatible_by_the_rules_of_avro(name, versions, mutual):
    ours, other = OWN_PARSED[name], avro.schema.parse(versions[name])
    assert fingerprint_of(other) != OWN_FINGERPRINTS[name]
    for reader, writer in ((ours, other), (other, ours)) if mutual else ((ours, other),):
        verdict = ReaderWriterCompatibilityChecker().get_compatibility(reader=reader, writer=writer)
        assert verdict.compatibility is SchemaCompatibilityType.compatible, verdict.messages


def test_a_query_that_lacks_fields_is_read_with_defaults():
    record = {
        "inputs": {
            "x": {"of": ("spillway.Tensor", TENSOR)},
            "n": {"of": 5},
            "b": {"of": ("spillway.Bytes", {"data": b"\xff"})},
        },
        "parameters": {"deep": {"of": [{"of": {"k": {"of": "v"}}}]}},
    }
    query = reader_of(LESS[QUERY]).query(written_with(LESS[QUERY], record))
    assert query.inputs.pop("x").tolist() == [0.0, 1.0, 2.0]
    assert query == Query({"n": 5, "b": b"\xff"}, {"deep": [{"k": "v"}]}, [])


def test_an_outcome_that_lacks_fields_is_read_with_defaults():
    timing = {"stage": "detect", "queued": 0.5, "executed": 0.25, "batch": 3}
    record = {"kind": "dropped", "outputs": {}, "reason": "expired", "stage": "detect", "timings": [timing]}
    outcome = reader_of(LESS[OUTCOME]).outcome(written_with(LESS[OUTCOME], record))
    assert outcome == Outcome(
        DROPPED, reason="expired", stage="detect", timings=[StageTiming("detect", 0.5, 0.0, 0.25, 3, "", "")]
    )


def test_a_dead_letter_that_lacks_fields_is_read_with_defaults():
    record = {"topic": "t", "partition": 1, "offset": 2, "stage": "s", "reason": "r", "at_us": 3, "value": b"v"}
    letter = reader_of(LESS[DEAD_LETTER]).dead_letter(written_with(LESS[DEAD_LETTER], record))
    assert letter == DeadLetter("t", 1, 2, "s", "r", "", 3, None, b"v", [])


def test_what_the_next_version_adds_is_skipped():
    extras = {"unknown": [1, 2, 3]}
    value = {"added": "new", "of": ("spillway.Tensor", TENSOR | {"extras": extras}), "extras": extras}
    timing = {"added": None, "stage": "s", "queued": 1.0, "waited": 2.0, "executed": 3.0, "batch": 4}
    record = {
        "added": "new",
        "inputs": {"x": value, "l": {"of": [value]}},
        "parameters": {"p": {"of": "text"}},
        "timings": [timing | {"model": "m", "version": "v", "extras": extras}],
        "extras": extras,
        "context": {"x": value},
    }
    query = reader_of(NEXT[QUERY]).query(written_with(NEXT[QUERY], record))
    assert query.inputs["x"].tolist() == query.inputs["l"][0].tolist() == [0.0, 1.0, 2.0]
    assert query.parameters == {"p": "text"}
    assert query.timings == [StageTiming("s", 1.0, 2.0, 3.0, 4, "m", "v")]


def test_a_writers_schema_that_nobody_registered_is_unknown():
    message = written_with(LESS[QUERY], {"inputs": {}, "parameters": {}})
    assert refusal(Decoder().query, message) == reasons.UNKNOWN_SCHEMA


def test_a_type_that_a_foreign_writer_uses_otherwise_is_corrupt_and_no_crash():
    # Compatible by the rules, as bytes may be read as a string, but no dtype.
    schema = LESS[QUERY].replace('"name": "dtype", "type": "string"', '"name": "dtype", "type": "bytes"')
    tensor = ("spillway.Tensor", TENSOR | {"dtype": b"\xff\xfe"})
    message = written_with(schema, {"inputs": {"x": {"of": tensor}}, "parameters": {}})
    with pytest.raises(WireError):
        reader_of(schema).query(message)


def test_logical_types_of_a_writer_change_nothing():
    schema = LESS[QUERY].replace('"long"', '{"type": "long", "logicalType": "timestamp-millis"}', 1)
    message = written_with(schema, {"inputs": {"n": {"of": ("long", 2**62)}}, "parameters": {}})
    assert reader_of(schema).query(message).inputs == {"n": 2**62}


def nested(depth):
    return '{"type":"array","items":' * depth + '"null"' + "}" * depth


def record(name, *fields):
    return json.dumps({"type": "record", "name": name, "namespace": "spillway", "fields": list(fields)})


REFUSED = {
    "no JSON": ("{", reasons.UNKNOWN_SCHEMA),
    "no schema": ("[1, 2]", reasons.UNKNOWN_SCHEMA),
    "nothing": ("", reasons.UNKNOWN_SCHEMA),
    "null": ("null", reasons.UNKNOWN_SCHEMA),
    "a number": ("7", reasons.UNKNOWN_SCHEMA),
    "a primitive": ('"string"', reasons.UNKNOWN_SCHEMA),
    "another record": (record("Other"), reasons.UNKNOWN_SCHEMA),
    "another namespace": (
        json.dumps({"type": "record", "name": "foreign.Query", "fields": []}),
        reasons.UNKNOWN_SCHEMA,
    ),
    "a field of another type": (record("Query", {"name": "inputs", "type": "long"}), reasons.UNKNOWN_SCHEMA),
    "a missing field": (record("DeadLetter", {"name": "topic", "type": "string"}), reasons.UNKNOWN_SCHEMA),
    "an unknown type": (record("Query", {"name": "x", "type": "spillway.Missing"}), reasons.UNKNOWN_SCHEMA),
    "a type redefined": (
        record("Query", *[{"name": n, "type": json.loads(record("A"))} for n in "ab"]),
        reasons.UNKNOWN_SCHEMA,
    ),
    "nesting": (nested(600), reasons.UNKNOWN_SCHEMA),
    "brackets": ("[" * 10_000, reasons.UNKNOWN_SCHEMA),
    "too long": (" " * (MAX_SCHEMA_BYTES + 1), reasons.TOO_LARGE),
    "half a character": ('"\ud800"', reasons.UNKNOWN_SCHEMA),
    "a negative fixed": (record("Query", {"name": "x", "type": {"type": "fixed", "name": "F", "size": -5}}), None),
}


@pytest.mark.parametrize("name", REFUSED)
def test_schemas_that_are_none_of_ours_are_refused(name):
    text, reason = REFUSED[name]
    book = SchemaBook()
    if reason is None:  # avro lets it pass; then at least no message can make use of it
        try:
            fingerprint = book.add(text)
        except WireError:
            return
        with pytest.raises(WireError):
            Decoder(book=book).query(MARKER + fingerprint + b"\0\0\0\0")
        return
    assert refusal(book.add, text) == reason
    assert len(book) == len(OWN_SCHEMAS)


@given(
    st.text(max_size=200)
    | st.recursive(
        st.none() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["type", "name", "fields", "items", "symbols"]), inner)
        ),
        max_leaves=20,
    ).map(json.dumps)
)
def test_arbitrary_schemas_give_one_typed_error(text):
    with pytest.raises(WireError):
        SchemaBook().add(text)


def numbered(index):
    return record("Query", {"name": f"f{index}", "type": "long"})


def test_the_book_is_bounded_and_takes_what_it_knows_again():
    book = SchemaBook()
    texts = [numbered(index) for index in range(MAX_SCHEMAS - len(book))]
    for text in texts:
        assert book.add(text) == book.add(text)
    assert refusal(book.add, numbered(MAX_SCHEMAS)) == reasons.TOO_LARGE
    assert len(book) == MAX_SCHEMAS
    book.add(texts[0])
    book.add(OWN_TEXTS[QUERY])


BOMBS = {
    "an array of nulls": ({"type": "array", "items": "null"}, b"\xfe" + b"\xff" * 8 + b"\x01"),
    "an array of empty records": (
        {"type": "array", "items": {"type": "record", "name": "E", "fields": []}},
        b"\xfe" + b"\xff" * 8 + b"\x01",
    ),
    "arrays of nulls, many times": (
        {"type": "array", "items": {"type": "array", "items": "null"}},
        b"\x80\x20" + b"\xfe\xff\x03\x00" * 4096,
    ),
    "a record in itself": ({"type": "record", "name": "A", "fields": [{"name": "a", "type": "A"}]}, b""),
    "a record with many empty fields": (
        {
            "type": "array",
            "items": {"type": "record", "name": "E", "fields": [{"name": f"f{i}", "type": "null"} for i in range(300)]},
        },
        b"\x80\xfa\x01\x00",  # 16,000 of them: within the limits, but for the time they take
    ),
    "a fixed of 2 GB": ({"type": "fixed", "name": "F", "size": 2**31 - 1}, b""),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bytes_that_a_hostile_schema_makes_huge_are_refused(name):
    kind, body = BOMBS[name]
    text = record("Query", {"name": "bomb", "type": kind})
    book = SchemaBook()
    message = MARKER + book.add(text) + body
    with pytest.raises(WireError):
        Decoder(book=book).query(message)


def test_container_files_of_avro_hold_our_records():
    stream = io.BytesIO()
    with DataFileWriter(stream, DatumWriter(), OWN_PARSED[QUERY]) as writer:
        writer.append({"inputs": {"x": {"of": TENSOR}}, "parameters": {}, "timings": [], "flags": {}})
        writer.flush()
        recorded = stream.getvalue()
    with DataFileReader(io.BytesIO(recorded), DatumReader()) as reader:
        assert [row["inputs"]["x"]["of"]["data"] for row in reader] == [ARRAY.tobytes()]
