"""What is named: a pipeline by its file, or its own name where it was served from here; a command by its words."""

import os
import re
import time
from pathlib import Path

import click
import pytest

from spillway.agents.cli.main import root, run
from spillway.agents.supervise import registry
from spillway.agents.supervise.registry import ServeEntry

PIPELINE = "name: digits\nslo: 1s\nstages:\n  - {name: ink, model: 'm:M'}\n"


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A pipeline in a folder of its own, as it was served from the working directory and then stopped."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPILLWAY_RUN_DIR", raising=False)
    file = Path("there/my.yaml")
    file.parent.mkdir()
    file.write_text(PIPELINE)
    run_dir = Path(".spillway/run")
    entry = ServeEntry("digits", str(file), "b:1", None, os.getpid(), time.time())
    entry.write(run_dir).unlink()
    return file


def test_a_name_stands_for_the_file_it_was_served_from(served, capsys):
    assert run(["check", "digits"]) == 0
    assert f"{served.absolute()} is fine: pipeline digits" in capsys.readouterr().out


def test_a_name_is_looked_up_in_the_run_directory_that_is_told_wherever_it_is_told(served, capsys, tmp_path):
    ServeEntry("other", str(served), "b:1", None, os.getpid(), 1.0).write(tmp_path / "mine")
    assert run(["predict", "other", "none.json", "--run-dir", "mine"]) == 2
    assert "none.json" in capsys.readouterr().err  # the pipeline is known


def test_a_name_that_nobody_knows_is_told_with_those_that_are(served, capsys):
    assert run(["check", "digit"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "there is no file 'digit', and no pipeline with that name was served from here" in said
    assert "(known under .spillway/run: digits)" in said
    served.unlink()
    assert run(["check", "digits"]) == 2


def test_a_learner_is_named_by_either(served, capsys):
    learner = "learners: [{name: taste, model: 'm:M', state: {kind: keyed}}]\n"
    served.write_text(PIPELINE + learner)
    for named in ("digits#taste", "there/my.yaml#taste"):
        assert run(["check", named]) == 0
        assert "pipeline digits-taste" in capsys.readouterr().out
    assert run(["check", "digits#tste"]) == 2
    assert "has no learner 'tste'; did you mean 'taste'?" in capsys.readouterr().err
    assert run(["status", "digits#taste"]) == 1
    assert "no process of digits-taste is served" in capsys.readouterr().err


@pytest.mark.parametrize("named", ["digits", "there/my.yaml"])
def test_status_takes_a_file_or_a_name(served, capsys, named):
    assert run(["status", named]) == 1
    assert "no process of digits is served" in capsys.readouterr().err


def test_status_of_a_file_that_is_not_there_says_so(served, capsys):
    assert run(["status", "my.yaml"]) == 2
    assert "there is no file 'my.yaml'" in capsys.readouterr().err


def test_what_was_never_served_is_not_known(tmp_path):
    assert registry.file_of(tmp_path, "p") is None
    assert registry.known(tmp_path / "none") == []


def test_check_tells_all_that_is_wrong_at_once(served, capsys):
    served.write_text(PIPELINE.replace("m:M'", "absent_module:M', policy: pardd, profile: none.yaml"))
    assert run(["check", str(served), "--load"]) == 2
    said = capsys.readouterr().err
    assert "has 3 problems" in said
    for words in ("cannot read the profile file", "there is no policy 'pardd'", "there is no module 'absent_module'"):
        assert words in said


HERE = Path(__file__).parents[3]
TEXTS = ("*.md", "Makefile", "docker-compose.yml", "docs/**/*.md", "examples/**/*.*", "benchmarks/**/*.*")
TEXTS += tuple(f"{room}/**/*.py" for room in ("agents", "lineage", "topology", "checkpoint", "producers"))
COMMAND = re.compile(r"(?:[`'\"$/]|^) *spillway ([a-z]+)(?: ([a-z]+))?", re.MULTILINE)


def test_every_command_in_our_texts_is_there_by_its_new_name():
    context, wrong, seen = click.Context(root), [], 0
    for file in sorted({each for pattern in TEXTS for each in HERE.glob(pattern)} - {HERE / "CHANGELOG.md"}):
        if file.suffix not in {".md", ".py", ".yaml", ".yml", ".sh", ""} or not file.is_file():
            continue
        for found in COMMAND.finditer(file.read_text("utf-8")):
            first, second = found.groups()
            command = root.get_command(context, first)
            seen += 1
            if command is None or (
                isinstance(command, click.Group) and second and command.get_command(context, second) is None
            ):
                wrong.append(f"{file.relative_to(HERE)}: {found[0]}")
    assert not wrong
    assert seen > 100
