"""Where traces go is read once, by the command; the gate's process alone is told."""

import pytest
from click.testing import CliRunner

from spillway.agents.cli.commands.serve import serve
from spillway.agents.supervise.service import ServiceSettings, child_plans
from spillway.lineage.errors import UsageError
from spillway.producers.connection import ClientSettings
from spillway.topology.load import parse

SPEC = """
name: p
slo: 1s
stages: [{name: one, model: "tests.unit.models.sample_models:Doubler"}]
"""
BOOTSTRAP = ["--bootstrap", "127.0.0.1:1"]


@pytest.fixture
def invoke(tmp_path, monkeypatch):
    monkeypatch.setattr("spillway.agents.cli.log.to_stderr", lambda *_: None)
    monkeypatch.setattr("spillway.agents.cli.commands.serve._ensure_topics", lambda *_: None)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    file = tmp_path / "p.yaml"
    file.write_text(SPEC)
    return lambda *options, **environment: CliRunner().invoke(serve, [str(file), *BOOTSTRAP, *options], env=environment)


@pytest.mark.parametrize("url", ["localhost:4318", "ftp://a", "http://", "http://a:b", "http://u@a", "http://a?b", "x"])
def test_what_is_no_url_is_refused(invoke, url):
    for done in (invoke("--otlp", url), invoke(OTEL_EXPORTER_OTLP_ENDPOINT=url)):
        assert done.exit_code == 2
        assert "is not a URL such as http://127.0.0.1:4318" in done.output
        assert "--otlp" in done.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--stage", "one", "--otlp", "http://a:4318"], "are the gate's"),
        (["--trace-sample", "0.5"], "say where to, with --otlp URL"),
    ],
)
def test_what_would_not_be_heeded_is_refused(invoke, options, said):
    done = invoke(*options)
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)


@pytest.mark.parametrize("given", [{"options": ["--otlp", "http://a:4318/"]}, {"environment": "http://a:4318"}, {}])
def test_the_gate_goes_by_the_option_else_by_the_environment(invoke, monkeypatch, given):
    configs = []
    monkeypatch.setattr("spillway.agents.live.gate.process.run", lambda config: configs.append(config) or 0)
    monkeypatch.setattr("spillway.agents.cli.commands.serve._own", lambda *args, **_: args[4]())
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": given["environment"]} if "environment" in given else {}
    done = invoke("--gate", *given.get("options", ()), **environment)
    assert done.exit_code == 0, done.output
    ((otlp, share),) = ((config.otlp, config.trace_sample) for config in configs)
    assert (otlp, share) == ("http://a:4318" if given else None, 0.1)


def test_a_supervisor_tells_the_gate_alone(tmp_path):
    tracing = ("--otlp", "http://a:4318", "--trace-sample", "0.2")
    settings = ServiceSettings(parse(SPEC), ClientSettings(bootstrap="localhost:1"), tmp_path, tracing=tracing)
    told = {plan.name: tuple(plan.command[plan.command.index("--otlp") :][:4]) if "--otlp" in plan.command else ()
            for plan in child_plans(settings)}  # fmt: skip
    assert told.pop("gate.0") == tracing
    assert not any(told.values())
