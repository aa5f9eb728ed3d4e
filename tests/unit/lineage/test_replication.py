"""Records of stateful shards come back as they went, through other schemas too."""

import io
from dataclasses import replace

import fastavro
from hypothesis import given

from spillway.lineage import reasons
from spillway.lineage.marks import Mark, Version
from spillway.lineage.message import Query
from spillway.lineage.replication import Batch, ChunkKey, ChunkRef, Contents, Entry, Fence, InputRecord, Manifest
from spillway.lineage.schemas import CONTENTS, HEADER_BYTES, MANIFEST, OWN_PARSED, SchemaBook
from spillway.lineage.values.codec import Decoder, encode_query
from spillway.lineage.values.replication import ReplicationDecoder, encode, sealed

from .hostile_bytes import refusal
from .replication_records import (
    BOOK,
    DECODER,
    NAME_OF,
    TWIN_HEADERS,
    manifests,
    read,
    shard_records,
    under,
)
from .schema_versions import LESS, NEXT, written_with
from .strategies import same


@given(shard_records)
def test_a_record_comes_back_as_it_went(record):
    message = encode(record)
    assert NAME_OF[message[:HEADER_BYTES]] == f"spillway.{type(record).__name__}"
    assert same(record, read(message))


@given(shard_records)
def test_another_schema_that_ours_can_read_gives_the_same(record):
    message = encode(record)
    assert same(record, read(under(TWIN_HEADERS[NAME_OF[message[:HEADER_BYTES]]], message)))


@given(manifests)
def test_what_the_next_version_adds_is_skipped(manifest):
    message = encode(manifest)
    stream = io.BytesIO(message[HEADER_BYTES:])
    fields = fastavro.schemaless_reader(stream, fastavro.parse_schema(OWN_PARSED[MANIFEST].to_json()))
    later = written_with(NEXT[MANIFEST], fields | {"extras": {"a": [1]}})
    assert same(DECODER.record(sealed(later)), manifest)


def test_contents_that_lack_fields_cover_no_inputs():
    book = SchemaBook()
    book.add(LESS[CONTENTS])
    message = written_with(LESS[CONTENTS], {"pages": [7], "batches": [], "values": {}})
    assert ReplicationDecoder(book).contents(message) == Contents(pages=(7,))


def test_a_record_of_one_kind_is_not_taken_for_another():
    fence = encode(Fence(1, "me"))
    for wrong in (DECODER.manifest, DECODER.contents, DECODER.beat):
        assert refusal(wrong, fence) == reasons.UNKNOWN_SCHEMA
    assert refusal(DECODER.record, encode(Contents())) == reasons.UNKNOWN_SCHEMA
    assert refusal(DECODER.record, encode_query(Query({}))) == reasons.UNKNOWN_SCHEMA
    assert refusal(Decoder(book=BOOK).message, fence) == reasons.UNKNOWN_SCHEMA


def test_a_manifest_of_a_batch_is_small():
    """What the gate and the neighbours read, per version; 400 chunks are a state of 100 MB."""
    refs = tuple(ChunkRef(ChunkKey(3, 1_000 + at % 7, at), 262_144, bytes(16)) for at in range(400))
    batch = Batch(1_000, tuple(InputRecord(f"{at:032x}", at % 12, 10**6 + at) for at in range(64)))
    inside = encode(Contents((Entry("w", "torch", "float32", (26_214_400,)),), {}, 262_144, 65_536, refs, (), (batch,)))
    assert len(inside) < 13_000
    head = replace(
        Manifest(Version(3, 1_000), ((3, Version(2, 900)),), (Mark("detect", 0, Version(1, 999)),)), spilled=refs[:1]
    )
    assert len(encode(head)) < 110
