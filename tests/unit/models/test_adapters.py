"""Models that are files of scikit-learn or ONNX, and functions: real models, trained on scikit-learn's digits."""

import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from skl2onnx import to_onnx
from skl2onnx.common.data_types import FloatTensorType
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from spillway.agents.cli.main import run
from spillway.agents.models.adapters import skops_io
from spillway.agents.models.declared import load_declared
from spillway.agents.models.inputs import Inputs
from spillway.agents.models.loading import load_model, look_up_model
from spillway.agents.profiling.conditions import conditions_now
from spillway.agents.workers.single import SingleWorker
from spillway.lineage.errors import MissingExtraError, ModelError
from spillway.topology.load import load, parse
from spillway.topology.spec import StageSpec

X, Y = load_digits(return_X_y=True)
X = (X / 16).astype(np.float32)
TREE = "sklearn.tree._tree.Tree"


def queries(rows, name="x"):
    return [Inputs({name: row}, {}, "r") for row in rows]


@pytest.fixture(scope="module")
def logistic():
    return LogisticRegression(max_iter=400, C=0.1).fit(X[:500], Y[:500])


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def saved(model, name="m.skops"):
    skops_io().dump(model, name)
    return f"sklearn:{name}"


# scikit-learn


def test_a_classifier_gives_labels_and_probabilities_of_a_batch(logistic):
    model = load_model("s", saved(make_pipeline(StandardScaler(), LinearSVC(C=0.01)).fit(X[:500], Y[:500])), {})
    labels = [result["label"] for result in model.predict(queries(X[:500], "image"))]
    assert np.mean(np.array(labels) == Y[:500]) > 0.95
    assert type(labels[0]) is int
    model = load_model("s", saved(logistic), {})
    results = model.predict(queries(X[:4]))
    assert [result["label"] for result in results] == logistic.predict(X[:4]).tolist()
    assert np.allclose([result["probabilities"] for result in results], logistic.predict_proba(X[:4]))
    assert model.deterministic is True
    assert model.example()["x"].shape == (64,)


def test_the_model_is_called_once_a_batch(logistic, monkeypatch):
    model, sizes = load_model("s", saved(logistic), {}), []
    own = LogisticRegression.predict
    monkeypatch.setattr(LogisticRegression, "predict", lambda self, x: (sizes.append(len(x)), own(self, x))[1])
    assert len(model.predict(queries(X[:7]))) == 7
    assert sizes == [7]


def test_a_regressor_gives_a_value():
    model = load_model("s", saved(LinearRegression().fit(X, Y)), {})
    assert list(model.predict(queries(X[:1]))[0]) == ["value"]


def test_probabilities_of_several_outputs_stay_with_their_queries():
    model = KNeighborsClassifier().fit(X, np.stack([Y, Y % 2], axis=1))
    results = load_model("s", saved(model), {"trust": True}).predict(queries(X[:2]))
    assert [each["label"] for each in results] == [[0, 0], [1, 1]]
    assert [list(map(len, each["probabilities"])) for each in results] == [[10, 2], [10, 2]]
    assert [each["probabilities"][1] for each in results] == [[1.0, 0.0], [0.0, 1.0]]


def test_text_is_an_input_too():
    model = make_pipeline(CountVectorizer(), LogisticRegression()).fit(["good", "bad"], ["yes", "no"])
    loaded = load_model("s", saved(model), {"trust": True})
    assert [each["label"] for each in loaded.predict(queries(["bad", "good good"]))] == ["no", "yes"]


def test_types_that_skops_does_not_trust_are_named_with_the_fix():
    forest = RandomForestClassifier(5, random_state=0).fit(X, Y)
    name = saved(forest)
    with pytest.raises(ModelError) as caught:
        load_model("s", name, {})
    assert str(caught.value) == (
        "stage 's': model 'sklearn:m.skops': m.skops has types that skops does not trust; if you trust its author, "
        f"list them: 'arguments: {{trust: [{TREE}]}}'"
    )
    with pytest.raises(ModelError, match=r"trust: \[sklearn\.tree\._tree\.Tree\]"):
        load_model("s", name, {"trust": [TREE + "s"]})
    for trust in ([TREE], TREE, True):
        results = load_model("s", name, {"trust": trust}).predict(queries(X[:50]))
        assert [each["label"] for each in results] == forest.predict(X[:50]).tolist()


class Trap:
    def __reduce__(self):
        return (open, ("trapped", "w"))


def test_a_pickle_is_loaded_only_where_it_is_trusted(here, logistic):
    (here / "m.pkl").write_bytes(pickle.dumps(Trap()))
    for trust in ({}, {"trust": False}, {"trust": ["builtins.open"]}):
        with pytest.raises(ModelError, match=r"m.pkl is a pickle.*arguments: \{trust: true\}"):
            load_model("s", "sklearn:m.pkl", trust)
    assert not (here / "trapped").exists()
    (here / "m.pkl").write_bytes(pickle.dumps(logistic))
    (result,) = load_model("s", "sklearn:m.pkl", {"trust": True}).predict(queries(X[:1]))
    assert result["label"] == logistic.predict(X[:1])[0]


# ONNX


def onnx_file(model, name="m.onnx", **options):
    Path(name).write_bytes(to_onnx(model, X[:1], **options).SerializeToString())
    return f"onnx:{name}"


def test_an_onnx_file_has_its_own_names_and_a_signature(logistic):
    model = load_model("s", onnx_file(logistic, options={"zipmap": False}), {})
    assert model.input_signature == {"X": {"dtype": "float32", "shape": [64]}}
    assert model.deterministic is True
    results = model.predict(queries(X[:4], "X"))
    assert [int(result["label"]) for result in results] == logistic.predict(X[:4]).tolist()
    assert np.allclose([result["probabilities"] for result in results], logistic.predict_proba(X[:4]), atol=1e-5)
    again = model.predict(queries([row.astype(float).tolist() for row in X[:4]], "X"))
    assert [int(result["label"]) for result in again] == [int(result["label"]) for result in results]


def test_maps_of_probabilities_get_text_as_keys(logistic):
    (result,) = load_model("s", onnx_file(logistic), {}).predict(queries(X[:1]))
    assert list(result["output_probability"]) == [str(each) for each in range(10)]


def test_inputs_that_do_not_fit_are_named(logistic):
    model = load_model("s", onnx_file(logistic), {})
    with pytest.raises(ValueError, match="the model takes X, and the query has a, b"):
        model.predict([Inputs({"a": X[0], "b": X[1]}, {}, "r")])
    with pytest.raises(ValueError, match=r"input 'X': .*same shape"):
        model.predict(queries([X[0], X[0][:3]], "X"))
    with pytest.raises(ValueError, match=r"input 'X': .*[Cc]annot cast"):
        model.predict(queries([X[0] * 1j], "X"))
    with pytest.raises(ValueError, match="a query of the batch has no input 'X'"):
        model.predict([*queries(X[:1], "X"), *queries(X[:1], "Y")])


def test_a_file_with_a_fixed_batch_says_so(logistic):
    fixed = to_onnx(logistic, initial_types=[("X", FloatTensorType([1, 64]))])
    Path("m.onnx").write_bytes(fixed.SerializeToString())
    model = load_model("s", "onnx:m.onnx", {})
    assert len(model.predict(queries(X[:1]))) == 1
    with pytest.raises(ValueError, match="takes only batches of 1, not of 2"):
        model.predict(queries(X[:2]))


# Functions

FUNCTIONS = """\
def double(batch, factor=2):
    return [query["x"] * factor for query in batch]

def named(batch):
    return [{"twice": query["x"] * 2} for query in batch]

def short(batch):
    return 3

def random(batch):
    return batch

named.deterministic = True
random.input_signature = {"x": {"dtype": "float"}}

async def late(batch):
    return batch

class Model:
    pass
"""


@pytest.fixture
def functions(here, monkeypatch):
    monkeypatch.syspath_prepend(str(here))
    (here / "plain_functions.py").write_text(FUNCTIONS)
    yield "function:plain_functions:"
    sys.modules.pop("plain_functions", None)


def test_a_function_of_a_batch_is_a_model(functions):
    assert load_model("s", functions + "double", {}).predict(queries([1, 2])) == [{"y": 2}, {"y": 4}]
    assert load_model("s", functions + "double", {"factor": 3}).predict(queries([1])) == [{"y": 3}]
    assert load_model("s", functions + "named", {}).predict(queries([1])) == [{"twice": 2}]
    assert load_model("s", functions + "short", {}).predict(queries([1])) == 3
    assert load_model("s", functions + "named", {}).deterministic is True
    assert load_model("s", functions + "double", {}).deterministic is False
    random = load_model("s", functions + "random", {})
    assert (random.deterministic, random.input_signature) == (False, {"x": {"dtype": "float"}})


@pytest.mark.parametrize(
    ("name", "arguments", "says"),
    [
        ("late", {}, "is not a plain function"),
        ("Model", {}, "write a class with a predict method as 'plain_functions:Model'"),
        ("double", {"size": 1}, "cannot be called with a batch and its arguments: .*'size'"),
        ("nothing", {}, "has no 'nothing'"),
    ],
)
def test_what_is_no_function_of_a_batch_is_refused(functions, name, arguments, says):
    with pytest.raises(ModelError, match=f"stage 's': model 'function:plain_functions:{name}': .*{says}"):
        load_model("s", functions + name, arguments)


# All of them


@pytest.mark.parametrize("kind", ["sklearn", "onnx"])
def test_files_that_are_missing_or_something_else_are_named(here, kind):
    place = f"stage 's': model '{kind}:m.skops': "
    for look in (look_up_model, lambda stage, name: load_model(stage, name, {})):
        with pytest.raises(ModelError, match=f"{place}there is no file 'm.skops' in {here} or beside"):
            look("s", f"{kind}:m.skops")
    (here / "m.skops").write_text("not a model at all")
    with pytest.raises(ModelError, match=f"{place}m.skops cannot be loaded: "):
        load_model("s", f"{kind}:m.skops", {})
    with pytest.raises(ModelError, match="unexpected keyword argument 'size'"):
        load_model("s", f"{kind}:m.skops", {"size": 1})
    skops_io().dump({"a": 1}, "m.skops")
    with pytest.raises(ModelError, match=place):
        load_model("s", f"{kind}:m.skops", {})


@pytest.mark.parametrize(
    ("name", "package", "extra"),
    [
        ("sklearn:m.skops", "skops", "sklearn"),
        ("onnx:m.onnx", "onnxruntime", "onnx"),
        ("torchscript:m", "torch", "torch"),
    ],
)
def test_a_package_that_is_missing_names_its_extra(here, monkeypatch, name, package, extra):
    (here / name.partition(":")[2]).touch()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError) as caught:
        load_model("s", name, {})
    assert str(caught.value) == (
        f"stage 's': model {name!r}: {package} is not installed; it comes with an extra: pip install "
        f"'spillway[{extra}]'"
    )


@pytest.mark.parametrize("name", ["sklearn:", "onnx: ", "function:models", "function:a:b c", "weights.onnx"])
def test_how_a_model_may_be_written(name):
    text = "{{name: p, slo: 1, stages: [{{name: a, model: '{}'}}]}}"
    for good in (
        "sklearn:some folder/a-b.skops",
        "onnx:/x/m.onnx",
        "torchscript:m.pt2",
        "function:a.b:c",
        "function:C",
    ):
        assert parse(text.format(good)).spec.stages[0].model == good
    if name != "function:models":
        with pytest.raises(Exception, match=r"model: (does not name a file|must be written as)"):
            parse(text.format(name))


@pytest.fixture
def beside(here, monkeypatch, logistic):
    """A pipeline whose model lies beside it, and not in the working directory."""
    (here / "served").mkdir()
    skops_io().dump(logistic, "served/digits.skops")
    stage = "{name: a, model: 'sklearn:digits.skops', batching: {max: 2}"
    (here / "served" / "p.yaml").write_text(f"name: p\nslo: 1s\nprofile: t.yaml\nstages: [{stage}}}]\n")
    (here / "served" / "q.yaml").write_text(
        f"name: p\nslo: 1s\nprofile: q.t.yaml\nstages: [{stage}, inputs: {{x: {{dtype: float32, shape: [64]}}}}, "
        "workers: {where: process}}]\n"
    )
    monkeypatch.setattr(sys, "path", list(sys.path))
    return here / "served"


def test_the_conditions_of_a_profile_have_the_files_bytes(beside):
    stage = load(beside / "p.yaml", profiled=False).written.stage("a")
    before = conditions_now(stage, beside, torch=False)
    assert before.source is not None
    with (beside / "digits.skops").open("ab") as file:
        file.write(b"more")
    after = conditions_now(stage, beside, torch=False)
    assert before.stale(after) == "the file of the model, or of its module, has changed since"


@pytest.mark.parametrize("pipeline", [pytest.param("p.yaml", marks=pytest.mark.nightly), "q.yaml"])
def test_check_and_profile_find_a_file_beside_the_pipeline(beside, capsys, pipeline):
    file = f"served/{pipeline}"
    assert run(["plan", "profile", file, "--runs", "2", "--json"]) == 0, capsys.readouterr()
    assert run(["check", file, "--load", "--models", "--json"]) == 0, capsys.readouterr()
    (beside / "digits.skops").unlink()
    capsys.readouterr()
    for option in ("--load", "--models"):
        assert run(["check", file, option, "--json"]) == 2
        (problem,) = json.loads(capsys.readouterr().out)["problems"]
        assert problem["path"] == "stages[0].model"
        assert "there is no file 'digits.skops'" in problem["text"]


def test_a_worker_process_loads_a_file(logistic):
    worker = SingleWorker(StageSpec(name="s", model=saved(logistic)), 1)
    try:
        assert not worker.uses_torch  # which importing skops would import, where it is installed
        assert worker.predict(queries(X[:2]))[0]["label"] == logistic.predict(X[:1])[0]
    finally:
        worker.close()


def test_a_file_keeps_no_state(logistic):
    with pytest.raises(ModelError, match="SklearnModel has predict and keeps no state; drop 'state: shared'"):
        load_declared("s", saved(logistic), {}, "cpu", "shared")
