"""`spillway prove`: what it plays, and what it says."""

import pytest
from click.testing import CliRunner

from spillway.agents.cli.commands.prove import prove
from spillway.agents.proof.pipelines import oracle
from spillway.lineage.errors import SpillwayError


def ran(*arguments):
    done = CliRunner().invoke(prove, arguments)
    return done.output, done.exception


def test_it_plays_schedules_of_both_kinds_and_says_how_many():
    output, error = ran("--schedules", "3", "--processes", "1")
    assert error is None, output
    assert "3 schedules of stateful pipelines" in output
    assert "3 schedules of stateless pipelines" in output
    assert "0 schedules broke a promise" in output


def test_one_kind_can_be_left_out():
    output, error = ran("--schedules", "2", "--processes", "1", "--kind", "stateless", "--first", "5")
    assert error is None, output
    assert "stateful" not in output


@pytest.mark.parametrize("kind", ["stateful", "stateless"])
def test_a_seed_is_played_again_and_told(kind):
    output, error = ran("--seed", "3", "--kind", kind)
    assert error is None, output
    assert "every promise was kept" in output


def test_what_broke_is_told(monkeypatch):
    monkeypatch.setattr(oracle, "judged", lambda *_: (None, ["(a) q1: 2 outcomes"]))
    output, error = ran("--seed", "3", "--kind", "stateless")
    assert "(a) q1: 2 outcomes" in output
    assert isinstance(error, SpillwayError)
    assert str(error) == "seed 3 breaks 1 promises"
