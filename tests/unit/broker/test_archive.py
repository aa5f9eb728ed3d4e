"""The class archive is made once, is another for other jars, and is never needed."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.broker import jars
from lineage.errors import BrokerError


@pytest.fixture
def prepare(tmp_path, monkeypatch):
    """Calls `archive_options` with a dump that writes a file in place of Java's."""
    java, jar = tmp_path / "java", tmp_path / "kafka.jar"
    java.touch()
    jar.write_bytes(b"a jar")
    notices, trained = [], []

    def dump(command, **_kwargs):
        (draft,) = (part.partition("=")[2] for part in command if str(part).startswith("-XX:SharedArchiveFile"))
        Path(draft).write_text("archive")

    monkeypatch.setattr(jars.subprocess, "run", dump)

    def call(train=trained.append):
        return jars.archive_options(java, [jar], tmp_path, heap="1m", train=train, notice=notices.append)

    call.notices, call.trained, call.jar, call.folder = notices, trained, jar, tmp_path
    return call


def test_it_is_made_once(prepare):
    options = prepare()
    assert prepare() == options
    assert len(prepare.trained) == len(prepare.notices) == 1
    assert options[0].startswith("-XX:SharedArchiveFile=")
    assert len(list(prepare.folder.glob("*.jsa"))) == 1


def test_another_jar_has_another_archive(prepare):
    options = prepare()
    prepare.jar.write_bytes(b"another jar")
    assert prepare() != options


def test_without_it_kafka_starts_all_the_same_and_that_is_said(prepare):
    def fail(_options):
        raise BrokerError("no free port")

    assert prepare(fail) == []
    assert "slower: no free port" in prepare.notices[-1]
    assert list(prepare.folder.glob("kafka-*")) == []
