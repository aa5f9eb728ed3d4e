"""The pipeline files of the stateful example: that they pass `spillway check`, and declare what their models keep."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

from agents.cli.main import run
from topology.load import load

FOLDER = Path(__file__).parents[3] / "examples" / "stateful"
FILES = sorted(FOLDER.glob("*.yaml"))
README = (FOLDER / "README.md").read_text()
ROWS = re.findall(r"^\| `(.*?\.yaml)` \| (.*?) \| `(\w+)(?: --key (\w+))?` \|$", README, flags=re.MULTILINE)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_file_passes_check(file, capsys):
    assert run(["check", str(file), "--json"]) == 0, capsys.readouterr().out


def test_there_is_a_file_for_every_service_and_the_page_names_them():
    services = {"sa", "sp", "ap", "fd", "ol-large", "ol-small", "recommend", "bandit"}
    assert {file.stem for file in FILES} == {load(file).spec.name for file in FILES} == services
    assert sorted(name for name, *_ in ROWS) == [file.name for file in FILES]


@pytest.mark.parametrize(("name", "stages", "payload", "key"), ROWS)
def test_the_page_tells_the_stages_with_a_state_and_what_to_send(name, stages, payload, key, monkeypatch):
    payloads = pytest.importorskip("examples.stateful.payload")
    blots = np.ones((10, 8, 8)) * 255.0, np.arange(10)  # scikit-learn's digits take seconds to import
    monkeypatch.setattr("examples.stateful.scenes.digits", lambda: blots)
    payloads._drive.cache_clear()
    spec = load(FOLDER / name).spec
    stateful = [stage for stage in spec.stages if stage.stateful]
    assert all(stage.name in stages for stage in stateful)
    assert {stage.state for stage in stateful} == {"keyed" if key else "shared"}
    if key:
        assert f"keyed by {key}" in stages
        assert isinstance(getattr(payloads, payload)(3, np.random.default_rng(0))[key], str)
    payloads._drive.cache_clear()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_models_keep_the_state_that_is_declared(file):
    pytest.importorskip("torch")
    from agents.models.declared import load_declared
    from agents.models.loading import load_function

    for stage in load(file).spec.stages:
        factory = load_function(stage.name, "model", stage.model)
        untrained = {"untrained": True} if "untrained" in inspect.signature(factory).parameters else {}
        small = {"width": 0.01} if "width" in inspect.signature(factory).parameters else {}
        arguments = {**stage.arguments, **untrained, **small}
        if stage.stateful:
            load_declared(stage.name, stage.model, arguments, "cpu", stage.state)
        else:
            assert callable(factory(**arguments).predict)
