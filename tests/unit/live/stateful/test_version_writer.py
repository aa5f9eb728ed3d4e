"""A reign's versions on their way to the log: what the loop tells the writer, and when."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from agents.live.stateful import writing
from agents.live.stateful.writing import VersionWriter
from lineage.marks import Version


class Log:
    """A writer that notes what it is told."""

    def __init__(self):
        self.durables = []

    def durable(self, version, history):
        self.durables.append((version.n, history))

    def close(self):
        pass


async def made(log):
    writer = VersionWriter(
        lambda _completed: log,
        claimant="me",
        history=lambda: SimpleNamespace(links=()),
        completed=lambda _version: None,
        figures=None,
        crashed=pytest.fail,
        logs=False,
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

    monkeypatch.setattr(writing, "_TIDY_SECONDS", 0.0)
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

    monkeypatch.setattr(writing, "_TIDY_SECONDS", 0.0)
    assert asyncio.run(told()) == []
