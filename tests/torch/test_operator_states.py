"""States from outside, on a real broker: read, judged, imported and rewound by the ordinary protocol."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from spillway.agents.live.operator.changes import Reign, import_state, refuse_served, rewind
from spillway.agents.live.operator.histories import kept_version, read_histories
from spillway.agents.live.operator.stored import Store
from spillway.checkpoint.assembly import ChunkError
from spillway.checkpoint.logs import Fate
from spillway.checkpoint.manifests import version_digest
from spillway.lineage.errors import CheckpointError, UsageError
from spillway.lineage.marks import Mark, Version
from spillway.lineage.replication import InputPlace, Manifest
from spillway.lineage.values.replication import ReplicationDecoder, encode
from spillway.producers.connection import ClientSettings
from spillway.topology.sections import StateSpec
from spillway.topology.spec import PipelineSpec, StageSpec
from tests.unit.checkpoint.states import same
from tests.written_states import ShardWriter

V1, V2, V3 = (Version(1, n) for n in (1, 2, 3))


def states(n, size=5_000):
    """A state of several chunks with something of every kind."""
    return {
        "w": torch.full((size,), float(n)),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "step": n,
        "a": np.int32(n),
    }


def keyed_states(n):
    return {f"user {number}": {"h": torch.full((4,), float(n * number)), "seen": (n, number)} for number in range(30)}


@pytest.fixture
def settings(broker):
    return ClientSettings(bootstrap=broker)


@pytest.fixture
def spec(unique_name):
    return PipelineSpec(
        name=unique_name,
        slo=1,
        partitions=2,
        stages=(
            StageSpec(name="learn", model="m:M", state=StateSpec(kind="shared")),
            StageSpec(name="track", model="m:M", after=("learn",), state=StateSpec(kind="keyed", shards=2)),
        ),
    )


@pytest.fixture
def learn(broker, spec):
    return ShardWriter(broker, spec, "learn")


@pytest.fixture
def track(broker, spec):
    return ShardWriter(broker, spec, "track", 1, keyed=True)


def told(settings, spec, place):
    return [(str(each.version), each.standing.value) for each in read_histories(settings, spec).kept(place)]


def newest(settings, spec, place):
    """What the next primary would start from: its manifest, contents and state."""
    histories = read_histories(settings, spec)
    manifest = histories.manifest(place, histories.logs.candidate(place))
    store = Store(settings, spec.name, place)
    contents = store.contents(manifest, histories.decoder)
    return manifest, contents, store.state(contents)


def test_an_import_keeps_the_shards_positions_and_memory(settings, spec, track):
    track.begin(1)
    track.write({}, keyed_states(1), position=40)
    changed = import_state(settings, spec, ("track", 1), {}, keyed_states(9), "a test")
    assert (changed.base, changed.version) == (V1, Version(2, 2))
    manifest, contents, (state, keyed) = newest(settings, spec, ("track", 1))
    assert contents.inputs == (InputPlace(1, 40, "r1:", ((42, 43),)),)
    assert state == {}
    assert same(dict(sorted(keyed.items())), dict(sorted(keyed_states(9).items())))
    assert manifest.chain == ((1, Version(0, 0)), (2, V1))


def test_a_rewound_shard_has_the_old_state_the_new_positions_and_nothing_of_old_epochs(settings, spec, learn):
    learn.begin(1)
    old = learn.write(states(1), position=10)
    learn.write(states(2), position=20)
    learn.begin(2)
    learn.write(states(3), position=30)
    histories = read_histories(settings, spec)
    changed = rewind(settings, spec, histories, kept_version(histories, ("learn", 0), "e1.v1"), "a test")
    assert (changed.base, changed.version, changed.durable) == (Version(2, 3), Version(3, 4), True)
    manifest, contents, (state, _) = newest(settings, spec, ("learn", 0))
    assert same(state, states(1))
    assert contents.inputs == (InputPlace(0, 30, "r1:", ((32, 33),)),)
    assert manifest.digest == version_digest(contents) == old.digest
    assert {chunk.key.epoch for chunk in contents.chunks} == {3}
    # The way back is open as long as nobody has tombstoned anything.
    histories = read_histories(settings, spec)
    rewind(settings, spec, histories, kept_version(histories, ("learn", 0), "2.3"), "a test")
    assert same(newest(settings, spec, ("learn", 0))[2][0], states(3))


def test_a_rewound_version_waits_for_what_its_base_waits_for(settings, spec, learn, track):
    learn.begin(1).write(states(1))
    track.begin(1)
    track.write({}, keyed_states(1))
    track.write({}, keyed_states(2), requires=[Mark("learn", 0, V2)])
    histories = read_histories(settings, spec)
    changed = rewind(settings, spec, histories, kept_version(histories, ("track", 1), "e1.v1"), "a test")
    assert (changed.version, changed.durable) == (Version(2, 3), False)
    learn.write(states(2))
    assert told(settings, spec, ("track", 1))[-1] == ("e2.v3", "durable")


@pytest.mark.parametrize("damage", [b"x" * 4_096, b"short", None])
def test_a_damaged_chunk_is_named_and_nothing_is_changed(settings, spec, learn, damage):
    learn.begin(1)
    first = learn.write(states(1))
    learn.write(states(2))
    histories = read_histories(settings, spec)
    store = Store(settings, spec.name, ("learn", 0))
    chunk = store.contents(first, histories.decoder).chunks[2].key
    # The only record of its key that there ever was: another key that the manifest is made to name.
    lost = chunk._replace(part=700)
    contents = store.contents(first, histories.decoder)
    damaged = [each._replace(key=lost) if each.key == chunk else each for each in contents.chunks]
    if damage is not None:
        learn.damage(lost, damage)
    kept = kept_version(histories, ("learn", 0), "e1.v1")
    broken = replace(kept, manifest=replace(kept.manifest, contents=encode(replace(contents, chunks=tuple(damaged)))))
    with pytest.raises(ChunkError, match="1/1/700"):
        rewind(settings, spec, histories, broken, "a test")
    assert told(settings, spec, ("learn", 0)) == [("e1.v1", "durable"), ("e1.v2", "durable")]
    assert read_histories(settings, spec).logs.log(("learn", 0)).epoch == 1


def missing_chunk(manifest, version):
    """A manifest like this one, of another version, that names a chunk which is nowhere."""
    contents = ReplicationDecoder().contents(manifest.contents)
    first = contents.chunks[0]
    chunks = (first._replace(key=first.key._replace(part=900)), *contents.chunks[1:])
    return replace(manifest, version=version, contents=encode(replace(contents, chunks=chunks)))


def test_the_way_back_from_a_version_that_has_lost_its_state_is_open(settings, spec, learn):
    learn.begin(1)
    first = learn.write(states(1), position=30)
    learn.log(missing_chunk(first, V2))
    with pytest.raises(ChunkError, match="1/1/900"):
        newest(settings, spec, ("learn", 0))
    histories = read_histories(settings, spec)
    changed = rewind(settings, spec, histories, kept_version(histories, ("learn", 0), "e1.v1"), "a test")
    assert (changed.base, changed.version) == (V2, Version(2, 3))
    _, contents, (state, _) = newest(settings, spec, ("learn", 0))
    assert same(state, states(1))
    assert contents.inputs[0].position == 30


def test_nothing_follows_a_version_whose_positions_are_lost(settings, spec, learn):
    learn.begin(1)
    learn.write(states(1))
    spilled = learn.write(states(2), inline_bytes=10)
    (chunk,) = spilled.spilled
    lost = replace(spilled, version=V3, spilled=(chunk._replace(key=chunk.key._replace(part=900)),))
    learn.log(lost)
    with pytest.raises(
        CheckpointError, match=r"nothing can follow e1\.v3 .* its input offsets are not known: .*1/2/900"
    ):
        import_state(settings, spec, ("learn", 0), states(3), None, "a test")


def test_dead_versions_and_the_newest_one_are_no_aims(settings, spec, learn, track):
    learn.begin(1).write(states(1))
    track.begin(1).write({}, keyed_states(1), requires=[Mark("learn", 0, V2)])
    learn.begin(2)
    histories = read_histories(settings, spec)
    with pytest.raises(UsageError, match=r"e1\.v1 is dead"):
        rewind(settings, spec, histories, kept_version(histories, ("track", 1), "e1.v1"), "a test")
    with pytest.raises(UsageError, match="would start from anyway"):
        rewind(settings, spec, histories, kept_version(histories, ("learn", 0), "e1.v1"), "a test")


def test_a_state_of_the_other_kind_is_refused(settings, spec):
    with pytest.raises(UsageError, match="has a shared state, but this is a keyed one"):
        import_state(settings, spec, ("learn", 0), {}, {"a": {}}, "a test")
    with pytest.raises(UsageError, match="has a keyed state, but this is a shared one"):
        import_state(settings, spec, ("track", 0), {"a": 1}, None, "a test")
    with pytest.raises(UsageError, match="has only states by key, but this one also has 'a'"):
        import_state(settings, spec, ("track", 0), {"a": 1}, keyed_states(1), "a test")


def beating(writer, role, stop):
    while not stop.is_set():
        writer.beat(role)
        time.sleep(0.1)


@pytest.mark.parametrize("role", ["primary", "backup"])
def test_a_served_shard_is_left_alone(settings, spec, learn, role):
    learn.begin(1).write(states(1))
    stop = threading.Event()
    thread = threading.Thread(target=beating, args=(learn, role, stop))
    thread.start()
    try:
        with pytest.raises(UsageError, match=f"learn/0 is served: its {role} 'm'"):
            import_state(settings, spec, ("learn", 0), states(2), None, "a test")
        refuse_served(settings, spec, ("track", 0))  # another stage's members say nothing of it
    finally:
        stop.set()
        thread.join()
    refuse_served(settings, spec, ("learn", 0))
    assert told(settings, spec, ("learn", 0)) == [("e1.v1", "durable")]


def test_an_operator_who_is_overtaken_changes_nothing_and_is_told(settings, spec, learn):
    learn.begin(1).write(states(1))
    reign = Reign(settings, spec, ("learn", 0), "a test")
    begun = reign.begin()
    assert (begun.epoch, begun.version) == (2, V1)
    learn.history = reign.histories.logs.log(("learn", 0)).history
    learn.begin(3, base=V1)  # a member that begins to serve
    with pytest.raises(CheckpointError, match=r"'learn\.0\.m3' took the shard over in epoch 3"):
        reign.complete(Manifest(Version(2, 2)))
    reign.close()
    learn.write(states(5))
    kept = read_histories(settings, spec).kept(("learn", 0))
    assert [(str(each.version), each.standing) for each in kept] == [
        ("e1.v1", Fate.DURABLE),
        ("e2.v2", Fate.DEAD),
        ("e3.v2", Fate.DURABLE),
    ]


def test_a_primary_that_was_only_stopped_writes_nothing_that_counts_behind_the_operator(settings, spec, learn):
    learn.begin(1).write(states(1))
    changed = import_state(settings, spec, ("learn", 0), states(2), None, "a test")
    learn.write(states(3))  # it goes on, and has not read the fence yet
    assert told(settings, spec, ("learn", 0)) == [("e1.v1", "durable"), ("e2.v2", "durable"), ("e1.v2", "dead")]
    manifest, _, (state, _) = newest(settings, spec, ("learn", 0))
    assert manifest.version == changed.version == Version(2, 2)
    assert same(state, states(2))


def test_an_operator_who_dies_before_the_manifest_leaves_the_shard_as_it_was(settings, spec, learn):
    learn.begin(1).write(states(1))
    reign = Reign(settings, spec, ("learn", 0), "a test")
    reign.begin()
    reign.write([(b"2/2/0", b"half a state")])
    reign.close()
    assert told(settings, spec, ("learn", 0)) == [("e1.v1", "durable")]
    assert same(newest(settings, spec, ("learn", 0))[2][0], states(1))
    changed = import_state(settings, spec, ("learn", 0), states(2), None, "a test")
    assert (changed.base, changed.version) == (V1, Version(3, 2))
    assert same(newest(settings, spec, ("learn", 0))[2][0], states(2))
