"""A process of a stage is refused that the pipeline does not have."""

import pytest
from click.testing import CliRunner

from spillway.agents.cli.commands.serve import serve
from spillway.lineage.errors import SpecError, UsageError

SPEC = """
name: p
slo: 1s
stages:
  - {name: one, model: "tests.unit.models.sample_models:Doubler"}
  - {name: three, model: "tests.unit.models.sample_models:Doubler", workers: {fronts: 3}, after: one}
"""


@pytest.mark.parametrize(
    ("stage", "replica", "said"),
    [
        ("one", 7, "stage 'one' has 1 front, --replica 0 alone"),
        ("three", 3, "stage 'three' has 3 fronts, --replica 0 to 2"),
    ],
)
def test_a_replica_beyond_the_stages_own_is_refused(tmp_path, monkeypatch, stage, replica, said):
    monkeypatch.setattr("spillway.agents.cli.commands.serve._ensure_topics", lambda *_: None)
    monkeypatch.setattr("spillway.agents.cli.log.to_stderr", lambda: None)
    monkeypatch.setattr("spillway.agents.live.stage.process.run", lambda _config: pytest.fail("it was started"))
    file = tmp_path / "p.yaml"
    file.write_text(SPEC)
    options = ["--bootstrap", "127.0.0.1:1", "--stage", stage, "--replica", str(replica)]
    done = CliRunner().invoke(serve, [str(file), *options])
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)


def test_a_stage_that_is_not_there_is_told_before_a_broker_is_asked_for(tmp_path, monkeypatch):
    monkeypatch.delenv("SPILLWAY_BOOTSTRAP", raising=False)
    file = tmp_path / "p.yaml"
    file.write_text(SPEC)
    done = CliRunner().invoke(serve, [str(file), "--stage", "rad"])
    assert isinstance(done.exception, UsageError)
    assert "there is no stage 'rad'; its stages are one, three" in str(done.exception)


# Journals are refused where they could not be replayed: of stages that go by version logs.

JOURNALED = """
name: p
slo: 1s
stages:
  - {name: before, model: "tests.unit.models.sample_models:Doubler"}
  - {name: keeps, model: "tests.unit.models.stateful_models:Total", state: shared, after: before}
  - {name: behind, model: "tests.unit.models.sample_models:Doubler", after: keeps}
"""

REMEMBERED = """
name: p
slo: 1s
stages:
  - name: kind
    ensemble:
      members:
        plain: {model: "tests.unit.models.sample_models:Doubler"}
        known: {model: "tests.unit.models.sample_models:Doubler", cache: {bytes: 1MB}}
"""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "stage 'keeps' keeps a state"),
        (("--stage", "keeps"), "stage 'keeps' keeps a state"),
        (("--stage", "behind"), "stage 'behind' comes after 'keeps', which keeps a state"),
    ],
)
def test_a_journal_that_cannot_be_replayed_is_refused(tmp_path, monkeypatch, options, said):
    monkeypatch.setattr("spillway.agents.cli.commands.serve._ensure_topics", lambda *_: None)
    monkeypatch.setattr("spillway.agents.cli.log.to_stderr", lambda: None)
    file = tmp_path / "p.yaml"
    file.write_text(JOURNALED)
    arguments = [str(file), "--journal", str(tmp_path / "journals"), "--bootstrap", "127.0.0.1:1", *options]
    done = CliRunner().invoke(serve, arguments)
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)


def test_a_journal_of_a_member_with_a_cache_is_refused_by_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr("spillway.agents.cli.commands.serve._ensure_topics", lambda *_: None)
    monkeypatch.setattr("spillway.agents.cli.log.to_stderr", lambda: None)
    file = tmp_path / "p.yaml"
    file.write_text(REMEMBERED)
    done = CliRunner().invoke(serve, [str(file), "--journal", str(tmp_path / "j"), "--bootstrap", "127.0.0.1:1"])
    assert isinstance(done.exception, UsageError)
    assert "--journal: stage 'kind', member 'known' has 'cache'" in str(done.exception)


def test_only_a_learner_of_the_pipeline_can_be_served_elsewhere(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(SPEC + 'learners: [{name: taste, model: "tests.unit.models.sample_models:Doubler", state: keyed}]')
    done = CliRunner().invoke(serve, [str(file), "--feedback", "tast", "--bootstrap", "127.0.0.1:1"])
    assert isinstance(done.exception, SpecError)
    assert "p.yaml has no learner 'tast'; did you mean 'taste'?" in str(done.exception)
