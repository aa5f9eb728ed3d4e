"""Journals are refused where they could not be replayed: of stages that go by version logs."""

import pytest
from click.testing import CliRunner

from agents.cli.commands.serve import serve
from lineage.errors import UsageError

SPEC = """
name: p
slo: 1s
stages:
  - {name: before, model: "tests.unit.models.sample_models:Doubler"}
  - {name: keeps, model: "tests.unit.models.stateful_models:Total", state: shared, after: before}
  - {name: behind, model: "tests.unit.models.sample_models:Doubler", after: keeps}
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
    monkeypatch.setattr("agents.cli.commands.serve._ensure_topics", lambda *_: None)
    monkeypatch.setattr("agents.cli.log.to_stderr", lambda: None)
    file = tmp_path / "p.yaml"
    file.write_text(SPEC)
    arguments = [str(file), "--journal", str(tmp_path / "journals"), "--bootstrap", "127.0.0.1:1", *options]
    done = CliRunner().invoke(serve, arguments)
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)
