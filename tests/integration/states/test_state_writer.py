"""Versions as they are written to a real broker: whole, in their order, once, and tidied up."""

import threading
import time

import numpy as np
import psutil
import pytest

from spillway.agents.live.states.sending import Sending
from spillway.agents.live.states.state_writer import StateWriter
from spillway.checkpoint.assembly import assemble
from spillway.checkpoint.capture import Capture
from spillway.checkpoint.chunks import decode_key
from spillway.checkpoint.manifests import open_contents
from spillway.checkpoint.retention import Retention
from spillway.checkpoint.versions import History
from spillway.lineage.errors import CheckpointError
from spillway.lineage.marks import INITIAL, Version
from spillway.lineage.replication import Batch, InputPlace, InputRecord, Manifest
from spillway.lineage.values.replication import ReplicationDecoder
from spillway.topology.topics import state as state_topic
from tests.waiting import Bound

from .conftest import PLACE, Bench, Told

CHAIN = ((1, INITIAL),)
CHUNK = 1_024


class Primary:
    """Captures and writes versions of one state, as a primary does."""

    def __init__(self, bench, told=None, *, chunk_bytes=CHUNK, **options):
        self.told = told or Told()
        self.capture = Capture(chunk_bytes=chunk_bytes, own_bytes=chunk_bytes)
        self.retention = Retention()
        self.complete = []
        self.n = 0
        self.history = History(CHAIN)
        self.writer = bench.keep(
            StateWriter(
                bench.settings,
                bench.pipeline,
                PLACE,
                1,
                self.told.post,
                self._completed,
                self.told.failed,
                retention=self.retention,
                **options,
            )
        )

    def _completed(self, manifest):
        self.complete.append(manifest)
        self.retention.appended(manifest)

    def begin(self, state, **pieces):
        self.n += 1
        captured = self.capture.take(state)
        version = Version(1, self.n)
        self.writer.write(captured, Manifest(version, CHAIN, (), "m"), **pieces)
        return version

    def write(self, state, **pieces):
        version = self.begin(state, **pieces)
        self.writer.outputs_acked(version)
        self.told.until(lambda: self.complete and self.complete[-1].version == version, 60)
        return self.complete[-1]

    def durable(self, version):
        self.writer.durable(version, self.history)


def test_a_connection_that_was_made_ahead_is_the_only_one(bench, monkeypatch):
    """One made at a promotion had no producer id for up to half a second, in which no reply could leave."""
    ahead = StateWriter.connect(bench.settings, bench.pipeline, PLACE[0])
    monkeypatch.delattr(StateWriter, "_connect")
    primary = Primary(bench, sending=ahead)
    assert primary.write({"w": np.arange(10, dtype=np.float32)}).version == Version(1, 1)


def test_a_version_is_read_back_as_it_was(bench):
    primary = Primary(bench)
    state = {"w": np.arange(5_000, dtype=np.float32), "step": 7}
    batches = (Batch(1, (InputRecord("q", 0, 12),)),)
    manifest = primary.write(state, batches=batches, inputs=[InputPlace(0, 12, "r1:", ((14, 15),))])
    (key, value), *others = bench.records("versions")
    assert (key, others) == (b"manifest/1/1", [])
    assert ReplicationDecoder().manifest(value) == manifest
    chunks = dict(bench.records("state"))
    contents = open_contents(manifest, lambda key: chunks.get(b"%d/%d/%d" % key))
    assert contents.batches == batches
    assert contents.inputs == (InputPlace(0, 12, "r1:", ((14, 15),)),)
    read, _ = assemble(contents, lambda key: chunks.get(b"%d/%d/%d" % key))
    assert read["step"] == 7
    assert read["w"].tobytes() == state["w"].tobytes()


def test_only_what_has_changed_is_written_again_and_what_is_not_needed_goes(bench):
    primary = Primary(bench, retain=1)
    state = {"w": np.zeros(10_000, np.float32)}
    state["w"][:] = np.arange(10_000)
    primary.write(state)
    first = len(bench.records("state"))
    for _ in range(3):
        state["w"][0] += 0.5
        manifest = primary.write(state)
        primary.durable(manifest.version)
    assert manifest.written_bytes == CHUNK
    primary.write(state)  # behind the tombstones
    records = bench.records("state")
    assert first == 40
    left = {key for key, value in dict(records).items() if value is not None}
    assert len(left) == first + 1  # of the durable version 4, and version 3's, which is kept
    assert [decode_key(key) for key, value in records if value is None] == [(1, 1, 0), (1, 2, 0)]
    versions = dict(bench.records("versions"))
    assert {key for key, value in versions.items() if value is None} == {b"manifest/1/1", b"manifest/1/2"}


def test_contents_that_are_large_are_chunks_too(bench):
    primary = Primary(bench)
    batches = tuple(Batch(n, (InputRecord("q" * 400, 0, n),)) for n in range(100))
    manifest = primary.write({"w": np.zeros(10, np.float32)}, batches=batches)
    assert manifest.spilled
    assert not manifest.contents
    chunks = dict(bench.records("state"))
    assert open_contents(manifest, lambda key: chunks.get(b"%d/%d/%d" % key)).batches == batches


def test_the_manifest_waits_for_the_outputs(bench):
    primary = Primary(bench)
    version = primary.begin({"w": np.zeros(10_000, np.float32)})
    bound = Bound(90)
    while len(bench.records("state")) < 1:
        assert not bound.over
    time.sleep(0.2)
    primary.told.mailbox.deliver()
    assert not bench.records("versions")
    with pytest.raises(CheckpointError):
        primary.begin({"w": np.ones(10, np.float32)})
    primary.writer.outputs_acked(version)
    primary.told.until(lambda: primary.complete)
    assert len(bench.records("versions")) == 1


def test_a_state_of_128_mb_streams_in_bounded_memory(bench):
    size = 128 << 20
    primary = Primary(bench, chunk_bytes=256 << 10)
    state = {f"w{n}": np.random.default_rng(n).random(size // 32, np.float32) for n in range(8)}
    process, stop, peak = psutil.Process(), threading.Event(), [0]
    version = Version(1, 1)
    captured = primary.capture.take(state)
    before = process.memory_info().rss

    def watch():
        while not stop.wait(0.01):
            peak[0] = max(peak[0], process.memory_info().rss)

    thread = threading.Thread(target=watch)
    thread.start()
    primary.writer.write(captured, Manifest(version, CHAIN, (), "m"))
    primary.writer.outputs_acked(version)
    primary.told.until(lambda: primary.complete, 120)
    stop.set()
    thread.join()
    assert primary.complete[0].state_bytes == size
    assert peak[0] - before < 100e6


def test_what_cannot_be_delivered_ends_the_writer_and_is_not_appended_again(own_broker, unique_name):
    bench = Bench(own_broker.bootstrap, unique_name)
    sending = Sending(bench.settings, state_topic(bench.pipeline, PLACE[0]), delivery=5.0)
    primary = Primary(bench, sending=sending)
    state = {"w": np.zeros(10, np.float32)}
    primary.write(state)
    own_broker.stop()
    primary.writer.outputs_acked(primary.begin(state | {"w": np.ones(10, np.float32)}))
    with pytest.raises(AssertionError, match="it is not known whether"):
        primary.told.until(lambda: False, 60)
    own_broker.start()
    time.sleep(1.0)
    assert [key for key, _ in bench.records("versions")] == [b"manifest/1/1"]
    bench.close()


def test_a_version_goes_on_when_the_broker_is_back(own_broker, unique_name):
    bench = Bench(own_broker.bootstrap, unique_name)
    primary = Primary(bench)
    state = {"w": np.arange(100_000, dtype=np.float32)}
    primary.write(state)
    own_broker.stop()
    version = primary.begin({"w": state["w"] + 1})
    primary.writer.outputs_acked(version)
    time.sleep(0.5)
    own_broker.start()
    primary.told.until(lambda: len(primary.complete) == 2, 120)
    told = Told()
    bench.reader(told)
    told.until(lambda: told.of("caught_up"), 60)
    assert [call[2] for call in told.of("record")] == primary.complete
    bench.close()
