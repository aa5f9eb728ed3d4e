"""`spillway plan profile`, as a user calls it, and the warning of what it wrote once it does not hold any more."""

import json
import sys
from importlib import metadata

import pytest

from spillway.agents.cli.main import run
from spillway.agents.profiling import conditions
from spillway.topology.load import load
from spillway.topology.profiles import read_profiles

MODELS = """\
import numpy as np


class First:
    def __init__(self, weights=None, factor=1):
        self.factor = factor

    def predict(self, batch):
        return [{"y": query["x"] * self.factor, "many": len(batch)} for query in batch]


class Second:
    def predict(self, batch):
        return [{"z": float(np.sum(query["y"]))} for query in batch]


class Empty:
    def predict(self, batch):
        return [{} for _ in batch]


class Counts:
    def initialize(self):
        return {"seen": np.zeros(1)}

    def example(self):
        return [{"who": "a"}, {"who": "b"}]

    def key(self, query):
        return query["who"]

    def compute(self, states, batch):
        return [{"seen": states[query["who"]]["seen"]} for query in batch]

    def update(self, states, batch, outputs):
        return {who: {"seen": state["seen"] + 1} for who, state in states.items()}


class Shown(Second):
    def example(self):
        return {"y": [1.0, 2.0]}
"""
PIPELINE = """\
name: p
slo: 400ms
profile: p.profile.yaml
stages:
  - name: first
    model: profiled_models:First
    arguments: {weights: weights.bin, factor: 2}
    batching: {max: 4}
    inputs: {x: {dtype: float32, shape: [8]}}
  - {name: second, model: "profiled_models:Second", after: first, batching: {max: 2}}
"""


@pytest.fixture
def spillway(tmp_path, monkeypatch, capsys):
    """Call the command where the pipeline and its models lie; returns exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):  # as it sets for what it starts
        monkeypatch.setenv(name, "1")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)

    def call(*arguments: str):
        code = run([*arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_a_stage_with_a_state_is_measured_with_its_updates(spillway, tmp_path):
    stage = "{name: count, model: 'profiled_models:Counts', state: keyed, batching: {max: 2}}"
    (tmp_path / "s.yaml").write_text(f"name: s\nslo: 1s\nprofile: s.profile.yaml\nstages:\n  - {stage}\n")
    code, _, err = spillway("plan", "profile", "s.yaml", "--runs", "3")
    assert (code, err) == (0, "")
    assert list(read_profiles(tmp_path / "s.profile.yaml")["count"].batches) == [1, 2]
    (tmp_path / "s.yaml").write_text((tmp_path / "s.yaml").read_text().replace("keyed", "shared"))
    code, _, err = spillway("plan", "profile", "s.yaml", "--runs", "3")
    assert code != 0
    assert "Counts has a method key, so it keeps a state per key; say 'state: keyed', or drop that method" in err


def test_a_profile_is_measured_used_and_warned_of_once_it_is_stale(spillway, tmp_path, monkeypatch):
    code, _, err = spillway("check", "p.yaml")
    assert code == 2
    assert "p.yaml:3:10: profile: cannot read the profile file p.profile.yaml" in err
    assert "make one with 'spillway plan profile'" in err

    code, out, err = spillway("plan", "profile", "p.yaml", "--runs", "5")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "written to p.profile.yaml"
    profiles = read_profiles(tmp_path / "p.profile.yaml")
    assert list(profiles["first"].batches) == [1, 2, 3, 4]
    assert list(profiles["second"].batches) == [1, 2]  # measured on what `first` made of its samples
    assert profiles["first"].batches[4].runs == 5
    assert profiles["first"].measured.torch is None
    assert 0 < profiles["first"].load < 60

    code, out, err = spillway("check", "p.yaml")
    assert (code, err) == (0, "")
    assert "batches: first 4 in " in out
    code, out, err = spillway("whatif", "p.yaml", "constant:20", "--once", "--duration", "2", "--json")
    assert (code, "stale" in err) == (0, False)
    assert json.loads(out)["outcomes"]["prediction"] == 40

    # One stage is renewed, and the others stay.
    (tmp_path / "all.yaml").write_text((tmp_path / "p.profile.yaml").read_text())
    code, out, _ = spillway(
        "plan", "profile", "p.yaml", "--stage", "first", "--batches", "3", "--output", "all.yaml", "--json"
    )
    assert code == 0
    assert json.loads(out)["stages"]["first"]["file"] == "all.yaml"
    after = read_profiles(tmp_path / "all.yaml")
    assert after["second"] == profiles["second"]
    assert list(after["first"].batches) == [1, 3, 4]

    renew = "renew it with 'spillway plan profile p.yaml --stage first'"
    for where, old, new, why in STALE:
        words = f"the profile of stage 'first' in p.profile.yaml is stale: {why}"
        with monkeypatch.context() as patched:
            if old is None:
                patched.setattr(conditions, where, new)
            else:
                (tmp_path / where).write_text(FILES[where].replace(old, new))
            code, out, err = spillway("check", "p.yaml")
            assert (code, err) == (0, ""), why
            assert f"note: {words}" in out
            code, out, err = spillway("whatif", "p.yaml", "constant:20", "--once", "--duration", "2")
        assert code == 0
        assert f"warning: {words}" in err
        assert renew in err
        for name, text in FILES.items():
            (tmp_path / name).write_text(text)


FILES = {"profiled_models.py": MODELS, "weights.bin": "12345", "p.yaml": PIPELINE}
BATCHING = "    batching: {max: 4}"
STALE = [  # what is changed, in a file or in `conditions`, and why the profile is stale then
    ("profiled_models.py", 'query["x"] * self.factor', 'self.factor * query["x"]',
     "the file of the model, or of its module, has changed since"),
    ("p.yaml", "factor: 2", "factor: 3", "the model's arguments have changed since"),
    ("weights.bin", "12345", "12346", "the files that the model's arguments name have changed since"),
    ("p.yaml", BATCHING, f"    version: '2'\n{BATCHING}", "the model's version was None, and is 2 now"),
    ("p.yaml", BATCHING, f"    workers: {{where: process}}\n{BATCHING}",
     "the model was a thread then, and is a process now"),
    ("p.yaml", ":First", ":Shown", "it was measured with model profiled_models:First, not profiled_models:Shown"),
    ("device_name", None, lambda _device: "Another Processor", "it was measured on another device, "),
    ("TORCH_THREADS", None, 4, "it was measured with 1 threads for a torch operation, and 4 are used now"),
]  # fmt: skip


def test_the_modules_file_is_found_without_importing_it(tmp_path):
    (tmp_path / "rooms" / "deep").mkdir(parents=True)  # folders without __init__.py are packages too
    file = tmp_path / "rooms" / "deep" / "profiled_rooms.py"
    file.write_text("raise SystemExit\n")
    written = "name: p\nslo: 1s\nstages: [{{name: a, model: '{}'}}]\n"

    def source(model):
        (tmp_path / "p.yaml").write_text(written.format(model))
        stage = load(tmp_path / "p.yaml").written.stage("a")
        return conditions.conditions_now(stage, tmp_path, torch=False).source

    first = source("rooms.deep.profiled_rooms:M")
    assert first is not None
    file.write_text("raise SystemExit(2)\n")
    assert source("rooms.deep.profiled_rooms:M") not in {None, first}
    assert "rooms" not in sys.modules
    assert source("rooms:M") is source("rooms.nowhere:M") is None


def test_a_release_of_torch_counts_where_the_model_uses_it(spillway, tmp_path, monkeypatch):
    pipeline = load(tmp_path / "p.yaml", profiled=False)
    stage = pipeline.written.stage("first")
    monkeypatch.setattr(conditions, "_release", lambda package: f"9.9 of {package}")
    assert conditions.conditions_now(stage, tmp_path, torch=True).torch == "9.9 of torch"
    assert conditions.conditions_now(stage, tmp_path, torch=False).torch is None


def test_samples_from_a_file_flow_through_the_pipeline(spillway, tmp_path):
    (tmp_path / "queries.jsonl").write_text('{"x": {"dtype": "float32", "data": [1, 2]}}\n\n{"x": 3.0}\n')
    assert (
        spillway("plan", "profile", "p.yaml", "--sample", "queries.jsonl", "--stage", "second", "--runs", "2")[0] == 0
    )
    (tmp_path / "queries.jsonl").write_text("{x}\n")
    code, _, err = spillway("plan", "profile", "p.yaml", "--sample", "queries.jsonl")
    assert code == 2
    assert "queries.jsonl:1: not JSON: " in err
    code, _, err = spillway("plan", "profile", "p.yaml", "--sample", "nothing")
    assert (code, err) == (
        2,
        "error: there is no recording, no file of queries and no module:function 'nothing' to sample from\n",
    )


def test_a_stage_without_samples_says_how_to_give_one(spillway, tmp_path):
    (tmp_path / "p.yaml").write_text("name: p\nslo: 1s\nstages: [{name: a, model: 'profiled_models:Second'}]\n")
    code, _, err = spillway("plan", "profile", "p.yaml")
    assert code == 2
    assert err == (
        "error: stage 'a': it has no inputs to be measured with; declare its inputs, as in 'inputs: {image: {dtype: "
        "uint8, shape: [40, 144]}}', give its model a method example() that returns a query's inputs, or name queries: "
        "'spillway plan profile p.yaml --sample RECORDING, FILE or MODULE:FUNCTION'\n"
    )
    (tmp_path / "p.yaml").write_text(
        "name: p\nslo: 1s\nstages: [{name: a, model: 'profiled_models:Shown', batching: {max: 1}}]\n"
    )
    code, out, _ = spillway("plan", "profile", "p.yaml", "--runs", "2")
    assert code == 0
    assert "to use it, add 'profile: p.profile.yaml' to p.yaml" in out


def test_emulated_stages_need_none(spillway, tmp_path):
    (tmp_path / "p.yaml").write_text("name: p\nslo: 1s\nstages: [{name: a, emulated: {beta: 1ms}}]\n")
    code, _, err = spillway("plan", "profile", "p.yaml")
    assert (code, err) == (2, "error: p.yaml: all its stages are emulated, so there is nothing to measure\n")
    code, _, err = spillway("plan", "profile", "p.yaml", "--stage", "a")
    assert (code, err) == (2, "error: stage 'a' is emulated, so there is nothing to measure\n")


def test_a_torch_module_is_measured_with_one_thread_and_its_release_noted(spillway, tmp_path):
    (tmp_path / "profiled_networks.py").write_text(
        "import torch\n\n\nclass Net(torch.nn.Linear):\n"
        "    def forward(self, x):\n        assert torch.get_num_threads() == 1\n        return super().forward(x)\n"
    )
    (tmp_path / "p.yaml").write_text(
        "name: p\nslo: 1s\nprofile: net.yaml\nstages:\n  - name: net\n    model: profiled_networks:Net\n"
        "    arguments: {in_features: 64, out_features: 8}\n    batching: {max: 4}\n"
        "    inputs: {x: {dtype: float32, shape: [64]}}\n"
    )
    assert spillway("plan", "profile", "p.yaml", "--runs", "5")[0] == 0
    measured = read_profiles(tmp_path / "net.yaml")["net"].measured
    assert measured.torch == metadata.version("torch")
    assert measured.threads == 1
    assert read_profiles(tmp_path / "net.yaml")["net"].batches[1].memory > 50 << 20
    before = set(sys.modules)
    assert spillway("check", "p.yaml")[0] == 0
    assert "profiled_networks" not in set(sys.modules) - before


UNMEASURED = {
    "an ensemble": "default: {y: 1}, ensemble: {selection: exp4, members: {x: {model: 'profiled_models:First'}}}",
    "variants": "variants: {app: d, of: {x: {model: 'm:M', architecture: x, accuracy: .9, takes: {1: 10ms}}}}",
    "a Velox model": "model: 'velox:profiled_models:First', tables: {user: {of: taste}}",
}


def test_what_can_be_measured_is_and_the_rest_is_named(spillway, tmp_path):
    names = dict(zip(("chosen", "varied", "learned"), UNMEASURED, strict=True))
    middle = "".join(f"  - {{name: {name}, {UNMEASURED[what]}, after: first}}\n" for name, what in names.items())
    (tmp_path / "l.yaml").write_text(
        "name: l\nslo: 1s\nsinks: all\nstages:\n"
        "  - {name: first, model: 'profiled_models:First', inputs: {x: {dtype: float32, shape: [8]}}}\n"
        f"{middle}"
        "  - {name: shown, model: 'profiled_models:Shown', after: varied}\n"
        "  - {name: last, model: 'profiled_models:Empty', after: shown, batching: {max: 1}}\n"
        "learners: [{name: taste, model: 'velox:m:S', state: {kind: keyed}, publish: true}]\n"
    )
    code, out, err = spillway("plan", "profile", "l.yaml", "--runs", "2", "--batches", "1")
    assert (code, err) == (0, "")
    assert set(read_profiles(tmp_path / "l.profile.yaml")) == {"first", "shown", "last"}
    (left,) = (line for line in out.splitlines() if line.startswith("not measured: "))
    for name, what in names.items():
        assert f"{name} has {what}" in left
        code, _, err = spillway("plan", "profile", "l.yaml", "--stage", name)
        assert (code, f"stage {name!r} has {what}" in err) == (2, True)
    (tmp_path / "l.yaml").write_text((tmp_path / "l.yaml").read_text().replace("Shown", "Second"))
    told = json.loads(spillway("plan", "profile", "l.yaml", "--runs", "2", "--batches", "1", "--json")[1])
    assert set(told["stages"]) == {"first"}
    assert told["left_out"].keys() == {*names, "shown", "last"}
    assert "comes after 'varied', which has variants" in told["left_out"]["last"]
