"""Which model a worker has, told by a hash."""

import sys

from spillway.agents.workers.identity import model_hash


def test_it_is_of_the_reference_the_arguments_and_the_modules_source(tmp_path, monkeypatch):
    folder = tmp_path / "pack"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise RuntimeError('imported')\n")
    (folder / "models.py").write_text("class A: ...\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    first = model_hash("pack.models:A", {"a": 1, "b": 2})
    assert first is not None
    assert model_hash("pack.models:A", {"b": 2, "a": 1}) == first
    others = [model_hash("pack.models:B", {"a": 1, "b": 2}), model_hash("pack.models:A", {"a": 1})]
    (folder / "models.py").write_text("class A: pass\n")
    others.append(model_hash("pack.models:A", {"a": 1, "b": 2}))
    assert len({first, *others}) == 4


def test_a_model_that_is_a_file_is_hashed_itself_and_one_that_is_nowhere_has_no_hash(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.onnx").write_bytes(b"1")
    first = model_hash("onnx:a.onnx", {})
    (tmp_path / "a.onnx").write_bytes(b"2")
    assert None not in {first, model_hash("onnx:a.onnx", {})}
    assert model_hash("onnx:a.onnx", {}) != first
    assert model_hash("onnx:b.onnx", {}) is None
    assert model_hash("nowhere_at_all.x:A", {}) is None
    assert model_hash("sys:A", {}) is None
