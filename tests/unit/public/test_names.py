"""The public package: what it promises is there, typed as it is imported, and costs nothing before it is used."""

import ast
import doctest
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import spillway
from producers.client.queries import QueryMaker
from spillway.foreign import PACKAGES, refuse_foreign

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
    assert modules_after("import spillway") <= {"spillway", "__future__"}


def test_a_client_and_a_pipeline_need_neither_torch_nor_faust():
    heavy = {"torch", "faust", "aiokafka", "matplotlib", "agents.core", "agents.live"}
    assert not heavy & modules_after("from spillway import AsyncClient, Client, Outcome, Pipeline")


def test_what_needs_torch_names_the_extra_without_it(monkeypatch):
    for module in ("agents.models.torch_learner", "agents.models.torch_streams"):
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


# A package of somebody else's in the place of one of ours: refused, with its place and the fix, before it runs.

ROOT = Path(spillway.__file__).parents[1]
THEIRS = "raise SystemExit('somebody else has run')\n"
COMMAND = "from spillway.entry import main; main()"
PACKAGE = "from spillway import Client"


def run(code, place, *options):
    environment = {**os.environ, "PYTHONPATH": str(place)}
    return subprocess.run(
        [sys.executable, "-P", *options, "-c", code], capture_output=True, text=True, env=environment, check=False
    )


def installed(folder):
    """A folder with this package, and the first file of each of the others: all that is looked at."""
    shutil.copytree(ROOT / "spillway", folder / "spillway", ignore=shutil.ignore_patterns("__pycache__"))
    for name in PACKAGES:
        (folder / name).mkdir()
        shutil.copy(ROOT / name / "__init__.py", folder / name)
    return folder


def test_our_own_are_fine(tmp_path):
    refuse_foreign()
    done = run("from spillway.foreign import refuse_foreign; refuse_foreign()", installed(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", PACKAGES)
def test_another_package_of_the_name_that_comes_first_is_named_and_not_run(tmp_path, name):
    (tmp_path / name).mkdir()
    theirs = tmp_path / name / "__init__.py"
    theirs.write_text(THEIRS)
    done = run(COMMAND, tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {name!r} is found in {theirs}, which is not Spillway's")
    assert "environment of its own" in done.stderr
    assert done.stderr.count("\n") == 1


def test_so_is_a_module(tmp_path):
    (tmp_path / "agents.py").write_text(THEIRS)
    assert f"'agents' is found in {tmp_path / 'agents.py'}" in run(COMMAND, tmp_path).stderr


def test_one_that_was_installed_over_ours_is_named_with_who_did(tmp_path):
    theirs = installed(tmp_path) / "agents" / "__init__.py"
    theirs.write_text(THEIRS)
    record = tmp_path / "openai_agents-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: openai-agents\nVersion: 1.0\n")
    (record / "RECORD").write_text("agents/__init__.py,,\n")
    done = run(COMMAND, tmp_path)
    assert done.returncode == 2
    assert f"error: {theirs} is not Spillway's: 'openai-agents' has installed a package of the same name" in done.stderr


def test_the_package_refuses_as_the_command_does(tmp_path):
    (installed(tmp_path) / "agents" / "__init__.py").write_text(THEIRS)
    done = run(
        f"import spillway\ntry:\n    {PACKAGE}\nexcept ImportError as error:\n    print(error.name, error)", tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("agents ")
    assert "environment of its own" in done.stdout


def test_one_that_runs_already_is_found(tmp_path):
    (tmp_path / "agents").mkdir()
    (tmp_path / "agents" / "__init__.py").write_text("")
    done = run(f"import agents\n{PACKAGE}", tmp_path)
    assert f"'agents' is found in {tmp_path / 'agents' / '__init__.py'}" in done.stderr


def test_a_folder_of_data_in_the_place_of_none_is_no_package_of_ours(tmp_path):
    shutil.rmtree(installed(tmp_path) / "checkpoint")
    done = run(COMMAND, tmp_path, "-S")  # without site there are no installed packages, ours among them
    assert "Spillway's package 'checkpoint' is missing" in done.stderr
    (tmp_path / "checkpoint").mkdir()
    done = run(COMMAND, tmp_path, "-S")
    assert f"'checkpoint' is found in {tmp_path / 'checkpoint'}, which is not" in done.stderr
