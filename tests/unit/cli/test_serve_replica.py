"""A process of a stage is refused that the pipeline does not have."""

import pytest
from click.testing import CliRunner

from agents.cli.commands.serve import serve
from lineage.errors import UsageError

SPEC = """
name: p
slo: 1s
stages:
  - {name: one, model: "tests.unit.models.sample_models:Doubler"}
  - {name: three, model: "tests.unit.models.sample_models:Doubler", replicas: 3, after: one}
"""


@pytest.mark.parametrize(
    ("stage", "replica", "said"),
    [
        ("one", 7, "stage 'one' has 1 replica, --replica 0 alone"),
        ("three", 3, "stage 'three' has 3 replicas, --replica 0 to 2"),
    ],
)
def test_a_replica_beyond_the_stages_own_is_refused(tmp_path, monkeypatch, stage, replica, said):
    monkeypatch.setattr("agents.cli.commands.serve._ensure_topics", lambda *_: None)
    monkeypatch.setattr("agents.cli.log.to_stderr", lambda: None)
    monkeypatch.setattr("agents.live.stage.process.run", lambda _config: pytest.fail("it was started"))
    file = tmp_path / "p.yaml"
    file.write_text(SPEC)
    options = ["--bootstrap", "127.0.0.1:1", "--stage", stage, "--replica", str(replica)]
    done = CliRunner().invoke(serve, [str(file), *options])
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)
