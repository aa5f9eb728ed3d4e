"""What is registered: generated, stored without a pickle, served as it was stored, and told in words."""

import hashlib
import json
import pickle
import zipfile
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.tree import DecisionTreeClassifier

from spillway.agents.cli.choices import choices, explained
from spillway.agents.models.adapters import skops_io
from spillway.agents.models.inputs import Inputs
from spillway.agents.registry.archive import check_archive, stripped
from spillway.agents.registry.generator import FORMATS, HARDWARE, generate
from spillway.agents.registry.register import register_model, store
from spillway.agents.registry.served import Registered, read_registered
from spillway.agents.registry.validation import Validation, read_model, read_validation
from spillway.agents.supervise.scrape import Snapshot
from spillway.agents.supervise.table import variant_rows
from spillway.lineage.errors import ModelError, UsageError
from spillway.producers.connection import ClientSettings
from spillway.topology.variants.manifest import served_arguments

PIXELS, LABELS = load_digits(return_X_y=True)
PIXELS = PIXELS.astype(np.float32)
HELD = Validation({"x": PIXELS[-200:]}, LABELS[-200:])


def data():
    return PIXELS[-200:].astype(float), LABELS[-200:]


def tree():
    return DecisionTreeClassifier(max_depth=8, random_state=0).fit(PIXELS[:-200], LABELS[:-200])


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    return generate(tree(), HELD, tmp_path_factory.mktemp("built"), threads=[1, 2_000], hardware=HARDWARE)


def test_every_format_thread_and_hardware_is_built_or_told_with_its_reason(generated):
    assert [each.key for each in generated.built] == ["eager", "onnx"]
    told = {(each.format, each.device, each.threads): each.why for each in generated.left_out}
    assert "cores" in told.pop(("eager", "cpu", 2_000))
    assert "cores" in told.pop(("onnx", "cpu", 2_000))
    assert "matrix product" in told.pop(("onnx-int8", "cpu", None))
    assert set(told) == {("bf16", "cpu", None), ("int8", "cpu", None), *((each, "cuda", None) for each in FORMATS)}
    assert told["eager", "cuda", None] == "scikit-learn runs on the CPU"


def test_all_formats_of_a_model_answer_alike_under_the_same_names(generated, tmp_path):
    queries = [Inputs(each, {}, "") for each in HELD.queries()]
    told = []
    for each in generated.built:
        file = store(each.file, tmp_path)
        model = Registered(str(tmp_path), file.name, HELD.signature, threads=1, **each.arguments)
        told.append(model.predict(queries))
    assert [each["label"] for each in told[0]] == [each["label"] for each in told[1]]
    assert np.mean([each["label"] == label for each, label in zip(told[0], HELD.labels, strict=True)]) > 0.7
    assert [each["scores"].shape for each in told[1][:2]] == [(10,), (10,)]
    np.testing.assert_allclose(told[0][0]["scores"], told[1][0]["scores"], atol=1e-5)


def test_a_file_is_called_by_its_hash_and_another_is_not_served(generated, tmp_path):
    file = store(generated.built[1].file, tmp_path)
    assert store(generated.built[1].file, tmp_path) == file
    assert [each.name for each in tmp_path.iterdir()] == [file.name]
    file.write_bytes(file.read_bytes() + b"x")
    with pytest.raises(ModelError, match=r"is not the file that was registered.*register the model again"):
        Registered(str(tmp_path), file.name, HELD.signature)
    store(generated.built[1].file, tmp_path)
    assert file.read_bytes() == generated.built[1].file.read_bytes()
    with pytest.raises(ModelError, match="if the repository is elsewhere on this host"):
        Registered(str(tmp_path / "elsewhere"), file.name, HELD.signature)


def test_a_type_that_was_not_registered_with_an_estimator_is_not_constructed(tmp_path):
    skops_io().dump(data, tmp_path / "odd.skops")
    file = store(tmp_path / "odd.skops", tmp_path)
    with pytest.raises(ModelError, match="types that were not registered with it"):
        Registered(str(tmp_path), file.name, HELD.signature)


@given(st.text() | st.sampled_from(["../{}", "/{}", "./{}", "{}/../{}", "{}\n", "\0{}", "{}.onnx", "a" * 5000]))
def test_the_name_of_a_file_leads_nowhere_out_of_its_repository(tmp_path_factory, name):
    outside = tmp_path_factory.mktemp("outside")
    (outside / "repository").mkdir()
    (outside / "any.skops").write_bytes(b"any")
    there = store(outside / "any.skops", outside)
    assert read_registered(outside, there.name) == b"any"
    for each in (name.replace("{}", there.name), str(there), f"../{there.name}"):
        with pytest.raises(ModelError, match="is not a file of a registered variant"):
            read_registered(outside / "repository", each)


def test_what_is_loaded_are_the_bytes_that_were_hashed(tmp_path, monkeypatch):
    files = []
    for depth in (1, 8):
        skops_io().dump(DecisionTreeClassifier(max_depth=depth).fit(PIXELS, LABELS), tmp_path / "any.skops")
        files.append(store(tmp_path / "any.skops", tmp_path))
    other, hashed = files[1].read_bytes(), hashlib.sha256

    def hash_and_replace(data):
        files[0].write_bytes(other)
        return hashed(data)

    trust = skops_io().get_untrusted_types(file=files[0])
    monkeypatch.setattr(hashlib, "sha256", hash_and_replace)
    model = Registered(str(tmp_path), files[0].name, HELD.signature, trust=trust)
    assert files[0].read_bytes() == other
    assert len({each["label"] for each in model.predict([Inputs({"x": row}, {}, "") for row in PIXELS])}) == 2


def test_what_a_record_says_of_a_variant_names_no_other_repository_or_file():
    variant = SimpleNamespace(
        file="a.skops", device="cpu", threads=1, arguments={"repository": "/", "file": "b", "trust": ["t"]}
    )
    told = served_arguments("here", {}, variant)
    assert (told["repository"], told["file"], told["trust"]) == ("here", "a.skops", ["t"])


PLAIN = {
    "a/models/model.json": b"{}",
    "a/data/weights/weight_0": b"1234",
    "a/data/weights/model_weights_config.json": b'{"config": {"w": {"path_name": "weight_0", "use_pickle": false}}}',
    "a/data/sample_inputs/model.pt": b"",
    "a/byteorder": b"little",
}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a/data/sample_inputs/model.pt", pickle.dumps(1)),
        ("a/data/weights/model_weights_config.json", b'{"config": {"w": {"path_name": "w_0", "use_pickle": true}}}'),
        ("a/data/weights/model_weights_config.json", b'{"config": {"w": {"path_name": "w_0"}}}'),
        ("a/data/weights/model_weights_config.json", b"[]"),
        ("a/data/constants/custom_obj_0", pickle.dumps(1)),
        ("a/data.pkl", pickle.dumps(1)),
    ],
)
def test_an_archive_that_may_hold_a_pickle_is_not_loaded(tmp_path, name, data):
    file = tmp_path / "a.pt2"
    for entries in (PLAIN, PLAIN | {name: data}):
        with zipfile.ZipFile(file, "w") as archive:
            for each, content in entries.items():
                archive.writestr(each, content)
        if entries is PLAIN:
            check_archive(file)
    with pytest.raises(ModelError):
        check_archive(file)


def test_what_a_program_was_traced_with_is_left_out_and_the_same_program_is_the_same_file(tmp_path):
    made = []
    for number in (1, 2):
        source = tmp_path / f"{number}.pt2"
        with zipfile.ZipFile(source, "w") as archive:
            for name, content in (PLAIN | {"a/.data/serialization_id": b"%d" % number}).items():
                archive.writestr(name, pickle.dumps(number) if "sample" in name else content)
        stripped(source, tmp_path / f"{number}.plain.pt2")
        check_archive(tmp_path / f"{number}.plain.pt2")
        made.append((tmp_path / f"{number}.plain.pt2").read_bytes())
    assert made[0] == made[1]


def test_a_validation_set_is_arrays_with_a_label_for_each_query(tmp_path):
    read = read_validation(f"{__name__}:data")
    assert (len(read), read.signature) == (200, {"x": {"dtype": "float32", "shape": [64]}})
    np.savez(tmp_path / "set.npz", pixels=PIXELS[:3], label=LABELS[:3])
    assert list(read_validation(str(tmp_path / "set.npz")).inputs) == ["pixels"]
    np.savez(tmp_path / "odd.npz", pixels=PIXELS[:3], label=LABELS[:2])
    np.savez(tmp_path / "pickled.npz", pixels=np.array([{}]), label=np.array([1]))
    (tmp_path / "torn.npz").write_bytes((tmp_path / "set.npz").read_bytes()[:-9])
    for source, why in {
        f"{__name__}:tree": r"give \(inputs, labels\)",
        str(tmp_path / "odd.npz"): "one label per query",
        str(tmp_path / "pickled.npz"): "cannot be read",
        str(tmp_path / "none.npz"): "cannot be read",
        str(tmp_path / "torn.npz"): "cannot be read: it is not a whole .npz",
    }.items():
        with pytest.raises(UsageError, match=why):
            read_validation(source)
    assert read_model(f"{__name__}:tree").get_depth() == 8
    with pytest.raises(ModelError, match="variants are generated from"):
        read_model(f"{__name__}:data")


def two():
    return {"a": PIXELS[:3], "b": PIXELS[:3], "label": LABELS[:3]}


def narrow():
    return PIXELS[:3, :63], LABELS[:3]


def test_what_cannot_be_registered_is_refused_before_anything_is_built(tmp_path):
    nowhere = ClientSettings(bootstrap="127.0.0.1:1")
    for name, validation, more, why in (
        ("a/b", "data", {}, "the model's name: 'a/b'"),
        ("tree", "two", {}, "an estimator takes one input, not a, b"),
        ("tree", "data", {"hardware": ["tpu"]}, "there is no kind of hardware 'tpu'"),
        ("tree", "narrow", {}, r"takes 64 features, and a query's 'x' has the shape \[63\]"),
        ("tree", "data", {"app": ""}, "the app '': String should have at least 1 character"),
        ("tree", "data", {"repository": tmp_path / ("a" * 200)}, "the repository .* at most 200 characters"),
    ):
        told = {"app": "x", "validation": f"{__name__}:{validation}", "repository": tmp_path} | more
        with pytest.raises(UsageError, match=why):
            register_model(nowhere, name, f"{__name__}:tree", **told)


FLAGS = {
    "variant": "cnn-v1-onnx-int8",
    "found": "closest",
    "asked": {"latency": 0.05, "accuracy": 0.99},
    "met": False,
    "why": {"of": {"cnn-v1-onnx-int8": ["active", 0.5, 0.012, 0.0003, 0.9]}, "others": 3, "load": "cnn-v1-eager"},
}


def test_a_choice_is_explained_in_lines_of_a_terminal():
    told = choices({"digit": FLAGS, "other": {"confidence": 1}})
    assert list(told) == ["digit"]
    lines = list(explained("digit", told["digit"]))
    assert lines[0] == "digit: cnn-v1-onnx-int8 answered (closest)"
    assert "  asked: latency 50 ms, accuracy 0.99" in lines
    assert "  loaded for it: cnn-v1-eager" in lines
    assert lines[-1] == "  and 3 more"
    assert max(map(len, lines)) <= 80


def test_status_has_a_row_for_each_variant_those_with_workers_first():
    page = {
        "spillway_variant_workers": [({"variant": "a"}, 0.0), ({"variant": "b"}, 1.0)],
        "spillway_variant_workers_wanted": [({"variant": "a"}, 0.0), ({"variant": "b"}, 2.0)],
        "spillway_variant_asked_total": [({"variant": "b"}, 7.0)],
        "spillway_variant_state": [({"variant": "b", "state": "active"}, 1.0)],
    }
    rows = variant_rows([("digit", Snapshot(0.0, page))])
    assert [(row.variant, row.state, row.ready, row.wanted, row.asked) for row in rows] == [
        ("b", "active", 1, 2, 7),
        ("a", "", 0, 0, 0),
    ]
    assert json.dumps(asdict(rows[0]))
