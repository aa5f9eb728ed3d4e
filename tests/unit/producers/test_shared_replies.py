"""Clients with shared replies, in random histories: each query is answered once."""

import random
import time
from collections import Counter, defaultdict

import pytest
from confluent_kafka import KafkaError, TopicPartition

from spillway.lineage.errors import UsageError
from spillway.lineage.ids import RequestIds
from spillway.lineage.keys import partition_for
from spillway.producers.client import exchange, shared
from spillway.producers.client.exchange import Exchange
from spillway.producers.client.partitions import IDLE_SECONDS, Partitions
from spillway.producers.client.queries import Prepared
from spillway.producers.cluster import Reader
from spillway.producers.connection import ClientSettings
from tests.modelled_client import Cluster

PARTITIONS = 5
SETTINGS = ClientSettings.load("there:1")


class World:
    """A pipeline: its ingress, its egress, and what its clients' group says."""

    def __init__(self, monkeypatch, seed):
        self.random = random.Random(seed)
        self.now = 1_000.0
        self.ingress = []  # partition, request id
        self.egress = Cluster("p.egress", PARTITIONS)
        self.deaf = False
        self.members = []
        self.outcomes = Counter()
        monkeypatch.setattr("spillway.producers.cluster.Consumer", self.egress.client)
        monkeypatch.setattr(shared, "Consumer", self.member)
        monkeypatch.setattr(exchange, "idempotent_producer", lambda *_: Producer(self))
        monkeypatch.setattr(exchange, "require_listening", lambda *_: None)
        monkeypatch.setattr(exchange, "SchemaLog", lambda *_, **__: Schemas())
        monkeypatch.setattr(Reader, "partitions", lambda *_: PARTITIONS)

    def member(self, _options, logger):
        self.members.append(Member())
        return self.members[-1]

    def rebalance(self):
        """Deal the partitions anew to those who are in the group, who hear of it at different times."""
        there = [each for each in self.members if not each.closed]
        dealt = defaultdict(list)
        self.random.shuffle(there)
        for partition in range(PARTITIONS if there else 0):
            dealt[there[partition % len(there)]].append(partition)
        for each in there:
            each.say(dealt[each])

    def answer(self):
        """Answer one query, as the pipeline does: whichever, in its partition."""
        if self.ingress:
            partition, request_id = self.ingress.pop(self.random.randrange(len(self.ingress)))
            self.egress.append(partition, 1, [("x-request-id", request_id)])


class Schemas:
    def open(self):
        return {}


class Producer:
    def __init__(self, world):
        self._world = world

    def produce(self, _topic, _value, key, partition, headers, on_delivery):
        assert partition == partition_for(key, PARTITIONS)
        self._world.ingress.append((partition, headers[0][1]))

    def poll(self, _seconds):
        return 0

    def flush(self, _seconds):
        return 0

    def __len__(self):
        return 0


class Member:
    """A consumer that is subscribed and reads nothing."""

    def __init__(self):
        self.closed = False
        self._events = []

    def subscribe(self, _topics, on_assign, on_revoke):
        self._on_assign, self._on_revoke = on_assign, on_revoke

    def say(self, share):
        self._events += [lambda: self._on_revoke(self, []), lambda: self._on_assign(self, places(share))]

    def poll(self, _seconds):
        if self._events:
            self._events.pop(0)()

    def assign(self, given):
        assert given == []

    def close(self):
        self.closed = True


def test_what_keeps_a_client_out_of_its_group_is_logged_once(monkeypatch, caplog):
    monkeypatch.setattr(shared, "Consumer", lambda *_, **__: Member())
    member = shared.GroupMember(SETTINGS, "p.replies", "p.egress", list)
    down, refused = (KafkaError(code) for code in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT))
    for _ in range(3):  # as librdkafka tells of a broker that is away, twenty times a second
        member._heed(down)
        member._heed(refused)
    assert len(caplog.records) == 2
    member._on_assign(member._consumer, places([0]))
    member._heed(down)
    assert len(caplog.records) == 3


def places(share):
    return [TopicPartition("p.egress", each) for each in share]


class Client(Exchange):
    """An exchange whose reply thread is the test's."""

    def __init__(self, world):
        self.world = world
        self.ids = RequestIds()
        super().__init__(SETTINGS, "p", replies="shared")
        self._thread.join()

    def _run(self):
        pass

    def decode(self, value):
        return value

    def step(self):
        self.world.now += shared._GROUP_SECONDS
        self._shared.turn(self.world.now, self.produce)
        for message in self._reader.read(0.0, self.world.random.randrange(3)):
            self._take(message, self.world.now)

    def ask(self, key=None):
        request_id = self.ids.new_in(*self.landing()) if key is None else self.ids.new()
        waiter = Waiter(self.world, request_id)
        chosen = request_id if key is None else key
        name = request_id.encode()
        self.send(Prepared(name, [("x-request-id", name)], chosen.encode(), b"", 0.0, 0.0, expires=1e12), waiter)
        return waiter

    def leave(self):
        self._end(UsageError("closed"))


class Waiter:
    stays = False

    def __init__(self, world, request_id):
        self._world, self.request_id = world, request_id
        self.error = None

    @property
    def answers(self):
        return self._world.outcomes[self.request_id]

    def answered(self, _outcome, _at):
        self._world.outcomes[self.request_id] += 1

    def failed(self, error):
        self.error = error


def play(world, steps):
    """Returns every query with the client that asked it."""
    clients, asked = [Client(world)], []

    def join():
        if len(clients) < PARTITIONS + 2:
            clients.append(Client(world))

    def leave():
        if len(clients) > 1:
            clients.pop(world.random.randrange(len(clients))).leave()

    def ask():
        key = world.random.choice([None, None, f"user-{world.random.randrange(9)}"])
        client = world.random.choice(clients)
        asked.append((client, client.ask(key)))

    def wait():
        world.now += world.random.choice([0.1, IDLE_SECONDS])

    def lose_ends():
        world.egress.silent = world.random.random() < 0.5

    acts = [ask] * 12 + [world.answer] * 8 + [world.rebalance, wait, lose_ends, join, leave]
    for _ in range(steps):
        world.random.choice(acts)()
        world.random.choice(clients).step()
    world.egress.silent = False
    for _ in range(40 * (1 + len(asked))):
        if not world.ingress and all(waiter.answers or waiter.error for _, waiter in asked):
            break
        world.answer()
        for client in clients:
            client.step()
    return clients, asked


@pytest.mark.parametrize("seed", range(150))
def test_every_query_is_answered_once_unless_its_client_closes(monkeypatch, seed):
    world = World(monkeypatch, seed)
    clients, asked = play(world, 150)
    assert not [waiter.request_id for client, waiter in asked if client in clients and waiter.answers != 1]
    assert not [waiter.request_id for client, waiter in asked if client not in clients and not waiter.answers
                and waiter.error is None]  # fmt: skip
    assert set(world.outcomes.values()) <= {1}


def test_in_the_end_each_client_reads_its_share_alone(monkeypatch):
    world = World(monkeypatch, 1)
    clients = [Client(world) for _ in range(3)]
    asked = [client.ask(key) for client in clients for key in (None, "user-1", "user-2", None)]
    world.rebalance()
    for _ in range(100):
        world.answer()
        world.now += 1.0
        for client in clients:
            client.step()
    assert [waiter.answers for waiter in asked] == [1] * len(asked)
    read = [{place.partition for place in client._reader.consumer.assignment()} for client in clients]
    assert sorted(each for every in read for each in every) == list(range(PARTITIONS))
    passed = [client.passed_over for client in clients]
    more = [client.ask() for client in clients for _ in range(20)]
    for _ in range(200):
        world.answer()
        for client in clients:
            client.step()
    assert [waiter.answers for waiter in more] == [1] * len(more)
    assert [client.passed_over for client in clients] == passed


def test_queries_of_one_key_keep_their_order_while_they_are_held():
    partitions = Partitions(1)
    assert not partitions.admit("first", 0)
    assert partitions.release(0) == ["first"]
    assert not partitions.admit("second", 0)  # the first is only being sent
    assert partitions.release(0) == ["second"]
    assert partitions.release(0) == []
    assert partitions.admit("third", 0)


def test_a_share_that_is_read_is_preferred_to_one_that_is_not_yet():
    partitions = Partitions(4)
    assert partitions.preferred == range(4)
    partitions.assign({1, 2})
    assert partitions.preferred == {1, 2}
    partitions.release(2)
    assert partitions.preferred == {2}
    partitions.assign(())
    assert partitions.preferred == {2}  # borrowed


def test_a_value_of_replies_that_is_none_is_refused():
    with pytest.raises(UsageError, match="replies is 'mine': it must be 'all' or 'shared'"):
        Exchange(SETTINGS, "p", replies="mine")


def test_a_client_that_reads_all_partitions_wakes_as_one_that_shares_none(monkeypatch):
    world = World(monkeypatch, 1)
    client = Client(world)
    assert client._poll_seconds() == exchange._TURN_SECONDS
    world.rebalance()
    for _ in range(3 * PARTITIONS):
        client.step()
    assert client._poll_seconds() == exchange._POLL_SECONDS
    Client(world)
    world.rebalance()
    for _ in range(3):
        client.step()
    assert client._poll_seconds() == exchange._POLL_SECONDS  # it reads on for a while what it has lost
    world.now += IDLE_SECONDS
    client.step()
    assert client._poll_seconds() == exchange._TURN_SECONDS


def test_the_group_is_looked_at_ten_times_a_second(monkeypatch):
    world, looks = World(monkeypatch, 1), []
    client = Client(world)
    monkeypatch.setattr(client._shared._member, "poll", looks.append)
    for now in (0.0, 0.01, 0.05, 0.1, 0.11, 0.25):
        client._shared.turn(now, client.produce)
    assert looks == [0.0, 0.1, 0.25]


def test_who_is_out_of_the_group_for_long_joins_it_anew_and_keeps_its_share(monkeypatch):
    world = World(monkeypatch, 1)
    client = Client(world)
    world.rebalance()
    for _ in range(3 * PARTITIONS):
        client.step()
    assert client.landing()[0] == set(range(PARTITIONS))
    (old,) = world.members
    old._on_revoke(old, [])
    world.now = max(world.now, time.monotonic()) + shared._OUT_SECONDS + 1
    client.step()
    assert len(world.members) == 2
    assert client.landing()[0] == set(range(PARTITIONS))
