"""A version copied under new keys is the same state; what is damaged or missing is named, and the inputs stay."""

import numpy as np
import pytest

from spillway.checkpoint.assembly import ChunkError, assemble
from spillway.checkpoint.capture import Capture
from spillway.checkpoint.chunks import ChunkLog, decode_key, encode_key
from spillway.checkpoint.manifests import (
    Copying,
    describe,
    open_contents,
    seal,
    successor,
    version_digest,
    with_state_of,
)
from spillway.checkpoint.pages import Pages
from spillway.lineage.marks import INITIAL, Version
from spillway.lineage.replication import Batch, Contents, InputPlace, InputRecord, Manifest, Output

from .states import same

STATE = {"w": np.arange(100.0), "zeros": np.zeros(64), "lr": 0.1}
KEYED = {f"u{number}": {"n": number, "h": np.full(3, number)} for number in range(20)}


@pytest.fixture
def stored():
    """Contents and records of e1.v4, written as a primary does; the zeros share one chunk."""
    captured = Capture(chunk_bytes=128, own_bytes=64, pages=Pages(128, 256)).take(STATE, KEYED)
    writing = ChunkLog(1, small=0).write(Version(1, 4), captured)
    records = {decode_key(key): bytes(value) for key, value in writing.records()}
    return describe(captured, writing, batches=[Batch(4, (InputRecord("r", 0, 9),))]), records


def assembled(contents, topic):
    state, keyed = assemble(contents, topic.get)
    return state, {key: keyed[key] for key in KEYED if key in keyed} | keyed  # pages have their keys in another order


def copied(contents, records):
    copying, topic = Copying(contents, Version(3, 8)), {}
    for key, value in records.items():
        for new, bytes_ in copying.add(key, value) or ():
            assert decode_key(new) not in topic
            topic[decode_key(new)] = bytes_
    return copying, topic


def test_the_copy_is_the_same_state_under_keys_of_its_own(stored):
    contents, records = stored
    copying, topic = copied(contents, records)
    again = with_state_of(None, contents, copying.chunks)
    assert {(key.epoch, key.version) for key in topic} == {(3, 8)}
    assert {chunk.key for chunk in again.chunks} == set(topic)
    assert len(topic) == len(records) < len(contents.chunks)
    assert same(assembled(again, topic), (STATE, KEYED))
    assert version_digest(again) == version_digest(contents)


def test_records_may_come_in_any_order(stored):
    contents, records = stored
    copying, topic = copied(contents, dict(reversed(records.items())))
    assert same(assembled(with_state_of(None, contents, copying.chunks), topic), (STATE, KEYED))


def test_what_the_shard_remembers_is_that_of_the_base(stored):
    contents, records = stored
    kept = {"inputs": (InputPlace(0, 70, "r1:", ((72, 73),)),), "outputs": (Output("t", 0, b"k", b"v"),)}
    base = Contents(values={"old": 1}, batches=(Batch(7),), **kept)
    made = with_state_of(base, contents, copied(contents, records)[0].chunks)
    assert {name: getattr(made, name) for name in kept} == kept
    assert (made.entries, made.values, made.batches) == (contents.entries, contents.values, ())


def test_a_version_follows_its_base():
    assert successor(3, Version(2, 7)) == Version(3, 8)
    assert successor(1, INITIAL) == Version(1, 1)


def test_sealed_contents_can_be_spilled(stored):
    contents, records = stored
    copying, topic = copied(contents, records)
    manifest, spilled = seal(
        Manifest(copying.version), with_state_of(None, contents, copying.chunks), copying, inline_bytes=10
    )
    topic |= {decode_key(key): bytes_ for key, bytes_ in spilled}
    assert len(topic) == len(records) + len(spilled)
    assert manifest.written_bytes == sum(map(len, topic.values()))
    assert (manifest.version, manifest.batches) == (Version(3, 8), 0)
    assert same(assembled(open_contents(manifest, topic.get), topic), (STATE, KEYED))


def test_damage_and_absence_are_named(stored):
    contents, records = stored
    key = next(iter(records))
    with pytest.raises(ChunkError, match=encode_key(key).decode()):
        copied(contents, records | {key: b"x" * len(records[key])})
    copying, _ = copied(contents, {other: value for other, value in records.items() if other != key})
    with pytest.raises(ChunkError, match=f"{encode_key(key).decode()} .*is missing"):
        _ = copying.chunks
    assert copying.add(key._replace(part=999), b"") is None
