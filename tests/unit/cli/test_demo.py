"""`spillway demo` finds demonstrations by their path, lists them, and says what to do where there are none."""

import sys
from pathlib import Path

import pytest

from spillway.agents.cli import main
from spillway.agents.cli.commands.demo import demos

ROOT = Path(__file__).parents[3]


@pytest.fixture
def repository(tmp_path, monkeypatch):
    """A clone with one demonstration, which nothing else names."""
    for file, text in {
        "spillway/entry.py": "",
        "examples/new/demo.py": '"""NEW: shows something.\n\nAnd more.\n"""\nraise AssertionError("it was imported")\n',
        "examples/other/models.py": "",
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    below = tmp_path / "examples" / "other"
    monkeypatch.chdir(below)
    return tmp_path


def test_a_demonstration_is_listed_with_its_first_line(repository, capsys):
    assert main.run(["demo"]) == 0
    assert capsys.readouterr().out.split(maxsplit=1) == ["new", "NEW: shows something.\n"]


def test_a_demonstration_runs_from_its_clone_in_place_of_the_command(repository, monkeypatch):
    ran = []
    monkeypatch.setattr("os.execv", lambda path, arguments: ran.append((path, arguments, Path.cwd())))
    assert main.run(["demo", "new"]) == 0
    assert ran == [(sys.executable, [sys.executable, "-m", "examples.new.demo"], repository)]


def test_a_folder_may_have_several_demonstrations(repository, monkeypatch):
    (repository / "examples" / "new" / "demo_other_way.py").write_text('"""Another way."""\n')
    (repository / "examples" / "new" / "demonstration.py").write_text("")
    assert list(demos(repository)) == ["new", "new-other-way"]
    ran = []
    monkeypatch.setattr("os.execv", lambda _path, arguments: ran.append(arguments[-1]))
    assert main.run(["demo", "new-other-way"]) == 0
    assert ran == ["examples.new.demo_other_way"]


def test_an_unknown_demonstration_is_refused_with_the_known_ones(repository, capsys):
    assert main.run(["demo", "other"]) == 2
    assert "no demonstration 'other'" in (error := capsys.readouterr().err)
    assert "new" in error


def test_outside_of_a_clone_the_user_is_told_to_clone_the_repository(tmp_path, monkeypatch, capsys):
    (tmp_path / "examples" / "mine").mkdir(parents=True)
    (tmp_path / "examples" / "mine" / "demo.py").write_text("")  # the user's own, no demonstration of ours
    monkeypatch.chdir(tmp_path)
    assert main.run(["demo"]) == 2
    assert "clone the repository" in capsys.readouterr().err


def test_the_repository_has_pard_and_hams_and_each_says_what_it_shows():
    found = demos(ROOT)
    assert {"pard", "hams"} <= found.keys()
    assert all(len(summary) > 20 for summary in found.values())
