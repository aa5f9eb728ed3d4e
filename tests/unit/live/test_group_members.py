"""Who is in groups, asked of several coordinators by one client."""

import asyncio
from contextlib import closing
from types import SimpleNamespace

import pytest
from aiokafka.errors import for_code

from spillway.agents.live import group_members
from spillway.agents.live.group_members import GroupMembers
from spillway.lineage.errors import BrokerError
from spillway.producers.connection import ClientSettings

NOT_COORDINATOR, NOT_AUTHORIZED = 16, 30


class Coordinators:
    """Coordinates the group `still` as one that stands still, `moved` at the second asking, and refuses `secret`."""

    made = 0

    def __init__(self, **_settings):
        Coordinators.made += 1
        self.cluster = SimpleNamespace(brokers=lambda: [1])
        self.asked = []

    async def bootstrap(self):
        pass

    async def coordinator_lookup(self, _kind, group):
        self.asked.append(group)
        if group == "still":
            await asyncio.Event().wait()
        if group == "secret":
            raise for_code(NOT_AUTHORIZED)(group)
        return 1

    async def send(self, _node, _request):
        group = self.asked[-1]
        error = NOT_COORDINATOR if group == "moved" and self.asked.count(group) == 1 else 0
        return SimpleNamespace(groups=[(error, group, "", "", "", [("p.a.0-1-2-3-4-5", "", "", b"", b"")])])

    async def close(self):
        pass


@pytest.fixture
def asking(monkeypatch):
    monkeypatch.setattr(group_members, "AIOKafkaClient", Coordinators)
    monkeypatch.setattr(Coordinators, "made", 0)
    with closing(GroupMembers(ClientSettings(bootstrap="b:1"))) as made:
        yield made


def test_one_client_asks_all_and_again(asking):
    for _ in range(3):
        assert sorted(asking.ask(["a", "moved"])) == ["a", "moved"]
    assert Coordinators.made == 1


def test_a_coordinator_that_stands_still_blinds_it_for_its_own_groups_alone(asking, monkeypatch):
    monkeypatch.setattr(group_members, "ANSWER_SECONDS", 0.5)
    assert sorted(asking.ask(["still", "a", "moved"])) == ["a", "moved"]
    with pytest.raises(BrokerError, match="no broker answered"):
        asking.ask(["still"])


def test_what_is_refused_is_said_at_once(asking, monkeypatch):
    monkeypatch.setattr(group_members, "ANSWER_SECONDS", 10_000.0)
    with pytest.raises(BrokerError, match=r"GroupAuthorizationFailedError.*DESCRIBE"):
        asking.ask(["still", "secret"])
