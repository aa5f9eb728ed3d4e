"""A backup's copy is the state that was written, whatever it has read, and by as little copying as there is change."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spillway.checkpoint.assembly import ChunkError, assemble
from spillway.checkpoint.capture import Capture
from spillway.checkpoint.chunks import ChunkLog, decode_key
from spillway.checkpoint.manifests import describe, open_contents, seal
from spillway.checkpoint.pages import Pages
from spillway.checkpoint.retention import Rewindable
from spillway.checkpoint.standby import Standby
from spillway.checkpoint.versions import History
from spillway.lineage.errors import CheckpointError
from spillway.lineage.marks import INITIAL, Version
from spillway.lineage.replication import Batch, InputRecord, Manifest

from .states import same

CHUNK = 64


class Shard:
    """A primary and its topics, in memory: the state topic as (key, value) in order, manifests by version."""

    def __init__(self, epoch=1, present=(), *, keyed=False, retain=1, topic=None, small=0, chunk=CHUNK, page=100):
        self.epoch = epoch
        self.pages = Pages(chunk, page_bytes=page) if keyed else None
        self.capture = Capture(chunk_bytes=chunk, own_bytes=chunk, pages=self.pages)
        self.log = ChunkLog(epoch, present, small=small)
        self.kept = Rewindable(retain)
        self.topic = [] if topic is None else topic
        self.manifests = {}
        self.n = 0

    def write(self, state, keyed=None, *, inline_bytes=2_000, **pieces):
        self.n += 1
        version = Version(self.epoch, self.n)
        captured = self.capture.take(state, keyed)
        writing = self.log.write(version, captured)
        self.topic += [(decode_key(key), bytes(value)) for key, value in writing.records()]
        manifest, spilled = seal(
            Manifest(version), describe(captured, writing, **pieces), writing, inline_bytes=inline_bytes
        )
        self.topic += [(decode_key(key), bytes(value)) for key, value in spilled]
        self.log.acknowledged(writing)
        self.kept.complete(version, writing.named())
        captured.release()
        self.manifests[version] = manifest
        return manifest

    def durable(self, version):
        gone = self.log.durable(version, self.kept.durable(version))
        self.topic += [(key, None) for key in gone]
        return gone

    def read(self, version):
        """What the whole topic says of a version."""
        chunks = dict(self.topic)
        return assemble(open_contents(self.manifests[version], chunks.get), chunks.get)


class Backup(Standby):
    """One that reads a topic up to some place."""

    def __init__(self, shard, **options):
        super().__init__(**options)
        self.shard = shard
        self.at = 0
        self.again = 0

    def follow(self, count=None):
        until = len(self.shard.topic) if count is None else min(len(self.shard.topic), self.at + count)
        for key, value in self.shard.topic[self.at : until]:
            self.chunk(key, value)
        self.at = until

    def reach(self, version):
        """Apply as the reader does: on to the end, once more from the start."""
        self.follow()
        tried = set()
        while True:
            try:
                return self.apply(version)
            except ChunkError:
                opened = self.opened(version)
                if opened in tried:
                    raise
                tried.add(opened)
                self.again += 1
                self.at = 0
                self.follow()

    def copies(self, state, keyed=None):
        """Apply a version that the primary writes, as soon as its manifest was read; the manifest."""
        manifest = self.shard.write(state, keyed)
        self.manifest(manifest)
        self.reach(manifest.version)
        return manifest


def check(backup, shard, version):
    given_ = backup.give()
    state, keyed = shard.read(version)
    assert given_.version == version
    assert same(given_.state, state)
    assert same(given_.keyed, keyed)
    assert given_.present >= given_.named
    return given_


def arrays(*values):
    return {f"w{n}": np.full(100, value, np.float32) for n, value in enumerate(values)}


def test_a_change_is_copied_and_nothing_else():
    shard = Shard()
    state = {"w": np.arange(10_000, dtype=np.float32), "step": 1}
    backup = Backup(shard)
    backup.copies(state)
    assert backup.copy.copied == 40_000
    state["w"][[3, 5_000]] = -1
    state["step"] = 2
    backup.copies(state)
    assert backup.copy.copied == 2 * CHUNK
    assert backup.held.nbytes <= 2 * CHUNK
    check(backup, shard, Version(1, 2))


def test_the_tensors_that_are_given_are_the_copy_itself():
    backup = Backup(Shard())
    backup.copies(arrays(1))
    memory = backup.copy._tensors.arrays[0]
    assert np.shares_memory(backup.give().state["w0"], memory)
    with pytest.raises(CheckpointError):
        backup.copy.give()


def test_a_new_reigns_full_version_is_not_copied():
    shard = Shard()
    backup = Backup(shard)
    state = arrays(1, 2)
    backup.copies(state)
    following = Shard(2, {key for key, _ in shard.topic}, topic=shard.topic)
    following.n = 1
    backup.fenced(2)
    manifest = following.write(state)
    backup.manifest(manifest)
    assert manifest.written_bytes
    backup.reach(Version(2, 2))
    assert backup.copy.copied == 0
    following.durable(Version(2, 2))
    backup.follow()
    assert check(backup, following, Version(2, 2)).present == backup.held.present
    assert all(key.epoch == 2 for key in backup.held.present)


def test_the_manifest_may_be_read_before_its_chunks():
    shard = Shard()
    backup = Backup(shard, spare_bytes=0)
    batches = [Batch(1, tuple(InputRecord("r" * 90, 0, n) for n in range(30)))]
    backup.manifest(shard.write(arrays(1), batches=batches))
    assert shard.manifests[Version(1, 1)].spilled
    with pytest.raises(ChunkError):
        backup.apply(Version(1, 1))
    backup.follow()
    assert backup.apply(Version(1, 1))
    assert not backup.again
    check(backup, shard, Version(1, 1))


def test_only_changed_pages_are_read_again():
    shard = Shard(keyed=True)
    backup = Backup(shard)
    keyed = {f"k{n}": {"v": np.full(10, n, np.float32)} for n in range(20)}
    backup.copies({}, keyed)
    before = [page.states for page in backup.copy._pages]
    keyed["k3"]["v"][:] = 99
    backup.copies({}, keyed)
    after = [page.states for page in backup.copy._pages]
    assert len(before) > 4
    assert sum(one is not other for one, other in zip(before, after, strict=True)) == 1
    check(backup, shard, Version(1, 2))


def test_pages_whose_number_has_changed_are_not_looked_for():
    """A page of one chunk may have another number after the pages have grown, and be the same to the byte."""
    shard = Shard(keyed=True, chunk=4096, retain=0)
    backup = Backup(shard)
    keyed = {}
    for count in range(40):  # a key is larger than pages are on average, so most pages have one or none
        keyed[f"key-{count}"] = arrays(count)
        manifest = backup.copies({}, keyed)
        shard.durable(manifest.version)
    assert backup.again == 0
    check(backup, shard, manifest.version)


def test_a_chunk_that_is_looked_for_is_held_though_it_was_applied():
    """A page of one chunk goes on as the first one of two: its bytes lie nowhere but in the topic."""
    keyed = {"a": {"w": np.zeros(400, np.uint8)}}
    probe = Shard(keyed=True)
    probe.write({}, keyed)
    shard = Shard(keyed=True, chunk=probe.pages.now[0].nbytes, page=1 << 20)
    backup = Backup(shard)
    for key in ("b", "c"):
        manifest = backup.copies({}, keyed)
        keyed[key] = {"w": np.ones(9, np.uint8)}
    assert backup.again == 1
    assert backup.held.nbytes == 0  # nothing is kept beside the copy that it has
    check(backup, shard, manifest.version)


def test_a_damaged_chunk_leaves_the_copy_as_it_was():
    shard = Shard()
    backup = Backup(shard)
    backup.copies(arrays(1, 1))
    good = len(shard.topic)
    backup.manifest(shard.write(arrays(2, 3)))
    for at in range(good, len(shard.topic)):
        key, value = shard.topic[at]
        shard.topic[at] = (key, bytes(len(value)))
    with pytest.raises(ChunkError, match="bytes that differ"):
        backup.reach(Version(1, 2))
    assert backup.applied == Version(1, 1)
    check(backup, shard, Version(1, 1))


def test_what_a_base_cut_off_is_forgotten():
    shard = Shard()
    backup = Backup(shard)
    for value in (1, 2, 3):
        backup.manifest(shard.write(arrays(value)))
    backup.based(History(((1, INITIAL), (2, Version(1, 2)))))
    assert backup.newest(Version(1, 3)) == Version(1, 2)
    with pytest.raises(CheckpointError):
        backup.apply(Version(1, 3))


def test_versions_to_come_and_spare_chunks_are_bounded():
    shard = Shard()
    backup = Backup(shard, spare_bytes=10 * CHUNK, future_bytes=20 * CHUNK)
    for value in range(1, 6):
        shard.write(arrays(*range(value, value + 40)))
    backup.follow()
    assert backup.held.nbytes <= 20 * CHUNK
    for manifest in shard.manifests.values():
        backup.manifest(manifest)
    backup.reach(Version(1, 5))
    assert backup.again
    check(backup, shard, Version(1, 5))
    assert backup.held.nbytes <= 10 * CHUNK


def test_a_state_that_alternates_is_not_read_again():
    shard = Shard(retain=2)
    backup = Backup(shard)
    rest = np.arange(2_000, dtype=np.float32)
    for turn in range(8):
        backup.manifest(shard.write({"toggle": np.full(16, turn % 2, np.float32), "rest": rest}, inline_bytes=1 << 20))
        version = Version(1, turn + 1)
        backup.follow()
        backup.apply(version)
        shard.durable(version)
    assert shard.manifests[version].written_bytes == 0
    check(backup, shard, version)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(0, 3), st.integers(0, 5)),
        st.tuples(st.just("grow"), st.integers(1, 30), st.just(0)),
        st.tuples(st.just("durable"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("follow"), st.integers(0, 30), st.just(0)),
        st.tuples(st.just("apply"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("reign"), st.just(0), st.just(0)),
    ),
    max_size=30,
)


def test_a_small_version_is_its_manifest_alone():
    shard = Shard(small=500)
    backup = Backup(shard)
    kept = [{"a": np.arange(100.0) + n, "b": np.zeros(20)} for n in (0, 1)]
    small = {"a": np.arange(5.0), "b": np.zeros(20)}
    for state in (kept[0], small, kept[1]):  # the second names nothing of the first, nor the third of the second
        backup.manifest(shard.write(state))
    first, second, third = shard.manifests
    named = [{key for key, value in shard.topic if key.version == version.n} for version in (first, second, third)]
    assert [bool(keys) for keys in named] == [True, False, True]
    assert not shard.durable(first)
    backup.reach(second)
    assert same(backup.give().state, small)
    assert not shard.durable(second)  # the third names what the first has written
    data = open_contents(shard.manifests[second], None).data
    for cut in (data[:-1], data[1:]):
        contents = replace(open_contents(shard.manifests[second], None), data=cut)
        with pytest.raises(ChunkError, match="in its contents"):
            assemble(contents, None)


@given(
    steps,
    st.booleans(),
    st.sampled_from([0, 300, 1 << 20]),
    st.sampled_from([0, 300, 1 << 20]),
    st.integers(0, 2),
    st.sampled_from([0, 300, 400, 1 << 20]),
    st.sampled_from([CHUNK, 1 << 10]),  # pages of several chunks, and of one
)
def test_whatever_was_read_the_copy_is_the_state(steps, keyed, spare, future, retain, small, chunk):
    state = {"a": np.zeros(40, np.float32), "b": np.zeros((5, 7), np.int16), "c": 0}
    states = {f"k{n}": {"v": np.zeros(20, np.float32)} for n in range(6)} if keyed else None
    shard = Shard(keyed=keyed, retain=retain, small=small, chunk=chunk)
    backup = Backup(shard, spare_bytes=spare, future_bytes=future)
    for kind, first, second in [("write", 0, 0), *steps, ("apply", 0, 0)]:
        if kind == "grow":
            state["a"] = np.arange(40 + first, dtype=np.float32)
        elif kind == "write":
            state["a"][first] = second
            state["c"] = second
            if keyed:
                states[f"k{first}"] = {"v": np.full(20 + 40 * second, second, np.float32)}
            backup.manifest(shard.write(state, states))
        elif kind == "durable":
            known = list(shard.manifests)
            shard.durable(known[max(0, len(known) - 1 - first)])
        elif kind == "follow":
            backup.follow(first)
        elif kind == "reign":
            present, how = set(dict(shard.topic)), {"keyed": keyed, "retain": retain, "small": small, "chunk": chunk}
            following = Shard(shard.epoch + 1, present, topic=shard.topic, **how)
            following.n, following.manifests = shard.n, shard.manifests
            following.capture._pages = Pages(chunk, page_bytes=100, count=len(shard.pages.now)) if keyed else None
            shard = backup.shard = following
            backup.fenced(shard.epoch)
        elif len(shard.manifests) > first:
            backup.reach(list(shard.manifests)[-1])
            assert backup.applied == list(shard.manifests)[-1]
    backup.follow()
    given_ = check(backup, shard, list(shard.manifests)[-1])
    assert given_.present == {key for key, value in dict(shard.topic).items() if value is not None}
