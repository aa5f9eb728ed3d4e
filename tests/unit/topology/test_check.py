"""`spillway check`, as a user calls it."""

import json
import sys

import pytest

from spillway.agents.cli.main import run

GOOD = """\
name: p
slo: 400ms
stages:
  - {name: a, emulated: {beta: 1ms}, workers: {fronts: 5}}
  - {name: b, model: "check_models:Model", after: a, policy: expired}
"""


@pytest.fixture
def check(tmp_path, monkeypatch, capsys):
    """Call the command on a file with this text; returns exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])

    def call(text: str, *options: str):
        (tmp_path / "p.yaml").write_text(text)
        code = run(["check", "p.yaml", *options])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_a_good_pipeline_is_drawn(check):
    code, out, err = check(GOOD)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    told = "pipeline p, 2 stages, 6 processes and the gate, SLO 400 ms, 12 partitions"
    assert lines[0] == f"p.yaml is valid, with 1 note at the end: {told}"
    assert "│ check_models:Model" in out
    assert lines[-4].startswith("note: stage 'a': 12 partitions do not divide evenly by 5 fronts")


@pytest.mark.parametrize(
    ("stage", "processes", "workers", "memory"),
    [
        ('model: "m:M"', 1, 0, 225),
        ('model: "m:M", workers: {where: process, count: 3, fronts: 2}', 2, 3, 375),
        ('model: "m:M", workers: {where: process, count: 3, standby: 1}', 2, 6, 450),
        ('model: "m:M", workers: {where: process, count: 3}, copies: {workers: 2}', 1, 5, 350),
        ('model: "m:M", state: keyed', 2, 0, 300),
        (
            "default: {y: 1}, ensemble: {selection: exp4, members: {x: {model: m:M, workers: {count: 3}}}}",
            3,  # with two of its learner
            3,
            525,
        ),
    ],
)
def test_processes_and_memory_are_summed_up(check, stage, processes, workers, memory):
    code, out, err = check(f"name: p\nslo: 2s\nstages:\n  - {{name: a, {stage}}}\n")
    assert code == 0, err
    gates = "2 gates" if "ensemble" in stage else "1 gate"
    assert f"processes on one machine: serve, {processes} of stages, {gates}, {workers} workers\n" in out
    assert f"memory: about {memory} MB before any model is loaded; a local Kafka takes up to 700 MB more" in out


def test_the_batches_of_many_stages_have_a_line_each(check):
    stages = "".join(
        f"  - {{name: stage{n}, model: m:M{', after: stage' + str(n - 1) if n else ''}}}\n" for n in range(4)
    )
    code, out, _ = check(f"name: p\nslo: 2s\nstages:\n{stages}")
    assert code == 0
    assert out.startswith("p.yaml is fine: ")
    assert "batches: stage0 by aimd within 250 ms, at most 64,\n         stage1 by aimd" in out


def test_the_outputs_that_a_pipeline_declares_are_shown(check):
    outputs = "outputs: {label: {dtype: str}, scores: {dtype: float32, shape: [null, 10]}, more: {}}\n"
    told = "outputs: label str, scores float32 [None, 10], more any dtype"
    assert told in check(GOOD + outputs)[1].splitlines()
    assert "outputs" not in check(GOOD)[1]
    assert json.loads(check(GOOD + outputs, "--json")[1])["spec"]["outputs"]["more"] == {"dtype": None, "shape": None}
    _, _, err = check(GOOD + "outputs: {}\n")
    assert "p.yaml:6:10: outputs: is empty; give it at least one entry" in err


def test_a_bad_pipeline_exits_2_with_all_problems(check):
    code, out, err = check(GOOD.replace("after: a", "after: c").replace("400ms", "0"))
    assert (code, out) == (2, "")
    assert err == (
        "error: p.yaml has 2 problems:\n"
        "  p.yaml:2:6: slo: must be more than 0, not 0\n"
        "  p.yaml:5:51: stages[1].after[0]: there is no stage 'c'; known: a, b\n"
    )


def test_a_bad_file_does_not_hide_bad_policies_profiles_and_models(check):
    bad = GOOD.replace("400ms", "0").replace("policy: expired", "policy: expire, profile: none.yaml")
    code, _, err = check(bad, "--load")
    assert code == 2
    for said in (
        "p.yaml:2:6: slo: must be more than 0",
        "p.yaml:5:62: stages[1].policy: there is no policy 'expire'",
        "stages[1].profile: ",
        "stages[1].model: stage 'b': model 'check_models:Model'",
    ):
        assert said in err
    assert "stages[1].model" not in check(bad)[2]


def test_a_bad_file_does_not_hide_what_an_ensemble_names(check):
    text = """\
name: p
slo: 0
stages:
  - name: a
    ensemble: {selection: exp5, members: {one: {model: "gone:One"}, two: 2}}
  - name: b
    variants: {app: x, of: {one: {model: "gone:Two", architecture: a, accuracy: .5, takes: {1: 1ms}}, two: 2}}
"""
    code, _, err = check(text, "--load")
    assert code == 2
    for said in (
        "slo: must be more than 0",
        "stages[0].ensemble.selection: there is no selection 'exp5'; did you mean 'exp",
        "stages[0].ensemble.members.one.model: stage 'a': model 'gone:One': there is no module 'gone'",
        "stages[1].variants.of.one.model: stage 'b': model 'gone:Two': there is no module 'gone'",
    ):
        assert said in err


def test_dot(check):
    code, out, _ = check(GOOD, "--dot")
    assert code == 0
    assert out.startswith('digraph "p" {\n')


def test_json_of_a_good_pipeline(check):
    code, out, _ = check(GOOD, "--json")
    told = json.loads(out)
    assert code == 0
    assert told["valid"]
    assert (told["order"], told["roots"], told["sinks"]) == (["a", "b"], ["a"], ["b"])
    assert told["spec"]["slo"] == 0.4
    assert [topic["name"] for topic in told["topics"]] == [
        *("p.ingress", "p.b", "p.outcomes", "p.egress", "p.dead", "p.schemas", "p.plan", "p.owners", "p.sizes")
    ]


def test_json_of_a_bad_pipeline(check):
    code, out, err = check(GOOD.replace("400ms", "0"), "--json")
    assert (code, err) == (2, "")
    assert json.loads(out) == {
        "valid": False,
        "problems": [{"file": "p.yaml", "line": 2, "column": 6, "path": "slo", "text": "must be more than 0, not 0"}],
    }
    code, out, _ = check(GOOD + "#" * 300_000, "--json")
    assert code == 2
    assert json.loads(out)["problems"] == [{"text": "p.yaml is larger than 262144 bytes; is it a pipeline file?"}]


def test_nothing_is_imported_unless_asked_for(check, tmp_path):
    (tmp_path / "check_models.py").write_text("raise RuntimeError('imported')\n")
    assert check(GOOD)[0] == 0
    code, _, err = check(GOOD, "--load")
    assert code == 2
    assert "p.yaml:5:22: stages[1].model: " in err
    assert "RuntimeError: imported" in err


def test_every_reference_is_looked_up(check, tmp_path):
    (tmp_path / "check_routes.py").write_text(
        "class Model:\n    pass\n\ndef split(outputs):\n    return outputs\n\nnumber = 3\n"
    )
    text = """\
name: p
slo: 1
stages:
  - {name: a, model: "check_routes:Model", split: "check_routes:split", choose: "check_routes:none"}
  - {name: b, model: "check_routes:Modle", after: a}
  - {name: c, model: "check_routes:Model", after: a}
  - {name: d, model: "check_routes:Model", after: [b, c], join: {function: "check_routes:number"}}
"""
    code, _, err = check(text, "--load")
    assert code == 2
    assert [line.split(": stage ")[0] for line in err.splitlines()[1:]] == [
        "  p.yaml:4:81: stages[0].choose",
        "  p.yaml:5:22: stages[1].model",
        "  p.yaml:7:76: stages[3].join.function",
    ]


def test_a_file_that_is_not_there(capsys):
    assert run(["check", "none.yaml"]) == 2
    assert "there is no file 'none.yaml'" in capsys.readouterr().err


def test_models_are_constructed_where_that_is_asked_for(check, tmp_path):
    (tmp_path / "check_states.py").write_text(
        "print('loud')\n\nclass Learner:\n    def initialize(self):\n        return {'seen': {1, 2}}\n"
        "    def compute(self, state, batch):\n        return [{} for _ in batch]\n"
        "    def update(self, state, batch, outputs):\n        return state\n"
    )
    text = """\
name: p
slo: 1
stages:
  - {name: a, model: "check_states:Learner"}
  - {name: b, model: "check_states:Learner", state: keyed, after: a}
  - {name: c, model: "check_states:Learner", state: shared, after: b}
  - {name: d, emulated: {alpha: 1ms}, after: c}
"""
    assert "models" not in check(text)[1].splitlines()[-1]
    code, out, _ = check(text, "--load")
    assert (code, out.splitlines()[-1]) == (0, "models, policies and functions: all were found")
    code, out, err = check(text, "--models")
    assert (code, out) == (2, "")
    assert [line.partition(": stage ")[0] for line in err.splitlines()[1:]] == [
        "  p.yaml:4:22: stages[0].model",
        "  p.yaml:5:53: stages[1].state",
        "  p.yaml:6:22: stages[2].model",
    ]
    assert "add 'state: shared'" in err
    assert "say 'state: shared', or give it one" in err
    assert "entry 'seen': a builtins.set cannot be encoded" in err
