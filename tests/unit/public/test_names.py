"""The public package: what it promises is there, typed as it is imported, and costs nothing before it is used."""

import ast
import doctest
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import spillway
from spillway.producers.client.queries import QueryMaker

SOURCE = Path(spillway.__file__).read_text()


def test_its_examples_are_so():
    assert doctest.testmod(spillway, raise_on_error=True).attempted


@pytest.mark.parametrize("name", [name for name in spillway.__all__ if "torch" not in spillway._WHERE[name]])
def test_every_name_is_there(name):  # those that load torch: tests/torch/unit/test_public_names.py
    assert getattr(spillway, name).__name__ == name
    assert name in dir(spillway)


def test_what_a_type_checker_reads_is_what_is_imported():
    (typed,) = (node for node in ast.parse(SOURCE).body if isinstance(node, ast.If) and isinstance(node.test, ast.Name))
    imports = [node for node in typed.body if isinstance(node, ast.ImportFrom)]
    assert {alias.name: node.module for node in imports for alias in node.names} == spillway._WHERE
    assert sorted(spillway._WHERE) == spillway.__all__


def test_another_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'spillway' has no attribute 'Clients'"):
        _ = spillway.Clients


def modules_after(code):
    told = subprocess.run(
        [sys.executable, "-c", f"import sys; before = set(sys.modules)\n{code}\nprint(*set(sys.modules) - before)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(told.stdout.split())


def test_importing_it_imports_nothing_else():
    assert modules_after("import spillway") <= {"spillway", "__future__", "os"}


def test_a_client_and_a_pipeline_need_neither_torch_nor_faust():
    heavy = {"torch", "faust", "aiokafka", "matplotlib", "spillway.agents.core", "spillway.agents.live"}
    assert not heavy & modules_after("from spillway import AsyncClient, Client, Outcome, Pipeline")


def test_what_needs_torch_names_the_extra_without_it(monkeypatch):
    for module in ("spillway.agents.models.torch_learner", "spillway.agents.models.torch_streams"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.delitem(spillway.__dict__, "Learner", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError, match=r"spillway.Learner needs torch: .*'spillway\[torch\]'"):
        _ = spillway.Learner


def test_a_client_takes_its_slo_and_limits_from_a_pipeline_or_its_spec():
    text = "{name: hello, slo: 3s, limits: {max_rank: 2}, stages: [{name: s, model: 'm:M'}]}"
    pipeline = spillway.Pipeline.parse(text)
    for given in (pipeline, pipeline.spec):
        queries = QueryMaker(given, slo=None, grace=0.0)
        query = queries.prepare({"x": 1}, None, None, "id", None, None, None)
        times = {name: int(value) for name, value in query.headers if name in ("spillway-sent", "spillway-deadline")}
        assert times["spillway-deadline"] - times["spillway-sent"] == 3_000_000
        assert (queries.pipeline, queries.limits.max_rank) == ("hello", 2)


def test_a_pipeline_is_loaded_from_a_file(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text("{name: hello, slo: 3s, stages: [{name: s, model: 'm:M'}]}")
    assert spillway.Pipeline.load(file).spec.name == "hello"
    with pytest.raises(spillway.SpecError, match="cannot read"):
        spillway.Pipeline.load(tmp_path / "q.yaml")


# One name: what others install or have beside them as `agents` is theirs, and ours is found under `spillway` alone.

ROOT = Path(spillway.__file__).parents[1]
ROOMS = ("agents", "checkpoint", "lineage", "producers", "topology")


def run(code, place, *options):
    environment = {**os.environ, "PYTHONPATH": str(place)}
    return subprocess.run(
        [sys.executable, "-P", *options, "-c", code], capture_output=True, text=True, env=environment, check=False
    )


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_cannot_be_imported_by_another_name(name):
    done = run(f"import {name}", ROOT)
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: {name!r} is part of Spillway: import it as 'spillway.{name}'"
    )


def test_packages_of_the_same_names_are_left_alone(tmp_path):
    for name in ROOMS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("THEIRS = True\n")
    imports = f"import {', '.join(ROOMS)}\nassert all(each.THEIRS for each in ({', '.join(ROOMS)}))\n"
    call = "sys.argv[1:] = ['check', 'p.yaml']; from spillway.entry import main; main()"
    (tmp_path / "p.yaml").write_text("{name: p, slo: 1s, stages: [{name: s, model: 'm:M'}]}")
    done = run(f"import os, sys; os.chdir({str(tmp_path)!r})\n{imports}from spillway import Client\n{call}", tmp_path)
    assert done.returncode == 0, done.stderr


def test_nothing_imports_a_room_by_another_name():
    import_of_a_room = re.compile(rf"^\s*(from|import) ({'|'.join(ROOMS)})\b", re.MULTILINE)
    folders = (*ROOMS, "spillway", "benchmarks", "examples", "tests", "docs")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.*") if path.suffix in {".py", ".md"}]
    assert [str(path) for path in files if import_of_a_room.search(path.read_text())] == []


def test_a_checkout_without_links_says_so(tmp_path):
    (tmp_path / "spillway").mkdir()
    shutil.copy(ROOT / "spillway" / "__init__.py", tmp_path / "spillway")
    for name in ROOMS:
        (tmp_path / "spillway" / name).write_text(f"../{name}")  # as git writes a link where it may not make one
    for code in ("import spillway.agents.cli.main", "from spillway import Client"):
        error = run(code, tmp_path).stderr.splitlines()[-1]
        assert error.startswith(f"ImportError: {tmp_path / 'spillway'} has files where links to folders should be")
        assert "git config core.symlinks true" in error
