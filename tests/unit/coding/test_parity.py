"""Parity models without torch: their cards and weights, what is refused, and grades that can be told exactly."""

import importlib
import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from spillway.agents.cli import main
from spillway.agents.coding.card import check_card, outdated, read_card, read_reference
from spillway.agents.coding.codes import CODES, Concatenation, code_of
from spillway.agents.coding.data import encoded, groups, read_data, recorded_data
from spillway.agents.coding.evaluation import check_metric, evaluate, grade
from spillway.agents.coding.making import Maker, deployed_answers
from spillway.agents.coding.parity import PARITY, Parity, Shared
from spillway.agents.models.inputs import Inputs
from spillway.lineage.errors import ModelError, UsageError
from spillway.lineage.message import Query
from spillway.lineage.values import codec
from spillway.producers.recording import RecordingWriter
from spillway.topology.load import parse
from tests.unit.producers.test_recording import ABOUT, message

LINEAR = "parity_models:Linear"


@pytest.fixture(autouse=True)
def models(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("p.yaml").write_text(document())
    yield
    for name in ("parity_models", "own"):
        sys.modules.pop(name, None)


def document(*others, **stage):
    return json.dumps({"name": "p", "slo": "1s", "stages": [{"name": "s", "model": LINEAR, **stage}, *others]})


def pipeline_of(*others, **stage):
    return parse(document(*others, **stage)).written


def stage(**more):
    return pipeline_of(**more).stage("s")


class NoEffort:  # nothing is trained
    seed = 0


def made(folder, k=2, rows=1, encoder="sum", architecture=LINEAR):
    spec = stage()
    data, test = read_data("parity_models:queries", spec).split(0.5, 0)
    maker = Maker(spec, folder, data, test, k=k, encoder=encoder)
    return [maker.make(row, NoEffort(), architecture=architecture) for row in range(rows)], spec, test


@pytest.mark.parametrize("k", [2, 3, 4])
def test_of_a_linear_model_every_missing_answer_is_made_exactly(tmp_path, k):
    rows = k
    done, spec, test = made(tmp_path, k, rows)
    assert all(each.card.degraded == each.card.accuracy == 1.0 for each in done)
    models = {row: Parity(str(tmp_path), row) for row in range(rows)}
    outputs = deployed_answers(spec, test)
    grades = evaluate(models, code_of("sum", k), k, test, outputs, metric="accuracy", seed=1)
    assert grades.degraded == dict.fromkeys(range(1, k + 1), 1.0)
    assert grades.overall(0.3) == 1.0
    assert not grades.labelled
    members = groups(len(test), k, np.random.default_rng(2))
    parities = encoded(code_of("sum", k), 0, test.inputs, members)
    for group, of in enumerate(members):
        answer = models[0].predict([Inputs({"x": parities["x"][group]}, {}, "")])[0]
        for gone in range(k):
            known = [None if n == gone else {"y": outputs["y"][of[n]]} for n in range(k)]
            solved = code_of("sum", k).decode(known, {0: answer})
            assert np.array_equal(solved[gone]["y"], outputs["y"][of[gone]])


def test_a_metric_may_be_a_function_of_the_users():
    data = {"given": np.array([[1.0], [2.0], [3.0]]), "truth": np.array([[1.0], [0.0], [3.0]])}
    Path("own.py").write_text("def same(given, truth):\n    return (given == truth).all(axis=1)\n")
    assert check_metric("own:same") == "own:same"
    assert grade("own:same", **data) == pytest.approx(2 / 3)
    with pytest.raises(UsageError, match="no metric 'mean'; use accuracy"):
        check_metric("mean")
    with pytest.raises(ModelError, match="metric 'own:other'"):
        check_metric("own:other")


def test_the_reference_is_a_query_and_its_answer(tmp_path):
    made(tmp_path)
    inputs, outputs = read_reference(tmp_path, read_card(tmp_path, 0))
    told = Parity(str(tmp_path), 0).predict([Inputs(inputs, {}, "")])[0]
    assert np.array_equal(told["y"], outputs["y"])


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"k": 3}, "is for k 2, not 3"),
        ({"encoder": "concatenation"}, "is for encoder 'sum', not 'concatenation'"),
        ({"model": "parity_models:Labels"}, "is for model 'parity_models:Linear'"),
    ],
)
def test_a_card_for_anything_else_is_refused(tmp_path, changed, says):
    made(tmp_path)
    card = read_card(tmp_path, 0)
    fits = {"model": LINEAR, "k": 2, "encoder": "sum"}
    check_card(card, tmp_path, **fits)
    assert outdated(card, tmp_path, {}) == ""
    assert "another version of parity_models:Linear" in outdated(card, tmp_path, {"seed": 1})
    with pytest.raises(ModelError, match=says):
        check_card(card, tmp_path, **(fits | changed))


def test_weights_that_the_card_does_not_tell_of_are_refused(tmp_path):
    made(tmp_path)
    np.savez(tmp_path / "row0.npz", w=np.zeros(3))
    with pytest.raises(ModelError, match=r"row0\.npz does not match its card"):
        Parity(str(tmp_path), 0)
    (tmp_path / "row0.npz").unlink()
    with pytest.raises(ModelError, match=r"row0\.npz cannot be read"):
        Parity(str(tmp_path), 0)
    with pytest.raises(ModelError, match="no parity model of row 1"):
        Parity(str(tmp_path), 1)


def test_a_model_that_cannot_be_its_own_parity_model_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"not a torch module.*--architecture"):
        made(tmp_path, architecture=None)
    with pytest.raises(ModelError, match=r"output 'y' has shape \(2,\), but its card says \(6,\)"):
        made(tmp_path, architecture="parity_models:Misshapen")
    with pytest.raises(ModelError, match="no encoder 'xor'; take sum"):
        made(tmp_path, encoder="xor")
    spec = stage(model="parity_models:Labels")
    with pytest.raises(ModelError, match=r"output 'label' is int64.*coding.finish"):
        deployed_answers(spec, read_data("parity_models:queries", spec))


def test_a_code_of_a_users_own_may_solve_nothing(tmp_path):
    done, _, _ = made(tmp_path, encoder="parity_models:Product")
    assert done[0].card.degraded is None


def test_data_that_cannot_be_coded_is_refused(tmp_path):
    for arrays, says in [
        ({"x": np.zeros((4, 2), np.uint8)}, "data.npz: 'x' is uint8; only floats .* send float32"),
        ({"x": np.full((4, 2), np.nan)}, "data.npz: 'x' has values that are not finite"),
        ({"x": np.zeros((4, 2)), "label": np.zeros(3, int)}, "the same number of queries"),
        ({"label": np.zeros(3, int)}, "the same number of queries"),
        ({"z": np.zeros((4, 2), np.float32)}, "takes x"),
        ({"x": np.zeros((4, 2), np.float64)}, "declares float32"),
    ]:
        np.savez(tmp_path / "data.npz", **arrays)
        declares = {"inputs": {"x": {"dtype": "float32"}}} if "takes" in says or "declares" in says else {}
        with pytest.raises(UsageError, match=says):
            read_data(str(tmp_path / "data.npz"), stage(**declares))
    with pytest.raises(UsageError, match=r"neither an \.npz file"):
        read_data("nowhere.npz", stage())


def recorded(folder, values, pipeline="p"):
    about = replace(ABOUT, pipeline=pipeline)
    with RecordingWriter(folder, about) as writer:
        for number, value in enumerate(values):
            query = value if isinstance(value, bytes) else codec.encode_query(Query(value, {}, []))
            writer.write(message(number, value=query))
        writer.write(message(len(values), "p.egress", value=codec.encode_query(Query({"x": 0.0}, {}, []))))
    return folder


def test_the_queries_of_a_recording_train_and_grade(tmp_path, capsys):
    queries = importlib.import_module("parity_models").queries()["x"]
    odd = [b"poison", {"x": np.zeros((2, 2))}, {"x": np.full((3, 4), np.nan)}]
    recorded(tmp_path / "r", [*odd, *({"x": query} for query in queries)])
    data = recorded_data(tmp_path / "r", pipeline_of(), stage())
    assert np.array_equal(data.inputs["x"], queries)  # in order of arrival, and without outcomes
    assert (data.label, data.left_out) == (None, 2)
    common = ["p.yaml", "s", "--recording", "r"]
    assert main.run(["train", "parity", *common, "--architecture", LINEAR]) == 0
    told = capsys.readouterr()
    assert "100.0 %" in told.out
    assert "2 recorded queries are left out" in told.err
    assert main.run(["train", "evaluate", *common, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["degraded"] == {"1": 1.0}
    for options, says in ((common[:2], "give one of them"), ([*common, "--data", "d.npz"], "give one of them")):
        assert main.run(["train", "parity", *options]) == 2
        assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("values", "pipeline", "name", "says"),
    [
        ([{"x": np.zeros(3)}], "other", "s", "is a recording of pipeline 'other', not 'p'"),
        (
            [{"x": np.zeros(3)}],
            "p",
            "t",
            r"stage 't' gets what s makes of them: give the stage's own inputs with --data",
        ),
        ([b"poison"], "p", "s", "holds no readable query"),
        ([{"x": 3}], "p", "s", "'x' is int64.*send float32"),
        ([{"x": "text"}], "p", "s", "'x' is str.*send float32"),
    ],
)
def test_a_recording_that_has_not_a_stages_inputs_is_refused(tmp_path, values, pipeline, name, says):
    spec = pipeline_of({"name": "t", "model": LINEAR, "after": "s"})
    with pytest.raises(UsageError, match=says):
        recorded_data(recorded(tmp_path / "r", values, pipeline), spec, spec.stage(name))


def test_side_by_side_a_parity_query_is_as_large_as_a_query():
    images = np.arange(5 * 2 * 8 * 8, dtype=np.float32).reshape(5, 2, 8, 8)
    members = groups(5, 4, np.random.default_rng(0))
    made = encoded(Concatenation(4), 0, {"image": images}, members)["image"]
    assert made.shape == images.shape
    for group, of in enumerate(members):
        for n, place in enumerate(of):
            quarter = made[group, :, 4 * (n // 2) : 4 * (n // 2) + 4, 4 * (n % 2) : 4 * (n % 2) + 4]
            assert np.allclose(quarter, images[place].reshape(2, 4, 2, 4, 2).mean(axis=(2, 4)))


@pytest.mark.parametrize("name", ["sum", "same-parity"])
def test_all_groups_are_encoded_as_each_alone(name):
    inputs, code = {"x": np.random.default_rng(0).random((9, 4))}, CODES[name](3)
    members = groups(9, 3, np.random.default_rng(1))
    alone = [code.encode([{"x": inputs["x"][place]} for place in group], 1)["x"] for group in members]
    assert np.allclose(encoded(code, 1, inputs, members)["x"], alone)


def test_grades():
    given = np.array([[3.0, 2, 1, 0, 5, 6, 7], [0, 0, 0, 0, 0, 0, 0]])
    assert grade("accuracy", given, np.array([6, 0])) == 0.5  # all alike is no right answer
    assert grade("top-5", given, np.array([1, 0])) == 0.5
    boxes = np.array([[0.0, 0, 2, 2], [0, 0, 1, 1], [3, 3, 1, 1]])
    assert grade("iou", boxes, np.array([[1.0, 0, 3, 2], [0, 0, 1, 1], [0, 0, 9, 9]])) == pytest.approx((1 / 3 + 1) / 3)


def test_the_command_trains_and_grades(tmp_path, capsys):
    common = ["p.yaml", "s", "--data", "parity_models:queries"]
    assert main.run(["train", "parity", *common, "--architecture", LINEAR, "--k", "3", "--rows", "2"]) == 0
    assert "100.0 %" in capsys.readouterr().out
    assert (tmp_path / "parity" / "s" / "row1.json").exists()
    assert main.run(["train", "evaluate", *common, "--rows", "2", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["k"] == 3
    assert told["degraded"] == {"1": 1.0, "2": 1.0}
    assert main.run(["train", "evaluate", *common, "--rows", "3"]) == 1
    assert "no parity model of row 2" in capsys.readouterr().err


def test_a_shared_worker_answers_queries_by_the_model_and_parity_queries_by_their_own(tmp_path):
    made(tmp_path)
    worker = Shared(str(tmp_path), 0, "s", "parity_models:Labels", {}, "cpu")
    query = {"x": np.ones((3, 4))}
    (own,) = worker.predict([Inputs(query, {}, "1")])
    (sums,) = worker.predict([Inputs(query, {PARITY: 0}, "")])
    assert own["label"] == 3
    assert sums["y"].shape == (6,)
