"""The connection of a reign's writer is there before the reign is."""

import asyncio
from types import SimpleNamespace

from agents.live.stateful import reigning
from agents.live.stateful.reigning import Reigns
from lineage.errors import BrokerError


def made(mode: str) -> Reigns:
    spec = SimpleNamespace(replication=mode)
    config = SimpleNamespace(spec=spec, settings="settings", pipeline=SimpleNamespace(spec=SimpleNamespace(name="p")))
    return Reigns(config, "m", ("learn", 0), None, None, SimpleNamespace(crashed=None))


def writers(monkeypatch, connect) -> list[dict]:
    """Every writer that is made, by what it was given; `connect` stands for connecting to Kafka."""
    given: list[dict] = []

    class Writer:
        def __init__(self, *_arguments, **options):
            given.append(options)

        @staticmethod
        def connect(*_arguments):
            return connect()

    monkeypatch.setattr(reigning, "StateWriter", Writer)
    monkeypatch.setattr(reigning, "TransactingWriter", Writer)
    return given


async def promoted(mode: str) -> None:
    reigns = made(mode)
    await asyncio.get_running_loop().run_in_executor(None, lambda: None)
    await asyncio.get_running_loop().shutdown_default_executor()  # the connection is made, or has failed
    copies = SimpleNamespace(named=frozenset(), present=frozenset())
    reigns._writer(1, "base", copies, "retention")(print)


def test_a_reign_finds_its_connection_made(monkeypatch):
    given = writers(monkeypatch, lambda: "ahead")
    asyncio.run(promoted("nspb"))
    assert given[0]["sending"] == "ahead"


def test_without_one_the_writer_makes_its_own(monkeypatch):
    def refused():
        raise BrokerError("away")

    given = writers(monkeypatch, refused)
    asyncio.run(promoted("nspb"))
    assert given[0]["sending"] is None


def test_a_transactions_connection_is_never_made_ahead(monkeypatch):
    calls = []
    given = writers(monkeypatch, lambda: calls.append("connected"))
    asyncio.run(promoted("kafka-eos"))
    assert (given[0]["sending"], calls) == (None, [])
