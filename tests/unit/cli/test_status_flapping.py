"""`spillway status` of a pipeline one of whose places dies again and again."""

import json
import os
import time

import pytest
from click.testing import CliRunner

from spillway.agents.cli.commands import status as command
from spillway.agents.live.registry import Registration
from spillway.agents.metrics import StageMetrics
from spillway.agents.supervise import view
from spillway.agents.supervise.child import Child, ChildPlan
from spillway.agents.supervise.lifecycle import RestartPolicy
from spillway.agents.supervise.registry import ServeEntry
from spillway.agents.supervise.service import PlaceMetrics


def child(tmp_path, stage, deaths):
    """A place whose process has died so often without serving in between, and runs now."""
    made = Child(ChildPlan(stage, 0, "stage", ["true"]), tmp_path / f"{stage}.log", RestartPolicy(), 0.0)
    made.life.established = True
    made.life.step(0.0, exit_code=None, ready=False)
    for _ in range(deaths):
        made.life.step(made.life.due, exit_code=None, ready=True)
        made.life.step(made.life.due, exit_code=1, ready=False)
        made.life.step(made.life.due, exit_code=None, ready=False)
    return made


@pytest.fixture
def status(tmp_path, monkeypatch):
    """Serve a stage's metrics, and the supervisor's of places with so many deaths; gives what the command says."""
    monkeypatch.setattr(command, "_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(view, "answers", lambda _settings, _within: True)
    closing = []

    def run(*arguments, **deaths):
        registration = Registration(tmp_path, StageMetrics("p", "detect", 0))
        registration.mark_ready()
        places = PlaceMetrics("p", [child(tmp_path, stage, count) for stage, count in deaths.items()])
        closing.extend([registration, places])
        entry = ServeEntry(
            "p", "p.yaml", "kafka:9092", None, os.getpid(), time.time(), ready=True, port=places.address.port
        )
        entry.write(tmp_path)
        return CliRunner().invoke(command.status, ["--run-dir", str(tmp_path), *arguments], standalone_mode=False)

    yield run
    for each in closing:
        each.close()


def test_all_is_well_while_nothing_flaps(status):
    told = status(detect=2, rank=0)
    assert told.return_value == 0
    assert "keeps dying" not in told.output


def test_a_place_that_flaps_is_named_and_makes_the_exit_code_1(status):
    told = status(detect=3, rank=0)
    assert told.return_value == 1
    assert "running, flaps" in told.output
    assert "detect.0 keeps dying" in told.output


def test_all_that_is_told_fits_80_columns_and_no_word_is_cut(status, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = status(detect=3, rank=4).output.splitlines()
    assert max(map(len, lines)) <= 80
    words = " ".join(lines).split()
    assert {"detect.0", "keeps", "dying", "restarted"} <= set(words)


def test_one_that_never_registers_is_named_all_the_same(status):
    told = status(detect=0, rank=5)
    assert told.return_value == 1
    assert "rank.0 keeps dying" in told.output


def test_scripts_see_it(status):
    told = status("--json", detect=3)
    assert told.return_value == 1
    assert json.loads(told.output)["pipelines"]["p"]["flapping"] == ["detect.0"]
