"""docker-compose.yml describes what the hello example and the command line really have."""

import json
import re
from pathlib import Path

import pytest
import yaml

from spillway.agents.cli.main import root
from spillway.lineage import metric_names
from spillway.topology.load import load

ROOT = Path(__file__).parents[2]


OTHERS = {"kafka", "prometheus", "grafana"}


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def test_there_is_kafka_with_a_health_check_in_kraft_mode(compose):
    kafka = compose["services"]["kafka"]
    assert kafka["image"].startswith("apache/kafka:")
    assert "broker" in kafka["environment"]["KAFKA_PROCESS_ROLES"]
    assert "controller" in kafka["environment"]["KAFKA_PROCESS_ROLES"]
    assert kafka["healthcheck"]["test"][0] == "CMD"
    assert kafka["environment"]["KAFKA_AUTO_CREATE_TOPICS_ENABLE"] == "false"


def test_every_stage_of_hello_and_the_gate_are_a_service_that_waits_for_kafka(compose):
    hello = load(ROOT / "examples" / "hello" / "pipeline.yaml")
    services = {name: service for name, service in compose["services"].items() if name not in OTHERS}
    assert set(services) == {stage.name for stage in hello.spec.stages} | {"gate"}
    for name, service in services.items():
        assert service["depends_on"]["kafka"]["condition"] == "service_healthy"
        which = ["--gate"] if name == "gate" else ["--stage", name]
        assert service["command"][:2] == ["serve", "examples/hello/pipeline.yaml"]
        assert service["command"][2 : 2 + len(which)] == which


def test_their_commands_and_environment_are_ones_that_the_command_line_takes(compose):
    serve = root.get_command(None, "serve")
    options = {name for parameter in serve.params for name in parameter.opts}
    variables = {parameter.envvar for parameter in serve.params}
    for service in (service for name, service in compose["services"].items() if name not in OTHERS):
        assert {word for word in service.get("command", []) if word.startswith("--")} <= options
        assert {name for name in service["environment"] if name.startswith("SPILLWAY_")} <= variables


def test_clients_in_containers_reach_the_listener_that_kafka_advertises_to_them(compose):
    advertised = compose["services"]["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"INSIDE://{compose['services']['greet']['environment']['SPILLWAY_BOOTSTRAP']}" in advertised


def test_named_volumes_are_declared(compose):
    used = {volume.split(":")[0] for service in compose["services"].values() for volume in service.get("volumes", [])}
    assert {name for name in used if not name.startswith("./")} == set(compose["volumes"])
    assert all((ROOT / name).is_file() for name in used if name.startswith("./"))


def test_prometheus_scrapes_every_process_where_it_listens(compose):
    (job,) = yaml.safe_load((ROOT / "monitoring/prometheus.yml").read_text())["scrape_configs"]
    listening = set()
    for name, service in compose["services"].items():
        words = service.get("command", [])
        if "--metrics-port" in words:
            listening.add(f"{name}:{words[words.index('--metrics-port') + 1]}")
    assert set(job["static_configs"][0]["targets"]) == listening
    assert listening


def test_the_dashboard_asks_for_metrics_that_there_are():
    known = {value for name, value in vars(metric_names).items() if str(value).startswith("spillway_")}
    board = json.loads((ROOT / "monitoring/grafana/spillway.json").read_text())
    asked = {target["expr"] for panel in board["panels"] for target in panel["targets"]}
    used = {name.removesuffix("_bucket") for expression in asked for name in re.findall(r"spillway_\w+", expression)}
    assert len(used) > 15
    assert used <= known
