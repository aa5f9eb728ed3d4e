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
    monkeypatch.setattr("spillway.agents.log.to_stderr", lambda *_: None)
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
    assert "has no stage 'rad'; known: one, three" in str(done.exception)


def test_only_a_learner_of_the_pipeline_can_be_served_elsewhere(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(SPEC + 'learners: [{name: taste, model: "tests.unit.models.sample_models:Doubler", state: keyed}]')
    done = CliRunner().invoke(serve, [str(file), "--feedback", "tast", "--bootstrap", "127.0.0.1:1"])
    assert isinstance(done.exception, SpecError)
    assert "p.yaml has no learner 'tast'; did you mean 'taste'?" in str(done.exception)
