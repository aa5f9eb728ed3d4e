"""Chunks on the log: deltas lose nothing, keys are never written twice, and what goes is needed by nobody."""

import hashlib
import random
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.checkpoint.assembly import Assembler, ChunkError, assemble
from spillway.checkpoint.blocks import DIGEST_BYTES
from spillway.checkpoint.capture import Capture
from spillway.checkpoint.chunks import ChunkLog, decode_key, encode_key, expendable
from spillway.checkpoint.layout import spans_of
from spillway.checkpoint.manifests import describe, open_contents, seal, version_digest
from spillway.lineage.errors import CheckpointError
from spillway.lineage.marks import Version
from spillway.lineage.replication import Batch, ChunkKey, Contents, Entry, InputPlace, InputRecord, Manifest

from .states import same


class Topic(dict):
    """A compacted topic: the newest value of each key. No key is written twice with other bytes."""

    def append(self, key, value):
        assert self.get(key, value) == value, f"{key} is written twice"
        self[key] = value

    def fetch(self, key):
        return self.get(encode_key(key))


def write(log, topic, version, captured):
    """Write a version to the end; its contents."""
    writing = log.write(version, captured)
    for key, value in writing.records():
        topic.append(key, bytes(value))
    log.acknowledged(writing)
    return describe(captured, writing), writing


steps = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 49), st.integers(0, 3)), max_size=4),  # which, where, what
        st.booleans(),  # durable at once
    ),
    min_size=1,
    max_size=8,
)


def replay(changes):
    """A primary that changes its state, writes versions and tombstones; every version reads back as it was."""
    state = {"a": np.zeros(50, np.int8), "b": np.zeros(50), "c": np.zeros((5, 10), np.float32)}
    capture, log, topic = Capture(chunk_bytes=64, own_bytes=32), ChunkLog(1, small=0), Topic()
    unread = {}
    for n, (writes, durable) in enumerate(changes, 1):
        for which, where, what in writes:
            state["abc"[which]].reshape(-1)[where] = what
        captured = capture.take(state)
        contents, _ = write(log, topic, Version(1, n), captured)
        captured.release()
        unread[n] = (contents, {name: array.copy() for name, array in state.items()})
        if durable:
            for key in log.durable(Version(1, n)):
                topic.pop(encode_key(key), None)
            unread = {n: unread[n]}
        for contents, was in unread.values():
            assert same(assemble(contents, topic.fetch)[0], was)
    assert len(log) == len(topic)


@given(steps)
def test_deltas_lose_no_change(changes):
    replay(changes)


def test_only_what_changed_is_written():
    state = {"w": np.random.default_rng(0).random(1 << 17)}  # 1 MiB: four chunks
    capture, log, topic = Capture(), ChunkLog(1, small=0), Topic()
    assert write(log, topic, Version(1, 1), capture.take(state))[1].written_bytes == 1 << 20
    assert write(log, topic, Version(1, 2), capture.take(state))[1].written_bytes == 0
    state["w"][5] = 3
    contents, writing = write(log, topic, Version(1, 3), capture.take(state))
    assert writing.written_bytes == 1 << 18
    assert [chunk.key for chunk in contents.chunks] == [(1, 3, 0), (1, 1, 1), (1, 1, 2), (1, 1, 3)]
    assert same(assemble(contents, topic.fetch)[0], state)


def test_a_new_epoch_writes_in_full_and_then_the_old_one_may_go():
    state = {"w": np.arange(1 << 16, dtype=np.float64)}
    topic = Topic()
    old, new = ChunkLog(1, small=0), ChunkLog(2, [ChunkKey(1, 1, 0), ChunkKey(1, 1, 1)], small=0)
    write(old, topic, Version(1, 1), Capture().take(state))
    contents, writing = write(new, topic, Version(2, 2), Capture().take(state))
    assert writing.written_bytes == 1 << 19
    assert all(chunk.key.epoch == 2 for chunk in contents.chunks)
    assert new.durable(Version(1, 1)) == []  # another reign's
    assert new.durable(Version(2, 2)) == [(1, 1, 0), (1, 1, 1)]


def test_what_a_half_written_version_names_stays():
    state = {"w": np.zeros(1 << 15), "v": np.ones(1 << 15)}
    capture, log, topic = Capture(), ChunkLog(1, small=0), Topic()
    write(log, topic, Version(1, 1), capture.take(state))
    state["w"].fill(2)
    write(log, topic, Version(1, 2), capture.take(state))
    state["w"].fill(0)  # as in version 1, and no longer in version 2
    captured = capture.take(state)
    writing = log.write(Version(1, 3), captured)
    assert list(writing.records()) == []
    assert log.durable(Version(1, 2)) == []
    log.acknowledged(writing)
    assert same(assemble(describe(captured, writing), topic.fetch)[0], state)


def test_one_version_is_written_at_a_time_and_to_its_end():
    state = {"w": np.zeros(1 << 15)}
    capture, log = Capture(), ChunkLog(1, small=0)
    writing = log.write(Version(1, 1), capture.take(state))
    with pytest.raises(CheckpointError, match="one at a time"):
        log.write(Version(1, 2), capture.take(state))
    next(writing.records())
    with pytest.raises(CheckpointError, match="not complete"):
        log.acknowledged(writing)
    with pytest.raises(CheckpointError, match="cannot be written"):
        log.write(Version(1, 1), capture.take(state))


keys = st.builds(ChunkKey, st.integers(1, 4), st.integers(0, 9), st.integers(0, 3))
version_pairs = st.builds(Version, st.integers(1, 4), st.integers(0, 9))


@given(st.sets(keys), st.integers(1, 4), version_pairs, st.dictionaries(version_pairs, st.frozensets(keys)))
def test_what_is_expendable_is_needed_by_nobody(present, epoch, durable, needed):
    needed[durable] = needed.get(durable, frozenset())
    going = expendable(present, epoch, durable, needed)
    assert set(going) <= present
    assert not going or durable.epoch == epoch
    for key in going:
        assert not any(key in named for named in needed.values())
        assert key.epoch <= epoch
        assert key.epoch < epoch or key.version <= durable.n
    if durable.epoch == epoch:
        stays = present - set(going)
        assert all(
            any(key in named for named in needed.values()) or key.epoch > epoch or key.version > durable.n
            for key in stays
        )


def test_what_is_retained_stays_and_what_is_unknown_is_refused():
    old = ChunkKey(1, 1, 0)
    assert expendable([old], 1, Version(1, 2), {Version(1, 2): [], Version(1, 1): [old]}) == []
    with pytest.raises(CheckpointError, match="not known"):
        expendable([old], 1, Version(1, 2), {})


@given(keys)
def test_keys_come_back(key):
    assert decode_key(encode_key(key)) == key


@pytest.mark.parametrize("key", [b"", b"1/2", b"1/2/3/4", b"01/2/3", b"-1/2/3", b"1/2/x", b"1/2/3\n", b"1" * 200])
def test_foreign_keys_are_refused(key):
    with pytest.raises(CheckpointError):
        decode_key(key)


def written_state(size=1 << 20):
    state = {"w": np.random.default_rng(1).integers(0, 255, size, np.uint8), "tiny": np.arange(3), "also": np.ones(2)}
    topic = Topic()
    contents, _ = write(ChunkLog(1, small=0), topic, Version(1, 1), Capture().take(state))
    return state, topic, contents


def assembled(contents, records):
    assembler = Assembler(contents)
    for key, value in records:
        if value is not None:  # no tombstone
            assembler.add(decode_key(key), value)
    return assembler


def test_records_come_in_any_order_and_more_than_once():
    state, topic, contents = written_state()
    records = [*topic.items(), *topic.items(), (b"1/0/0", b"of an older version"), (b"1/0/1", None)]
    random.Random(0).shuffle(records)
    assert same(assembled(contents, records).finish()[0], state)


def test_a_missing_chunk_is_named():
    _, topic, contents = written_state()
    del topic[b"1/1/2"]
    with pytest.raises(ChunkError, match=r"chunk 1/1/2 of the state \(in 'w'\) is missing: use another member's copy"):
        assemble(contents, topic.fetch)
    with pytest.raises(ChunkError, match="1/1/2") as error:
        assembled(contents, topic.items()).finish()
    assert error.value.key == (1, 1, 2)


@pytest.mark.parametrize("at", ["first", "last", "longer", "shorter"])
@pytest.mark.parametrize("key", [b"1/1/0", b"1/1/4"])
def test_a_damaged_chunk_is_named_and_another_copy_taken(key, at):
    state, topic, contents = written_state()
    good = topic[key]
    damaged = bytearray(good)
    if at in {"first", "last"}:
        damaged[0 if at == "first" else -1] ^= 1
    topic[key] = bytes(damaged) + b"x" if at == "longer" else bytes(damaged[:-1]) if at == "shorter" else bytes(damaged)
    assembler = Assembler(contents)
    refused = []
    for missing in assembler.missing():
        try:
            assembler.add(missing, topic.fetch(missing))
        except ChunkError as error:
            refused.append(error.key)
            told = str(error)
    assert ("'tiny' to 'also'" if key == b"1/1/4" else "'w'") in told
    assert refused == [decode_key(key)]
    assert assembler.missing() == refused
    assembler.add(decode_key(key), good)
    assert same(assembler.finish()[0], state)


def test_a_manifest_that_contradicts_itself_is_refused():
    _, topic, contents = written_state()
    for chunks in (contents.chunks[:-1], contents.chunks[::-1], (*contents.chunks, contents.chunks[0])):
        wrong = Contents(contents.entries, contents.values, contents.chunk_bytes, contents.own_bytes, chunks)
        with pytest.raises(CheckpointError, match="damaged"):
            assemble(wrong, topic.fetch)
    with pytest.raises(CheckpointError, match="over the limit"):
        assemble(Contents((Entry("w", "numpy", "int8", (2**50,)),)), topic.fetch)


@pytest.mark.parametrize("inline", [True, False])
def test_contents_ride_in_the_manifest_or_are_spilled(inline):
    state, topic, _ = written_state()
    log = ChunkLog(2, small=0)
    captured = Capture(chunk_bytes=1 << 16).take(state)
    writing = log.write(Version(2, 2), captured)
    for key, value in writing.records():
        topic.append(key, bytes(value))
    batch = Batch(2, tuple(InputRecord(f"request-{at:060}", 0, at) for at in range(2_000)))
    contents = describe(captured, writing, batches=[batch])
    draft = Manifest(Version(0, 0), ((2, Version(1, 1)),))
    manifest, records = seal(draft, contents, writing, inline_bytes=1 << 20 if inline else 1 << 10)
    assert len(records) == len(manifest.spilled) == (0 if inline else 3)
    assert bool(manifest.contents) is inline
    for key, value in records:
        assert len(value) <= 1 << 16
        topic.append(key, bytes(value))
    log.acknowledged(writing)
    assert (manifest.version, manifest.batches, manifest.requests) == (Version(2, 2), 1, 2_000)
    assert manifest.state_bytes == sum(len(block.data) for block in captured.blocks)
    assert manifest.digest == version_digest(contents)
    assert open_contents(manifest, topic.fetch) == contents
    assert same(assemble(open_contents(manifest, topic.fetch), topic.fetch)[0], state)
    assert all(key.epoch == 1 for key in log.durable(Version(2, 2)))  # what is spilled is needed
    if not inline:
        del topic[records[1][0]]
        with pytest.raises(ChunkError, match="its contents"):
            open_contents(manifest, topic.fetch)


def test_the_digest_of_a_version_is_that_of_its_state():
    state = {"w": np.arange(1 << 16), "lr": 0.1}
    capture, topic = Capture(), Topic()
    one, _ = write(ChunkLog(1, small=0), topic, Version(1, 1), capture.take(state))
    other, _ = write(ChunkLog(2, small=0), topic, Version(2, 7), capture.take(state))
    assert one != other
    assert version_digest(one) == version_digest(other)
    for changed in (state | {"lr": 0.2}, state | {"w": state["w"] + 1}, state | {"more": 1}):
        third, _ = write(ChunkLog(3, small=0), topic, Version(3, len(topic)), Capture().take(changed))
        assert version_digest(third) != version_digest(one)
    read_on = replace(one, inputs=(InputPlace(0, 9, "r1:", ((12, 13),)),), batches=(Batch(1),))
    assert version_digest(read_on) == version_digest(one)


def test_large_states_stream_in_bounded_memory():
    """16 MB: the records are the captured memory itself, and assembly takes the state and one chunk."""
    size = 16 << 20
    state = {"w": np.zeros(size, np.uint8)}
    state["w"][:: 1 << 16] = np.arange(size >> 16) % 251  # chunks that differ, at few pages' cost
    state["w"][: 1 << 18 : 7] = 3
    captured = Capture().take(state)
    writing = ChunkLog(1, small=0).write(Version(1, 1), captured)
    digests = {}
    tracemalloc.start()
    try:
        for key, value in writing.records():
            digests[key] = hashlib.blake2b(value, digest_size=DIGEST_BYTES).digest()
        written = tracemalloc.get_traced_memory()[1]
        assert written < 1 << 20
        stored = {chunk.key: block for chunk, block in zip(writing.chunks, captured.blocks, strict=True)}
        tracemalloc.reset_peak()
        base = tracemalloc.get_traced_memory()[0]
        restored, _ = assemble(describe(captured, writing), lambda key: stored[key].data.tobytes())
        assert tracemalloc.get_traced_memory()[1] - base < size + (2 << 20)
    finally:
        tracemalloc.stop()
    assert np.array_equal(restored["w"], state["w"])
    assert len(digests) == len({chunk.digest for chunk in writing.chunks})


entries = st.lists(
    st.builds(Entry, st.uuids().map(str), st.just("numpy"), st.just("int8"), st.tuples(st.integers(0, 600))), max_size=8
)


@given(entries, st.sampled_from([8, 64, 256]), st.sampled_from([0, 40, 1_000]))
def test_every_byte_lies_in_one_chunk(entries, chunk_bytes, own_bytes):
    seen = {at: bytearray(entry.shape[0]) for at, entry in enumerate(entries)}
    for span in spans_of(entries, chunk_bytes, own_bytes):
        assert 0 < span.size <= chunk_bytes
        end = 0
        for tensor, start, stop, at in span.pieces:
            assert end <= at == -(-at // 8) * 8
            end = at + stop - start
            for byte in range(start, stop):
                seen[tensor][byte] += 1
        assert end == span.size
        if len(span.pieces) > 1:
            assert all(entries[piece.tensor].shape[0] < own_bytes for piece in span.pieces)
    assert all(set(bytes_of) <= {1} for bytes_of in seen.values())
