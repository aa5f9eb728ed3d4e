"""A damaged or missing chunk stops the shard, with words that name it and what to do; nothing older is used instead."""

from __future__ import annotations

import subprocess
from random import Random
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from checkpoint.chunks import encode_key
from lineage.replication import Base
from lineage.values.replication import ReplicationDecoder
from tests.acceptance.serving import ROOT, SPILLWAY
from tests.state_history import Histories
from tests.state_topics import gather
from tests.torture.bench import Run
from tests.torture.shapes import SHAPES
from topology import topics

if TYPE_CHECKING:
    from pathlib import Path

    from tests.slow_broker import SlowBroker
    from tests.state_topics import Recording

PLACE = ("a", 0)


def damage(bootstrap: str, recording: Recording, rng: Random, *, tombstone: bool) -> str:
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


def reigns(recording: Recording) -> list[Base]:
    """How the reigns over the shard have begun."""
    log = recording.of(topics.versions(recording.pipeline.spec.name, "a"), 0)
    records = [ReplicationDecoder().record(record.value) for record in log if record.value is not None]
    return [record for record in records if isinstance(record, Base)]


@pytest.mark.torture
@pytest.mark.parametrize("tombstone", [True, False], ids=["tombstoned", "other-bytes"])
def test_a_damaged_state_stops_the_shard(
    slow_bench: SlowBroker, unique_name: str, tmp_path: Path, tombstone: bool
) -> None:
    bootstrap = slow_bench.broker.bootstrap
    with Run(slow_bench, unique_name, SHAPES["single"], tmp_path) as run:
        run.load(60, rate=200)
        verdict = run.judged()
        assert not verdict.problems, verdict.problems
    recording = run.recorder.recording
    key = damage(bootstrap, recording, Random(1), tombstone=tombstone)
    before = Histories(recording).logs.newest_durable(PLACE)
    command = [SPILLWAY, "serve", run.path, "--bootstrap", bootstrap, "--run-dir", tmp_path / "again", "--quiet"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    logs = "\n".join(log.read_text() for log in (tmp_path / "again" / unique_name / "logs").glob("*.log"))
    assert ended.returncode == 1, ended.stdout + ended.stderr + logs
    said = ended.stdout + ended.stderr
    assert f"the chunk {key} of the state" in said, said + logs
    assert "take another member's copy" in said
    assert "spillway state rewind" in said
    after = gather(bootstrap, run.pipeline)
    assert {base.version for base in reigns(after)[len(reigns(recording)) :]} <= {before}
    egress = topics.egress(unique_name)
    assert len(after.topics[egress]) == len(recording.topics[egress])
