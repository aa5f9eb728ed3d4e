"""A package of somebody else's in the place of one of ours: refused, with its place and the fix, before it runs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import spillway
from spillway.foreign import PACKAGES, refuse_foreign

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
