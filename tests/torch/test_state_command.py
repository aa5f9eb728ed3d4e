"""`spillway state` as a user runs it, on what primaries have written to a real broker."""

import json
import sys

import numpy as np
import pytest
import torch

from spillway.agents.cli.main import run
from spillway.lineage.marks import Mark, Version
from spillway.topology.load import load
from tests.unit.checkpoint.states import same
from tests.written_states import ShardWriter

MODEL = """
import torch


class Learner:
    def __init__(self, width=2_000):
        self.width = width

    def initialize(self):
        return {"w": torch.zeros(self.width), "rate": 0.5}

    def compute(self, state, batch):
        return [{} for _ in batch]

    def update(self, state, batch, outputs):
        return state
"""


def weights(n):
    return {"w": torch.arange(2_000.0) * n, "rate": 0.5}


def users(n):
    return {f"user {number}": {"h": (np.full(4, n * number), np.zeros(2)), "seen": n} for number in range(1, 4)}


@pytest.fixture
def pipeline(unique_name, tmp_path, broker, monkeypatch):
    monkeypatch.setenv("SPILLWAY_BOOTSTRAP", broker)
    monkeypatch.setenv("SPILLWAY_RUN_DIR", str(tmp_path / "run"))
    monkeypatch.setattr(sys, "path", [*sys.path])
    module = "models_of_" + unique_name.replace("-", "_")
    (tmp_path / f"{module}.py").write_text(MODEL)
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"name: {unique_name}\nslo: 1s\npartitions: 2\nstages:\n"
        f'  - {{name: learn, model: "{module}:Learner", state: shared}}\n'
        f'  - {{name: track, model: "{module}:Learner", after: learn, state: {{kind: keyed, shards: 2}}}}\n'
        f'  - {{name: tell, model: "{module}:Learner", after: track}}\n'
    )
    return file


@pytest.fixture
def learn(broker, pipeline):
    return ShardWriter(broker, load(pipeline).spec, "learn")


@pytest.fixture
def track(broker, pipeline):
    return ShardWriter(broker, load(pipeline).spec, "track", 1, keyed=True)


@pytest.fixture
def ask(pipeline, capsys):
    """Run a `spillway state` command: its exit code, what it printed, what it complained of."""

    def called(command, *arguments):
        capsys.readouterr()
        code = run(["state", command, str(pipeline), *map(str, arguments)])
        return (code, *capsys.readouterr())

    return called


@pytest.fixture
def facts(ask):
    def called(command, *arguments):
        code, out, err = ask(command, *arguments, "--json")
        assert code == 0, err
        return json.loads(out)

    return called


def test_versions_are_listed_with_what_became_of_them(ask, facts, learn, track):
    manifest = learn.begin(1).write(weights(1))
    track.begin(1).write({}, users(1), requires=[Mark("learn", 0, Version(1, 1)), Mark("learn", 0, Version(2, 2))])
    listed = facts("list")
    assert [(shard["stage"], shard["shard"], shard["durable"]) for shard in listed["shards"]] == [
        ("learn", 0, "e1.v1"),
        ("track", 0, "e0.v0"),
        ("track", 1, "e0.v0"),
    ]
    (version,) = listed["shards"][0]["versions"]
    assert version["digest"] == manifest.digest.hex()
    assert (version["version"], version["standing"], version["primary"]) == ("e1.v1", "durable", "learn.0.m1")
    assert (version["batches"], version["requests"], version["at"]) == (1, 1, 1.7e9)
    assert version["state_bytes"] == version["written_bytes"] == manifest.state_bytes >= 8_000
    assert listed["shards"][2]["versions"][0]["requires"] == ["learn/0 e1.v1", "learn/0 e2.v2"]
    code, out, _ = ask("list", "track")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "track/0: nothing there yet"
    assert "track/1: epoch 1 of track.1.m1, newest durable e0.v0" in lines
    assert lines[-1].split()[0] == "e1.v1"
    assert " open " in lines[-1]


def test_a_version_is_shown(ask, facts, learn, track):
    learn.begin(1)
    for n in range(1, 3):
        learn.write(weights(n), position=10 * n, inline_bytes=10)
    shown = facts("show", "learn")
    assert (shown["version"], shown["chain"]) == ("e1.v2", [{"epoch": 1, "base": "e0.v0"}])
    assert shown["entries"] == [
        {"name": "w", "kind": "torch", "dtype": "float32", "shape": [2000], "bytes": 8000},
        {"name": "rate", "kind": "value", "dtype": "", "shape": [], "value": 0.5},
    ]
    assert shown["inputs"] == [{"partition": 0, "position": 20, "note": "r1:", "covered": [[22, 23]]}]
    code, out, _ = ask("show", "learn", "e1.v1")
    assert code == 0
    assert "learn/0 e1.v1, durable" in out
    assert "covered below offset 10 and 1 above" in out
    track.begin(1).write({}, users(1))
    assert " in 1 page" in ask("show", "track", "--shard", 1)[1]


def newest_state(facts, tmp_path, stage, *options):
    from spillway.agents.live.operator.stored import read_file

    file = tmp_path / f"newest-{len(list(tmp_path.iterdir()))}.safetensors"
    exported = facts("export", stage, file, *options)
    assert file.stat().st_size == exported["bytes"]
    return exported["version"], *read_file(file)


def test_a_state_goes_out_and_into_a_pipeline_that_was_never_served(
    ask, facts, learn, track, tmp_path, pipeline, unique_name
):
    learn.begin(1).write(weights(3))
    track.begin(1).write({}, users(2))
    files = [tmp_path / "learn.safetensors", tmp_path / "track.safetensors"]
    code, out, _ = ask("export", "learn", files[0])
    assert (code, out) == (0, f"learn/0 e1.v1 is in {files[0]}, {files[0].stat().st_size / 1000:.1f} kB\n")
    assert ask("export", "track", files[1], "--shard", 1)[0] == 0
    code, _, err = ask("export", "learn", files[0])
    assert code == 2
    assert "is there already; name another file" in err
    pipeline.write_text(pipeline.read_text().replace(unique_name, f"{unique_name}-new", 1))
    code, out, _ = ask("import", "learn", files[0], "--check")
    assert (code, out) == (0, f"learn/0 e1.v1, after e0.v0, is the state of {files[0]}\n")
    imported = facts("import", "track", files[1], "--shard", 0)
    assert (imported["version"], imported["base"], imported["durable"]) == ("e1.v1", "e0.v0", True)
    version, state, keyed, told = newest_state(facts, tmp_path, "learn")
    assert (version, keyed) == ("e1.v1", None)
    assert same(state, weights(3))
    assert (told["pipeline"], told["stage"], told["version"]) == (f"{unique_name}-new", "learn", "e1.v1")
    _, state, keyed, _ = newest_state(facts, tmp_path, "track", "--shard", 0)
    assert state == {}
    assert same({key: keyed[key] for key in users(2)}, users(2))
    (version,) = facts("list", "learn")["shards"][0]["versions"]
    assert (version["batches"], version["requests"], version["standing"]) == (0, 0, "durable")


def test_a_shard_goes_back_when_the_operator_says_so(ask, facts, learn, tmp_path, monkeypatch):
    learn.begin(1)
    for n in range(1, 4):
        learn.write(weights(n), position=10 * n)
    monkeypatch.setattr("click.confirm", lambda question, **_: asked.append(question) or False)
    asked = []
    code, out, err = ask("rewind", "learn", "e1.v1")
    assert (code, out, err) == (1, "", "nothing was changed\n")
    assert "learn/0 is at e1.v3. Its state becomes that of e1.v1" in asked[0]
    assert "released outcomes stay released" in asked[0]
    code, out, _ = ask("rewind", "learn", "e1.v1", "--yes")
    assert (code, out) == (0, "learn/0 e2.v4, after e1.v3, is the state of e1.v1\n")
    version, state, _, _ = newest_state(facts, tmp_path, "learn")
    assert version == "e2.v4"
    assert same(state, weights(1))
    shown = facts("show", "learn")
    assert shown["inputs"] == [{"partition": 0, "position": 30, "note": "r1:", "covered": [[32, 33]]}]
    assert shown["digest"] == facts("show", "learn", "e1.v1")["digest"]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["list", "lern"], "has no stage 'lern'; those with a state in a log are: learn, track"),
        (["list", "tell"], "stage 'tell' keeps no state; those with a state in a log are: learn, track"),
        (["show", "track"], "stage 'track' has 2 shards: say which with --shard, 0 to 1"),
        (["show", "learn", "--shard", "1"], "stage 'learn' has no shard 1; it has 0 to 0"),
        (["show", "track", "--shard", "0"], "track/0 has no version yet"),
        (["show", "learn", "v1"], "'v1' is not a version: write it as e5.v17"),
        (["show", "learn", "e9.v9"], "learn/0 does not retain e9.v9; it has e1.v1 (durable)"),
        (["rewind", "learn", "e1.v1", "--yes"], "e1.v1 is what learn/0 would start from anyway"),
    ],
)
def test_mistakes_are_named_with_what_there_is(ask, learn, command, said):
    learn.begin(1).write(weights(1))
    code, out, err = ask(*command)
    assert (code, out) == (2, "")
    assert said in err


def test_what_is_not_on_the_cluster_is_named(ask, pipeline):
    code, _, err = ask("list")
    assert code == 1
    assert "is it running there ('spillway serve PIPELINE')?" in err
    pipeline.write_text(f"name: {load(pipeline).spec.name}\nslo: 1s\nstages:\n  - {{name: tell, model: 'm:M'}}\n")
    code, _, err = ask("list")
    assert code == 2
    assert "has a state in a log" in err


def test_files_that_do_not_fit_are_refused_before_anything_is_written(ask, learn, tmp_path, facts):
    learn.begin(1).write({"w": torch.zeros(7), "rate": 0.5})
    file = tmp_path / "other.safetensors"
    assert ask("export", "learn", file)[0] == 0
    code, _, err = ask("import", "learn", file, "--check")
    assert code == 2
    assert "'w' is torch float32 [7], but the model has torch float32 [2000]" in err
    code, _, err = ask("import", "track", file, "--shard", 0)
    assert code == 2
    assert "has a keyed state, but this is a shared one" in err
    for content in (b"", b"no such file"):
        file.write_bytes(content)
        code, _, err = ask("import", "learn", file)
        assert code == 2
        assert f"{file}" in err
    assert facts("list", "learn")["shards"][0]["epoch"] == 1


def test_a_damaged_chunk_is_named(ask, learn, track):
    manifest = learn.begin(1).write(weights(1), inline_bytes=10)
    chunk = manifest.spilled[0]
    learn.damage(chunk.key, b"x")
    track.begin(1).write({}, users(1))
    # No good record of the chunk is left: the only one was overwritten in place, as compaction would leave it.
    broken = manifest.__class__(
        Version(1, 2), manifest.chain, claimant="learn.0.m1", spilled=(chunk._replace(digest=b"0" * 16),)
    )
    learn.log(broken)
    code, _, err = ask("show", "learn", "e1.v2")
    assert code == 1
    assert f"the chunk {'/'.join(map(str, chunk.key))} of the state (its contents) has" in err
    assert "spillway state rewind" in err
    assert ask("show", "learn", "e1.v1")[0] == 0  # a good record is there, and is taken
