"""A reign's versions on their way to the log: what the loop tells the writer, and when."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from agents.live.stateful import reigning
from agents.live.stateful.reigning import VersionWriter
from checkpoint.chunks import ChunkLog
from checkpoint.manifests import describe, seal
from checkpoint.reign import Write
from lineage.marks import Version
from lineage.replication import Batch, Record
from lineage.values.replication import encode
from topology.topics import STATE_BYTES


class Log:
    """A writer that notes what it is told."""

    def __init__(self):
        self.durables = []
        self.versions = []

    def write(self, captured, manifest, **pieces):
        self.versions.append((captured, manifest, pieces))

    def durable(self, version, history):
        self.durables.append((version.n, history))

    def close(self):
        pass


async def made(log, *, logs=False):
    writer = VersionWriter(
        lambda _completed: log,
        claimant="me",
        history=lambda: SimpleNamespace(links=()),
        completed=lambda _version: None,
        figures=None,
        crashed=pytest.fail,
        logs=logs,
        release=lambda _copy: None,
    )
    await writer._making
    return writer


def test_tombstones_of_many_versions_go_together(monkeypatch):
    async def told():
        log = Log()
        writer = await made(log)
        for n in (1, 2, 3):
            writer.durable(Version(1, n))
        assert log.durables == []
        for _ in range(5):
            await asyncio.sleep(0)
        writer.durable(Version(1, 3))  # no news
        assert writer._tidying is None
        return [n for n, _ in log.durables]

    monkeypatch.setattr(reigning, "_TIDY_SECONDS", 0.0)
    assert asyncio.run(told()) == [3]


def test_a_reign_that_has_ended_tombstones_nothing(monkeypatch):
    async def told():
        log = Log()
        writer = await made(log)
        writer.durable(Version(1, 1))
        writer.close()
        writer.durable(Version(1, 2))
        for _ in range(5):
            await asyncio.sleep(0)
        return log.durables

    monkeypatch.setattr(reigning, "_TIDY_SECONDS", 0.0)
    assert asyncio.run(told()) == []


@pytest.mark.parametrize("requests", [3, 10_000])
def test_a_version_before_the_first_copy_fits_into_its_topic_however_much_it_logs(requests):
    async def told():
        log = Log()
        writer = await made(log, logs=True)
        taken = tuple(Record(f"query-{number}", 0, number) for number in range(requests))
        writer.write(Write(Version(1, 1), None, 0, (), (Batch(1, taken),), ()), ())
        writer.close()
        return log.versions

    ((captured, manifest, pieces),) = asyncio.run(told())
    version = ChunkLog(1).write(manifest.version, captured)
    assert list(version.records()) == []
    sealed, spilled = seal(manifest, describe(captured, version, **pieces), version)
    assert sealed.requests == requests
    assert len(encode(sealed)) < STATE_BYTES / 2
    assert all(len(value) < STATE_BYTES / 2 for _key, value in spilled)
