"""Where traces go is read once, by the command; the gate's process alone is told."""

import pytest
from click.testing import CliRunner

from spillway.agents.cli.commands.serve import serve
from spillway.agents.supervise.service import ServiceSettings, child_plans
from spillway.producers.connection import ClientSettings
from spillway.topology.load import parse

SPEC = "name: p\nslo: 1s\nstages: [{name: one, model: 'tests.unit.models.sample_models:Doubler'}]"
VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.setattr("spillway.agents.log.to_stderr", lambda *_: None)
    monkeypatch.setattr("spillway.agents.cli.commands.serve._ensure_topics", lambda *_: None)
    monkeypatch.setattr("spillway.agents.cli.commands.serve._own", lambda *args, **_: args[4]())
    monkeypatch.delenv(VARIABLE, raising=False)
    file = tmp_path / "p.yaml"
    file.write_text(SPEC)
    command = [str(file), "--bootstrap", "127.0.0.1:1"]
    return lambda *options, **environment: CliRunner().invoke(serve, [*command, *options], env=environment)


@pytest.mark.parametrize("url", ["localhost:4318", "ftp://a", "http://", "http://a:b", "http://u@a", "http://a?b", "x"])
def test_what_is_no_url_is_refused(invoke, url):
    for done in (invoke("--otlp", url), invoke(**{VARIABLE: url})):
        assert done.exit_code == 2
        assert "is not a URL such as http://127.0.0.1:4318" in done.output


def test_what_would_not_be_heeded_is_refused(invoke):
    assert "are the gate's" in str(invoke("--stage", "one", "--otlp", "http://a:4318").exception)
    assert "say where to, with --otlp URL" in str(invoke("--trace-sample", "0.5").exception)


def test_the_gate_goes_by_the_option_else_by_the_environment(invoke, monkeypatch):
    configs = []
    monkeypatch.setattr("spillway.agents.live.gate.process.run", lambda config: configs.append(config) or 0)
    for done in (invoke("--gate"), invoke("--gate", "--otlp", "http://a/"), invoke("--gate", **{VARIABLE: "http://b"})):
        assert done.exit_code == 0, done.output
    assert [(config.otlp, config.trace_sample) for config in configs] == [
        (None, 0.1), ("http://a", 0.1), ("http://b", 0.1),
    ]  # fmt: skip


def test_a_supervisor_tells_the_gate_alone(tmp_path):
    tracing = ("--otlp", "http://a:4318", "--trace-sample", "0.2")
    plans = child_plans(
        ServiceSettings(parse(SPEC), ClientSettings(bootstrap="localhost:1"), tmp_path, tracing=tracing)
    )
    assert [plan.name for plan in plans if set(tracing) <= set(plan.command)] == ["gate.0"]
    assert [plan.name for plan in plans if "--otlp" in plan.command] == ["gate.0"]
