"""A broker that stands still is given up; one that is slow, or that waits on purpose, is not."""

import asyncio
from collections import deque
from contextlib import closing
from types import SimpleNamespace

import pytest
from aiokafka.cluster import ClusterMetadata
from aiokafka.errors import GroupCoordinatorNotAvailableError, RequestTimedOutError, for_code

from agents.live import group_members
from agents.live.consumer import thread as silence
from agents.live.consumer.thread import (
    InstanceAssignor,
    StageConsumerThread,
    hang_up_on_silence,
    keep_known,
    look_up_patiently,
)
from agents.live.group_members import GroupMembers
from lineage.errors import BrokerError
from producers.connection import ClientSettings

SECONDS = 0.01


class FetchRequest:
    pass


class JoinGroupRequest:
    pass


class Connection:
    """Stands for aiokafka's: what it is asked is answered by the test."""

    host, port = "127.0.0.1", 1

    def __init__(self):
        self._requests = deque()
        self._reader = SimpleNamespace(_buffer=b"")
        self.closed = False

    def send(self, request, expect_response=True):
        answer = asyncio.get_running_loop().create_future()
        self._requests.append((len(self._requests), request, answer))
        return answer

    def close(self, reason):
        self.closed = True


def client(connection):
    forced = []

    async def get(_node, **_options):
        return await connection() if callable(connection) else connection

    made = SimpleNamespace(_get_conn=get, force_metadata_update=lambda: forced.append(1), forced=forced)
    hang_up_on_silence(made, SECONDS)
    return made


def test_a_silent_broker_is_hung_up_on():
    async def ask():
        connection = Connection()
        made = await client(connection)._get_conn(1)
        with pytest.raises(RequestTimedOutError, match="FetchRequest"):
            await made.send(FetchRequest())
        return connection

    assert asyncio.run(ask()).closed


def test_one_that_sends_byte_by_byte_is_not(monkeypatch):
    async def ask():
        connection = Connection()
        looks = iter(range(20))

        async def came(waiting, _seconds):
            if next(looks) < 19:
                connection._reader._buffer += b"x"
            else:
                connection._requests[0][2].set_result("all of it")
                await asyncio.wait({waiting})
            return waiting.done()

        monkeypatch.setattr(silence, "_came", came)
        made = await client(connection)._get_conn(1)
        assert await made.send(FetchRequest()) == "all of it"
        return connection

    assert not asyncio.run(ask()).closed


def test_what_a_group_holds_back_until_its_members_have_come_is_waited_for():
    async def ask():
        connection = Connection()
        made = await client(connection)._get_conn(1)
        return made.send(JoinGroupRequest()) is connection._requests[0][2]

    assert asyncio.run(ask())


def test_a_broker_that_takes_connections_and_says_nothing_is_passed_over():
    async def ask():
        made = client(asyncio.Event().wait)
        return await made._get_conn(1), made.forced

    assert asyncio.run(ask()) == (None, [1])


def test_a_connection_is_bounded_once():
    async def ask():
        made = client(Connection())
        return (await made._get_conn(1)).send is (await made._get_conn(1)).send

    assert asyncio.run(ask())


# Metadata that name no broker, or not the topic: aiokafka asks again where it would have gone on without.


class Client:
    """As much of aiokafka's client as is asked."""

    def __init__(self):
        self.cluster = ClusterMetadata()
        self.node = None
        self.asked = 0
        self.known = asyncio.Event()

    def get_random_node(self):
        return self.node

    async def coordinator_lookup(self, kind, key):
        return (self.node, kind, key)

    async def force_metadata_update(self):
        self.asked += 1
        if self.asked == 2:
            self.cluster._partitions["t"] = {0: object()}
            self.known.set()


def test_a_coordinator_is_looked_for_again_while_no_broker_is_known():
    client = Client()
    look_up_patiently(client)
    with pytest.raises(GroupCoordinatorNotAvailableError) as error:
        asyncio.run(client.coordinator_lookup(0, "g"))
    assert error.value.retriable  # which is what aiokafka tries again after
    client.node = 7
    assert asyncio.run(client.coordinator_lookup(0, "g")) == (7, 0, "g")


def test_a_topic_that_is_not_known_is_asked_for_until_it_is():
    async def watch():
        client = Client()
        keeping = asyncio.create_task(keep_known(client, lambda: {"t"}, period=0.0))
        await asyncio.wait_for(client.known.wait(), 30)
        for _ in range(10):  # turns, in each of which it could ask again
            await asyncio.sleep(0)
        keeping.cancel()
        return client.asked

    assert asyncio.run(watch()) == 2


@pytest.mark.parametrize("failure", [AssertionError("no broker"), None])
def test_an_owner_hears_that_its_replica_is_out_of_its_group(failure):
    heard = []
    thread = SimpleNamespace(
        transport=SimpleNamespace(membership=SimpleNamespace(group="g")),
        consumer=SimpleNamespace(crashed=heard.append),
        parent_loop=SimpleNamespace(call_soon_threadsafe=lambda call, *told: call(*told)),
    )

    async def coordinate():
        if failure is not None:
            raise failure

    async def end():
        coordination = asyncio.create_task(coordinate())
        await asyncio.wait([coordination])
        StageConsumerThread._out_of_group(thread, coordination)

    asyncio.run(end())
    assert [type(error) for error in heard] == ([BrokerError] if failure else [])
    assert all("g: cannot be a member" in str(error) for error in heard)


def shares(instances, partitions, topics=("t",)):
    cluster = SimpleNamespace(partitions_for_topic=lambda topic: set(range(partitions)) if topic in topics else None)
    members = {member: InstanceAssignor(instance).metadata(["t"]) for member, instance in instances.items()}
    assigned = InstanceAssignor("any").assign(cluster, members)
    return {member: dict(assignment.assignment).get("t", []) for member, assignment in assigned.items()}


def test_partitions_are_dealt_out_by_instance_whatever_the_member_ids():
    first = shares({"zz": "p.s.0", "aa": "p.s.1"}, 5)
    again = shares({"bb": "p.s.0", "yy": "p.s.1"}, 5)
    assert first == {"zz": [0, 2, 4], "aa": [1, 3]}
    assert again == {"bb": [0, 2, 4], "yy": [1, 3]}


def test_replica_numbers_count_as_numbers():
    members = {f"m{number}": f"p.s.{number}" for number in range(11)}
    assigned = shares(members, 11)
    assert [assigned[f"m{number}"] for number in range(11)] == [[number] for number in range(11)]


def test_more_members_than_partitions_and_unknown_topics():
    assert shares({"a": "p.s.0", "b": "p.s.1"}, 1) == {"a": [0], "b": []}
    assert shares({"a": "p.s.0"}, 3, topics=()) == {"a": []}


# Asking several coordinators who is in their groups.

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
    with pytest.raises(BrokerError, match="nobody says"):
        asking.ask(["still"])


def test_what_is_refused_is_said_at_once(asking, monkeypatch):
    monkeypatch.setattr(group_members, "ANSWER_SECONDS", 10_000.0)
    with pytest.raises(BrokerError, match=r"GroupAuthorizationFailedError.*DESCRIBE"):
        asking.ask(["still", "secret"])
