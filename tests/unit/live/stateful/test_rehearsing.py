"""A backup rehearses one whole query on a state made anew; nothing comes of it."""

import asyncio
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from spillway.agents.core.request import Delivery
from spillway.agents.live.stateful import build_reign
from spillway.agents.live.stateful.build_reign import Reigns
from spillway.agents.live.stateful.replaying import WarmUp
from spillway.agents.run.emission import Carried
from spillway.agents.run.intake import PoisonError
from spillway.lineage import reasons
from spillway.lineage.errors import BrokerError, WireError
from spillway.lineage.message import Query
from tests.unit.live.stateful.builders import stateful_work
from tests.unit.live.stateful.shard_doubles import InLine


def one_of(query):
    return next(iter(dict(query).values()))


class Counts:
    def __init__(self):
        self.made, self.computed, self.updated = 0, [], []

    def initialize(self):
        self.made += 1
        return {"sum": 0}

    def compute(self, state, batch):
        self.computed += [one_of(query) for query in batch]
        if one_of(batch[0]) == "raises":
            raise SystemExit("no")
        return [{"y": state["sum"]} for _ in batch]

    def update(self, state, batch, _outputs):
        self.updated += [one_of(query) for query in batch]
        return {"sum": 1}


def part(request_id, x, *, predecessor="", lost=()):
    carried = Carried(SimpleNamespace(key=b"k"), None, Query({"x": x}, {}))
    return Delivery(request_id, 0, 0, 1.0, 9.0, predecessor, None, lost=lost, payload=carried)


def delivered(record):
    if record == "poison":
        raise PoisonError(WireError(reasons.BAD_HEADERS, "no"), part("", 0))
    return record


@pytest.fixture
def make():
    def made(parts=1):
        work = stateful_work(joins=parts > 1)
        model = Counts()
        means = SimpleNamespace(intake=SimpleNamespace(delivery=delivered), models=InLine(), work=work)
        return WarmUp("s", model, means, parts=parts), model

    return made


def test_the_first_query_is_computed_and_updated_once_on_a_state_of_its_own(make):
    rehearsal, model = make()
    rehearsal.look([])
    rehearsal.look([part("a", 1), part("b", 2)])
    rehearsal.look([part("c", 3)])
    assert (model.made, model.computed, model.updated) == (1, [1], [1])


def test_what_cannot_be_read_and_what_did_not_come_is_passed_over(make):
    rehearsal, model = make()
    rehearsal.look(["poison", part("a", 1, lost=("p",)), part("b", 2)])
    assert model.computed == [2]


def test_what_a_model_raises_is_nobodys_business(make):
    rehearsal, model = make()
    rehearsal.look([part("a", "raises"), part("b", 2)])
    assert (model.computed, model.updated) == (["raises"], [])


def test_a_member_whose_model_computes_in_earnest_rehearses_nothing(make):
    rehearsal, model = make()
    rehearsal.skip()
    rehearsal.look([part("a", 1)])
    assert model.made == 0


def test_a_join_waits_for_all_parts_of_one_query(make):
    rehearsal, model = make(parts=2)
    rehearsal.look([part("a", 1, predecessor="p"), part("a", 1, predecessor="p"), part("b", 2, predecessor="p")])
    assert not model.computed
    rehearsal.look([part("b", 3, predecessor="q")])
    assert model.updated == [2]


def test_of_what_is_never_whole_only_so_much_is_kept(make):
    rehearsal, model = make(parts=2)
    rehearsal.look([part(f"r{n}", n, predecessor="p") for n in range(1000)])
    rehearsal.look([part("r0", 0, predecessor="q"), part("r999", 0, predecessor="q")])
    assert model.updated == [999]


# The connection of a reign's writer is there before the reign is.


def made(mode: str) -> Reigns:
    spec = SimpleNamespace(required_state=SimpleNamespace(replication=mode))
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

    monkeypatch.setattr(build_reign, "StateWriter", Writer)
    monkeypatch.setattr(build_reign, "TransactingWriter", Writer)
    return given


async def promoted(mode: str) -> None:
    reigns = made(mode)
    await asyncio.get_running_loop().run_in_executor(None, lambda: None)
    await asyncio.get_running_loop().shutdown_default_executor()  # the connection is made, or has failed
    copies = SimpleNamespace(named=frozenset(), present=frozenset())
    reigns._writer(1, "base", copies, "retention", print)


async def test_a_reign_finds_its_connection_made(monkeypatch):
    given = writers(monkeypatch, lambda: "ahead")
    await promoted("nspb")
    assert given[0]["sending"] == "ahead"


async def test_without_one_the_writer_makes_its_own(monkeypatch):
    given = writers(monkeypatch, Mock(side_effect=BrokerError("away")))
    await promoted("nspb")
    assert given[0]["sending"] is None


async def test_a_transactions_connection_is_never_made_ahead(monkeypatch):
    connect = Mock()
    given = writers(monkeypatch, connect)
    await promoted("kafka-eos")
    assert given[0]["sending"] is None
    connect.assert_not_called()
