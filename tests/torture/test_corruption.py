"""What is damaged or missing stops the shard, with words that name it and what to do; nothing older is used instead."""

import subprocess
from contextlib import suppress
from random import Random

import pytest
from confluent_kafka import Producer

from spillway.checkpoint.chunks import encode_key
from spillway.lineage.errors import WireError
from spillway.lineage.replication import Base
from spillway.lineage.values.replication import ReplicationDecoder
from spillway.topology import topics
from tests.acceptance.serving import ROOT, SPILLWAY
from tests.state_history import Histories
from tests.state_topics import gather
from tests.torture.bench import Run
from tests.torture.shapes import SHAPES

PLACE = ("a", 0)


def damage(bootstrap, recording, rng, *, tombstone):
    """Replace one chunk that the newest durable version consists of; gives its key."""
    histories = Histories(recording)
    durable = histories.logs.newest_durable(PLACE)
    contents = histories.contents(PLACE, histories.manifests[PLACE][durable])
    chunk = rng.choice(contents.chunks)
    value = histories.now(PLACE)(chunk.key)
    assert value is not None
    producer = Producer({"bootstrap.servers": bootstrap})
    other = None if tombstone else bytes(byte ^ 255 for byte in value)
    producer.produce(topics.state(recording.pipeline.spec.name, "a"), other, encode_key(chunk.key), 0)
    assert producer.flush(30) == 0
    return encode_key(chunk.key).decode()


def reigns(recording):
    log = recording.of(topics.versions(recording.pipeline.spec.name, "a"), 0)
    decoder, records = ReplicationDecoder(), []
    for record in log:
        with suppress(WireError):  # one that is damaged
            records.append(decoder.record(record.value or b""))
    return [record for record in records if isinstance(record, Base)]


def flip(bootstrap, recording, topic, beginning, rng):
    """Append the newest record of a kind again, with a bit of its value changed; gives its key and its new offset."""
    newest = [record for record in recording.of(topic, 0) if record.value and (record.key or b"").startswith(beginning)]
    key, value = newest[-1].key or b"", bytearray(newest[-1].value or b"")
    bit = rng.randrange(8 * len(value))
    value[bit // 8] ^= 1 << bit % 8
    offsets = []
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, bytes(value), key, 0, on_delivery=lambda _error, message: offsets.append(message.offset()))
    assert producer.flush(30) == 0
    return key, offsets[0]


def spillway(*arguments):
    return subprocess.run(
        [SPILLWAY, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.torture
@pytest.mark.parametrize("kind", ["manifest", "fence", "base"])
def test_a_damaged_version_log_stops_the_shard_until_somebody_goes_back(slow_bench, unique_name, tmp_path, kind):
    bootstrap = slow_bench.broker.bootstrap
    with Run(slow_bench, unique_name, SHAPES["single"], tmp_path) as run:
        run.load(60, rate=200)
        verdict = run.judged()
        assert not verdict.problems, verdict.problems
    recording = run.recorder.recording
    before = Histories(recording).logs.newest_durable(PLACE)
    topic = topics.versions(unique_name, "a")
    key, offset = flip(bootstrap, recording, topic, f"{kind}/".encode(), Random(kind))
    where = ["--bootstrap", bootstrap, "--run-dir", tmp_path / "again"]
    ended = spillway("serve", run.path, *where, "--quiet", "--give-up", 3)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 1, said
    assert f"the record in {topic}[0] at offset {offset}, under the key {key.decode()!r}, is damaged" in said, said
    assert "another member's copy" in said
    assert "spillway state rewind" in said
    after = gather(bootstrap, run.pipeline)
    assert len(reigns(after)) == len(reigns(recording)), "somebody began a reign"
    listed = spillway("state", "list", run.path, *where)
    assert f"at offset {offset}" in listed.stderr
    back = spillway("state", "rewind", run.path, "a", before, "--yes", *where)
    assert back.returncode == 0, back.stderr
    listed = spillway("state", "list", run.path, *where)
    assert listed.returncode == 0
    assert "another member's copy" not in listed.stderr


@pytest.mark.torture
def test_a_damaged_claim_is_passed_over_and_costs_nothing(slow_bench, unique_name, tmp_path):
    """It gives nothing without its fence (`spillway.checkpoint.claims`), so nobody stops for it."""
    with Run(slow_bench, unique_name, SHAPES["single"], tmp_path) as run:
        run.load(400)
        run.answered(60)
        run.base("a")
        control = topics.control(unique_name)
        flip(slow_bench.broker.bootstrap, run.recorder.recording, control, b"claim/", Random(1))
        run.kill(run.primary("a"))
        run.go_on()
        verdict = run.judged()
        assert not verdict.problems, verdict.problems


@pytest.mark.torture
@pytest.mark.parametrize("tombstone", [True, False], ids=["tombstoned", "other-bytes"])
def test_a_damaged_state_stops_the_shard(slow_bench, unique_name, tmp_path, tombstone):
    bootstrap = slow_bench.broker.bootstrap
    with Run(slow_bench, unique_name, SHAPES["single"], tmp_path) as run:
        run.load(60, rate=200)
        verdict = run.judged()
        assert not verdict.problems, verdict.problems
    recording = run.recorder.recording
    key = damage(bootstrap, recording, Random(1), tombstone=tombstone)
    before = Histories(recording).logs.newest_durable(PLACE)
    where = ["--bootstrap", bootstrap, "--run-dir", tmp_path / "again"]
    ended = spillway("serve", run.path, *where, "--quiet", "--give-up", 3)
    logs = "\n".join(log.read_text() for log in (tmp_path / "again" / unique_name / "logs").glob("*.log"))
    assert ended.returncode == 1, ended.stdout + ended.stderr + logs
    said = ended.stdout + ended.stderr
    assert f"the chunk {key} of the state" in said, said + logs
    assert "another member's copy" in said
    assert "spillway state rewind" in said
    after = gather(bootstrap, run.pipeline)
    assert {base.version for base in reigns(after)[len(reigns(recording)) :]} <= {before}
    egress = topics.egress(unique_name)
    assert len(after.topics[egress]) == len(recording.topics[egress])
